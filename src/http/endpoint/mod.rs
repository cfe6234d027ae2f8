//! Endpoints for programs. Each parses, calls one flow, and answers.

pub mod authorize;
pub mod client;
pub mod device_authorization;
pub mod dpop;
pub mod end_session;
pub mod health;
pub mod introspect;
pub mod metadata;
pub mod par;
pub mod refresh;
pub mod register;
pub mod revoke;
pub mod token;
pub mod userinfo;
