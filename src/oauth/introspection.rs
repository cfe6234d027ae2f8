//! The response of the introspection endpoint: RFC 7662 section 2.2.

use serde::Serialize;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::described::described;
use crate::identity::AuthenticationLevel;
use crate::jose::claims::Audience;
use crate::oauth::confirmation::Confirmation;
use crate::oauth::scope::Scope;
use crate::oauth::token_exchange::Actor;

/// The response. It describes active tokens only (RFC 7662 section 2.2).
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Introspection {
    /// The token is not active.
    Inactive {
        /// Always false.
        active: bool,
    },
    /// The token is active.
    Active(Box<Active>),
}

described! {
    /// The description of an active token.
    #[derive(Clone, Debug, Serialize)]
    pub struct Active {
        /// Always true.
        pub active: bool,
        /// The granted scope, as far as the client may still have it.
        pub scope: Scope,
        /// The client that the token was issued to.
        pub client_id: String,
        /// The account identifier of the user, or the client that acts for itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub username: Option<String>,
        /// `bearer` for an access token, or `DPoP` if it is bound to a key; absent for a refresh token.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub token_type: Option<&'static str>,
        /// When the token expires, in seconds since 1970.
        pub exp: Timestamp,
        /// When the token was issued, in seconds since 1970.
        pub iat: Timestamp,
        /// The identifier of the user, or of the client that acts for itself.
        pub sub: Uuid,
        /// The audience of an access token; absent for a refresh token.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub aud: Option<Audience>,
        /// The issuer.
        pub iss: String,
        /// The identifier of an access token; absent for a refresh token.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub jti: Option<Uuid>,
        /// When the user signed in, in seconds since 1970 (RFC 9470 section 6.2); absent for a refresh token.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub auth_time: Option<Timestamp>,
        /// How surely the user was authenticated (RFC 9470 section 6.2); absent for a refresh token.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub acr: Option<AuthenticationLevel>,
        /// What an access token is bound to: a key, as `{"jkt": "…"}` (RFC 9449 section 6.2), or a client certificate, as
        /// `{"x5t#S256": "…"}` (RFC 8705 section 3.2).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cnf: Option<Confirmation>,
        /// The party that acts for the user (RFC 8693 section 4.1), as in the access token.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub act: Option<Actor>,
    }
}

/// The media type of a signed response (RFC 9701 section 5).
pub const SIGNED_MEDIA_TYPE: &str = "application/token-introspection+jwt";
/// `typ` of a signed response.
pub const SIGNED_TYP: &str = "token-introspection+jwt";

/// The claims of a signed response (RFC 9701 section 5). It has neither `sub` nor `exp`, so that it is not accepted as
/// an access token.
#[derive(Debug, Serialize)]
pub struct SignedIntrospection<'a> {
    /// The issuer.
    pub iss: &'a str,
    /// The `client_id` of the client that asked.
    pub aud: &'a str,
    /// When the response was made.
    pub iat: Timestamp,
    /// The response.
    pub token_introspection: &'a Introspection,
}

impl Introspection {
    /// The response for every token that is not active, for any reason.
    pub const INACTIVE: Self = Self::Inactive { active: false };
}
