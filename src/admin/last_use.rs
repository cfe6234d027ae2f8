//! When clients last got tokens for a user, as far as the stored grants tell. Nothing is written for that: each refresh
//! keeps its time in the row of its grant. A grant that has ended counts until the sweep removes it.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::clock::Timestamp;
use crate::flow::Catalog;
use crate::oauth::Client;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::{FAMILIES, FAMILIES_BY_OWNER};

/// The last use by each client that is in the catalog. Reads the index of the user's grants, and these grants.
pub(super) fn by_client(
    snapshot: &dyn Snapshot,
    catalog: &Catalog,
    user: Uuid,
) -> Result<BTreeMap<String, Timestamp>, StoreError> {
    let granted = FAMILIES_BY_OWNER.scan_prefix(snapshot, &user, usize::MAX)?;
    let mut newest = BTreeMap::new();
    for ((_, (client_id, id)), ()) in granted {
        if let Some(client) = catalog.client(&client_id)
            && let Some(used_at) = last_use(snapshot, id, &client)?
        {
            let last = newest.entry(client_id).or_insert(used_at);
            *last = used_at.max(*last);
        }
    }
    Ok(newest)
}

/// The last use by this client. Reads the part of the index that has the user's grants to the client, and these grants.
pub(super) fn of_client(
    snapshot: &dyn Snapshot,
    user: Uuid,
    client: &Client,
) -> Result<Option<Timestamp>, StoreError> {
    let key = |id| (user, (client.client_id.clone(), id));
    let granted = FAMILIES_BY_OWNER.scan(snapshot, key(Uuid::nil())..=key(Uuid::max()), usize::MAX)?;
    let mut newest = None;
    for ((_, (_, id)), ()) in granted {
        newest = newest.max(last_use(snapshot, id, client)?);
    }
    Ok(newest)
}

/// The last use of a grant, unless it was given to an earlier client of the same identifier.
fn last_use(snapshot: &dyn Snapshot, grant: Uuid, client: &Client) -> Result<Option<Timestamp>, StoreError> {
    let family = FAMILIES.get(snapshot, &grant)?;
    let own = family.filter(|family| client.owns_grant(&family.authorization));
    Ok(own.map(|family| family.last_used_at))
}
