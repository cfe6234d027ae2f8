//! Runs `idsvc migrate`.

use serde_json::json;

use super::admin_connection::AdminConnector;
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output};
use crate::admin::Actor;
use crate::data_dir::node;
use crate::observe::audit::{self, Event};
use crate::observe::log;

/// Sets up the database of `store.url` for this release, or upgrades it, and prints whether anything was to do.
pub fn run(connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let settings = connector.settings(output)?;
    let Some(address) = &settings.store else {
        return Err(CliError::refused(
            "there is no store.url: the database file is upgraded by serve itself",
        ));
    };
    let outcome = node::migrate(address).map_err(CliError::refused)?;
    for warning in &outcome.warnings {
        output.say(&format!("warning: {}: {}", warning.setting, warning.message));
        output.say(&format!("hint: {}", warning.remedy));
    }
    let is_changed = outcome.is_changed;
    if is_changed && settings.data_dir.exists() {
        log::keep_events(&settings);
        audit::record(&Event::Administered {
            command: "migrate",
            subject: "database",
            actor: &Actor::of_process().to_string(),
        });
    }
    if output.json {
        return output.document(&json!({"database": address.to_string(), "changed": is_changed}));
    }
    let done = if is_changed {
        "the database is set up"
    } else {
        "nothing to do"
    };
    output
        .line(done)
        .map_err(|error| ChangeSummary::plain(format!("{address} was set up")).unshown(error))
}
