//! Log lines: to standard error, for people or for machines.

use std::io::{IsTerminal, stderr};

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry};

use super::event_log::{EventLog, TARGET};
use crate::clock::Clock;
use crate::config::{Log, LogFormat, Settings};

/// Keeps the audit, and nothing else of the log. For commands that open the store themselves.
pub fn keep_events(settings: &Settings) {
    if let Some(events) = events(settings) {
        let _ = registry().with(events).try_init();
    }
}

/// Keeps the audit in the data directory. A service without its events is better than none.
fn events(settings: &Settings) -> Option<impl Layer<Registry> + Send + Sync> {
    let started = EventLog::start(&settings.data_dir, settings.events_max_bytes, Clock::System);
    let log = started.ok()?;
    Some(log.with_filter(Targets::new().with_target(TARGET, LevelFilter::INFO)))
}

/// Begins to log, and to keep the audit. Below `info` only our own lines appear; the audit's appear at every level.
pub fn start(log: Log, settings: &Settings) {
    let is_terminal = stderr().is_terminal();
    let targets = Targets::new()
        .with_default(log.level.min(Level::INFO))
        .with_target("idsvc", log.level)
        .with_target(TARGET, LevelFilter::INFO);
    let as_json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !is_terminal,
    };
    let layer = fmt::layer().with_writer(stderr);
    let layer = if as_json {
        layer.json().boxed()
    } else {
        layer.with_ansi(is_terminal).boxed()
    };
    // A second subscriber in one process, as in tests, leaves the first in place.
    let _ = registry()
        .with(events(settings))
        .with(layer.with_filter(targets))
        .try_init();
}
