//! The claims of a provider, converted for the record of a user.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::provider::Provider;
use crate::identity::User;
use crate::identity::claim::{is_shallow_enough, parse_email};
use crate::oauth::openid::claims::BY_SCOPE;
use crate::text;

const MAX_TEXT_BYTES: usize = 1024;
/// The longest claim of another type, as JSON.
const MAX_VALUE_BYTES: usize = 4096;

/// The claims of a provider that are stored in the record of a user, with the types of the record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The e-mail address, if the provider has verified it and vouches for it.
    pub email: Option<String>,
    /// The telephone number.
    pub phone_number: Option<String>,
    /// Whether the provider has verified it.
    pub phone_number_verified: bool,
    pub claims: BTreeMap<String, Value>,
}

impl Profile {
    /// Reads the claims. A claim with a wrong type, or one that is too long or nested too deep, is left out, so that
    /// the sign-in does not fail.
    pub fn read(claims: &Map<String, Value>, provider: &Provider) -> Self {
        let source = |name: &str| {
            let claim = provider.claims.get(name).map_or(name, String::as_str);
            claims.get(claim).filter(|value| !value.is_null())
        };
        let is_verified = |name: &str| source(name).is_some_and(is_true);
        let email = source("email")
            .and_then(Value::as_str)
            // An address with a letter of another width may be another mailbox at the provider.
            .filter(|text| text::map_width(text) == text::nfc(text))
            .and_then(|text| parse_email(text).ok())
            .filter(|email| is_verified("email_verified") && provider.vouches_for(email));
        let phone_number = source("phone_number")
            .and_then(Value::as_str)
            .filter(|text| is_text(text) && text.len() <= 64);
        let standard = BY_SCOPE.iter().flat_map(|(_, names)| names.iter().copied());
        let named = provider.claims.keys().map(String::as_str);
        let mut others = BTreeMap::new();
        for name in standard.chain(named) {
            let value = source(name).filter(|_| !is_column(name));
            if let Some(value) = value.filter(|value| is_fit(name, value)) {
                others.insert(name.to_owned(), value.clone());
            }
        }
        Self {
            email,
            phone_number_verified: phone_number.is_some() && is_verified("phone_number_verified"),
            phone_number: phone_number.map(ToOwned::to_owned),
            claims: others,
        }
    }

    /// The name in the member `user` of Apple's answer. Apple sends it once for an account, and does not sign it.
    pub fn name_of_apple_user(user: &str) -> BTreeMap<String, Value> {
        let user: Value = serde_json::from_str(user).unwrap_or_default();
        let part = |path| user.pointer(path)?.as_str().filter(|text| is_text(text));
        let (given, family) = (part("/name/firstName"), part("/name/lastName"));
        let whole: Vec<_> = given.into_iter().chain(family).collect();
        let whole = Some(whole.join(" "));
        let named = [
            ("given_name", given),
            ("family_name", family),
            ("name", whole.as_deref()),
        ];
        let claims = named.into_iter().filter_map(|(name, text)| Some((name, text?)));
        let claims = claims.filter(|(_, text)| is_text(text));
        claims
            .map(|(name, text)| (name.to_owned(), text.into()))
            .collect()
    }

    /// Whether it has an e-mail address and a name.
    pub fn is_complete(&self) -> bool {
        self.email.is_some() && self.claims.contains_key("name")
    }

    /// Adds the claims of `other` that are missing.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        if self.email.is_none() {
            self.email = other.email;
        }
        if self.phone_number.is_none() {
            self.phone_number = other.phone_number;
            self.phone_number_verified = other.phone_number_verified;
        }
        for (name, value) in other.claims {
            self.claims.entry(name).or_insert(value);
        }
        self
    }

    /// Writes the claims into the record of a user. Returns whether the record changed. Claims that the provider no
    /// longer sends are kept.
    pub fn write_to(&self, user: &mut User) -> bool {
        let before = user.clone();
        if self.email.is_some() {
            user.email.clone_from(&self.email);
            user.email_verified = true;
        }
        if self.phone_number.is_some() {
            user.phone_number.clone_from(&self.phone_number);
            user.phone_number_verified = self.phone_number_verified;
        }
        for (name, value) in &self.claims {
            user.claims.insert(name.clone(), value.clone());
        }
        before != *user
    }
}

/// Whether the claim has its own field in the record, or comes from the service. Groups and roles come from the
/// operator, never from a provider.
fn is_column(name: &str) -> bool {
    matches!(
        name,
        "email"
            | "email_verified"
            | "phone_number"
            | "phone_number_verified"
            | "updated_at"
            | "groups"
            | "roles"
    )
}

fn is_fit(name: &str, value: &Value) -> bool {
    let is_standard = BY_SCOPE.iter().any(|(_, names)| names.contains(&name));
    match value {
        Value::String(text) => name != "address" && is_text(text),
        Value::Object(_) if name == "address" => is_bounded(value),
        _ => !is_standard && is_bounded(value),
    }
}

fn is_bounded(value: &Value) -> bool {
    is_shallow_enough(value) && value.to_string().len() <= MAX_VALUE_BYTES
}

fn is_text(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= MAX_TEXT_BYTES && !text.chars().any(char::is_control)
}

/// Some providers send booleans as text.
fn is_true(value: &Value) -> bool {
    *value == Value::Bool(true) || value.as_str() == Some("true")
}
