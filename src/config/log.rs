//! The settings of the log.

use tracing::Level;

use super::form::Words;
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};

pub(super) const SETTINGS: &[&Setting] = &[&FORMAT, &LEVEL];

pub(super) static FORMAT: Setting<Words<LogFormat>> = Setting {
    key: "log.format",
    doc: "text, json, or auto: text on a terminal and json elsewhere. Text has colours on a terminal, unless NO_COLOR is set or TERM is dumb.",
    default: Some(Literal::Text("auto")),
    example: Literal::Text("json"),
    value_name: "FORMAT",
    help: Some("text, json or auto"),
    form: Words(&[
        ("auto", LogFormat::Auto),
        ("text", LogFormat::Text),
        ("json", LogFormat::Json),
    ]),
};

pub(super) static LEVEL: Setting<Words<Level>> = Setting {
    key: "log.level",
    doc: "error, warn, info, debug or trace. The log has security events at every level, routine events from debug on.",
    default: Some(Literal::Text("info")),
    example: Literal::Text("debug"),
    value_name: "LEVEL",
    help: Some("error, warn, info, debug or trace"),
    form: Words(&[
        ("info", Level::INFO),
        ("error", Level::ERROR),
        ("warn", Level::WARN),
        ("debug", Level::DEBUG),
        ("trace", Level::TRACE),
    ]),
};

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// Text, for people.
    Text,
    /// JSON, one object a line, for programs.
    Json,
}

/// The settings of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    pub format: LogFormat,
    /// The lowest severity that is logged.
    pub level: Level,
}

pub(super) fn log(reader: &mut Reader<'_>) -> Read<Log> {
    reader.check(SETTINGS);
    Ok(Log {
        format: reader.read(&FORMAT)?,
        level: reader.read(&LEVEL)?,
    })
}
