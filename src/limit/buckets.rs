//! Many leaky buckets in a fixed amount of memory.
//!
//! A bucket is one number: the moment at which it will be empty again (the generic cell rate algorithm). An empty bucket
//! and a missing bucket are the same.
//!
//! # What happens when there are more buckets than slots
//!
//! A keyed digest of the bucket's name picks eight slots, and the bucket lives in one of them. An attacker therefore
//! cannot tell which names share slots. When all eight slots are in use, a new bucket takes over the least filled slot
//! **with its content**. The evicted bucket was never fuller than the emptiest one that stays. When its owner comes
//! back, the owner takes over at least as much as was evicted: filling other buckets empties none.
//!
//! The error is on the safe side and small. A bucket may start with the content of another, but only after more names
//! were charged than the table has slots; then the table as a whole is the limit. A [check](Buckets::check) takes
//! nothing over: no flood keeps out a name that has done nothing.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::charges::{self, Charge};
use crate::clock::Timestamp;

const WAYS: usize = 8;
const SHARDS: usize = 64;
/// The sets of one shard. With the most, a table takes a mebibyte.
const SETS_PER_SHARD: RangeInclusive<usize> = 4..=128;

/// How far the times of concurrent requests may lie apart, in milliseconds. A clock that goes back further was set
/// back.
const MAX_CLOCK_JITTER: u64 = 120_000;

/// A rate limit: a burst, then one more in each interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    interval_ms: u64,
    /// How long a full bucket takes to empty.
    capacity_ms: u64,
}

impl Rule {
    /// Allows `burst` at once, then one more every `interval`.
    pub const fn new(burst: u64, interval: Duration) -> Self {
        let interval_ms = interval.as_secs() * 1_000 + interval.subsec_millis() as u64;
        Self {
            interval_ms,
            capacity_ms: interval_ms.saturating_mul(burst),
        }
    }

    /// The time in which one is forgotten, in milliseconds.
    pub const fn interval_ms(self) -> u64 {
        self.interval_ms
    }

    /// Allows `count` within an hour, all of them at once if need be.
    pub const fn hourly(count: u32) -> Self {
        let count = if count == 0 { 1 } else { count as u64 };
        Self::new(count, Duration::from_millis(3_600_000_u64.div_ceil(count)))
    }
}

/// How long to wait before the next attempt, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetryAfter(u64);

impl RetryAfter {
    /// The value of the `Retry-After` header: whole seconds, at least one.
    pub fn seconds(self) -> u64 {
        self.0.div_ceil(1_000).max(1)
    }
}

/// The digest of a bucket's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    set: u64,
    tag: u64,
    /// The bucket is this many times as large as an ordinary one.
    multiplier: u32,
}

impl Key {
    /// The key of a digest. A bucket with a `multiplier` is that many times as large, and empties as many times faster.
    pub fn new(digest: &[u8], multiplier: u32) -> Self {
        let (set, rest) = digest.split_first_chunk().unwrap_or((&[0; 8], digest));
        let tag = rest.first_chunk().unwrap_or(&[0; 8]);
        Self {
            set: u64::from_le_bytes(*set),
            tag: u64::from_le_bytes(*tag).max(1),
            multiplier,
        }
    }

    /// A number that identifies the bucket.
    pub fn tag(self) -> u64 {
        self.tag
    }
}

/// Buckets with the same rule.
#[derive(Debug)]
pub struct Buckets {
    rule: Rule,
    shards: Vec<Mutex<Shard>>,
    sets_per_shard: usize,
    /// All buckets are empty from this moment on.
    all_empty_at: AtomicU64,
}

/// A part of the slots, with its own lock.
#[derive(Debug, Default)]
struct Shard {
    /// Allocated at the first use.
    slots: Vec<Slot>,
    latest: u64,
}

/// One bucket: the tag of its key, and the moment at which it is empty.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    tag: u64,
    empty_at: u64,
}

impl Buckets {
    /// A table of empty buckets that takes at most so many bytes. It takes no less than 32 KiB, and no more than a
    /// mebibyte.
    pub fn new(rule: Rule, bytes: usize) -> Self {
        let sets = bytes / (SHARDS * WAYS * size_of::<Slot>());
        Self {
            rule,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            sets_per_shard: sets.clamp(*SETS_PER_SHARD.start(), *SETS_PER_SHARD.end()),
            all_empty_at: AtomicU64::new(0),
        }
    }

