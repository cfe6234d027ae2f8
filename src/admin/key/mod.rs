//! Signing keys.

mod import;
mod list;
mod retire;
mod rotate;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::import::ImportKey;
pub use self::list::ListKeys;
pub use self::retire::RetireKey;
pub use self::rotate::RotateKey;
use super::AdminRefusal;
use super::operation::Done;
use crate::clock::Timestamp;
use crate::flow::rotate_keys::Introduction;
use crate::jose::alg::Algorithm;
use crate::oauth::FaultCode;
use crate::store::records::{KeyLifecycle, SigningKeyRecord};

/// The kind of record in faults.
const KIND: &str = "key";

/// A signing key as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    /// The key's name.
    pub kid: String,
    pub alg: Algorithm,
    /// Its state: `announced`, `active` or `retired`, with the time at which that began or ends.
    #[serde(flatten)]
    pub standing: KeyStateView,
    /// When it was made or imported.
    pub created_at: Timestamp,
}

/// The state of a key, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum KeyStateView {
    /// It is published and does not sign yet.
    Announced {
        /// When it begins to sign.
        active_from: Timestamp,
    },
    /// It signs.
    Active { since: Timestamp },
    /// It is published and no longer signs.
    Retired { remove_at: Timestamp },
}

impl From<KeyLifecycle> for KeyStateView {
    fn from(standing: KeyLifecycle) -> Self {
        match standing {
            KeyLifecycle::Announced { active_from } => Self::Announced { active_from },
            KeyLifecycle::Active { since } => Self::Active { since },
            KeyLifecycle::Retired { remove_at } => Self::Retired { remove_at },
        }
    }
}

impl KeyView {
    fn of(kid: &str, record: &SigningKeyRecord) -> Self {
        Self {
            kid: kid.to_owned(),
            alg: record.alg,
            standing: record.standing.into(),
            created_at: record.created_at,
        }
    }
}

/// The answer after a key was introduced.
fn done(introduction: Introduction) -> Result<Done<KeyView>, AdminRefusal> {
    match introduction {
        Introduction::Placed { kid, record } => Ok(Done::about(&kid, KeyView::of(&kid, &record))),
        Introduction::Known { kid } => {
            let detail = format!("key {kid} is here already");
            Err(FaultCode::AlreadyExists.of(KIND, &kid, detail).into())
        }
        Introduction::AnotherIsAnnounced { kid } => {
            let detail = format!("key {kid} of the same algorithm is announced already");
            Err(FaultCode::Conflict.of(KIND, &kid, detail).into())
        }
    }
}
