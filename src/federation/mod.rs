//! Upstream OpenID providers: their metadata, the checks of their ID tokens, and the users of these tokens.
//!
//! The rules are plain functions ([`id_token`], [`profile`], [`account`], [`authorization`]). Only [`upstreams`] sends
//! requests to providers.

pub mod account;
pub mod authorization;
pub mod cache;
pub mod id_token;
pub mod metadata;
pub mod profile;
pub mod provider;
pub mod upstreams;

pub use provider::Provider;
pub use upstreams::Upstreams;
