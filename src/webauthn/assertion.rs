//! The verification of an assertion: a sign-in with a credential (section 7.2).

use ring::digest;

use super::authenticator_data::AuthenticatorData;
use super::cbor;
use super::client_data::{self, Ceremony};
use super::cose::CredentialKey;
use super::{Expected, WebAuthnError};

const MAX_AUTHENTICATOR_DATA_LEN: usize = 4096;

/// What the browser returned from `navigator.credentials.get()`.
#[derive(Clone, Copy, Debug)]
pub struct Assertion<'a> {
    /// `response.clientDataJSON`.
    pub client_data: &'a [u8],
    /// `response.authenticatorData`.
    pub authenticator_data: &'a [u8],
    /// `response.signature`.
    pub signature: &'a [u8],
}

/// What is stored of the credential whose id the browser returned, for the user of the `userHandle` (step 6).
#[derive(Clone, Copy, Debug)]
pub struct StoredCredential<'a> {
    /// The `COSE_Key`.
    pub public_key: &'a [u8],
    /// The signature counter of its last use.
    pub sign_count: u32,
    /// Whether a provider may sync it.
    pub backup_eligible: bool,
}

/// What has to be stored of the credential after a use (step 24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialState {
    /// The signature counter.
    pub sign_count: u32,
    /// Whether it is backed up now.
    pub backed_up: bool,
}

impl Assertion<'_> {
    /// Verifies the response (section 7.2 steps 7 to 24).
    ///
    /// Step 22 leaves it to the relying party what a counter that did not grow means. If the key never leaves its
    /// device, there is a copy of the key, or two responses overtook each other. The response is refused, and in the
    /// second case the user tries again. If the key is synced, each device may count for itself. The response is
    /// accepted, and its counter is kept: section 4 defines `signCount` as the latest value.
    pub fn verify(
        &self,
        expected: &Expected<'_>,
        credential: &StoredCredential<'_>,
    ) -> Result<CredentialState, WebAuthnError> {
        client_data::check(self.client_data, Ceremony::Authentication, expected)?;
        if self.authenticator_data.len() > MAX_AUTHENTICATOR_DATA_LEN {
            return Err(WebAuthnError::AuthenticatorData);
        }
        let data = AuthenticatorData::parse(self.authenticator_data)?;
        data.check(expected)?;
        if data.attested.is_some() {
            return Err(WebAuthnError::AuthenticatorData);
        }
        if data.is_backup_eligible() != credential.backup_eligible {
            return Err(WebAuthnError::BackupEligibility);
        }
        let key = cbor::only(credential.public_key).map_err(|_| WebAuthnError::Key)?;
        let hash = digest::digest(&digest::SHA256, self.client_data);
        let message = [self.authenticator_data, hash.as_ref()].concat();
        CredentialKey::of_value(&key)?.verify(&message, self.signature)?;
        let has_counter = data.sign_count != 0 || credential.sign_count != 0;
        if has_counter && !credential.backup_eligible && data.sign_count <= credential.sign_count {
            return Err(WebAuthnError::SignCount);
        }
        Ok(CredentialState {
            sign_count: data.sign_count,
            backed_up: data.is_backed_up(),
        })
    }
}
