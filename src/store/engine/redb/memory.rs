//! The storage of a database in memory.

use std::io;
use std::sync::Arc;

use ::redb::StorageBackend;
use ::redb::backends::InMemoryBackend;

/// Memory that outlives the database in it, so that the database can be reopened.
#[derive(Debug)]
pub(super) struct Memory(pub(super) Arc<InMemoryBackend>);

impl StorageBackend for Memory {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        StorageBackend::read(&*self.0, offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        StorageBackend::write(&*self.0, offset, data)
    }
}
