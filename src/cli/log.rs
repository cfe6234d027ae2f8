//! Log lines: to standard error, for people or for machines.

use std::io::{IsTerminal, stderr};

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

use crate::config::{Log, LogFormat};

/// Begins to log. Below `info` only our own lines appear; the audit's appear at every level.
pub fn start(log: Log) {
    let is_terminal = stderr().is_terminal();
    let targets = Targets::new()
        .with_default(log.level.min(Level::INFO))
        .with_target("idsvc", log.level)
        .with_target("audit", LevelFilter::INFO);
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
    let _ = registry().with(layer.with_filter(targets)).try_init();
}
