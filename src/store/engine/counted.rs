//! An engine in memory that counts full scans of tables. A test thereby sees the cost of a command in a small store.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use super::redb::Redb;
use super::{Backend, CommitDecision, Snapshot, TableId, Tx, Visit};
use crate::store::schema::Schema;
use crate::store::{Options, Store, StoreError};

/// The number of full scans by transactions, by the table's name.
pub(crate) type Passes = Arc<Mutex<BTreeMap<&'static str, usize>>>;

/// An empty store, and its counters.
pub(crate) struct CountedStore {
    pub(crate) store: Store,
    pub(crate) passes: Passes,
}

pub(crate) fn store() -> CountedStore {
    let options = Options::default();
    let passes = Passes::default();
    let engine = Counted {
        engine: Redb::in_memory(options.cache_bytes).unwrap(),
        passes: Arc::clone(&passes),
    };
    let store = Store::on(Arc::new(engine), options, &Schema::CURRENT).unwrap();
    CountedStore { store, passes }
}

struct Counted {
    engine: Redb,
    passes: Passes,
}

impl Backend for Counted {
    fn read(&self, look: &mut dyn FnMut(&dyn Snapshot) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.engine.read(look)
    }

    fn transact(&self, work: &mut dyn FnMut(&mut dyn Tx) -> CommitDecision) -> Result<(), StoreError> {
        self.engine.transact(&mut |tx| {
            work(&mut Counting {
                tx,
                passes: &self.passes,
            })
        })
    }

    fn checkpoint(&self) -> Result<(), StoreError> {
        self.engine.checkpoint()
    }

    fn recover(&self) -> Result<(), StoreError> {
        self.engine.recover()
    }

    fn compact(&self) -> Result<bool, StoreError> {
        self.engine.compact()
    }

    fn close(&self) {
        self.engine.close();
    }
}

struct Counting<'a> {
    tx: &'a mut dyn Tx,
    passes: &'a Passes,
}

impl Snapshot for Counting<'_> {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.tx.get(table, key)
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        if (from, to) == (Bound::Unbounded, Bound::Unbounded) {
            *self.passes.lock().unwrap().entry(table.name()).or_default() += 1;
        }
        self.tx.range(table, from, to, visit)
    }
}

impl Tx for Counting<'_> {
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.tx.put(table, key, value)
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError> {
        self.tx.remove(table, key)
    }
}
