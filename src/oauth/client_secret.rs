//! The secrets of a client, by their digests.

use std::fmt::Write as _;

use ring::digest;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::secret::{ClientSecret, Digest};

/// A secret of a client, by its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSecret {
    pub digest: Digest<ClientSecret>,
    /// When it was generated or set.
    pub created_at: Timestamp,
    /// When it expires; none for the newest secret.
    pub expires_at: Option<Timestamp>,
}

impl StoredSecret {
    /// The identifier by which it is listed and revoked.
    pub fn id(&self) -> String {
        id_of(&self.digest)
    }

    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }
}

/// The identifier of a secret: eight hexadecimal digits of a hash of its digest. So the secrets in records of older
/// releases have one too, and nothing of the digest is shown.
pub fn id_of(secret: &Digest<ClientSecret>) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(b"the id of a client secret");
    context.update(secret.as_bytes());
    let start = context.finish();
    let mut id = String::new();
    for byte in start.as_ref().iter().take(4) {
        let _ = write!(id, "{byte:02x}");
    }
    id
}
