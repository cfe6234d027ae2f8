//! The `prompt` parameter: OpenID Connect Core 3.1.2.1.

use std::ops::Not;

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
    /// The user creates an account (Initiating User Registration via OpenID Connect 1.0).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub create: bool,
}

/// The values that discovery lists. `create` is one of them if everybody may create an account.
pub fn supported(sign_up: bool) -> Vec<&'static str> {
    let create = sign_up.then_some("create");
    ["none", "login", "consent", "select_account"]
        .into_iter()
        .chain(create)
        .collect()
}

/// The parameter has `none` and another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("prompt=none cannot be combined with another value")]
pub struct NoneWithOthers;

impl Prompt {
    /// Reads the space-delimited list; the order does not matter. Unknown values are ignored. `none` with any other
    /// value, even an unknown one, is refused, as the specification demands.
    pub fn parse(text: &str) -> Result<Self, NoneWithOthers> {
        let mut prompt = Self::default();
        let mut has_others = false;
        for value in text.split(' ').filter(|value| !value.is_empty()) {
            match value {
                "none" => prompt.none = true,
                "login" => prompt.login = true,
                "consent" => prompt.consent = true,
                "select_account" => prompt.select_account = true,
                "create" => prompt.create = true,
                _ => {}
            }
            has_others |= value != "none";
        }
        if prompt.none && has_others {
            return Err(NoneWithOthers);
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
        for text in ["none login", "consent none", "none create"] {
            assert_eq!(Prompt::parse(text), Err(NoneWithOthers), "{text}");
        }
        let both = Prompt::parse("consent  login").unwrap();
        assert!(both.login && both.consent && !both.none);
    }

    #[test]
    fn an_unknown_value_is_ignored() {
        for text in ["", "CREATE", "LOGIN", "please sign in"] {
            assert_eq!(Prompt::parse(text), Ok(Prompt::default()), "{text}");
        }
        assert!(Prompt::parse("create login").unwrap().login);
    }
}
