//! A queue of requests that a connection takes in batches.

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::store::StoreError;

/// The sending end.
pub(super) struct Queue<T>(Sender<T>);

/// A queue in which at most `len` requests wait.
pub(super) fn queue<T>(len: usize) -> (Queue<T>, Receiver<T>) {
    let (sender, receiver) = channel(len.max(1));
    (Queue(sender), receiver)
}

impl<T> Queue<T> {
    /// Queues a request. Fails with [`StoreError::Busy`] if the queue is full.
    pub(super) fn put(&self, request: T) -> Result<(), StoreError> {
        self.0.try_send(request).map_err(|refused| match refused {
            TrySendError::Full(_) => StoreError::Busy,
            TrySendError::Closed(_) => StoreError::Closed,
        })
    }

    /// The number of requests that wait.
    pub(super) fn depth(&self) -> usize {
        self.0.max_capacity() - self.0.capacity()
    }
}
