//! Runs `idsvc compact`.

use super::admin_connection::{AdminConnector, unexpected};
use super::output::{CliError, Output};
use crate::control::protocol::{Command, Reply};

/// Compacts the database, and prints its size before and after.
pub fn run(connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    connector.run(Command::Compact, output, |reply, output| match reply {
        Reply::Compacted(done) if output.json => output.document(&done),
        Reply::Compacted(done) => output.facts(&[
            ("bytes_before", done.bytes_before.to_string()),
            ("bytes", done.bytes.to_string()),
        ]),
        _ => Err(unexpected()),
    })
}
