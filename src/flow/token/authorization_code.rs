//! A client redeems an authorization code: RFC 6749 section 4.1.3.

use uuid::Uuid;

use super::issue::{ApprovedGrant, Granted, issue_tokens};
use super::start_family::{NewFamily, will_begin};
use crate::clock::{Arrival, Timestamp};
use crate::flow::grant_policy::has_ended;
use crate::flow::login::{anonymous_upgrade, session};
use crate::flow::{Core, FlowError, logout_notice};
use crate::oauth::client::GrantType;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::code::{self, CodeExchange, Redemption};
use crate::oauth::confirmation::Possession;
use crate::oauth::error::Refusal;
use crate::oauth::profile::MAX_CODE_AGE;
use crate::oauth::resource::Resources;
use crate::oauth::token::TokenResponse;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::TxError;
use crate::store::tables::{CODES, SESSIONS};

/// What the transaction did with a code that was not refused.
enum CodeExchangeResult {
    Granted(Box<ApprovedGrant>),
    /// The code was used before. This family, which it began, has been revoked.
    Replayed(Uuid),
}

/// Consumes the code, starts a refresh family, and issues tokens.
pub async fn redeem_code(
    core: &Core,
    client: &AuthenticatedClient,
    exchange: CodeExchange,
    resources: Resources,
    possession: Option<Possession>,
    arrival: Arrival,
) -> Result<TokenResponse, FlowError> {
    let now = arrival.now();
    let grant_policy = core.grant_policy();
    grant_policy.check_grant(client, GrantType::AuthorizationCode)?;
    let (drawn, redeemer) = (NewFamily::draw(core, possession)?, client.clone());
    let clock = core.clock.clone();
    let exchanged =
        core.store
            .write("redeem_code", move |tx| -> Result<_, TxError<Refusal>> {
                drawn.check_proof(&*tx, now)?;
                let Some(code) = CODES.get(&*tx, &exchange.id)? else {
                    return Err(code::UNKNOWN.into());
                };
                let is_own = code.authorization.client_id == redeemer.client_id;
                if is_own && has_ended(&*tx, Some(&redeemer), &code.authorization)? {
                    return Err(code::UNKNOWN.into());
                }
                if redeemer.profile.is_some() && Timestamp::of_id(exchange.id) + MAX_CODE_AGE < now {
                    return Err(code::UNKNOWN.into());
                }
                let shown = drawn.confirmation();
                let code = match code.redeem(&exchange, &redeemer.client_id, shown.as_ref(), drawn.id, now) {
                    Redemption::Granted(code) => code,
                    Redemption::Replayed { family }
                        if code::has_overtaken(family, arrival, clock.since_epoch()) =>
                    {
                        return Err(code::OVERTAKEN.into());
                    }
                    Redemption::Replayed { family } => {
                        session::end_family(tx, family, now)?;
                        return Ok(CodeExchangeResult::Replayed(family));
                    }
                    Redemption::Refused(refusal) => return Err(refusal.into()),
                };
                // The client may have been changed since the code was issued.
                let (scope, nonce) = (&code.authorization.scope, code.nonce.as_deref());
                if code.code_challenge.is_none() && redeemer.requires_challenge(scope, nonce) {
                    return Err(Refusal::invalid_grant(
                        "this client must use PKCE, and the authorization request had no code_challenge",
                    )
                    .into());
                }
                if redeemer.match_redirect_uri(Some(code.return_to.uri())).is_err() {
                    return Err(Refusal::invalid_grant(
                    "the redirect URI of the authorization request is no longer registered for this client",
                ).into());
                }
                if let Some(id) = &code.authorization.session {
                    SESSIONS.will_get(&*tx, id);
                }
                will_begin(&*tx, &redeemer, &code.authorization);
                let user = grant_policy.admit(&*tx, &redeemer, &code.authorization)?;
                let session = match code.authorization.session {
                    Some(id) => session::find_unended(&*tx, id)?,
                    None => None,
                };
                if session.is_none_or(|session| session.user != code.authorization.user) {
                    return Err(Refusal::invalid_grant("the user has signed out").into());
                }
                let target = drawn.target(&redeemer, &code.authorization, &resources)?;
                let (remembered, was_anonymous) = (code.remembered(), code.was_anonymous());
                let anonymous_sub = code.linked_anonymous_user();
                let granted = Granted {
                    user,
                    authorization: code.authorization,
                    target,
                };
                let approved = drawn.begin(tx, &redeemer, GrantType::AuthorizationCode, granted, now)?;
                CODES.put(tx, &exchange.id, &remembered)?;
                if was_anonymous {
                    anonymous_upgrade::resume_grants(tx, approved.user.uuid)?;
                }
                logout_notice::record_client(tx, &redeemer, &approved.authorization, now)?;
                Ok(CodeExchangeResult::Granted(Box::new(ApprovedGrant {
                    nonce: code.nonce,
                    anonymous_sub,
                    ..approved
                })))
            })
            .await?;
    match exchanged {
        CodeExchangeResult::Granted(approved) => issue_tokens(core, client, *approved, now),
        CodeExchangeResult::Replayed(family) => {
            audit::record(&Event::CodeReplayed {
                client_id: &client.client_id,
                family,
            });
            Err(Refusal::invalid_grant("code was used before; what it brought has been revoked").into())
        }
    }
}
