use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::find;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, last_use};
use crate::clock::Timestamp;
use crate::flow::grant_policy::Denial;
use crate::flow::users::is_for_people;
use crate::oauth::Client;

/// A request for the clients that a user may use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowAccess {
    /// E-mail address, account identifier or UUID.
    pub who: String,
}

/// The clients that a user may use or may not use. Clients without a grant for people are left out, and so are clients that
/// registered themselves, unless the user has used them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserAccess {
    pub user: NamedUser,
    /// The clients, by identifier.
    pub clients: Vec<AccessibleClient>,
}

/// A user by the identifiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedUser {
    pub uuid: Uuid,
    pub account_id: String,
}

/// A client, as a user may use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessibleClient {
    pub client_id: String,
    /// The name shown to people.
    pub name: String,
    /// Whether the user gets tokens of the client.
    pub allowed: bool,
    /// Why not.
    pub reasons: Vec<Denial>,
    /// The day on which the client last got tokens for the user, in UTC, as in `2026-11-21`. `None` if no grant tells.
    pub last_used: Option<String>,
}

impl Operation for ShowAccess {
    const NAME: &'static str = "user access";
    const EFFECT: Effect = Effect::Read;
    type Output = UserAccess;

    /// Reads the user, the index of the user's grants and these grants. The clients are in memory.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<UserAccess>> {
        let catalog = admin.core.catalog();
        let read = admin.read(|snapshot| {
            let user = find(snapshot, &self.who)?;
            let mut clients: Vec<_> = catalog
                .clients()
                .filter(|client| is_for_people(client))
                .cloned()
                .collect();
            let last_used = last_use::by_client(snapshot, &catalog, user.uuid)?;
            let used = last_used.keys().filter_map(|client_id| catalog.client(client_id));
            clients.extend(used);
            clients.sort_by(|one, other| one.client_id.cmp(&other.client_id));
            clients.dedup_by(|one, other| one.client_id == other.client_id);
            let accessible = |client: Arc<Client>| {
                let reasons = Denial::all_of(&client, &user, catalog.groups());
                AccessibleClient {
                    client_id: client.client_id.clone(),
                    name: client.display_name().to_owned(),
                    allowed: reasons.is_empty(),
                    reasons,
                    last_used: last_used.get(&client.client_id).copied().map(Timestamp::date),
                }
            };
            let clients = clients.into_iter().map(accessible).collect();
            Ok(UserAccess {
                user: NamedUser {
                    uuid: user.uuid,
                    account_id: user.account_id,
                },
                clients,
            })
        });
        Ok(Done::unrecorded(read.await?))
    }
}
