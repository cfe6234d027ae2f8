//! A signing key, sealed under the master key.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::store::record::Record;

/// Where a key stands in its life. Each move carries the moment from which it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyLifecycle {
    /// Published, so that verifiers learn it before it signs; it signs from `active_from` on.
    Announced {
        /// When it begins to sign.
        active_from: Timestamp,
    },
    /// It signs.
    Active {
        /// Since when.
        since: Timestamp,
    },
    /// Published while what it signed is of use; it signs no more.
    Retired {
        /// When it leaves the key set and the store.
        remove_at: Timestamp,
    },
}

/// A signing key as it is kept, under its `kid`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningKeyRecord {
    /// The one algorithm it signs with.
    pub alg: Algorithm,
    /// Where it stands.
    pub standing: KeyLifecycle,
    /// When it was made or imported.
    pub created_at: Timestamp,
    /// The PKCS#8 document, sealed with the context `signing_keys/{kid}`, base64url.
    pub sealed: String,
    /// The longest time, in seconds, for which what it signed was of use by the settings under which it signed. Shorter
    /// settings do not shorten what was signed before them. 0 before it signs.
    pub retention: u64,
}

impl Record for SigningKeyRecord {}

impl SigningKeyRecord {
    /// From `now` on it signs what is of use for `retention`.
    pub fn begin(&mut self, now: Timestamp, retention: Duration) {
        self.standing = KeyLifecycle::Active { since: now };
        self.prolong(retention);
    }

    /// What a key that signs has signed may be of use for `retention`. Says whether that is longer than before.
    pub fn prolong(&mut self, retention: Duration) -> bool {
        let before = self.retention;
        self.retention = before.max(retention.as_secs());
        self.retention != before
    }

    /// It signs no more, and goes once nothing that it signed is of use: `retention` is that of today's settings.
    pub fn retire(&mut self, now: Timestamp, retention: Duration) {
        self.prolong(retention);
        let remove_at = now + Duration::from_secs(self.retention);
        self.standing = KeyLifecycle::Retired { remove_at };
    }
}
