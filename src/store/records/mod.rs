//! What is kept, one file per record. A released shape is never edited: a change is a new version.

pub mod identity;
pub mod oauth;
pub mod signing_key;

pub use signing_key::{KeyStanding, SigningKeyRecord};
