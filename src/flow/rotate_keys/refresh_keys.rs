//! The lifecycle of the keys from which refresh tokens are derived.
//!
//! The keys ([`crate::oauth::refresh_keys`]) are rows of a table of their own, sealed, and in memory in
//! [`crate::flow::Catalog`]. The newest key derives new tokens. The first one is made at the first start, and another one as
//! often as signing keys change. Nobody else verifies these tokens, so a key is not announced.
//!
//! A token contains the number of its key, and the row of the family that of the newest token's key. So a retry after a
//! rotation of keys gets what the first use got, from every process that reads the same store. A rotation reads all
//! families, and removes the older keys that no live one names. A used token of a removed key is refused as unknown, and
//! does not end its family. Backups contain the keys. If they are lost, everybody has to sign in again.

use std::collections::BTreeSet;
use std::ops::Bound;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use super::{KeyUnreadable, RotateError};
use crate::clock::Timestamp;
use crate::flow::Core;
use crate::oauth::policy::KeyRotation;
use crate::seal::Sealer;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::records::RefreshKeyRecord;
use crate::store::tables::{FAMILIES, REFRESH_KEYS};

const KEY_LEN: usize = 32;

/// The number of the first key.
const FIRST: u32 = 1;

/// The most families that are read in one piece.
const PAGE_ROWS: usize = 1_000;

fn context(number: u32) -> String {
    format!("refresh_keys/{number}")
}

/// Opens a stored key.
pub fn open_refresh_key(
    sealer: &Sealer,
    number: u32,
    record: &RefreshKeyRecord,
) -> Result<Zeroizing<Vec<u8>>, KeyUnreadable> {
    let unreadable = |what: String| KeyUnreadable {
        kid: context(number),
        what,
    };
    let ciphertext = URL_SAFE_NO_PAD
        .decode(&record.sealed)
        .map_err(|_| unreadable("it is no base64url".to_owned()))?;
    sealer
        .open(&context(number), &ciphertext)
        .map_err(|error| unreadable(error.to_string()))
}

/// Makes the first key, unless there is one. Processes that start at once end with the same key.
pub(super) async fn ensure(core: &Core) -> Result<(), RotateError> {
    if core.catalog().refresh_keys().newest().is_some() {
        return Ok(());
    }
    let record = new_key(core, FIRST);
    let written = core
        .store
        .write("make_first_refresh_key", move |tx| -> Result<_, StoreError> {
            if all(&*tx)?.is_empty() {
                REFRESH_KEYS.put(tx, &FIRST, &record)?;
            }
            Ok(())
        })
        .await;
    core.reload_after(written).await
}

/// Rotates if the newest key has been in use for as long as the setting allows. Returns whether there is a new key.
pub(super) async fn keep(core: &Core) -> Result<bool, RotateError> {
    let (now, rotation) = (core.clock.now(), core.policy.key_rotation);
    let due = core
        .store
        .read(|snapshot| due_key(snapshot, rotation, now))
        .await?;
    match due {
        Some(due) => rotate(core, due).await,
        None => Ok(false),
    }
}

/// A new key under a number.
fn new_key(core: &Core, number: u32) -> RefreshKeyRecord {
    let key = Zeroizing::new(core.random.bytes::<KEY_LEN>());
    RefreshKeyRecord {
        created_at: core.clock.now(),
        sealed: URL_SAFE_NO_PAD.encode(core.sealer.seal(&context(number), key.as_slice(), &core.random)),
    }
}

/// Replaces the newest key `due`, and removes the keys that no live family depends on. Returns whether there is a new key.
/// There is none if another process has replaced it.
async fn rotate(core: &Core, due: u32) -> Result<bool, RotateError> {
    let now = core.clock.now();
    let in_use = core
        .stream("refresh_keys_in_use", move |snapshot| keys_in_use(snapshot, now))
        .await?;
    let number = due.saturating_add(1);
    let record = new_key(core, number);
    let written = core
        .store
        .write("rotate_refresh_keys", move |tx| -> Result<_, StoreError> {
            let keys = all(&*tx)?;
            if newest(&keys).is_none_or(|(newest, _)| newest != due) {
                return Ok(false);
            }
            for (older, _) in keys {
                // A request that began a moment ago may still derive from the former key.
                if older != due && !in_use.contains(&older) {
                    REFRESH_KEYS.remove(tx, &older)?;
                }
            }
            REFRESH_KEYS.put(tx, &number, &record)?;
            Ok(true)
        })
        .await;
    core.reload_after(written).await
}

fn all(snapshot: &dyn Snapshot) -> Result<Vec<(u32, RefreshKeyRecord)>, StoreError> {
    REFRESH_KEYS.scan(snapshot, .., usize::MAX)
}

/// The key with the highest number.
fn newest(keys: &[(u32, RefreshKeyRecord)]) -> Option<(u32, &RefreshKeyRecord)> {
    keys.last().map(|(number, record)| (*number, record))
}

