//! A client redeems an authorization code: RFC 6749 section 4.1.3.

use uuid::Uuid;

use super::issue::{ApprovedGrant, issue_tokens};
use super::start_family::DrawnFamily;
use crate::clock::Timestamp;
use crate::flow::login::session;
use crate::flow::{Answer, Core, Failure};
use crate::oauth::client::GrantType;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::code::{self, CodeExchange, Redemption};
use crate::oauth::error::Refusal;
use crate::oauth::token::TokenResponse;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::{CODES, SESSIONS};

enum Outcome {
    Granted(Box<ApprovedGrant>),
    Replayed(Uuid),
    Refused(Refusal),
}

/// Consumes the code, starts a refresh family, and issues tokens.
pub async fn redeem_code(
    core: &Core,
    client: &AuthenticatedClient,
    exchange: CodeExchange,
    now: Timestamp,
) -> Result<Answer<TokenResponse>, Failure> {
    let grant_policy = core.grant_policy();
    if let Err(refusal) = grant_policy.check_grant(client, GrantType::AuthorizationCode) {
        return Ok(Err(refusal));
    }
    let (drawn, redeemer) = (DrawnFamily::draw(core), client.clone());
    let outcome = core
        .store
        .write("redeem_code", move |tx| {
            let Some(code) = CODES.get(&*tx, &exchange.id)? else {
                return Ok(Outcome::Refused(code::UNKNOWN));
            };
            let code = match code.redeem(&exchange, &redeemer.client_id, drawn.id, now) {
                Redemption::Granted(code) => code,
                Redemption::Replayed { family } => {
                    session::end_family(tx, family, now)?;
                    return Ok(Outcome::Replayed(family));
                }
                Redemption::Refused(refusal) => return Ok(Outcome::Refused(refusal)),
            };
            // It may have become so since the code was issued.
            if redeemer.requires_pkce() && code.code_challenge.is_none() {
                return Ok(Outcome::Refused(Refusal::invalid_grant(
                    "this client must use PKCE, and the authorization request had no code_challenge",
                )));
            }
            let user = match grant_policy.admit(&*tx, &redeemer, &code.authorization)? {
                Ok(user) => user,
                Err(refusal) => return Ok(Outcome::Refused(refusal)),
            };
            let session = match code.authorization.session {
                Some(id) => SESSIONS.get(&*tx, &id)?,
                None => None,
            };
            if session.is_none_or(|session| session.user != code.authorization.user) {
                return Ok(Outcome::Refused(Refusal::invalid_grant(
                    "the user has signed out",
                )));
            }
            CODES.put(tx, &exchange.id, &code.remembered())?;
            let granted = (user, code.authorization);
            let approved = drawn.begin(tx, &redeemer, GrantType::AuthorizationCode, granted, now)?;
            Ok(Outcome::Granted(Box::new(ApprovedGrant {
                nonce: code.nonce,
                ..approved
            })))
        })
        .await?;
    match outcome {
        Outcome::Granted(approved) => issue_tokens(core, client, *approved, now).map(Ok),
        Outcome::Replayed(family) => {
            audit::record(&Event::CodeReplayed {
                client_id: &client.client_id,
                family,
            });
            Ok(Err(Refusal::invalid_grant(
                "code was used before; what it brought has been revoked",
            )))
        }
        Outcome::Refused(refusal) => Ok(Err(refusal)),
    }
}
