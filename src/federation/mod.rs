//! Upstream OpenID providers: what they publish, which of their tokens are believed, and whom these speak of.
//!
//! The rules are plain functions ([`id_token`], [`profile`], [`account`], [`authorization`]); [`upstreams`] is the
//! one place from which a provider is asked anything.

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
