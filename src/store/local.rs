//! A store on a backend of this process: a writer thread, and reads that need no other thread.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::StoreError;
use super::engine::writer::{Message, Reply, Writer};
use super::engine::{Backend, Snapshot};

/// How often a reader tries again while the storage cannot be read.
const READ_RETRY: Duration = Duration::from_millis(1);
/// How often a compaction tries again while the database is being read.
const COMPACTION_RETRY: Duration = Duration::from_millis(100);
/// How long a compaction waits for reads.
const LONGEST_WAIT_FOR_READS: Duration = Duration::from_mins(1);

#[derive(Clone)]
pub(super) struct Local {
    pub(super) writer: Arc<Writer>,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) pre_upgrade_copy: Option<Arc<Path>>,
}

impl Local {
    pub(super) async fn read<T, E: From<StoreError>>(
        &self,
        look: &impl Fn(&dyn Snapshot) -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            if let Some(result) = self.try_read(look)? {
                return result;
            }
            tokio::time::sleep(READ_RETRY).await;
        }
    }

    pub(super) fn stream<T>(
        &self,
        look: impl FnOnce(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut look = Some(look);
        let mut result = Err(StoreError::Closed);
        loop {
            let shown = self.backend.read(&mut |snapshot| {
                if let Some(look) = look.take() {
                    result = look(snapshot);
                }
                Ok(())
            });
            match shown {
                Ok(()) => return result,
                Err(StoreError::Busy) => self.check_stall()?,
                Err(error) => return Err(error),
            }
            thread::sleep(READ_RETRY);
        }
    }

    /// The result of `look`; `None` if the storage cannot be read at this moment.
    fn try_read<T, E>(
        &self,
        look: &impl Fn(&dyn Snapshot) -> Result<T, E>,
    ) -> Result<Option<Result<T, E>>, StoreError> {
        let mut result = None;
        let shown = self.backend.read(&mut |snapshot| {
            result = Some(look(snapshot));
            Ok(())
        });
        match shown {
            Ok(()) => Ok(result),
            Err(StoreError::Busy) => self.check_stall().map(|()| None),
            Err(error) => Err(error),
        }
    }

    fn check_stall(&self) -> Result<(), StoreError> {
        let stalled = self.writer.meters().stalled();
        stalled.map_or(Ok(()), |stalled| Err(stalled.into()))
    }

    pub(super) async fn compact(&self) -> Result<bool, StoreError> {
        let begun = Instant::now();
        loop {
            let (sender, receiver) = oneshot::channel();
            let reply: Reply<bool> = Box::new(move |outcome| drop(sender.send(outcome)));
            self.writer.submit(Message::Compact(reply))?;
            match receiver.await.unwrap_or(Err(StoreError::Closed)) {
                Err(StoreError::BeingRead) if begun.elapsed() < LONGEST_WAIT_FOR_READS => {
                    tokio::time::sleep(COMPACTION_RETRY).await;
                }
                outcome => return outcome,
            }
        }
    }
}
