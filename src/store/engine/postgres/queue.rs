//! A queue of requests that several connections take in batches.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::store::StoreError;

/// The sending end.
pub(super) struct Queue<T>(Sender<T>);

/// The receiving end, which connections share.
pub(super) struct Batches<T>(Arc<Mutex<Receiver<T>>>);

impl<T> Clone for Batches<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A queue in which at most `len` requests wait.
pub(super) fn queue<T>(len: usize) -> (Queue<T>, Batches<T>) {
    let (sender, receiver) = channel(len.max(1));
    (Queue(sender), Batches(Arc::new(Mutex::new(receiver))))
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

impl<T> Batches<T> {
    /// The next requests, up to `limit`. Waits for one, and takes what else is queued. `None` once the queue is closed.
    pub(super) async fn next(&self, limit: usize) -> Option<Vec<T>> {
        let mut receiver = self.0.lock().await;
        let mut batch = vec![receiver.recv().await?];
        while batch.len() < limit
            && let Ok(request) = receiver.try_recv()
        {
            batch.push(request);
        }
        Some(batch)
    }
}
