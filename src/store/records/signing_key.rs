//! A signing key, sealed under the master key.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::store::record::Record;

/// Where a key stands in its life. Each move carries the moment from which it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyStanding {
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
    pub standing: KeyStanding,
    /// When it was made or imported.
    pub created_at: Timestamp,
    /// The PKCS#8 document, sealed with the context `signing_keys/{kid}`, base64url.
    pub sealed: String,
}

impl Record for SigningKeyRecord {}
