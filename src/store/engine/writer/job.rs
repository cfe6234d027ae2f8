//! A queued write: its work, its outcome and the receiver of the outcome.

use crate::store::StoreError;
use crate::store::engine::Tx;

/// A queued write, as the writer thread sees it.
pub trait Job: Send {
    /// The name of the transaction in the log.
    fn name(&self) -> &'static str;

    /// Whether the write frees space. Such a write is tried even while the storage fails.
    fn frees_space(&self) -> bool;

    /// Does the work and remembers its outcome. Called again if the transaction is rerun.
    fn run(&mut self, tx: &mut dyn Tx) -> Result<(), StoreError>;

    /// Sends the remembered outcome, or the error that prevented the commit.
    fn reply(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A write that sends its outcome to `reply`.
pub struct Write<T, F, R> {
    name: &'static str,
    frees_space: bool,
    work: F,
    reply: R,
    outcome: Result<T, StoreError>,
}

impl<T, F, R> Write<T, F, R> {
    /// A write that has not run yet.
    pub fn new(name: &'static str, work: F, reply: R) -> Self {
        Self {
            name,
            frees_space: false,
            work,
            reply,
            outcome: Err(StoreError::Closed),
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
}

impl<T, F, R> Job for Write<T, F, R>
where
    T: Send,
    F: Fn(&mut dyn Tx) -> Result<T, StoreError> + Send,
    R: FnOnce(Result<T, StoreError>) + Send,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn frees_space(&self) -> bool {
        self.frees_space
    }

    fn run(&mut self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        self.outcome = (self.work)(tx);
        self.outcome.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    fn reply(self: Box<Self>, committed: Result<(), StoreError>) {
        let this = *self;
        (this.reply)(committed.and(this.outcome));
    }
}
