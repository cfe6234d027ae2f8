//! A client redeems an authorization code: RFC 6749 section 4.1.3.

use uuid::Uuid;

use super::begin_family::DrawnFamily;
use super::mint::{Order, mint};
use super::{Answer, Core, Failure, sessions};
use crate::audit::{self, Event};
use crate::clock::Timestamp;
use crate::oauth::client::GrantType;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::code::{self, CodeExchange, Redemption};
use crate::oauth::error::Refusal;
use crate::oauth::token::TokenResponse;
use crate::store::tables::{CODES, SESSIONS};

enum Outcome {
    Granted(Box<Order>),
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
    let gate = core.gate();
    if let Err(refusal) = gate.check_grant(client, GrantType::AuthorizationCode) {
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
                    sessions::end_family(tx, family, now)?;
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
            let user = match gate.admit(&*tx, &redeemer, &code.authorization)? {
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
            let order = drawn.begin(tx, &redeemer, GrantType::AuthorizationCode, granted, now)?;
            Ok(Outcome::Granted(Box::new(Order {
                nonce: code.nonce,
                ..order
            })))
        })
        .await?;
    match outcome {
        Outcome::Granted(order) => mint(core, client, *order, now).map(Ok),
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
