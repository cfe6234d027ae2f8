//! Scope: RFC 6749 section 3.3.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use strsim::osa_distance;

use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::parameters::Parameters;

/// A list of distinct scope values in the order in which they were named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope(Vec<String>);

/// A scope value holds a character that RFC 6749 section 3.3 does not allow, or there are too many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scope values are printable ASCII without spaces, quotes and backslashes, and no more than 100")]
pub struct InvalidScope;

/// More values than any client has. Lists are searched linearly.
const MAX_VALUES: usize = 100;

impl Scope {
    /// `openid`: makes a request an OpenID Connect request (OpenID Connect Core 3.1.2.1).
    pub const OPENID: &'static str = "openid";
    /// `offline_access`: the refresh token outlives the session (OpenID Connect Core 11).
    pub const OFFLINE_ACCESS: &'static str = "offline_access";
    /// The marker in every token of a user who signed in. The service adds it; clients cannot request it.
    pub const AUTHENTICATED: &'static str = "authenticated";
    /// The marker in every token of an anonymous user.
    pub const ANONYMOUS: &'static str = "anonymous";

    /// `groups`: the names of the groups that the user is in (RFC 9068 section 2.2.3.1).
    pub const GROUPS: &'static str = "groups";

    /// The scope that a request asks for. Without a value it counts as omitted, as every parameter does.
    pub fn requested(parameters: &Parameters) -> Result<Option<Self>, Refusal> {
        let Some(text) = parameters.get("scope") else {
            return Ok(None);
        };
        let scope: Self = text.parse().map_err(|problem: InvalidScope| {
            Refusal::naming(ErrorCode::InvalidScope, &problem.to_string())
        })?;
        Ok(Some(scope).filter(|scope| !scope.is_empty()))
    }

    /// Whether only the service adds the value.
    pub fn is_marker(value: &str) -> bool {
        value == Self::AUTHENTICATED || value == Self::ANONYMOUS
    }

    /// The values with a meaning of their own, first those of OpenID Connect Core 5.4 and 11.
    pub const MEANINGS: [(&'static str, &'static str); 9] = [
        (
            Self::OPENID,
            "The request is one of OpenID Connect: there is an ID token, and UserInfo answers.",
        ),
        ("profile", "The name and other facts about the user."),
        ("email", "The e-mail address."),
        ("phone", "The telephone number."),
        ("address", "The postal address."),
        (
            Self::OFFLINE_ACCESS,
            "The refresh token outlives the session of the browser.",
        ),
        (
            Self::GROUPS,
            "The names of the groups that the user is in. Clients may ask for it only if the operator allows it.",
        ),
        (
            Self::AUTHENTICATED,
            "The service adds it for a user who signed in, unless the client has --scope-marker off. It cannot be requested.",
        ),
        (
            Self::ANONYMOUS,
            "The service adds it for an anonymous user. Other users cannot have it.",
        ),
    ];

    /// Whether the value has a meaning of its own, so that it cannot be given another one.
    pub fn is_built_in(value: &str) -> bool {
        Self::MEANINGS.iter().any(|(name, _)| *name == value)
    }

    /// The scope values of OpenID Connect Core 5.4 and 11.
    pub const STANDARD: [&'static str; 6] = {
        let [openid, profile, email, phone, address, offline_access, ..] = Self::MEANINGS;
        [openid.0, profile.0, email.0, phone.0, address.0, offline_access.0]
    };

    /// The standard value that `value` is probably meant to be: one differs from it by one typing error. A plural is
    /// another word.
    pub fn misspelled_standard(value: &str) -> Option<&'static str> {
        let is_meant = |standard: &&str| {
            value != *standard
                && value.strip_suffix('s') != Some(standard)
                && osa_distance(&value.to_ascii_lowercase(), standard) <= 1
        };
        Self::STANDARD.into_iter().find(is_meant)
    }

    pub const fn empty() -> Self {
        Self(Vec::new())
    }

    /// The scope of these values, without repetitions.
    pub fn of<I: IntoIterator<Item = S>, S: AsRef<str>>(values: I) -> Result<Self, InvalidScope> {
        Self::read(values, MAX_VALUES)
    }

    fn read<I: IntoIterator<Item = S>, S: AsRef<str>>(values: I, limit: usize) -> Result<Self, InvalidScope> {
        let mut scope = Self::empty();
        for value in values {
            let value = value.as_ref();
            if value.is_empty() || !value.bytes().all(is_scope_char) || scope.0.len() >= limit {
                return Err(InvalidScope);
            }
            scope.push(value);
        }
        Ok(scope)
    }

    fn push(&mut self, value: &str) {
        if !self.contains(value) {
            self.0.push(value.to_owned());
        }
    }

    /// Whether the value is among them.
    pub fn contains(&self, value: &str) -> bool {
        self.0.iter().any(|mine| mine == value)
    }

    /// Whether every one of these values is among `others`.
    pub fn is_within(&self, others: &Self) -> bool {
        self.iter().all(|value| others.contains(value))
    }

    /// These values, in their order, without those that `keep` refuses.
    #[must_use]
    pub fn filter(&self, keep: impl Fn(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|value| keep(value)).cloned().collect())
    }

    /// What is left of a granted scope if the client may still have `allowed`. The service's markers stay.
    #[must_use]
    pub fn kept_within(&self, allowed: &Self) -> Self {
        self.filter(|value| Self::is_marker(value) || allowed.contains(value))
    }

    /// These values and `value`.
    #[must_use]
    pub fn with(mut self, value: &str) -> Self {
        self.push(value);
        self
    }

    /// These values and all of `others`.
    #[must_use]
    pub fn union(mut self, others: &Self) -> Self {
        for value in others.iter() {
            self.push(value);
        }
        self
    }

    /// The values in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|value| !value.is_empty())
}

