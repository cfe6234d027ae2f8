//! What is wrong with the settings.

use std::fmt;

/// A problem with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The flag, variable or line.
    pub place: String,
    /// The problem, with the key.
    pub message: String,
}

/// All problems with the settings, one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The faults in the order in which they were found; never empty.
    pub faults: Vec<Fault>,
}

impl ConfigError {
    /// Whether this setting is missing.
    pub fn is_missing(&self, key: &str) -> bool {
        self.faults.iter().any(|fault| fault.place == key)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.faults.iter().enumerate() {
            let end = if number == 0 { "" } else { "\n" };
            write!(f, "{end}{fault}")?;
        }
        Ok(())
    }
}
