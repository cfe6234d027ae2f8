//! The flags for the groups of a client.

use clap::Args;
use serde::Serialize;

use crate::cli::value_parsers::words;

/// Which groups may use a client, and which it learns.
#[derive(Debug, Args, Serialize)]
pub struct GroupFields {
    /// A group whose users may use the client, see idsvc group; may be repeated [default: everybody may]
    #[arg(long = "allow-group", value_name = "GROUP")]
    pub allowed_groups: Option<Vec<String>>,
    /// Which groups of the user the claim groups names [default: all]
    #[arg(long, value_name = "GROUPS", value_parser = words(&[
        ("all", "All groups of the user"),
        ("allowed", "Those that --allow-group names"),
    ]))]
    pub groups_claim: Option<String>,
}
