//! What is kept, one file per record. A released shape is never edited: a change is a new version.

pub mod api_key_use;
pub mod federation;
pub mod identity;
pub mod oauth;
pub mod signing_key;

pub use api_key_use::ApiKeyUse;
pub use signing_key::{KeyLifecycle, SigningKeyRecord};
