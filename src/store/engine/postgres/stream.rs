//! A look at whole tables, in one read-only transaction on a connection of its own.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_postgres::{Client, Error, Row};

use super::Postgres;
use super::errors::{failed, unreachable};
use super::fetch::FetchBatch;
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
        let client = self.wait_for(|state| async move {
            let client = state.settings.connect().await?.client;
            // The snapshot begins with the first query.
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT";
            let begun = client.batch_execute(begin);
            let begun = tokio::time::timeout(state.timeout, begun).await;
            let begun = begun.map_err(|_| state.settings.silence())?;
            begun.map_err(|error| unreachable(&error))?;
            Ok(client)
        })?;
        look(&OpenTransaction {
            client: client.into(),
            handle: self.handle.clone(),
        })
    }
}

/// A state, as a connection with an open transaction sees it.
pub(super) struct OpenTransaction {
    pub(super) client: Arc<Client>,
    pub(super) handle: Handle,
}

impl OpenTransaction {
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

    /// Begins to read rows. Another call may begin before they are received.
    fn fetch(&self, wanted: Wanted) -> Receiver<Result<Vec<Row>, StoreError>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let client = Arc::clone(&self.client);
        self.handle.spawn(async move {
            let batch = FetchBatch::new(std::iter::once(&wanted));
            let parameters = batch.parameters(i64::MAX);
            let parameters = parameters.typed();
            let rows = client.query_typed(&sql::GET, &parameters);
            let outcome = match tokio::time::timeout(CALL_TIMEOUT, rows).await {
                Ok(rows) => rows.map_err(|error| failed(&error)),
                Err(_) => Err(StoreError::Interrupted),
            };
            drop(sender.send(outcome));
        });
        receiver
    }

    fn fetch_page(&self, table: TableId, range: &KeyRange) -> Receiver<Result<Vec<Row>, StoreError>> {
        let mut wanted = Wanted::default();
        wanted.ranges.insert((table.index(), range.clone()), PAGE_ROWS);
        self.fetch(wanted)
    }
}

/// The stored rows of an answer, without those of the database's state.
fn received(answer: &Receiver<Result<Vec<Row>, StoreError>>) -> Result<Vec<Row>, StoreError> {
    let mut rows = answer.recv().unwrap_or(Err(StoreError::Closed))?;
    rows.retain(|row| row.get::<_, i32>(0) > 0);
    Ok(rows)
}

impl Snapshot for OpenTransaction {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut wanted = Wanted::default();
        wanted.keys.insert((table.index(), key.to_vec()));
        let rows = received(&self.fetch(wanted))?;
        Ok(rows.first().map(|row| row.get(2)))
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let mut range = KeyRange::new(from, to);
        let mut next = (!range.is_empty()).then(|| self.fetch_page(table, &range));
        while let Some(page) = next {
            let rows = received(&page)?;
            // The next page is read while this one is visited.
            next = rows.last().filter(|_| rows.len() == PAGE_ROWS).map(|last| {
                range.from = KeyRange::new(Bound::Excluded(last.get(1)), Bound::Unbounded).from;
                self.fetch_page(table, &range)
            });
            for row in &rows {
                if visit(row.get(1), row.get(2))?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
