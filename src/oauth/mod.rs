//! The RFCs as types and pure decisions: functions of state, request and time.

pub mod access_token;
pub mod api;
pub mod api_key;
pub mod assertion;
pub mod authorize;
pub mod client;
pub mod client_auth;
pub mod client_metadata;
pub mod code;
pub mod consent;
pub mod error;
pub mod fault;
pub mod fields;
pub mod introspection;
pub mod login;
pub mod metadata;
pub mod openid;
pub mod parameters;
pub mod pkce;
pub mod policy;
pub mod redirect_uri;
pub mod refresh;
pub mod refresh_keys;
pub mod resource;
pub mod scope;
pub mod token;

pub use api::{Api, ApiFields, ApiMetadata};
pub use client::Client;
pub use client_metadata::{ClientFields, ClientMetadata};
pub use error::{ErrorCode, Refusal};
pub use fault::{Fault, FaultCode};
pub use policy::Policy;
pub use scope::Scope;
