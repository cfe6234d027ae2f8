//! Shows a part of a long list.

use clap::Args;
use uuid::Uuid;

use super::admin_connection::AdminConnection;
use super::output::{CliError, Output};
use crate::admin::operations::StreamCall;
use crate::admin::stream::RecordStream;

/// The most rows that are shown as text without `--limit`.
const DEFAULT_LIMIT: u32 = 500;

/// The part of a list that is shown.
#[derive(Clone, Copy, Debug, Args)]
pub struct ListPage {
    /// The most rows to show [default: 500; all with --json]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Begin after the row with this uuid
    #[arg(long, value_name = "UUID")]
    pub after: Option<Uuid>,
}

impl ListPage {
    /// How many records to request. One more than is shown tells whether the list goes on.
    pub(super) fn requested(self, output: &Output<'_>) -> Option<u64> {
        self.most(output).map(|most| u64::from(most) + 1)
    }

    fn most(self, output: &Output<'_>) -> Option<u32> {
        match self.limit {
            None if output.json => None,
            limit => Some(limit.unwrap_or(DEFAULT_LIMIT)),
        }
    }

    /// Shows the records of a list, and says how to go on after the last one. Returns whether there was a record. One
    /// record at a time is in memory.
    pub(super) fn show<L: RecordStream + Into<StreamCall>>(
        self,
        list: L,
        connection: &AdminConnection,
        id_of: impl Fn(&L::Record) -> Uuid,
        output: &mut Output<'_>,
        show: impl FnOnce(
            &mut dyn Iterator<Item = Result<L::Record, CliError>>,
            &mut Output<'_>,
        ) -> Result<(), CliError>,
    ) -> Result<bool, CliError> {
        let most = self.most(output).and_then(|most| usize::try_from(most).ok());
        let mut last = None;
        let goes_on = connection.take_records(list, "list", |records| {
            let shown = records.by_ref().take(most.unwrap_or(usize::MAX));
            let mut shown = shown.inspect(|record| last = record.as_ref().ok().map(&id_of).or(last));
            show(&mut shown, output)?;
            Ok(records.next().transpose()?.is_some())
        })?;
        if let Some(last) = last.filter(|_| goes_on) {
            output.say(&format!(
                "there are more: add --after {last} to continue, or --limit COUNT to show more at once"
            ));
        }
        Ok(last.is_some())
    }
}
