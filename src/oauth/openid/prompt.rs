//! The `prompt` parameter: OpenID Connect Core 3.1.2.1.

use serde::{Deserialize, Serialize};

/// What the client wants the user to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// No page may be shown.
    pub none: bool,
    /// The user authenticates again.
    pub login: bool,
    /// The user is asked for consent again.
    pub consent: bool,
    /// The user chooses an account.
    pub select_account: bool,
}

/// The values that discovery lists.
pub const SUPPORTED: [&str; 4] = ["none", "login", "consent", "select_account"];

/// The parameter's value is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// It has a value other than these four.
    #[error("prompt has an unknown value; known are none, login, consent, select_account")]
    Unknown,
    /// It has `none` and another value.
    #[error("prompt=none cannot be combined with another value")]
    NoneWithOthers,
}

impl Prompt {
    /// Reads the space-delimited list; the order does not matter.
    pub fn parse(text: &str) -> Result<Self, PromptError> {
        let mut prompt = Self::default();
        for value in text.split(' ').filter(|value| !value.is_empty()) {
            match value {
                "none" => prompt.none = true,
                "login" => prompt.login = true,
                "consent" => prompt.consent = true,
                "select_account" => prompt.select_account = true,
                _ => return Err(PromptError::Unknown),
            }
        }
        if prompt.none && (prompt.login || prompt.consent || prompt.select_account) {
            return Err(PromptError::NoneWithOthers);
        }
        Ok(prompt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_stands_alone() {
        assert!(Prompt::parse("none").unwrap().none);
        assert_eq!(Prompt::parse("none login"), Err(PromptError::NoneWithOthers));
        let both = Prompt::parse("consent  login").unwrap();
        assert!(both.login && both.consent && !both.none);
        assert_eq!(Prompt::parse("create"), Err(PromptError::Unknown));
        assert_eq!(Prompt::parse(""), Ok(Prompt::default()));
    }
}
