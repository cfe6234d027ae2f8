//! Passkeys: registrations and assertions of Web Authentication Level 3, verified as a relying party does (section 7).
//!
//! Everything here is a pure decision about bytes that a browser sent. The caller keeps the challenge, finds the stored
//! credential and stores what changed. User verification is always required, so that a passkey is two factors.

pub mod assertion;
pub mod authenticator_data;
pub mod cbor;
pub mod client_data;
pub mod cose;
pub mod registration;
pub mod relying_party;
pub mod response;

pub use assertion::{Assertion, CredentialState, StoredCredential};
pub use registration::{NewCredential, Registration};
pub use relying_party::RelyingParty;

/// The length of a challenge that the service draws. The standard asks for at least 16 bytes (section 13.4.3).
pub const CHALLENGE_LEN: usize = 32;

/// The longest credential id (section 6.5.1).
pub const MAX_CREDENTIAL_ID_LEN: usize = 1023;

/// What every response is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The relying party identifier: a host name.
    pub rp_id: &'a str,
    /// The origins whose pages may use the passkeys, serialized as browsers do (section 13.4.9).
    pub origins: &'a [String],
    /// The challenge that the service gave to this browser.
    pub challenge: &'a [u8],
}

/// Why a response is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebAuthnError {
    /// The answer is not JSON of the form of section 5.1.8 or 5.1.9.
    #[error("response is malformed")]
    Response,
    /// `clientDataJSON` is too long, or not a JSON object with the members of section 5.8.1.
    #[error("client data is malformed")]
    ClientData,
    /// `type` is that of the other ceremony.
    #[error("client data is of another ceremony")]
    Ceremony,
    /// `challenge` is not the one of this ceremony.
    #[error("challenge is another one")]
    Challenge,
    /// `origin` is not an origin of the service.
    #[error("origin is not one of this service")]
    Origin,
    /// The page was in a frame of another origin.
    #[error("page was in a frame of another origin")]
    CrossOrigin,
    /// The attestation object is not CBOR with the members of section 6.5.4.
    #[error("attestation object is malformed")]
    AttestationObject,
    /// The credential signed a `packed` attestation statement itself, and the signature does not match.
    #[error("attestation statement does not match")]
    AttestationStatement,
    /// The authenticator data does not have the layout of section 6.1.
    #[error("authenticator data is malformed")]
    AuthenticatorData,
    /// `rpIdHash` is that of another relying party.
    #[error("authenticator data is for another relying party")]
    RpIdHash,
    /// The UP flag is not set.
    #[error("user was not present")]
    UserNotPresent,
    /// The UV flag is not set.
    #[error("user was not verified")]
    UserNotVerified,
    /// The BS flag is set without the BE flag.
    #[error("a credential that cannot be backed up is said to be backed up")]
    BackupState,
    /// The BE flag differs from that of the registration.
    #[error("backup eligibility changed")]
    BackupEligibility,
    /// The public key is malformed, or its algorithm, curve or size is not supported.
    #[error("credential key is not supported")]
    Key,
    /// The signature does not match.
    #[error("signature does not match")]
    Signature,
    /// The signature counter did not grow.
    #[error("signature counter did not grow")]
    SignCount,
}

#[cfg(test)]
mod tests {
    pub(super) fn unhex(digits: &str) -> Vec<u8> {
        let digits: String = digits.split_whitespace().collect();
        let pairs = digits
            .as_bytes()
            .chunks(2)
            .map(|pair| str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }
}
