//! What OpenID Connect adds to OAuth: OpenID Connect Core 1.0 and RP-Initiated Logout 1.0.

pub mod claims;
pub mod id_token;
pub mod logout;
pub mod logout_token;
pub mod prompt;
