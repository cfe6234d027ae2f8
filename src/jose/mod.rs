//! JOSE: compact signatures (RFC 7515), keys (RFC 7517), algorithms (RFC 7518) and tokens (RFC 7519).
//!
//! Only asymmetric signatures are supported. The caller decides which algorithms and keys a token is verified with. The
//! header of the token must match that decision and never makes it (RFC 8725 sections 3.1 and 3.10).

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
pub use jwt::ExpectedTyp;
pub use keyring::{KeyState, Keyring, SigningKey};
