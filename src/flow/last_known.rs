//! How late it was when the store was last in use, as far as what is in it tells.

use std::time::Duration;

use uuid::Uuid;

use super::Core;
use crate::clock::Timestamp;
use crate::store::StoreError;
use crate::store::backend::Snapshot;
use crate::store::record::Record;
use crate::store::table::Table;
use crate::store::tables::{CODES, FAMILIES, LOGIN_TRANSACTIONS, SESSIONS, SIGNING_KEYS};

/// What is younger than this tells nothing of the clock: it may be from a start shortly before, by the same clock.
pub const SETTLED: Duration = Duration::from_hours(1);

/// The newest moment at which a sign-in, a code, a session, a grant or a key in the store was made, to the second, of
/// those that are at least [`SETTLED`] before `now`; none where there is nothing so old.
///
/// The service may have been used later: a refresh makes nothing new. Identifiers are time-ordered, so the moment is
/// found by halves, in some tens of looks into each table.
pub fn last_known(core: &Core, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let end = now - SETTLED;
    core.store.read(|snapshot| {
        let mut newest = newest_key(snapshot, end)?;
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
    use crate::flow::admin::tests::core;
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
}
