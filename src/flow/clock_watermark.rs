//! How late it was when the service last ran, as far as the store tells.

use std::time::Duration;

use super::Core;
use crate::clock::{EARLIEST, Timestamp};
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::schema::{meta_get, meta_put};
use crate::store::tables::SIGNING_KEYS;

/// A key that is younger than this tells nothing: a start shortly before may have made it, by the same wrong clock.
pub const SETTLED: Duration = Duration::from_hours(1);

/// The value about the store that says when the clock was last believed: seconds since the epoch.
const BELIEVED: &str = "clock_believed_at";
/// How often that is written down.
const ADVANCED_AFTER: Duration = Duration::from_hours(1);

/// The newest time that the store knows of: the stored one, or else when the newest key was made.
///
/// A stored time that lies ahead does not count: the clock was wrong when it was written.
pub fn read(core: &Core, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    core.store.read(|snapshot| {
        if let Some(stored) = stored(snapshot)?.filter(|stored| !stored.is_ahead_of(now)) {
            return Ok(Some(stored.min(now)));
        }
        let keys = SIGNING_KEYS.scan(snapshot, .., usize::MAX)?;
        let made = keys.into_iter().map(|(_, key)| key.created_at);
        Ok(made.filter(|at| *at < now - SETTLED).max())
    })
}

/// Stores, once an hour, how late it is. For housekeeping, when it believes the clock.
pub async fn advance(core: &Core, now: Timestamp) -> Result<(), StoreError> {
    let stored = core.store.read(stored)?;
    let is_due = stored.is_none_or(|stored| stored.is_ahead_of(now) || now.since(stored) >= ADVANCED_AFTER);
    // A clock before the earliest is behind for certain.
    if !is_due || now < EARLIEST {
        return Ok(());
    }
    core.store
        .write("store the clock watermark", move |tx| {
            meta_put(tx, BELIEVED, &now.seconds().to_string())
        })
        .await
}

fn stored(snapshot: &dyn Snapshot) -> Result<Option<Timestamp>, StoreError> {
    let seconds = meta_get(snapshot, BELIEVED)?.and_then(|text| text.parse().ok());
    Ok(seconds.map(Timestamp::from_seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::core;
    use crate::flow::rotate_keys;
    use crate::jose::alg::Algorithm;

    const MINUTE: Duration = Duration::from_mins(1);
    const YEAR: Duration = Duration::from_hours(24 * 365);

    #[tokio::test]
    async fn a_clock_that_was_believed_is_stored_once_an_hour() {
        let core = core();
        let transactions = || core.store.stats().transactions;
        let before = transactions();
        for minutes in 0..180 {
            advance(&core, EARLIEST + MINUTE * minutes).await.unwrap();
        }
        assert_eq!(transactions() - before, 3);
        let last = EARLIEST + 2 * 60 * MINUTE;
        for later in [last, last + MINUTE, last + YEAR] {
            assert_eq!(read(&core, later).unwrap(), Some(last));
        }
        // The clock was put back by as much as a right one may be.
        assert_eq!(read(&core, last - MINUTE).unwrap(), Some(last - MINUTE));
    }

    #[tokio::test]
    async fn a_stored_time_that_is_ahead_does_not_count_and_is_replaced() {
        let core = core();
        core.clock.advance(EARLIEST.since(core.clock.now()));
        let now = core.clock.now();
        let (soon, ahead) = (now + 2 * 60 * MINUTE, now + 73 * YEAR);
        rotate_keys::rotate(&core, Algorithm::EdDsa, true).await.unwrap();
        advance(&core, ahead).await.unwrap();
        assert_eq!(
            read(&core, now).unwrap(),
            None,
            "the key may be of the same wrong clock"
        );
        assert_eq!(
            read(&core, soon).unwrap(),
            Some(now),
            "the key is all that is known"
        );
        advance(&core, soon).await.unwrap();
        // A machine without a battery is in 1970 for a while.
        advance(&core, Timestamp::from_seconds(0)).await.unwrap();
        assert_eq!(read(&core, ahead).unwrap(), Some(soon));
    }
}
