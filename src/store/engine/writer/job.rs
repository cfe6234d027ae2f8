//! A queued write: its work, its outcome and the receiver of the outcome.

use crate::store::engine::Tx;
use crate::store::{StoreError, TransactionError};

/// A queued write, as the writer thread sees it.
pub trait Job: Send {
    /// The name of the transaction in the log.
    fn name(&self) -> &'static str;

    /// Whether the write frees space. Such a write is tried even while the storage fails.
    fn frees_space(&self) -> bool;

    /// Whether a server commits it even if it writes nothing, so that its time does not tell whether it does.
    fn always_commits(&self) -> bool;

    /// Does the work and remembers its outcome. Called again if the transaction is rerun.
    fn run(&mut self, tx: &mut dyn Tx) -> Result<(), StoreError>;

    /// Sends the remembered outcome, or the error that prevented the commit.
    fn reply(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A write that sends its outcome to `reply`.
pub struct Write<T, E, F, R> {
    name: &'static str,
    frees_space: bool,
    always_commits: bool,
    work: F,
    reply: R,
    outcome: Result<T, E>,
}

impl<T, E: TransactionError, F, R> Write<T, E, F, R> {
    /// A write that has not run yet.
    pub fn new(name: &'static str, work: F, reply: R) -> Self {
        Self {
            name,
            frees_space: false,
            always_commits: false,
            work,
            reply,
            outcome: Err(StoreError::Closed.into()),
        }
    }

    /// Marks the write as one that frees space.
    #[must_use]
    pub fn freeing_space(self) -> Self {
        Self {
            frees_space: true,
            ..self
        }
    }

    /// Marks the write as one that is committed even if it writes nothing.
    #[must_use]
    pub fn always_committing(self) -> Self {
        Self {
            always_commits: true,
            ..self
        }
    }
}

impl<T, E, F, R> Job for Write<T, E, F, R>
where
    T: Send,
    E: TransactionError + Send,
    F: Fn(&mut dyn Tx) -> Result<T, E> + Send,
    R: FnOnce(Result<T, E>) + Send,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn frees_space(&self) -> bool {
        self.frees_space
    }

    fn always_commits(&self) -> bool {
        self.always_commits
    }

    fn run(&mut self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        self.outcome = (self.work)(tx);
        let failure = self.outcome.as_ref().err().and_then(E::failure);
        failure.map_or(Ok(()), |failure| Err(failure.clone()))
    }

    fn reply(self: Box<Self>, committed: Result<(), StoreError>) {
        let this = *self;
        (this.reply)(committed.map_err(E::from).and(this.outcome));
    }
}
