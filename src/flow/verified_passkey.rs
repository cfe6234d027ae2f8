//! A response of a passkey, from its verification to the transaction that uses it up.

use uuid::Uuid;

use super::factors::{self, StoredPasskey};
use super::passkey_challenge::OpenedChallenge;
use super::replay::{record_use, was_used};
use crate::clock::Timestamp;
use crate::identity::{Factor, FactorKind, Passkey};
use crate::oauth::assertion::ReplayKey;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::FACTORS;
use crate::webauthn::response::AuthenticationResponse;
use crate::webauthn::{RelyingParty, StoredCredential, WebAuthnError};

/// The signature is verified before the transaction. The transaction compares the passkey with the one that was
/// verified, so that of two responses with one counter one is refused.
#[derive(Clone)]
pub(in crate::flow) struct VerifiedPasskey {
    pub(in crate::flow) user: Uuid,
    id: Uuid,
    /// The passkey that was verified.
    verified: FactorKind,
    /// The same after this use.
    used: FactorKind,
    /// Under which the use of the challenge is recorded.
    pub(in crate::flow) replay_key: ReplayKey,
}

impl VerifiedPasskey {
    pub(in crate::flow) fn verify(
        relying_party: &RelyingParty,
        challenge: &OpenedChallenge,
        found: &StoredPasskey,
        response: &AuthenticationResponse,
    ) -> Result<Self, WebAuthnError> {
        let stored = StoredCredential {
            public_key: &found.passkey.public_key,
            sign_count: found.passkey.sign_count,
            backup_eligible: found.passkey.backup_eligible,
        };
        let expected = relying_party.expects(&challenge.bytes);
        let state = response.assertion().verify(&expected, &stored)?;
        let used = Passkey {
            sign_count: state.sign_count,
            backed_up: state.backed_up,
            ..found.passkey.clone()
        };
        Ok(Self {
            user: found.user,
            id: found.id,
            verified: FactorKind::Passkey(found.passkey.clone()),
            used: FactorKind::Passkey(used),
            replay_key: challenge.replay_key,
        })
    }

    /// Uses the response up. Returns whether it was unused and the passkey is the one that was verified.
    pub(in crate::flow) fn use_up(&self, tx: &mut dyn Tx, now: Timestamp) -> Result<bool, StoreError> {
        let present = FACTORS.get(&*tx, &(self.user, self.id))?;
        let present = present.filter(|factor| factor.kind == self.verified);
        let (false, Some(factor)) = (was_used(&*tx, self.replay_key, now)?, present) else {
            return Ok(false);
        };
        record_use(tx, self.replay_key)?;
        let factor = Factor {
            last_used_at: Some(now),
            kind: self.used.clone(),
            ..factor
        };
        factors::put(tx, self.user, self.id, &factor)?;
        Ok(true)
    }
}
