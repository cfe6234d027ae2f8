//! Logout tokens: OpenID Connect Back-Channel Logout 1.0 section 2.4.

use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::described::described;

/// `typ` of logout tokens, so that none is taken for an ID token.
pub const LOGOUT_TOKEN_TYP: &str = "logout+jwt";
/// How long a logout token can be used. The specification recommends at most two minutes.
const LIFETIME: Duration = Duration::from_mins(2);

described! {
    /// The claims of a logout token.
    #[derive(Clone, Debug, Serialize)]
    pub struct LogoutTokenClaims<'a> {
        /// The issuer.
        pub iss: &'a str,
        /// The client that the token is for.
        pub aud: &'a str,
        /// The user, as in ID tokens.
        pub sub: Uuid,
        /// The session that has ended, as in ID tokens.
        pub sid: Uuid,
        /// The identifier of this token. Each attempt has another one.
        pub jti: Uuid,
        /// When the token was issued, in seconds since 1970: the time of the attempt.
        pub iat: Timestamp,
        /// When the token expires, in seconds since 1970: two minutes later.
        pub exp: Timestamp,
        /// `{"http://schemas.openid.net/event/backchannel-logout": {}}`.
        pub events: Events,
    }
}

/// The claim `events`, which says that the token is a logout token.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Events {
    #[serde(rename = "http://schemas.openid.net/event/backchannel-logout")]
    logout: NoMembers,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct NoMembers {}

impl<'a> LogoutTokenClaims<'a> {
    /// The claims of a token that is sent now.
    pub fn new(iss: &'a str, aud: &'a str, sub: Uuid, sid: Uuid, jti: Uuid, now: Timestamp) -> Self {
        Self {
            iss,
            aud,
            sub,
            sid,
            jti,
            iat: now,
            exp: now + LIFETIME,
            events: Events { logout: NoMembers {} },
        }
    }
}
