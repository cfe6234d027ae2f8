//! May this subject get a token for this client now? The one question that every grant asks, and everybody who wants to
//! know whether what a grant has brought is still in force.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::identity::{Factor, User};
use crate::oauth::client::{Client, ConsentRequirement, GrantType};
use crate::oauth::client_auth;
use crate::oauth::code::Authorization;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::scope::Scope;
use crate::store::StoreError;
use crate::store::backend::Snapshot;
use crate::store::tables::{CLIENTS, CONSENTS, PROVIDERS, USERS};

use super::{Answer, Catalog};

const GONE: Refusal = Refusal::invalid_grant("the user may no longer sign in");

/// Asks, of whatever is in force at that moment.
#[derive(Clone)]
pub struct Gate {
    catalog: Arc<ArcSwap<Catalog>>,
}

impl Gate {
    pub(super) fn new(catalog: &Arc<ArcSwap<Catalog>>) -> Self {
        Self {
            catalog: Arc::clone(catalog),
        }
    }

    /// Refuses a client that may not use the grant (RFC 6749 section 5.2, `unauthorized_client`), and one that is out of
    /// service by now.
    pub fn check_grant(&self, client: &Client, grant_type: GrantType) -> Answer<()> {
        self.check_client(client)?;
        if client.grant_types.contains(&grant_type) {
            return Ok(());
        }
        Err(Refusal::naming(
            ErrorCode::UnauthorizedClient,
            &format!("this client is not registered for the grant {grant_type}"),
        ))
    }

    /// Whoever has its keys fetched chooses how long its authentication takes: meanwhile it may have been disabled, or
    /// removed and another one registered under its name.
    fn check_client(&self, client: &Client) -> Answer<()> {
        let catalog = self.catalog.load();
        let is_same = |now: &Arc<Client>| now.enabled && now.client_uuid == client.client_uuid;
        if catalog.client(&client.client_id).is_some_and(is_same) {
            Ok(())
        } else {
            Err(client_auth::UNKNOWN)
        }
    }

    /// Lets the user of an authorization pass, as client and user are now.
    ///
    /// A grant asks inside the transaction that issues, so that a user disabled a moment ago gets nothing.
    pub fn admit(
        &self,
        snapshot: &dyn Snapshot,
        client: &Client,
        authorization: &Authorization,
    ) -> Result<Answer<User>, StoreError> {
        if let Err(refusal) = self.check_client(client) {
            return Ok(Err(refusal));
        }
        match USERS.get(snapshot, &authorization.user)? {
            Some(user) => judge(snapshot, client, authorization, user),
            None => Ok(Err(GONE)),
        }
    }

    /// The same for a user who comes with nothing that was granted before, and whose record is perhaps about to be
    /// written.
    ///
    /// What was granted goes with its client, in one transaction; this would begin after it. So the client's own row
    /// is looked for, which is gone before the catalog says so.
    pub fn admit_newcomer(
        &self,
        snapshot: &dyn Snapshot,
        client: &Client,
        authorization: &Authorization,
        user: User,
    ) -> Result<Answer<User>, StoreError> {
        if let Err(refusal) = self.check_client(client) {
            return Ok(Err(refusal));
        }
        if !CLIENTS.contains(snapshot, &client.client_id)? {
            return Ok(Err(client_auth::UNKNOWN));
        }
        judge(snapshot, client, authorization, user)
    }
}

fn judge(
    snapshot: &dyn Snapshot,
    client: &Client,
    authorization: &Authorization,
    user: User,
) -> Result<Answer<User>, StoreError> {
    if !user.enabled {
        return Ok(Err(GONE));
    }
    if let Factor::Federated { provider } = &authorization.factor
        && !PROVIDERS
            .get(snapshot, provider)?
            .is_some_and(|provider| provider.enabled)
    {
        return Ok(Err(Refusal::invalid_grant(
            "the provider by which the user signed in is no longer in service",
        )));
    }
    let asks_people = match authorization.factor {
        Factor::Password | Factor::Federated { .. } => client.consent == ConsentRequirement::Require,
        Factor::Anonymous => false,
    };
    if asks_people {
        let key = (authorization.user, client.client_id.clone());
        let given = CONSENTS
            .get(snapshot, &key)?
            .and_then(|consent| consent.scope.parse::<Scope>().ok());
        let asked = authorization
            .scope
            .filter(|value| value != Scope::AUTHENTICATED)
            .union(&authorization.claims.implied_scope());
        if !given.is_some_and(|given| asked.is_within(&given)) {
            return Ok(Err(Refusal::invalid_grant(
                "the user has not given consent or has withdrawn it",
            )));
        }
    }
    Ok(Ok(user))
}
