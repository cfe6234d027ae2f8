//! Runs `idsvc compact`.

use super::admin_connection::AdminConnector;
use super::output::{CliError, Output};
use crate::admin::database::Compact;

/// Compacts the database, and prints its size before and after.
pub fn run(connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    connector.run(Compact, output, |done, output| {
        if output.json {
            return output.document(&done);
        }
        output.facts(&[
            ("bytes_before", done.bytes_before.to_string()),
            ("bytes", done.bytes.to_string()),
        ])
    })
}
