//! The settings of the log.

use super::reader::Reader;
use super::{Log, LogFormat};

pub(super) fn log(reader: &mut Reader<'_>) -> Log {
    let format = match reader.one_of("log.format", &["auto", "text", "json"]) {
        Some("text") => LogFormat::Text,
        Some("json") => LogFormat::Json,
        _ => LogFormat::Auto,
    };
    let level = match reader.one_of("log.level", &["info", "error", "warn", "debug", "trace"]) {
        Some("error") => tracing::Level::ERROR,
        Some("warn") => tracing::Level::WARN,
        Some("debug") => tracing::Level::DEBUG,
        Some("trace") => tracing::Level::TRACE,
        _ => tracing::Level::INFO,
    };
    Log { format, level }
}
