//! What crosses the control socket: a command in one direction, a reply and what follows it in the other.

use serde::{Deserialize, Serialize};

use crate::admin::operations::{Call, StreamCall};
use crate::admin::{AdminError, AdminRefusal};

/// A command of an administrator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// An operation whose output is a line of JSON.
    Call(Call),
    /// An operation that answers with a stream.
    Stream(StreamCall),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The output or the stream follows, until the connection ends.
    Done,
    /// The command was refused.
    Refused(AdminRefusal),
    /// The command could not be carried out.
    Failed(String),
}

impl From<AdminError> for Reply {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Refused(refusal) => Self::Refused(refusal),
            error => Self::Failed(error.to_string()),
        }
    }
}
