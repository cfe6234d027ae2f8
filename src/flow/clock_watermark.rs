//! How late it was when the service last ran, as far as what is in the store tells.

use std::time::Duration;

use uuid::Uuid;

use super::Core;
use crate::clock::{EARLIEST, Timestamp};
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::record::Record;
use crate::store::schema::{meta_get, meta_put};
use crate::store::table::Table;
use crate::store::tables::{CODES, FAMILIES, LOGIN_TRANSACTIONS, SESSIONS, SIGNING_KEYS};

/// What is younger than this tells nothing of the clock: it may be from a start shortly before, by the same clock.
pub const SETTLED: Duration = Duration::from_hours(1);

/// The value about the store that says when the clock was last believed: seconds since the epoch.
const BELIEVED: &str = "clock_believed_at";
/// How often that is written down.
const NOTED_AFTER: Duration = Duration::from_hours(1);

/// Writes down, once an hour, that it is so late: for housekeeping, when it believes the clock. What machines do all
/// day, such as refreshing, leaves nothing in the store that tells when it was made.
pub async fn note(core: &Core, now: Timestamp) -> Result<(), StoreError> {
    if !is_due(core.store.read(noted)?, now) {
        return Ok(());
    }
    core.store
        .write("note the time", move |tx| {
            meta_put(tx, BELIEVED, &now.seconds().to_string())
        })
        .await
}

/// A note that lies ahead is replaced: the clock was wrong when it was written. A clock that is behind for certain is
/// not written down.
fn is_due(noted: Option<Timestamp>, now: Timestamp) -> bool {
    now >= EARLIEST && noted.is_none_or(|noted| noted.is_ahead_of(now) || now.since(noted) >= NOTED_AFTER)
}

fn noted(snapshot: &dyn Snapshot) -> Result<Option<Timestamp>, StoreError> {
    let seconds = meta_get(snapshot, BELIEVED)?.and_then(|text| text.parse().ok());
    Ok(seconds.map(Timestamp::from_seconds))
}

