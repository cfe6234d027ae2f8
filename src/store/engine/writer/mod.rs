//! The one thread that writes.
//!
//! It takes everything that is queued, runs it in one transaction, commits once and then answers all. While
//! one commit waits for the disk the next batch gathers, so the load itself decides how many writes share
//! a sync; nothing ever waits for a batch to fill. The writer only lets those go first who share its processor,
//! for as long as that brings more.

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
use crate::store::StoreError;

pub use self::job::{Job, Write};
pub use self::meters::Meters;
#[cfg(test)]
pub(super) use self::thread::PROOF;

/// How long the storage may take over one transaction before it counts as one that hangs: a frozen file system, or
/// a network's that does not answer, returns no error.
pub(in crate::store) const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the outcome goes.
type Reply<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// What the writer is sent.
pub enum Message {
    /// A write, to be run in the next transaction.
    Write(Box<dyn Job>),
    /// To be done between two transactions.
    Maintenance(MaintenanceTask),
}

/// What is done to the storage as a whole.
pub enum MaintenanceTask {
    /// Compact it. The reply says whether anything moved.
    Compact(Reply<bool>),
    /// The reply says how many bytes of it hold nothing.
    Measure(Reply<u64>),
}

/// How the writer works.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How many writes may wait.
    pub queue_len: usize,
    /// How many writes may share one commit.
    pub batch_max: usize,
    /// How long to leave a failed storage alone before it is tried again.
    pub retry_pause: Duration,
    /// How long a transaction may take before the storage counts as one that hangs.
    pub patience: Duration,
}

/// The writer thread's handle: the entrance of its queue.
pub struct Writer {
    queue: RwLock<Option<SyncSender<Message>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    meters: Arc<Meters>,
}

impl Writer {
    /// Starts the thread. It closes `backend` when it ends.
    pub fn start(backend: Arc<dyn Backend>, pace: Pace) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(pace.queue_len.max(1));
        let meters = Arc::new(Meters::new(pace.patience));
        let thread = WriterThread {
            backend,
            queue: receiver,
            meters: Arc::clone(&meters),
            pace,
            failed: None,
            // A process that was killed may have left something to settle.
            is_settled: false,
        };
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || thread.work())?;
        Ok(Self {
            queue: RwLock::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
            meters,
        })
    }

    /// Queues a message. [`StoreError::Busy`] when the queue is full, [`StoreError::Stalled`] when the storage hangs,
    /// [`StoreError::Closed`] after [`Writer::close`].
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

    /// What the writer counts.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Takes no more messages, waits until those in the queue are done, and ends the thread.
    pub fn close(&self) {
        drop(self.queue.write().unwrap_or_else(PoisonError::into_inner).take());
        let handle = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A write may own the last handle of the store; the thread that drops it cannot wait for itself.
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
