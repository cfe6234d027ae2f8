//! The one thread that writes.
//!
//! It takes everything that is queued, runs it in one transaction, commits once and then sends all replies. The next
//! batch gathers while a commit waits for the disk, so the load decides how many writes share a sync. The writer does
//! not wait for a batch to fill. It only yields its processor as long as each yield brings further writes.

mod job;
mod meters;
mod thread;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use self::thread::WriterThread;
use super::Backend;
use crate::store::failure_log::FailureLog;
use crate::store::{Options, StoreError};

pub use self::job::{Job, Write};
pub use self::meters::Meters;
#[cfg(test)]
pub(super) use self::thread::PROOF;

/// The storage counts as hanging if one transaction takes longer. A frozen file system, or an unreachable one on the
/// network, returns no error.
pub(in crate::store) const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Receives the outcome.
pub(in crate::store) type Reply<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// A message to the writer.
pub enum Message {
    /// Runs a write in the next transaction.
    Write(Box<dyn Job>),
    /// Compacts the storage between two transactions. The reply says whether anything moved.
    Compact(Reply<bool>),
}

/// The handle of the writer thread, with the sending end of its queue.
pub struct Writer {
    queue: RwLock<Option<SyncSender<Message>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    meters: Arc<Meters>,
}

impl Writer {
    /// Starts the thread, which closes `backend` when it ends.
    pub fn start(backend: Arc<dyn Backend>, options: Options) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(options.queue_len.max(1));
        let meters = Arc::new(Meters::new(options.stall_timeout));
        let thread = WriterThread {
            backend,
            queue: receiver,
            meters: Arc::clone(&meters),
            options,
            failure: None,
            failure_log: FailureLog::default(),
            // A killed process may have left rows in the journal only.
            is_checkpointed: false,
        };
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || thread.run())?;
        Ok(Self {
            queue: RwLock::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
            meters,
        })
    }

    /// Queues a message. Fails with [`StoreError::Busy`] if the queue is full, with [`StoreError::Stalled`] if the storage
    /// hangs, and with [`StoreError::Closed`] after [`Writer::close`].
    pub fn submit(&self, message: Message) -> Result<(), StoreError> {
        let queue = self.queue.read().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = queue.as_ref() else {
            return Err(StoreError::Closed);
        };
        if let Some(stalled) = self.meters.stalled() {
            return Err(stalled.into());
        }
        self.meters.queued.fetch_add(1, Ordering::Relaxed);
        sender.try_send(message).map_err(|refused| {
            self.meters.queued.fetch_sub(1, Ordering::Relaxed);
            match refused {
                TrySendError::Full(_) => StoreError::Busy,
                TrySendError::Disconnected(_) => StoreError::Closed,
            }
        })
    }

    /// The writer's counters.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Refuses further messages, waits until the queued ones are done, and ends the thread.
    pub fn close(&self) {
        drop(self.queue.write().unwrap_or_else(PoisonError::into_inner).take());
        let handle = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A write may own the last handle of the store. The writer thread then drops it, and cannot wait for itself.
        if let Some(handle) = handle.filter(|handle| handle.thread().id() != std::thread::current().id())
            && handle.join().is_err()
        {
            tracing::error!("the store's writer thread ended in a panic");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}