/// The newest moment, to the second, that the store knows of: of the note ([`note`]), and of those at which a sign-in, a
/// code, a session, a grant or a key was made at least [`SETTLED`] before `now`; none where there is nothing so old.
///
/// The note counts however young it is, since it is of a clock that was believed, and not at all where it lies ahead.
/// Identifiers are time-ordered, so the newest of the others is found by halves, in some tens of looks into each table.
pub fn last_known(core: &Core, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let end = now - SETTLED;
    core.store.read(|snapshot| {
        let noted = noted(snapshot)?.filter(|noted| !noted.is_ahead_of(now));
        let mut newest = newest_key(snapshot, end)?.max(noted.map(|noted| noted.min(now)));
        let (mut from, mut to) = (newest.map_or(0, Timestamp::seconds), end.seconds());
        while from < to {
            let middle = from + (to - from) / 2;
            if is_any(snapshot, Timestamp::from_seconds(middle), end)? {
                newest = Some(Timestamp::from_seconds(middle));
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        Ok(newest)
    })
}

fn newest_key(snapshot: &dyn Snapshot, end: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let keys = SIGNING_KEYS.scan(snapshot, .., usize::MAX)?;
    let made = keys.into_iter().map(|(_, key)| key.created_at);
    Ok(made.filter(|at| *at < end).max())
}

/// Whether there is anything in the time-ordered tables that was made between these moments.
fn is_any(snapshot: &dyn Snapshot, from: Timestamp, end: Timestamp) -> Result<bool, StoreError> {
    Ok(holds(snapshot, FAMILIES, from, end)?
        || holds(snapshot, SESSIONS, from, end)?
        || holds(snapshot, CODES, from, end)?
        || holds(snapshot, LOGIN_TRANSACTIONS, from, end)?)
}

fn holds<R: Record>(
    snapshot: &dyn Snapshot,
    table: Table<Uuid, R>,
    from: Timestamp,
    end: Timestamp,
) -> Result<bool, StoreError> {
    Ok(!table
        .scan(snapshot, from.first_id()..end.first_id(), 1)?
        .is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::core;
    use crate::flow::rotate_keys;
    use crate::identity::Factor;
    use crate::jose::alg::Algorithm;
    use crate::oauth::Scope;
    use crate::oauth::code::Authorization;
    use crate::oauth::openid::claims::ClaimsRequest;
    use crate::oauth::refresh::{Entropy, RefreshFamily};

    /// A grant as of now.
    fn grant(core: &Core) {
        let now = core.clock.now();
        let id = core.random.uuid_v7(core.clock.since_epoch());
        let authorization = Authorization {
            client_id: "kiosk".to_owned(),
            user: id,
            session: None,
            auth_time: None,
            factor: Factor::Anonymous,
            upstream_token: None,
            scope: Scope::empty(),
            claims: ClaimsRequest::default(),
        };
        let entropy = Entropy {
            token: [1; 32],
            lineage: [2; 16],
        };
        let (family, _) = RefreshFamily::start(id, authorization, &core.policy.lifetimes, &entropy, now);
        core.store
            .write_blocking("test", move |tx| FAMILIES.put(tx, &id, &family))
            .unwrap();
    }

    #[tokio::test]
    async fn the_newest_that_was_made_before_a_moment_is_found_to_the_second() {
        let core = core();
        let known = |end| last_known(&core, end + SETTLED).unwrap();
        let start = core.clock.now();
        let far = start + Duration::from_hours(24 * 365 * 73);
        assert_eq!(known(far), None);
        rotate_keys::rotate(&core, Algorithm::EdDsa, true).await.unwrap();
        assert_eq!(known(far), Some(start));
        for seconds in [1, 59, 86_400, 31_536_000] {
            core.clock.advance(Duration::from_secs(seconds));
            let now = core.clock.now();
            let before = known(far);
            grant(&core);
            assert_eq!((known(now), known(far)), (before, Some(now)));
        }
        assert_eq!(known(start), None);
        assert_eq!(last_known(&core, Timestamp::from_seconds(0)).unwrap(), None);
    }

    const MINUTE: Duration = Duration::from_mins(1);
    const YEAR: Duration = Duration::from_hours(24 * 365);

    /// Machines may leave nothing in the store for months.
    #[tokio::test]
    async fn a_clock_that_was_believed_is_written_down_once_an_hour() {
        let core = core();
        let transactions = || core.store.stats().transactions;
        let before = transactions();
        let start = EARLIEST;
        for minutes in 0..180 {
            note(&core, start + MINUTE * minutes).await.unwrap();
        }
        assert_eq!(transactions() - before, 3);
        let last = start + 2 * 60 * MINUTE;
        for later in [last, last + MINUTE, last + YEAR] {
            assert_eq!(last_known(&core, later).unwrap(), Some(last));
        }
        // The clock was put back by as much as a right one may be.
        let corrected = last - MINUTE;
        assert_eq!(last_known(&core, corrected).unwrap(), Some(corrected));
    }

    #[tokio::test]
    async fn a_note_of_a_clock_that_was_ahead_does_not_count_and_is_replaced() {
        let core = core();
        core.clock.advance(EARLIEST.since(core.clock.now()));
        let now = core.clock.now();
        rotate_keys::rotate(&core, Algorithm::EdDsa, true).await.unwrap();
        let (soon, ahead) = (now + 2 * 60 * MINUTE, now + 73 * YEAR);
        note(&core, ahead).await.unwrap();
        assert_eq!(
            last_known(&core, soon).unwrap(),
            Some(now),
            "the key is all that is known"
        );
        note(&core, soon).await.unwrap();
        assert_eq!(last_known(&core, soon + MINUTE).unwrap(), Some(soon));
        assert_eq!(last_known(&core, ahead).unwrap(), Some(soon));
        // A machine without a battery is in 1970 for a while.
        note(&core, Timestamp::from_seconds(0)).await.unwrap();
        assert_eq!(last_known(&core, soon + MINUTE).unwrap(), Some(soon));
    }
}
