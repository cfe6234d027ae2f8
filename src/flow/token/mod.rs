//! The grants of the token endpoint, introspection, revocation and `UserInfo`: one verb a file, one transaction each.

mod access_token_settings;
pub mod anonymous;
pub mod authorization_code;
mod check_length;
pub mod client_credentials;
pub mod device_code;
pub mod exchange_policy;
pub mod introspect;
pub mod issue;
pub mod jwt_bearer;
pub mod refresh_token;
pub mod revoke;
pub mod start_family;
pub mod token_exchange;
pub mod userinfo;
