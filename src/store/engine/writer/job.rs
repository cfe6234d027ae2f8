//! One write: the work, its outcome, and where that goes.

use crate::store::StoreError;
use crate::store::engine::Tx;

/// One queued write: the work, what came of it, and whom to tell.
pub trait Job: Send {
    /// What the transaction is called in the log.
    fn name(&self) -> &'static str;

    /// Whether it makes room, so that it is to be tried where nothing else is.
    fn makes_room(&self) -> bool;

    /// Does the work and remembers its outcome. Called again when the transaction had to be begun anew.
    fn run(&mut self, tx: &mut dyn Tx) -> Result<(), StoreError>;

    /// Hands out the remembered outcome, or the error that kept it from being committed.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A write whose outcome goes to `reply`.
pub struct Write<T, F, R> {
    name: &'static str,
    makes_room: bool,
    work: F,
    reply: R,
    outcome: Result<T, StoreError>,
}

impl<T, F, R> Write<T, F, R> {
    /// A write that has not been run.
    pub fn new(name: &'static str, work: F, reply: R) -> Self {
        Self {
            name,
            makes_room: false,
            work,
            reply,
            outcome: Err(StoreError::Closed),
        }
    }

    /// The same as one that makes room.
    #[must_use]
    pub fn to_make_room(self) -> Self {
        Self {
            makes_room: true,
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

    fn makes_room(&self) -> bool {
        self.makes_room
    }

    fn run(&mut self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        self.outcome = (self.work)(tx);
        self.outcome.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let this = *self;
        (this.reply)(committed.and(this.outcome));
    }
}
