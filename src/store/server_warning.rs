//! What `idsvc doctor` and `idsvc migrate` say about the settings of a database server.

use serde::{Deserialize, Serialize};

/// A setting of the server that endangers what is stored, or the work of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerWarning {
    pub setting: String,
    /// Its value, and what follows from it.
    pub message: String,
    /// The remedy, for the operator.
    pub remedy: String,
    /// Whether the service does not work until it is changed, or loses what it has answered.
    #[serde(default)]
    pub is_fault: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationOutcome {
    /// Whether anything was to do.
    pub is_changed: bool,
    /// The settings of the server that should be changed.
    pub warnings: Vec<ServerWarning>,
}
