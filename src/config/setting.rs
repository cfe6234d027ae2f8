//! What the table of settings says of each.

/// The type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// A whole number, zero or more.
    Number,
    /// A span of time: `"24h"`, `"90d"`, `"60s"`, `"30m"`.
    Duration,
    /// `true` or `false`.
    Flag,
    /// Several strings; comma-separated in the environment.
    List,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The key in the file, dotted.
    pub key: &'static str,
    /// The type of the value.
    pub kind: Kind,
    /// The name of the value in the help of the flag.
    pub value_name: &'static str,
    /// The help of the flag. Empty if the flag belongs to every command.
    pub help: &'static str,
    /// The default as TOML, if there is one.
    pub default: Option<&'static str>,
    /// An example as TOML.
    pub example: &'static str,
    /// The explanation in the reference.
    pub doc: &'static str,
}

/// A row of the table: the name of the value and the help of the flag are a pair.
pub const fn setting(
    key: &'static str,
    kind: Kind,
    (value_name, help): (&'static str, &'static str),
    default: Option<&'static str>,
    example: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        key,
        kind,
        value_name,
        help,
        default,
        example,
        doc,
    }
}
