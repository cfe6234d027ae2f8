//! Removes unused clients that registered themselves or have metadata documents.

use std::time::Duration;

use super::remove_client::remove_client;
use super::{Core, Failure};
use crate::clock::Timestamp;
use crate::oauth::Client;
use crate::oauth::client::ClientOrigin;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::CLIENTS;

/// How long a client is kept without use.
const UNUSED_PERIOD: Duration = Duration::from_hours(30 * 24);
/// The least time between two recorded uses of a client with a metadata document.
pub(super) const RECORD_INTERVAL: Duration = Duration::from_hours(24);
/// The most clients that are removed in one transaction.
const MOST_REMOVED: usize = 100;

/// Whether the client is to be removed. A client that registered itself is removed if no user has allowed it in time,
/// or if it has removed itself. A client with a metadata document is removed if it is unused for longer than a refresh
/// token lasts. A disabled client with a metadata document stays.
fn is_abandoned(client: &Client, refresh_token: Duration, now: Timestamp) -> bool {
    match client.origin {
        ClientOrigin::Operator => false,
        ClientOrigin::DynamicRegistration => {
            client.has_removed_itself()
                || (client.is_never_used() && now.since(client.created_at) >= UNUSED_PERIOD)
        }
        ClientOrigin::MetadataDocument => {
            let own = client
                .refresh_token_lifetime
                .map(Duration::from)
                .unwrap_or_default();
            let retention = UNUSED_PERIOD.max(refresh_token).max(own) + RECORD_INTERVAL;
            client.enabled && now.since(client.updated_at) >= retention
        }
    }
}

/// Removes abandoned clients and their grants.
pub(super) async fn remove_unused_clients(core: &Core, now: Timestamp) -> Result<(), Failure> {
    let refresh_token = core.policy.lifetimes.refresh_token;
    let catalog = core.catalog();
    let is_candidate = |client: &Client| is_abandoned(client, refresh_token, now);
    let registrants = catalog.registrants();
    let vouched_for = catalog.clients().filter(|client| is_candidate(client));
    let mut ids = registrants.ids_where(is_candidate);
    ids.extend(vouched_for.map(|client| client.client_id.clone()));
    ids.truncate(MOST_REMOVED);
    let without_room = registrants.take_left_out(MOST_REMOVED);
    ids.extend(without_room.iter().cloned());
    if ids.is_empty() {
        return Ok(());
    }
    let candidates = ids.clone();
    let removed = core
        .store
        .make_room("remove_unused_clients", move |tx| {
            let mut removed = Vec::new();
            for id in &candidates {
                let Some(client) = CLIENTS.get(&*tx, id)? else {
                    continue;
                };
                let reason = if is_abandoned(&client, refresh_token, now) {
                    "unused"
                } else if client.is_never_used() && without_room.contains(id) {
                    "replaced"
                } else {
                    continue;
                };
                remove_client(tx, &client)?;
                if !client.has_removed_itself() {
                    removed.push((client, reason));
                }
            }
            Ok(removed)
        })
        .await;
    let reloaded = core.reload_clients(&ids).await;
    for (client, reason) in &removed? {
        audit::record(&Event::ClientRegistrationRemoved {
            client_id: &client.client_id,
            name: client.own_name(),
            reason,
        });
    }
    Ok(reloaded?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oauth::client_document::new_client;
    use crate::random::Random;

    #[test]
    fn a_client_whose_refresh_tokens_last_longer_than_those_of_others_is_kept_longer() {
        let (created, day) = (Timestamp::from_seconds(0), Duration::from_hours(24));
        let mut client = new_client("https://app.example/client", Random::system().uuid_v4(), created);
        let is_kept = |client: &Client, days| !is_abandoned(client, day, created + day * days);
        assert!(is_kept(&client, 30) && !is_kept(&client, 31));
        client.refresh_token_lifetime = serde_json::from_str("7776000").ok();
        assert!(is_kept(&client, 90) && !is_kept(&client, 91));
    }
}