/// The number of the newest key, if it must be replaced. A key that was made while the clock was ahead is replaced too.
fn due_key(
    snapshot: &dyn Snapshot,
    rotation: KeyRotation,
    now: Timestamp,
) -> Result<Option<u32>, StoreError> {
    let keys = all(snapshot)?;
    let (Some((number, newest)), Some(every)) = (newest(&keys), rotation.every) else {
        return Ok(None);
    };
    let is_due = newest.created_at + every <= now || newest.created_at.is_ahead_of(now);
    Ok(is_due.then_some(number))
}

/// The keys that the newest tokens of live families are derived from.
fn keys_in_use(snapshot: &dyn Snapshot, now: Timestamp) -> Result<BTreeSet<u32>, StoreError> {
    let mut in_use = BTreeSet::new();
    let mut from = Bound::Unbounded;
    loop {
        let page = FAMILIES.scan(snapshot, (from, Bound::Unbounded), PAGE_ROWS)?;
        in_use.extend(
            page.iter()
                .filter(|(_, family)| family.is_live(now))
                .map(|(_, family)| family.key),
        );
        match page.last() {
            Some((last, _)) if page.len() == PAGE_ROWS => from = Bound::Excluded(*last),
            Some(_) | None => return Ok(in_use),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::admin::tests::{core, core_on};
    use crate::clock::EARLIEST;

    const DAY: Duration = Duration::from_hours(24);

    fn numbers(core: &Core) -> Vec<u32> {
        let keys = core.store.read_blocking(all).unwrap();
        keys.into_iter().map(|(number, _)| number).collect()
    }

    #[tokio::test]
    async fn the_first_start_makes_a_key_and_housekeeping_the_others() {
        let core = core();
        assert!(!keep(&core).await.unwrap());
        for _ in 0..2 {
            ensure(&core).await.unwrap();
            assert_eq!(numbers(&core), [1]);
        }
        core.clock.advance(Duration::from_secs(90 * 24 * 60 * 60 - 1));
        assert!(!keep(&core).await.unwrap());
        core.clock.advance(Duration::from_secs(1));
        assert!(keep(&core).await.unwrap());
        assert!(!keep(&core).await.unwrap());
        assert_eq!(core.catalog().refresh_keys().newest(), Some(2));
        core.clock.advance(90 * DAY);
        assert!(keep(&core).await.unwrap());
        assert_eq!(numbers(&core), [2, 3]);
    }

    #[tokio::test]
    async fn processes_that_start_or_rotate_at_once_end_with_the_same_key() {
        let first = core();
        let second = core_on(first.store.clone());
        let (made, also) = tokio::join!(ensure(&first), ensure(&second));
        made.and(also).unwrap();
        assert_eq!(numbers(&first), [1]);
        let key = |core: &Core| core.store.read_blocking(all).unwrap().remove(0).1;
        assert_eq!(key(&first), key(&second));
        for core in [&first, &second] {
            assert_eq!(core.catalog().refresh_keys().newest(), Some(1));
        }
        assert!(rotate(&first, 1).await.unwrap());
        assert!(!rotate(&second, 1).await.unwrap());
        assert_eq!(numbers(&first), [1, 2]);
        assert_eq!(second.catalog().refresh_keys().newest(), Some(2));
    }

    #[tokio::test]
    async fn without_rotation_a_key_stays() {
        let mut core = core();
        std::sync::Arc::make_mut(&mut core.policy).key_rotation.every = None;
        ensure(&core).await.unwrap();
        core.clock.advance(1_000 * DAY);
        assert!(!keep(&core).await.unwrap());
    }

    #[tokio::test]
    async fn a_key_made_while_the_clock_was_ahead_is_replaced() {
        let core = core();
        core.clock.advance(EARLIEST.since(core.clock.now()));
        ensure(&core).await.unwrap();
        let ahead = core.clock.now() + 73 * 365 * DAY;
        let written = core.store.write("test", move |tx| {
            let mut record = REFRESH_KEYS.get(&*tx, &1)?.unwrap();
            record.created_at = ahead;
            REFRESH_KEYS.put(tx, &1, &record)
        });
        written.await.unwrap();
        assert!(keep(&core).await.unwrap());
        assert!(!keep(&core).await.unwrap());
    }

    #[tokio::test]
    async fn a_key_opens_under_its_own_number_and_master_key_only() {
        let core = core();
        ensure(&core).await.unwrap();
        let (number, record) = core.store.read_blocking(all).unwrap().remove(0);
        assert_eq!(
            open_refresh_key(&core.sealer, number, &record).unwrap().len(),
            KEY_LEN
        );
        assert!(open_refresh_key(&core.sealer, 2, &record).is_err());
        assert!(open_refresh_key(&Sealer::new(&[8; 32]), number, &record).is_err());
    }
}
