//! The working memory of password hashes: its limit, its reuse, and a log of when it cannot be had.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use argon2::{Argon2, Block};

use super::{MAX_MEMORY_KIB, PasswordParams};

/// The working memory of a computation. It is reused, because mapping and clearing it again would take as long as the
/// hash.
pub struct Memory {
    blocks: Vec<Block>,
    /// The most memory of one hash, in KiB.
    limit_kib: u32,
    shortages: Arc<Shortages>,
}

/// There is not enough memory for a password hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough memory to hash a password")]
pub struct OutOfMemory;

impl Memory {
    /// Memory for hashes of at most `limit_kib` KiB each.
    pub(super) fn new(limit_kib: u32, shortages: Arc<Shortages>) -> Self {
        Self {
            blocks: Vec::new(),
            limit_kib,
            shortages,
        }
    }

    /// Frees memory beyond the need of `params`.
    pub fn shrink_to(&mut self, params: PasswordParams) {
        let blocks = usize::try_from(params.memory_kib).unwrap_or(usize::MAX);
        if self.blocks.len() > blocks {
            self.blocks.truncate(blocks);
            self.blocks.shrink_to_fit();
        }
    }

    /// Frees all of it.
    pub(super) fn free(&mut self) {
        self.blocks = Vec::new();
    }

    /// Fails if a computation cannot have so many bytes. They are only tried and freed again: scrypt allocates by itself, and
    /// aborts the process if that fails.
    pub(super) fn check_room(&self, bytes: usize) -> Result<(), OutOfMemory> {
        let room = self.check_limit(bytes.div_ceil(1024));
        room.and_then(|()| Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| OutOfMemory))
            .inspect_err(|_| self.shortages.note(bytes.div_ceil(1024), self.limit_kib))
    }

    fn check_limit(&self, kib: usize) -> Result<(), OutOfMemory> {
        let is_within = u32::try_from(kib).is_ok_and(|kib| kib <= self.limit_kib);
        is_within.then_some(()).ok_or(OutOfMemory)
    }

    /// Grows to so many blocks of a KiB.
    fn grow(&mut self, count: usize) -> Result<(), OutOfMemory> {
        self.check_limit(count)?;
        if let Some(missing) = count.checked_sub(self.blocks.len()) {
            let reserved = self.blocks.try_reserve_exact(missing);
            reserved.map_err(|_| OutOfMemory)?;
            self.blocks.resize(count, Block::new());
        }
        Ok(())
    }

    pub(super) fn compute(
        &mut self,
        argon2: &Argon2<'_>,
        password: &[u8],
        salt: &[u8],
        output: &mut [u8],
    ) -> Result<(), OutOfMemory> {
        let count = argon2.params().block_count();
        self.grow(count)
            .inspect_err(|_| self.shortages.note(count, self.limit_kib))?;
        let blocks = self.blocks.get_mut(..count).ok_or(OutOfMemory)?;
        argon2
            .hash_password_into_with_memory(password, salt, output, blocks)
            .map_err(|_| OutOfMemory)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(MAX_MEMORY_KIB, Arc::default())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} KiB)", self.blocks.capacity())
    }
}

/// Counts the hashes for which there was no memory, and logs them.
#[derive(Debug, Default)]
pub(super) struct Shortages {
    count: AtomicU64,
    /// When the last line was logged, and the count in it.
    logged: Mutex<Option<(Instant, u64)>>,
}

impl Shortages {
    const LOG_INTERVAL: Duration = Duration::from_mins(1);

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts one, and logs at most one line a minute.
    fn note(&self, kib: usize, limit_kib: u32) {
        let count = self.count.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match *logged {
            Some((at, _)) if at.elapsed() < Self::LOG_INTERVAL => return,
            Some((_, before)) => before,
            None => 0,
        };
        *logged = Some((Instant::now(), count));
        tracing::error!(
            kib,
            limit_kib,
            hashes = count.saturating_sub(before),
            "there is no memory for a password hash: raise limits.memory, above twice kib if kib is over limit_kib; otherwise give the service more memory, or lower password.workers"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::password::{PasswordHash, SALT_LEN, hash, verify};

    #[test]
    fn a_hash_over_the_limit_is_not_computed_and_is_counted() {
        let shortages = Arc::<Shortages>::default();
        let mut memory = Memory::new(64, Arc::clone(&shortages));
        let params = |kib| PasswordParams::new(kib, 1, 1).unwrap();
        let mut made = |kib| hash(params(kib), b"correct horse", [1; SALT_LEN], &mut memory);
        assert!(made(64).is_ok());
        assert_eq!(made(68), Err(OutOfMemory));
        assert_eq!(shortages.count(), 1);
        assert!(made(32).is_ok(), "a cheaper one still is");
        // N = 2^14 and r = 8: 16 MiB.
        let scrypt = "$scrypt$ln=14,r=8,p=1$c2FsdHNhbHQ$aBwnVTnRGfUhAxPCYjbqhAq1Nzs2ZmFmLrpHsn8Qq7k";
        let scrypt = PasswordHash::parse(scrypt).unwrap();
        assert_eq!(verify(&scrypt, b"correct horse", &mut memory), Err(OutOfMemory));
        assert_eq!(shortages.count(), 2);
    }

    #[test]
    fn memory_that_the_system_does_not_have_is_an_error() {
        let mut memory = Memory::new(u32::MAX, Arc::default());
        assert_eq!(memory.grow(usize::MAX / 1024), Err(OutOfMemory));
        assert_eq!(memory.check_room(usize::MAX / 2), Err(OutOfMemory));
        assert_eq!(memory.shortages.count(), 1);
    }
}
