//! What a node of several is run with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::store::record::Record;

/// The digests of the settings and themes of a node, stored under its name. They are keyed by the master key, because some
/// settings are secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDigests {
    /// When the node was last seen.
    pub at: Timestamp,
    /// The digest of the value of each setting that all nodes have in common.
    pub settings: BTreeMap<String, Uuid>,
    /// The digest of all files of themes.
    pub themes: Uuid,
}

impl Record for NodeDigests {}
