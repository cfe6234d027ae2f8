//! The newest time that the store knows of: a lower limit for the clock at the next start.

use std::time::Duration;

use super::Core;
use crate::clock::{EARLIEST, Timestamp};
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::schema::{meta_get, meta_put};
use crate::store::tables::SIGNING_KEYS;

/// A younger key proves nothing: the same wrong clock may have dated it at a start shortly before.
pub const SETTLED: Duration = Duration::from_hours(1);

/// The name of the stored watermark, in seconds since the epoch.
const META_KEY: &str = "clock_believed_at";
/// How often the watermark is stored.
const WRITE_INTERVAL: Duration = Duration::from_hours(1);

/// The stored watermark, or else the time at which the newest key was made.
///
/// A watermark ahead of `now` does not count: the clock was wrong when it was stored.
pub async fn read(core: &Core, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    core.store
        .read(|snapshot| {
            if let Some(stored) = stored(snapshot)?.filter(|stored| !stored.is_ahead_of(now)) {
                return Ok(Some(stored.min(now)));
            }
            let keys = SIGNING_KEYS.scan(snapshot, .., usize::MAX)?;
            let made = keys.into_iter().map(|(_, key)| key.created_at);
            Ok(made.filter(|at| *at < now - SETTLED).max())
        })
        .await
}

/// Stores the time, once an hour. Housekeeping calls this if it believes the clock.
pub async fn advance(core: &Core, now: Timestamp) -> Result<(), StoreError> {
    let stored = core.store.read(stored).await?;
    let is_due = stored.is_none_or(|stored| stored.is_ahead_of(now) || now.since(stored) >= WRITE_INTERVAL);
    // A clock before this date is wrong.
    if !is_due || now < EARLIEST {
        return Ok(());
    }
    core.store
        .write("store the clock watermark", move |tx| {
            meta_put(tx, META_KEY, &now.seconds().to_string())
        })
        .await
}

fn stored(snapshot: &dyn Snapshot) -> Result<Option<Timestamp>, StoreError> {
    let seconds = meta_get(snapshot, META_KEY)?.and_then(|text| text.parse().ok());
    Ok(seconds.map(Timestamp::from_seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::{core, core_on};
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
            assert_eq!(read(&core, later).await.unwrap(), Some(last));
        }
        // The clock was put back by as much as a right one may be.
        assert_eq!(read(&core, last - MINUTE).await.unwrap(), Some(last - MINUTE));
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
            read(&core, now).await.unwrap(),
            None,
            "the key may be of the same wrong clock"
        );
        assert_eq!(
            read(&core, soon).await.unwrap(),
            Some(now),
            "the key is all that is known"
        );
        advance(&core, soon).await.unwrap();
        // A machine without a battery is in 1970 for a while.
        advance(&core, Timestamp::from_seconds(0)).await.unwrap();
        assert_eq!(read(&core, ahead).await.unwrap(), Some(soon));
    }

    #[tokio::test]
    async fn a_node_whose_clock_is_ahead_by_minutes_disturbs_no_other() {
        let ahead = core();
        ahead.clock.advance(EARLIEST.since(ahead.clock.now()));
        let right = core_on(ahead.store.clone());
        right.clock.advance(ahead.clock.now().since(right.clock.now()));
        ahead.clock.advance(10 * MINUTE);
        let before = ahead.store.stats().transactions;
        for _ in 0..120 {
            for core in [&ahead, &right] {
                let now = core.clock.now();
                advance(core, now).await.unwrap();
                core.clock.advance(MINUTE);
                let watermark = read(core, now).await.unwrap().unwrap();
                assert!(now.since(watermark) <= WRITE_INTERVAL, "{watermark:?} at {now:?}");
            }
        }
        assert_eq!(ahead.store.stats().transactions - before, 2);
    }
}