    /// Whether one more may be taken now. This is cheap while all buckets are empty.
    pub fn check(&self, key: impl FnOnce() -> Key, now: Timestamp) -> Result<(), RetryAfter> {
        let now = millis(now);
        if self.all_empty_at.load(Ordering::Relaxed) <= now {
            return Ok(());
        }
        let key = key();
        self.with_slot(key, now, |slot| {
            if slot.tag == key.tag {
                self.admit(key, slot.empty_at, now)?;
            }
            Ok(())
        })
        .unwrap_or(Ok(()))
    }

    /// How long this bucket takes to empty, in milliseconds.
    pub fn fill(&self, key: Key, now: Timestamp) -> u64 {
        let now = millis(now);
        self.with_slot(key, now, |slot| {
            let own = if slot.tag == key.tag { slot.empty_at } else { 0 };
            own.saturating_sub(now)
        })
        .unwrap_or_default()
    }

    /// Takes one, unless the bucket is full.
    pub fn take(&self, key: Key, now: Timestamp) -> Result<(), RetryAfter> {
        if charges::is_paid(self.charge(key)) {
            return Ok(());
        }
        let now = millis(now);
        let taken = self.with_slot(key, now, |slot| {
            let empty_at = self.admit(key, slot.empty_at, now)?;
            self.set(slot, key, empty_at);
            charges::note_paid(self.charge(key));
            Ok(())
        });
        taken.unwrap_or(Ok(()))
    }

    /// Charges one that was not [taken](Buckets::take) before. A full bucket stays full.
    pub fn add(&self, key: Key, now: Timestamp) {
        if charges::is_paid(self.charge(key)) {
            return;
        }
        charges::note_paid(self.charge(key));
        let now = millis(now);
        self.with_slot(key, now, |slot| {
            let more = slot.empty_at.max(now).saturating_add(self.cost(key));
            let full = now.saturating_add(self.rule.capacity_ms);
            self.set(slot, key, more.min(full).max(slot.empty_at));
        });
    }

    /// Takes back the charge of [`Buckets::take`].
    pub fn refund(&self, key: Key, now: Timestamp) {
        charges::note_refund(self.charge(key));
        self.with_slot(key, millis(now), |slot| {
            if slot.tag == key.tag {
                slot.empty_at = slot.empty_at.saturating_sub(self.cost(key));
            }
        });
    }

    fn charge(&self, key: Key) -> Charge {
        Charge::new(std::ptr::from_ref(self).addr(), key.tag)
    }

    fn cost(&self, key: Key) -> u64 {
        (self.rule.interval_ms / u64::from(key.multiplier.max(1))).max(1)
    }

    fn set(&self, slot: &mut Slot, key: Key, empty_at: u64) {
        *slot = Slot {
            tag: key.tag,
            empty_at,
        };
        self.all_empty_at.fetch_max(empty_at, Ordering::Relaxed);
    }

    /// When the bucket will be empty after one more charge.
    fn admit(&self, key: Key, empty_at: u64, now: u64) -> Result<u64, RetryAfter> {
        let empty_at = empty_at.max(now).saturating_add(self.cost(key));
        let fill = empty_at.saturating_sub(now);
        match fill.saturating_sub(self.rule.capacity_ms) {
            0 => Ok(empty_at),
            excess => Err(RetryAfter(excess)),
        }
    }

    /// Works on the slot of a key: its own, or the least filled one that it would take over.
    fn with_slot<T>(&self, key: Key, now: u64, work: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        let shard = usize::try_from(key.set).unwrap_or(0) % SHARDS;
        let mut shard = self
            .shards
            .get(shard)?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        shard.notice_time(now);
        shard.slot(key, self.sets_per_shard).map(work)
    }
}

impl Shard {
    /// Empties all buckets if the clock was set back. They would otherwise stay full for as long as the clock was wrong.
    fn notice_time(&mut self, now: u64) {
        if now.saturating_add(MAX_CLOCK_JITTER) < self.latest {
            self.slots.fill(Slot::default());
            self.latest = now;
        }
        self.latest = self.latest.max(now);
    }

    fn slot(&mut self, key: Key, sets: usize) -> Option<&mut Slot> {
        if self.slots.is_empty() {
            self.slots = vec![Slot::default(); sets * WAYS];
        }
        let set = usize::try_from(key.set / SHARDS as u64).unwrap_or(0) % sets;
        let slots = self.slots.chunks_exact_mut(WAYS).nth(set)?;
        match slots.iter().position(|slot| slot.tag == key.tag) {
            Some(own) => slots.get_mut(own),
            None => slots.iter_mut().min_by_key(|slot| slot.empty_at),
        }
    }
}

fn millis(now: Timestamp) -> u64 {
    now.seconds().saturating_mul(1_000)
}

#[cfg(test)]
pub(super) mod tests;