/// `NQCHAR` of RFC 6749 appendix A.
fn is_scope_char(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x5B | 0x5D..=0x7E)
}

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        Self::of(split(text))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, value) in self.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            f.write_str(value)?;
        }
        Ok(())
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads a stored scope. It has no limit, because a marker may have been added to the most values that can be
/// requested.
impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::read(split(&text), usize::MAX).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_scope_of_spaces_counts_as_omitted() {
        let asked = |body: &str| Scope::requested(&Parameters::parse(body.as_bytes()).unwrap()).unwrap();
        assert_eq!(asked("scope=%20%20"), None);
        assert_eq!(asked("scope=+email+"), Some("email".parse().unwrap()));
    }

    #[test]
    fn the_refusal_of_a_malformed_scope_says_what_a_scope_is() {
        let values: Vec<_> = (0..=100).map(|number| number.to_string()).collect();
        for text in [values.join("+"), "a%22b".to_owned()] {
            let body = format!("scope={text}");
            let refusal = Scope::requested(&Parameters::parse(body.as_bytes()).unwrap()).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::InvalidScope);
            assert_eq!(refusal.description, InvalidScope.to_string());
        }
    }

    #[test]
    fn a_scope_keeps_its_order_and_drops_repetitions() {
        let scope: Scope = "openid  email openid services:all".parse().unwrap();
        assert_eq!(scope.to_string(), "openid email services:all");
    }

    #[test]
    fn a_typing_error_in_a_standard_value_is_noticed_and_another_word_is_not() {
        for (value, meant) in [
            ("opnid", "openid"),
            ("opneid", "openid"),
            ("OpenID", "openid"),
            ("e-mail", "email"),
            ("adress", "address"),
            ("offline-access", "offline_access"),
        ] {
            assert_eq!(Scope::misspelled_standard(value), Some(meant), "{value}");
        }
        for value in ["openid", "emails", "profiles", "notes.read", "phone2fa"] {
            assert_eq!(Scope::misspelled_standard(value), None, "{value}");
        }
    }

    #[test]
    fn quotes_backslashes_and_other_alphabets_are_no_scope() {
        for text in ["\"", "a\\b", "é", "a\tb", "a\u{7f}"] {
            assert_eq!(text.parse::<Scope>(), Err(InvalidScope), "{text}");
        }
    }

    #[test]
    fn a_list_of_too_many_values_is_refused() {
        let values: Vec<_> = (0..=MAX_VALUES).map(|number| number.to_string()).collect();
        assert!(Scope::of(&values[..MAX_VALUES]).is_ok());
        assert_eq!(Scope::of(&values), Err(InvalidScope));
    }

    #[test]
    fn a_full_list_with_a_marker_is_read_back() {
        let values: Vec<_> = (0..MAX_VALUES).map(|number| number.to_string()).collect();
        let granted = Scope::of(&values).unwrap().with(Scope::AUTHENTICATED);
        let row = serde_json::to_string(&granted).unwrap();
        assert_eq!(serde_json::from_str::<Scope>(&row).unwrap(), granted);
    }

    proptest! {
        #[test]
        fn text_and_scope_agree(text in "[!#-\\[\\]-~ ]{0,60}") {
            let scope: Scope = text.parse().unwrap();
            prop_assert_eq!(scope.to_string().parse::<Scope>().unwrap(), scope);
        }

        #[test]
        fn a_filtered_scope_is_within_the_whole(values in proptest::collection::vec("[a-c]{1,2}", 0..8)) {
            let whole = Scope::of(&values).unwrap();
            let part = whole.filter(|value| value.starts_with('a'));
            prop_assert!(part.is_within(&whole));
            prop_assert_eq!(part.clone().union(&whole).is_within(&whole), true);
        }

        #[test]
        fn scopes_behave_as_sets_do(
            one in proptest::collection::vec("[a-d]", 0..6),
            two in proptest::collection::vec("[a-d]", 0..6),
            three in proptest::collection::vec("[a-d]", 0..6),
        ) {
            let [one, two, three] = [one, two, three].map(|values| Scope::of(&values).unwrap());
            let set = |scope: &Scope| scope.iter().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
            let both = one.clone().union(&two);
            prop_assert_eq!(set(&both), &set(&one) | &set(&two));
            prop_assert_eq!(set(&both), set(&two.clone().union(&one)));
            prop_assert_eq!(both.clone().union(&three), one.clone().union(&two.clone().union(&three)));
            prop_assert_eq!(both.clone().union(&two), both.clone());
            prop_assert_eq!(one.is_within(&two), set(&one).is_subset(&set(&two)));
            let shared = one.filter(|value| two.contains(value));
            prop_assert_eq!(set(&shared), &set(&one) & &set(&two));
            prop_assert!(shared.is_within(&two) && two.is_within(&both));
            prop_assert_eq!(one.is_within(&two) && two.is_within(&three) && !one.is_within(&three), false);
            prop_assert!(both.to_string().starts_with(&one.to_string()));
        }
    }
}
