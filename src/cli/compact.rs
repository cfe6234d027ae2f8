//! `idsvc compact`.

use super::call::{Call, unexpected};
use super::output::{Output, Stop};
use crate::control::{Command, Reply};

/// Compacts the database, and shows what that gave back.
pub fn run(call: &Call<'_>, output: &mut Output<'_>) -> Result<(), Stop> {
    call.run(Command::Compact, output, |reply, output| match reply {
        Reply::Compacted(done) if output.json => output.document(&done),
        Reply::Compacted(done) => output.facts(&[
            ("bytes_before", done.bytes_before.to_string()),
            ("bytes", done.bytes.to_string()),
        ]),
        _ => Err(unexpected()),
    })
}
