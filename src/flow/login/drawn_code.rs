//! An authorization code before the transaction that may issue it.

use uuid::Uuid;

use crate::clock::Timestamp;
use crate::flow::Core;
use crate::secret::{AuthorizationCode as CodeSecret, Digest, Secret};

/// A code drawn before the transaction that may issue it.
pub(in crate::flow) struct DrawnCode {
    id: Uuid,
    pub(super) secret: Secret<CodeSecret>,
    expires_at: Timestamp,
}

impl DrawnCode {
    pub(in crate::flow) fn draw(core: &Core, now: Timestamp) -> Self {
        let id = core.random.uuid_v7(core.clock.since_epoch());
        Self {
            id,
            secret: Secret::generate(id.as_bytes(), &core.random),
            expires_at: now + core.policy.lifetimes.code,
        }
    }

    pub(in crate::flow) fn slot(&self) -> CodeSlot {
        CodeSlot {
            id: self.id,
            digest: self.secret.digest(),
            expires_at: self.expires_at,
        }
    }
}

/// The part of a [`DrawnCode`] that a transaction needs.
#[derive(Clone, Copy)]
pub(in crate::flow) struct CodeSlot {
    pub(super) id: Uuid,
    pub(super) digest: Digest<CodeSecret>,
    pub(super) expires_at: Timestamp,
}
