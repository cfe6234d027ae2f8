//! The response of the introspection endpoint: RFC 7662 section 2.2.

use serde::Serialize;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::oauth::scope::Scope;

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

/// The description of an active token.
#[derive(Clone, Debug, Serialize)]
pub struct Active {
    /// Always true.
    pub active: bool,
    /// The granted scope.
    pub scope: Scope,
    /// The client it was issued to.
    pub client_id: String,
    /// The account identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// `bearer` for access tokens; absent for refresh tokens, which have no type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_type: Option<&'static str>,
    /// When it expires.
    pub exp: Timestamp,
    /// When it was issued.
    pub iat: Timestamp,
    /// The subject.
    pub sub: Uuid,
    /// The audience of an access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aud: Option<String>,
    /// The issuer.
    pub iss: String,
    /// The identifier of an access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jti: Option<Uuid>,
}

impl Introspection {
    /// The response for every token that is not active, for any reason.
    pub const INACTIVE: Self = Self::Inactive { active: false };
}
