//! Tells the other nodes which settings and themes this one has.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::app::App;
use crate::config::Config;
use crate::flow::node_digests::{NodeFiles, announce};

const INTERVAL: Duration = Duration::from_mins(1);

/// Stores the digests now and every minute.
pub(super) async fn run(app: Arc<App>, name: String, settings: BTreeMap<&'static str, [u8; 32]>) {
    loop {
        let files = NodeFiles {
            name: &name,
            settings: &settings,
            themes: app.themes.current().digest(),
        };
        if let Err(error) = announce(&app.core, &files).await
            && !error.is_outage()
        {
            tracing::error!(%error, "the digests of the settings were not stored");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The name of this node: the machine, and where the service listens.
pub(super) fn name_of(config: &Config) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let listen: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
    format!("{} ({})", host.trim(), listen.join(" "))
}
