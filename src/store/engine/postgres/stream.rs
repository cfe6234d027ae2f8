//! A look at whole tables, in one read-only transaction on a connection of its own.

use std::ops::Bound;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_postgres::{Client, Error};

use super::Postgres;
use super::errors::{failed, unreachable};
use super::fetch::{Call, Fetched};
use super::rows::{KeyRange, Wanted};
use super::sql;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, TableId, Visit};

/// The rows that one call returns.
const PAGE_ROWS: usize = 1000;
/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);

impl Postgres {
    /// Shows `look` one state, however long it takes. Rows are read in pages. Blocks.
    pub(in crate::store) fn stream<T>(
        &self,
        look: impl FnOnce(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let client = self.wait_for(|shared| async move {
            let client = shared.target.connect().await?;
            // The snapshot begins with the first query.
            let begin = client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT");
            begin.await.map_err(|error| unreachable(&error))?;
            Ok(client)
        })?;
        look(&Streamed {
            client: client.into(),
            handle: self.handle.clone(),
        })
    }
}

/// A state, as a connection with an open transaction sees it.
pub(super) struct Streamed {
    pub(super) client: Arc<Client>,
    pub(super) handle: Handle,
}

impl Streamed {
    /// Runs statements on the store's thread and waits for them.
    pub(super) fn run<T, F>(&self, statements: impl FnOnce(Arc<Client>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::sync_channel(1);
        let statements = statements(Arc::clone(&self.client));
        self.handle.spawn(async move {
            let outcome = statements.await.map_err(|error| failed(&error));
            drop(sender.send(outcome));
        });
        receiver.recv().unwrap_or(Err(StoreError::Closed))
    }

    fn fetch(&self, wanted: Wanted) -> Result<Fetched, StoreError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let client = Arc::clone(&self.client);
        self.handle.spawn(async move {
            let call = Call::new(std::iter::once(&wanted));
            let parameters = call.parameters();
            let parameters = parameters.typed();
            let rows = client.query_typed(sql::GET, &parameters);
            let answer = match tokio::time::timeout(CALL_TIMEOUT, rows).await {
                Ok(Ok(rows)) => call.split(&rows, 1).and_then(|mut answers| answers.pop()),
                Ok(Err(error)) => return drop(sender.send(Err(unreachable(&error)))),
                Err(_) => None,
            };
            drop(sender.send(answer.ok_or(StoreError::Interrupted)));
        });
        receiver.recv().unwrap_or(Err(StoreError::Closed))
    }
}

impl Snapshot for Streamed {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut wanted = Wanted::default();
        wanted.keys.insert((table.index(), key.to_vec()));
        let fetched = self.fetch(wanted)?;
        let found = fetched.known.get(table, key).cloned().flatten();
        Ok(found.map(|row| row.value))
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let mut range = KeyRange::new(from, to);
        while !range.is_empty() {
            let mut wanted = Wanted::default();
            let place = (table.index(), range.clone());
            wanted.ranges.insert(place.clone(), PAGE_ROWS);
            let mut fetched = self.fetch(wanted)?;
            let Some(page) = fetched.known.ranges.remove(&place) else {
                return Err(StoreError::Interrupted);
            };
            for (key, row) in &page.rows {
                if visit(key, &row.value)?.is_break() {
                    return Ok(());
                }
            }
            match page.rows.last() {
                Some((last, _)) if !page.is_whole() => {
                    let rest = KeyRange::new(Bound::Excluded(last), Bound::Unbounded);
                    range.from = rest.from;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}
