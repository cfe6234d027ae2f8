//! The type of access tokens, which the policy, an API or a client chooses.

use serde::{Deserialize, Serialize};

/// `typ` of an access token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessTokenTyp {
    /// RFC 9068 section 2.1.
    #[default]
    #[serde(rename = "at+jwt")]
    AtJwt,
    /// For resource servers that refuse `at+jwt`. ID tokens have this type too, so the resource server must check
    /// `aud`.
    #[serde(rename = "JWT")]
    Jwt,
}

impl AccessTokenTyp {
    /// Both types. The service accepts both, so that older tokens stay valid when a setting changes.
    pub const ALL: [Self; 2] = [Self::AtJwt, Self::Jwt];

    /// The value in the header.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AtJwt => "at+jwt",
            Self::Jwt => "JWT",
        }
    }
}
