//! Records that have only a name and settings: scope values and groups.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;

/// A record that the operator registers under a name, with the settings `M`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedRecord<M> {
    pub name: String,
    /// The identifier of the record. A record that is registered later under the same name has another one.
    pub uuid: Uuid,
    /// The settings.
    #[serde(flatten)]
    pub metadata: M,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the record last changed.
    pub updated_at: Timestamp,
}

impl<M: Default> NamedRecord<M> {
    /// A new record with the usual settings.
    pub fn new(name: &str, uuid: Uuid, now: Timestamp) -> Self {
        Self {
            name: name.to_owned(),
            uuid,
            metadata: M::default(),
            created_at: now,
            updated_at: now,
        }
    }
}
