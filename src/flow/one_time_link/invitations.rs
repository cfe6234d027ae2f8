//! The open invitations by address: an index, so that they are listed, revoked and replaced without a walk through all
//! links.
//!
//! Earlier releases had no index. [`build_index`] adds the invitations that were there before, once. Such a release let an address
//! have several. A node of an earlier release may invite a person after that. Such an invitation works, but is not in the index.

use std::ops::Bound;

use uuid::Uuid;

use super::DrawnLink;
use crate::clock::Timestamp;
use crate::flow::Core;
use crate::flow::passkey_index::half_digest;
use crate::identity::one_time_link::{InvitationKey, LinkEnd, LinkKey};
use crate::identity::{LoginName, OneTimeLink, User};
use crate::store::engine::{Snapshot, Tx};
use crate::store::schema::{meta_get, meta_put};
use crate::store::tables::{INVITATIONS, ONE_TIME_LINKS};
use crate::store::{Store, StoreError};

/// The store's own value that says that all invitations are in the index.
const IS_COMPLETE: &str = "invitations_index";

/// The links that are read in one transaction.
const PAGE_LINKS: usize = 500;

fn row_of(email: &str, link: LinkKey) -> InvitationKey {
    (of_address(email), link)
}

fn of_address(email: &str) -> Uuid {
    half_digest(LoginName::new(email).as_str().as_bytes())
}

/// Stores an invitation for this address. Earlier ones become void. Returns their ids.
pub fn replace(
    tx: &mut dyn Tx,
    email: &str,
    link: &DrawnLink,
    now: Timestamp,
) -> Result<Vec<Uuid>, StoreError> {
    let replaced = end(tx, email, LinkEnd::Replaced, now)?;
    INVITATIONS.put(tx, &row_of(email, link.key), &())?;
    link.put(tx)?;
    Ok(replaced)
}

/// Ends the open invitations of the names that a user loses, or of all names of a user who is removed. Nobody could use
/// them while the user had the names, and nobody expects them to work again.
pub fn end_of_lost_names(
    tx: &mut dyn Tx,
    before: &User,
    after: Option<&User>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let kept = after.map(User::login_names).unwrap_or_default();
    for name in before.login_names() {
        if !kept.contains(&name) {
            end(tx, name.as_str(), LinkEnd::Revoked, now)?;
        }
    }
    Ok(())
}

/// Ends the open invitations of an address. Returns their ids. A row of the index whose link is no invitation any more is
/// removed: a node of an earlier release ended it.
pub fn end(tx: &mut dyn Tx, email: &str, end: LinkEnd, now: Timestamp) -> Result<Vec<Uuid>, StoreError> {
    let mut ended = Vec::new();
    for (row, ()) in INVITATIONS.scan_prefix(&*tx, &of_address(email), usize::MAX)? {
        let (_, key) = row;
        let link = ONE_TIME_LINKS.get(&*tx, &key)?;
        let Some(link) = link.filter(|link| link.invitation().is_some()) else {
            INVITATIONS.remove(tx, &row)?;
            continue;
        };
        if is_open(&link, now) {
            INVITATIONS.remove(tx, &row)?;
            ONE_TIME_LINKS.put(tx, &key, &link.ended(end))?;
            ended.push(key.1);
        }
    }
    Ok(ended)
}

/// Whether a link is an open invitation. One that was made while the clock was ahead cannot be used now, but may be later, so
/// it counts.
pub fn is_open(link: &OneTimeLink, now: Timestamp) -> bool {
    link.invitation().is_some() && !link.has_expired(now)
}

/// Removes a link that is being removed from the index, if it is in it.
pub(in crate::flow) fn forget(tx: &mut dyn Tx, key: LinkKey, link: &OneTimeLink) -> Result<(), StoreError> {
    if let Some(new) = link.invitation() {
        INVITATIONS.remove(tx, &row_of(&new.email, key))?;
    }
    Ok(())
}

/// Adds the invitations that are not in the index yet, unless that was done before.
pub async fn build_index(core: &Core) -> Result<(), StoreError> {
    let store = core.store.clone();
    let built = tokio::task::spawn_blocking(move || build_index_blocking(&store)).await;
    built.unwrap_or(Err(StoreError::Panicked("invitations")))
}

/// The same, for callers that may block.
pub fn build_index_blocking(store: &Store) -> Result<(), StoreError> {
    let is_complete = |snapshot: &dyn Snapshot| -> Result<_, StoreError> {
        let is_marked = meta_get(snapshot, IS_COMPLETE)?.is_some();
        Ok(is_marked || ONE_TIME_LINKS.scan(snapshot, .., 1)?.is_empty())
    };
    if store.read_blocking(is_complete)? {
        return Ok(());
    }
    let mut last = None;
    loop {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let add_page = move |tx: &mut dyn Tx| -> Result<_, StoreError> {
            let links = ONE_TIME_LINKS.scan(&*tx, (from, Bound::Unbounded), PAGE_LINKS)?;
            for (key, link) in &links {
                if let Some(new) = link.invitation() {
                    INVITATIONS.put(tx, &row_of(&new.email, *key), &())?;
                }
            }
            let next = links.last().filter(|_| links.len() == PAGE_LINKS);
            if next.is_none() {
                meta_put(tx, IS_COMPLETE, "1")?;
            }
            Ok(next.map(|(key, _)| *key))
        };
        last = store.write_blocking("invitations", add_page)?;
        if last.is_none() {
            return Ok(());
        }
    }
}
