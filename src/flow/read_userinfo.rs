//! An access token is exchanged for claims about its user: OpenID Connect Core 5.3.

use serde_json::{Map, Value};

use super::introspect::live_access_token;
use super::{Answer, Core, Failure};
use crate::clock::Timestamp;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::openid::claims;
use crate::oauth::scope::Scope;

/// The claims that the token's scope and the original request ask for.
pub fn read_userinfo(
    core: &Core,
    token: &str,
    now: Timestamp,
) -> Result<Answer<Map<String, Value>>, Failure> {
    let Some(live) = live_access_token(core, token, now)? else {
        return Ok(Err(Refusal::new(
            ErrorCode::InvalidToken,
            "access token is unknown, expired or revoked",
        )));
    };
    let scope = &live.claims.scope;
    let Some((user, family)) = live.grant.as_ref().filter(|_| scope.contains(Scope::OPENID)) else {
        return Ok(Err(Refusal::new(
            ErrorCode::InsufficientScope,
            "the scope openid is needed",
        )));
    };
    let granted = &family.authorization;
    let requested = granted.claims.clone();
    let requested = if granted.scope.is_within(scope) {
        requested
    } else {
        // the client narrowed this token: what it asked for one by one is narrowed along
        requested.within(scope)
    };
    Ok(Ok(claims::userinfo(user, scope, &requested)))
}
