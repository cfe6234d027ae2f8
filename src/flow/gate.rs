//! May this subject get a token for this client now? The one question that every grant asks, and everybody who wants to
//! know whether what a grant has brought is still in force.

use crate::identity::{Factor, User};
use crate::oauth::client::{Client, ConsentRequirement, GrantType};
use crate::oauth::code::Authorization;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::scope::Scope;
use crate::store::StoreError;
use crate::store::backend::Snapshot;
use crate::store::tables::{CONSENTS, PROVIDERS, USERS};

use super::Answer;

/// Refuses a client that may not use the grant (RFC 6749 section 5.2, `unauthorized_client`).
pub fn check_grant(client: &Client, grant_type: GrantType) -> Answer<()> {
    if client.grant_types.contains(&grant_type) {
        return Ok(());
    }
    Err(Refusal::naming(
        ErrorCode::UnauthorizedClient,
        &format!("this client is not registered for the grant {grant_type}"),
    ))
}

const GONE: Refusal = Refusal::invalid_grant("the user may no longer sign in");

/// Lets the user of an authorization pass, as the user is now.
///
/// A grant asks inside the transaction that issues, so that a user disabled a moment ago gets nothing. The client
/// was found enabled before.
pub fn admit(
    snapshot: &dyn Snapshot,
    client: &Client,
    authorization: &Authorization,
) -> Result<Answer<User>, StoreError> {
    match USERS.get(snapshot, &authorization.user)? {
        Some(user) => admit_user(snapshot, client, authorization, user),
        None => Ok(Err(GONE)),
    }
}

/// The same for a user whose record is at hand, and perhaps about to be written.
pub fn admit_user(
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
