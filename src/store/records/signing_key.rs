//! Signing keys, sealed under the master key.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::store::record::Record;

/// The state of a key, with the time of its next or last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyLifecycle {
    /// The key is published, so that verifiers know it before it signs. It signs from `active_from` on.
    Announced {
        /// The time when the key begins to sign.
        active_from: Timestamp,
    },
    /// The key signs.
    Active {
        /// The time when it began to sign.
        since: Timestamp,
    },
    /// The key no longer signs. It stays published while its signatures are in use.
    Retired {
        /// The time when it leaves the key set and the store.
        remove_at: Timestamp,
    },
}

/// A signing key as it is stored, under its `kid`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningKeyRecord {
    pub alg: Algorithm,
    /// Its state.
    pub standing: KeyLifecycle,
    /// The time when it was created or imported.
    pub created_at: Timestamp,
    /// The PKCS#8 document, sealed with the context `signing_keys/{kid}`, base64url.
    pub sealed: String,
    /// How long its signatures may be in use, in seconds: the longest lifetime that was set while it signed. A shorter
    /// setting does not apply to earlier signatures. 0 before the key signs.
    pub retention: u64,
}

impl Record for SigningKeyRecord {}

impl SigningKeyRecord {
    /// Lets the key sign from `now` on. Its signatures are in use for `retention`.
    pub fn begin(&mut self, now: Timestamp, retention: Duration) {
        self.standing = KeyLifecycle::Active { since: now };
        self.prolong(retention);
    }

    /// Raises the retention to `retention`, if that is longer. Returns whether it is.
    pub fn prolong(&mut self, retention: Duration) -> bool {
        let before = self.retention;
        self.retention = before.max(retention.as_secs());
        self.retention != before
    }

    /// Stops signing. The key is removed when its signatures are no longer in use. `retention` is that of the current
    /// settings.
    pub fn retire(&mut self, now: Timestamp, retention: Duration) {
        self.prolong(retention);
        let remove_at = now + Duration::from_secs(self.retention);
        self.standing = KeyLifecycle::Retired { remove_at };
    }
}
