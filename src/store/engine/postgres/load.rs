//! Fills an empty database in one transaction. Nothing of it is seen or kept before the commit.

use std::ops::Bound;
use std::pin::pin;
use std::sync::{Arc, mpsc};

use tokio::time::timeout;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error};

use super::commit::CATALOG_LOCK;
use super::errors::failed;
use super::setup::{SETUP_TIMEOUT, create_missing};
use super::stream::OpenTransaction;
use super::{Postgres, sql};
use crate::store::engine::{Snapshot, TableId, Tx, Visit};
use crate::store::schema::{META, SCHEMA};
use crate::store::{Address, OpenError, Options, StoreError};

/// The approximate memory of the rows that one `COPY` sends. Another batch is collected at the same time.
const BATCH_BYTES: usize = 2 << 20;

type Row = (Vec<u8>, Vec<u8>);

/// An open transaction that fills an empty database. Dropping it rolls back.
pub struct DatabaseLoad {
    transaction: OpenTransaction,
    /// The stamp of all rows.
    stamp: i64,
    /// The table of the rows in `batch`.
    table: TableId,
    batch: Vec<Row>,
    batch_bytes: usize,
    /// Gets the outcome of the `COPY` that runs.
    copied: Option<mpsc::Receiver<Result<(), StoreError>>>,
    /// The connection lives as long as the store's thread.
    _store: Postgres,
}

impl DatabaseLoad {
    /// Connects, and creates the tables. Until the end of the load, commits of nodes wait. Blocks.
    pub(in crate::store) fn begin(address: &Address) -> Result<Self, OpenError> {
        let store = Postgres::connect(address, Options::default())?;
        let (client, stamp) = store.wait_for(|state| async move {
            let client = state.settings.connect().await?.client;
            let begun = timeout(SETUP_TIMEOUT, begin(&client)).await;
            let begun = begun.map_err(|_| state.settings.silence())?;
            Ok((client, begun.map_err(|error| failed(&error))?))
        })?;
        Ok(Self {
            transaction: OpenTransaction {
                client: Arc::new(client),
                handle: store.handle.clone(),
            },
            stamp: stamp.ok_or_else(|| OpenError::NotEmpty(address.to_string()))?,
            table: META.id(),
            batch: Vec::new(),
            batch_bytes: 0,
            copied: None,
            _store: store,
        })
    }

    /// Checks that the database is empty. Creates nothing. Blocks.
    pub fn check(address: &Address) -> Result<(), OpenError> {
        Self::begin(address).map(drop)
    }

    /// Adds a row, which the database must not have. Blocks.
    pub(in crate::store) fn add(
        &mut self,
        table: TableId,
        key: Vec<u8>,
        value: Vec<u8>,
    ) -> Result<(), StoreError> {
        if table != self.table || self.batch_bytes >= BATCH_BYTES {
            self.copy()?;
            self.table = table;
        }
        self.batch_bytes += size_of::<Row>() + key.len() + value.len();
        self.batch.push((key, value));
        Ok(())
    }

    /// Sends the last rows, and waits for all. Blocks.
    pub(in crate::store) fn finish_rows(&mut self) -> Result<(), StoreError> {
        self.copy()?;
        self.wait_for_copy()
    }

    /// Begins to send the batch, once the one before it is there.
    fn copy(&mut self) -> Result<(), StoreError> {
        self.wait_for_copy()?;
        let (table, stamp, rows) = (self.table, self.stamp, std::mem::take(&mut self.batch));
        self.batch_bytes = 0;
        if !rows.is_empty() {
            let (sender, receiver) = mpsc::sync_channel(1);
            let client = Arc::clone(&self.transaction.client);
            self.transaction.handle.spawn(async move {
                let copied = copy(&client, table, stamp, &rows).await;
                drop(sender.send(copied.map_err(|error| failed(&error))));
            });
            self.copied = Some(receiver);
        }
        Ok(())
    }

    fn wait_for_copy(&mut self) -> Result<(), StoreError> {
        let Some(copied) = self.copied.take() else {
            return Ok(());
        };
        copied.recv().unwrap_or(Err(StoreError::Closed))
    }

    /// Keeps everything. Nodes that run read the catalog again. Blocks.
    pub fn commit(self) -> Result<(), StoreError> {
        self.transaction.run(|client| async move {
            client
                .batch_execute(&format!("{}; COMMIT", *sql::REPLACE_CATALOG))
                .await
        })
    }
}

/// Begins the transaction and returns its stamp; `None` if the database has rows.
async fn begin(client: &Client) -> Result<Option<i64>, Error> {
    client.batch_execute("BEGIN").await?;
    create_missing(client).await?;
    let lock: &(dyn ToSql + Sync) = &CATALOG_LOCK;
    client
        .query_typed("SELECT pg_advisory_xact_lock($1)", &[(lock, Type::INT8)])
        .await?;
    let schema: &(dyn ToSql + Sync) = &SCHEMA.as_bytes();
    let found = client
        .query_typed_one(&sql::is_empty(), &[(schema, Type::BYTEA)])
        .await?;
    if !found.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    client.batch_execute("DELETE FROM idsvc.meta").await?;
    let stamp = client
        .query_typed_one("SELECT nextval('idsvc.stamps')", &[])
        .await?;
    stamp.try_get(0).map(Some)
}

async fn copy(client: &Client, table: TableId, stamp: i64, rows: &[Row]) -> Result<(), Error> {
    let sql = format!("COPY idsvc.{} (k, v, s) FROM STDIN (FORMAT binary)", table.name());
    let sink = client.copy_in(sql.as_str()).await?;
    let mut writer = pin!(BinaryCopyInWriter::new(
        sink,
        &[Type::BYTEA, Type::BYTEA, Type::INT8]
    ));
    for (key, value) in rows {
        writer.as_mut().write(&[key, value, &stamp]).await?;
    }
    writer.finish().await.map(drop)
}

/// The state with the rows that were added. [`DatabaseLoad::finish_rows`] comes first.
impl Snapshot for DatabaseLoad {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.transaction.get(table, key)
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.transaction.range(table, from, to, visit)
    }
}

impl Tx for DatabaseLoad {
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO idsvc.{} (k, v, s) VALUES ($1, $2, $3) ON CONFLICT (k) DO UPDATE SET v = excluded.v, s = excluded.s",
            table.name()
        );
        let (key, value, stamp) = (key.to_vec(), value.to_vec(), self.stamp);
        self.transaction.run(|client| async move {
            let parameters: [(&(dyn ToSql + Sync), Type); 3] =
                [(&key, Type::BYTEA), (&value, Type::BYTEA), (&stamp, Type::INT8)];
            client.execute_typed(&sql, &parameters).await.map(drop)
        })
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError> {
        let sql = format!("DELETE FROM idsvc.{} WHERE k = $1", table.name());
        let key = key.to_vec();
        self.transaction.run(|client| async move {
            let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&key, Type::BYTEA)];
            client
                .execute_typed(&sql, &parameters)
                .await
                .map(|removed| removed != 0)
        })
    }
}
