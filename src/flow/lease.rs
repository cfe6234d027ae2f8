//! Leases: which one of several nodes does work for all of them.

use std::time::Duration;

use super::Core;
use crate::clock::Timestamp;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::records::Lease;
use crate::store::tables::LEASES;

/// How long a lease lasts. Work under a lease asks for it every minute, so its node keeps it.
const LEASE_DURATION: Duration = Duration::from_mins(2);

/// The lease for keys and the sweep.
pub const HOUSEKEEPING: &str = "housekeeping";
/// The lease for scheduled backups.
pub const BACKUPS: &str = "backups";
/// The lease for the metrics that need a look at a whole table, of factors, users or sessions.
pub const FACTOR_COUNTS: &str = "factor_counts";

/// Takes the lease for this work, unless another node holds it. Returns whether this node holds it, and so may do the
/// work. A node renews its lease when half of it is over. In a store of one process every lease is held, and nothing is
/// written.
///
/// A lease only saves work. Two nodes may hold one at once, because their clocks differ or because one was paused. So
/// all work under a lease must be harmless if two nodes do it at once.
pub async fn acquire(core: &Core, name: &'static str) -> Result<bool, StoreError> {
    if !core.store.is_shared() {
        return Ok(true);
    }
    // A clock that is far ahead would let this node remove what is valid for the others.
    if core.store.problem().is_some() {
        return Ok(false);
    }
    core.store.write("acquire_lease", acquire_in(core, name)).await
}

/// Like [`acquire`], for callers that may block.
pub fn acquire_blocking(core: &Core, name: &'static str) -> Result<bool, StoreError> {
    Ok(!core.store.is_shared()
        || core
            .store
            .write_blocking("acquire_lease", acquire_in(core, name))?)
}

/// The transaction that takes a lease or renews it. It says whether this node holds the lease.
fn acquire_in(
    core: &Core,
    name: &'static str,
) -> impl Fn(&mut dyn Tx) -> Result<bool, StoreError> + Send + use<> {
    let (now, node) = (core.clock.now(), core.node_id);
    move |tx| {
        let lease = LEASES.get(&*tx, name)?.filter(|lease| is_valid(*lease, now));
        if lease.is_some_and(|lease| lease.node != node) {
            return Ok(false);
        }
        if lease.is_none_or(|lease| lease.until.since(now) <= LEASE_DURATION / 2) {
            let until = now + LEASE_DURATION;
            LEASES.put(tx, name, &Lease { node, until })?;
        }
        Ok(true)
    }
}

/// Like [`acquire`]. If the store fails, that is logged, and this node does not do the work.
pub async fn acquire_or_log(core: &Core, name: &'static str) -> bool {
    acquire(core, name).await.unwrap_or_else(|error| {
        // The store logs its own outage.
        if !error.is_outage() {
            tracing::error!(%error, lease = name, "a lease was not read");
        }
        false
    })
}

/// Whether a lease counts. One that ends too late was taken by a node whose clock is ahead. It would keep all other
/// nodes from the work, long after its node has ended.
fn is_valid(lease: Lease, now: Timestamp) -> bool {
    now < lease.until && lease.until <= now + 2 * LEASE_DURATION
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::admin::tests::core;

    #[test]
    fn a_lease_counts_until_it_expires_unless_it_ends_too_late() {
        let now = Timestamp::from_seconds(1_800_000_000);
        let counts = |until| {
            is_valid(
                Lease {
                    node: Uuid::nil(),
                    until,
                },
                now,
            )
        };
        let second = Duration::from_secs(1);
        assert!(counts(now + second) && counts(now + 2 * LEASE_DURATION));
        assert!(!counts(now) && !counts(now + 2 * LEASE_DURATION + second));
    }

    #[tokio::test]
    async fn a_store_of_one_process_needs_no_lease() {
        let core = core();
        let before = core.store.stats().transactions;
        assert!(acquire(&core, HOUSEKEEPING).await.unwrap());
        assert!(acquire_blocking(&core, FACTOR_COUNTS).unwrap());
        assert_eq!(core.store.stats().transactions, before);
    }
}
