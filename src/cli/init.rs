//! Runs `idsvc init`.

use serde_json::json;

use super::admin_connection::AdminConnector;
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output};
use super::restore::hint_at_owner;
use crate::admin::Actor;
use crate::data_dir::master_key::MASTER_KEY;
use crate::data_dir::node;
use crate::observe::audit::{self, Event};
use crate::observe::log;
use crate::random::Random;

/// Makes the data directory and its master key, and prints where the key is.
pub fn run(connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let settings = connector.settings(output)?;
    let data_dir = &settings.data_dir;
    let made = node::init(data_dir, settings.store.as_ref(), &Random::system());
    let fingerprint = made.map_err(CliError::refused)?;
    log::keep_events(&settings);
    audit::record(&Event::Administered {
        command: "init",
        subject: &fingerprint,
        actor: &Actor::of_process().to_string(),
    });
    let key = data_dir.join(MASTER_KEY);
    let shown = if output.json {
        output.document(&json!({
            "data_dir": data_dir,
            "master_key": key,
            "master_key_fingerprint": fingerprint,
        }))
    } else {
        output.facts(&[
            ("data_dir", data_dir.display().to_string()),
            ("master_key", key.display().to_string()),
            ("master_key_fingerprint", fingerprint),
        ])
    };
    shown.map_err(|error| ChangeSummary::plain(format!("{} was made", key.display())).unshown(error))?;
    output.hint("\nSave a copy of this key apart from the data: without it, the data is lost.");
    if settings.store.is_some() {
        output.hint("Copy it into the data directory of each other node, with mode 600.");
    }
    hint_at_owner(data_dir, output);
    Ok(())
}
