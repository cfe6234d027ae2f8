//! Authenticator data: what the authenticator says and signs (section 6.1).

use ring::digest;

use super::cbor::{self, Value};
use super::cose::CredentialKey;
use super::{Expected, MAX_CREDENTIAL_ID_LEN, WebAuthnError};

const USER_PRESENT: u8 = 1;
const USER_VERIFIED: u8 = 1 << 2;
const BACKUP_ELIGIBLE: u8 = 1 << 3;
const BACKUP_STATE: u8 = 1 << 4;
const ATTESTED: u8 = 1 << 6;
const EXTENSIONS: u8 = 1 << 7;

/// Authenticator data, read as a whole. Outputs of extensions are checked for their form and ignored, as section 7.1
/// step 27 and section 7.2 step 23 permit: the service requests no extension of the authenticator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticatorData<'a> {
    rp_id_hash: &'a [u8],
    flags: u8,
    /// The signature counter, zero if the authenticator has none.
    pub sign_count: u32,
    /// The new credential of a registration.
    pub attested: Option<AttestedCredential<'a>>,
}

/// Attested credential data (section 6.5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttestedCredential<'a> {
    /// The model of the authenticator, zero if it does not say.
    pub aaguid: [u8; 16],
    pub id: &'a [u8],
    /// The `COSE_Key` as it was sent.
    pub public_key: &'a [u8],
    pub key: CredentialKey,
}

impl<'a> AuthenticatorData<'a> {
    /// Reads authenticator data. Reserved flags are ignored.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WebAuthnError> {
        const MALFORMED: WebAuthnError = WebAuthnError::AuthenticatorData;
        let (rp_id_hash, rest) = bytes.split_at_checked(32).ok_or(MALFORMED)?;
        let (flags, rest) = rest.split_first().ok_or(MALFORMED)?;
        let (sign_count, rest) = rest.split_first_chunk().ok_or(MALFORMED)?;
        let (attested, rest) = if flags & ATTESTED == 0 {
            (None, rest)
        } else {
            let (attested, rest) = AttestedCredential::parse(rest)?;
            (Some(attested), rest)
        };
        let rest = if flags & EXTENSIONS == 0 {
            rest
        } else {
            match cbor::first(rest).map_err(|_| MALFORMED)? {
                (Value::Map(_), rest) => rest,
                _ => return Err(MALFORMED),
            }
        };
        if !rest.is_empty() {
            return Err(MALFORMED);
        }
        Ok(Self {
            rp_id_hash,
            flags: *flags,
            sign_count: u32::from_be_bytes(*sign_count),
            attested,
        })
    }

    /// Whether the credential may be backed up: a passkey that a provider syncs.
    pub const fn is_backup_eligible(&self) -> bool {
        self.flags & BACKUP_ELIGIBLE != 0
    }

    /// Whether the credential is backed up now.
    pub const fn is_backed_up(&self) -> bool {
        self.flags & BACKUP_STATE != 0
    }

    /// The checks that both ceremonies have (section 7.1 steps 14 to 17, section 7.2 steps 15 to 18).
    pub(super) fn check(&self, expected: &Expected<'_>) -> Result<(), WebAuthnError> {
        let rp_id_hash = digest::digest(&digest::SHA256, expected.rp_id.as_bytes());
        if self.rp_id_hash != rp_id_hash.as_ref() {
            return Err(WebAuthnError::RpIdHash);
        }
        if self.flags & USER_PRESENT == 0 {
            return Err(WebAuthnError::UserNotPresent);
        }
        if self.flags & USER_VERIFIED == 0 {
            return Err(WebAuthnError::UserNotVerified);
        }
        if self.is_backed_up() && !self.is_backup_eligible() {
            return Err(WebAuthnError::BackupState);
        }
        Ok(())
    }
}

impl<'a> AttestedCredential<'a> {
    fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WebAuthnError> {
        const MALFORMED: WebAuthnError = WebAuthnError::AuthenticatorData;
        let (aaguid, rest) = bytes.split_first_chunk().ok_or(MALFORMED)?;
        let (length, rest) = rest.split_first_chunk().ok_or(MALFORMED)?;
        let length = usize::from(u16::from_be_bytes(*length));
        if !(1..=MAX_CREDENTIAL_ID_LEN).contains(&length) {
            return Err(MALFORMED);
        }
        let (id, key_and_rest) = rest.split_at_checked(length).ok_or(MALFORMED)?;
        let (key, rest) = cbor::first(key_and_rest).map_err(|_| MALFORMED)?;
        let public_key = key_and_rest
            .get(..key_and_rest.len() - rest.len())
            .ok_or(MALFORMED)?;
        let attested = Self {
            aaguid: *aaguid,
            id,
            public_key,
            key: CredentialKey::of_value(&key)?.chosen_by_stranger()?,
        };
        Ok((attested, rest))
    }
}
