//! The answer of the introspection endpoint: RFC 7662 section 2.2.

use serde::Serialize;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::oauth::scope::Scope;

/// The answer. A token that is not active is spoken of no further.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Introspection {
    /// Anything but an active token.
    Inactive(Inactive),
    /// An active token.
    Active(Box<Active>),
}

/// `{"active": false}`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Inactive {
    active: bool,
}

/// What is said of an active token.
#[derive(Clone, Debug, Serialize)]
pub struct Active {
    /// Always true.
    pub active: bool,
    /// The granted scope.
    pub scope: Scope,
    /// The client it was issued to.
    pub client_id: String,
    /// The account identifier, as a name people know the user by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// `bearer` for access tokens; absent for refresh tokens, which are no such type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_type: Option<&'static str>,
    /// When it stops being good.
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
    /// The answer for every token that is not active, whatever the reason.
    pub const INACTIVE: Self = Self::Inactive(Inactive { active: false });
}
