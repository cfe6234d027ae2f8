//! The values that flags, environment and file give, before they are checked.

use std::fmt;
use std::path::PathBuf;

use super::fault::Fault;
use super::memory_limit::MemoryLimit;

/// A value as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawValue {
    /// A string of the file.
    Text(String),
    /// A number of the file.
    Number(i64),
    /// `true` or `false` in the file.
    Flag(bool),
    /// A list of strings of the file.
    List(Vec<String>),
    /// A value of the environment or a flag, which has no type. Commas separate the items of a list.
    Untyped(String),
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag of the command line.
    Flag(String),
    /// An environment variable.
    Environment(String),
    /// A line of the file.
    File(PathBuf, usize),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) | Self::Environment(name) => f.write_str(name),
            Self::File(path, line) => write!(f, "{} line {line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A setting with its value and source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingValue {
    pub key: &'static str,
    pub raw: RawValue,
    /// The source.
    pub origin: Origin,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The values of flags, environment and file, in this order.
    pub values: Vec<SettingValue>,
    /// The faults so far.
    pub faults: Vec<Fault>,
    /// Keys that the file may set, but whose values could not be read. Each has a fault.
    pub unread: Vec<&'static str>,
    /// Warnings about variables that set nothing.
    pub warnings: Vec<String>,
    /// The value of `$STATE_DIRECTORY`, which the service manager sets.
    pub state_directory: Option<PathBuf>,
    /// Whether this is `idsvc serve --dev`.
    pub is_dev: bool,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// The memory that this process may use, if it is known.
    pub memory: Option<MemoryLimit>,
}

impl Sources {
    /// Selects the defaults of the development server.
    #[must_use]
    pub fn for_development(self) -> Self {
        Self { is_dev: true, ..self }
    }
}
