//! What an operation of administration is, and how it is called.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Admin, AdminResult};
use crate::observe::audit;
use crate::observe::audit::Event;

/// What an operation does to what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Read,
    /// It adds or changes something.
    Write,
    /// It ends or removes something that cannot be brought back.
    Destructive,
}

/// An operation: its value is the input.
pub trait Operation: Serialize + DeserializeOwned + Send + 'static {
    /// The name in the audit event: the command, as in `user lock`.
    const NAME: &'static str;
    /// What it does to what is stored.
    const EFFECT: Effect;
    /// Whether it may create the data directory, before the first start of the service. For any other operation a
    /// directory without data is a mistake in its name.
    const MAY_CREATE_DATA_DIR: bool = false;
    /// What it answers.
    type Output: Serialize + DeserializeOwned + Send;

    /// Carries it out. Callers use [`Admin::call`].
    fn run(self, admin: Admin<'_>) -> impl Future<Output = AdminResult<Done<Self::Output>>> + Send;

    /// Whether this input changes nothing, as in a dry run.
    fn changes_nothing(&self) -> bool {
        Self::EFFECT == Effect::Read
    }
}

#[derive(Debug)]
pub struct Done<T> {
    /// What the operation answers.
    pub output: T,
    /// What the audit event is about. `None` if nothing changed, or if the operation records events of its own.
    pub subject: Option<String>,
}

impl<T> Done<T> {
    /// Recorded as a change of this subject.
    pub(super) fn about(subject: impl Into<String>, output: T) -> Self {
        Self {
            output,
            subject: Some(subject.into()),
        }
    }

    /// Not recorded in the audit log.
    pub(super) fn unrecorded(output: T) -> Self {
        Self {
            output,
            subject: None,
        }
    }

    /// The same with another output.
    pub(super) fn with<U>(self, output: U) -> Done<U> {
        Done {
            output,
            subject: self.subject,
        }
    }
}

impl Admin<'_> {
    /// Carries out an operation, and records in the audit log what changed.
    pub async fn call<O: Operation>(self, operation: O) -> AdminResult<O::Output> {
        let done = operation.run(self).await?;
        if O::EFFECT != Effect::Read {
            // The change may have ended sessions.
            self.core.logout_queued.notify_one();
        }
        Ok(self.record(O::NAME, done))
    }

    /// Records what was done. Returns the output.
    pub(super) fn record<T>(self, command: &str, done: Done<T>) -> T {
        if let Some(subject) = &done.subject {
            let actor = &self.actor.to_string();
            audit::record(&Event::Administered {
                command,
                subject,
                actor,
            });
        }
        done.output
    }
}
