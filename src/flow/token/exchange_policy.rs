//! What both kinds of token exchange check: of an access token of this service, and of a provider's token.

use crate::identity::session::level_of;
use crate::oauth::assertion::ReplayKey;
use crate::oauth::client::Client;
use crate::oauth::code::Authorization;
use crate::oauth::error::Refusal;
use crate::oauth::resource::TokenTarget;
use crate::oauth::token_exchange::Actor;

/// The acting party, by an actor token that was verified.
#[derive(Clone, Debug)]
pub struct VerifiedActor {
    pub party: Actor,
    /// The key under which the use of its token is recorded.
    pub replay_key: Option<ReplayKey>,
}

/// Refuses an exchange that the policy of the client, or of an API of the new token, does not allow.
pub(super) fn check_policy(client: &Client, target: &TokenTarget, has_actor: bool) -> Result<(), Refusal> {
    client.token_exchange.check(has_actor, "this client")?;
    target.apis.iter().try_for_each(|api| {
        let owner = format!("the API {}", api.identifier);
        api.token_exchange.check(has_actor, &owner)
    })
}

/// Refuses a user who signed in at a lower level than the client demands (`--acr`).
pub(super) fn check_level(client: &Client, authorization: &Authorization) -> Result<(), Refusal> {
    if level_of(&authorization.factor, authorization.second_factor) < client.acr {
        return Err(Refusal::invalid_grant(
            "the user signed in with fewer factors than this client demands",
        ));
    }
    Ok(())
}
