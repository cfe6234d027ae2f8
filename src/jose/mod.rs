//! JOSE: compact signatures (RFC 7515), keys (RFC 7517), algorithms (RFC 7518) and tokens (RFC 7519).
//!
//! Only asymmetric signatures exist here, and only the caller decides which algorithm and whose key a
//! token is checked with; what a token says about itself is compared with that, never followed
//! (RFC 8725 sections 3.1 and 3.10).

pub mod alg;
pub mod claims;
mod der;
pub mod json;
pub mod jwk;
pub mod jws;
pub mod jwt;
pub mod keyring;
mod roca;
pub mod rsa_keygen;
pub mod signature_cache;
#[cfg(test)]
mod tests;

pub use alg::Algorithm;
pub use jwk::{JwkSet, PublicKey};
pub use jwt::{ExpectedTyp, Verified};
pub use keyring::{KeyState, Keyring, SigningKey};
