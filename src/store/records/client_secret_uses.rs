//! The last use of each secret of a client.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::store::record::Record;

/// The last use of each secret of a client, stored under its `client_id`. It is apart from the client's record, which every
/// request reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSecretUses {
    /// By the id of the secret, to within the minute.
    pub last_used_at: BTreeMap<String, Timestamp>,
}

impl Record for ClientSecretUses {}
