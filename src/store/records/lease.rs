//! Which node does work for all nodes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::store::record::Record;

/// A lease, stored under the name of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The node that holds it.
    pub node: Uuid,
    /// When it expires unless the node renews it.
    pub until: Timestamp,
}

impl Record for Lease {}
