//! What a provider says of somebody, in the terms of a user's record.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::provider::Provider;
use crate::identity::User;
use crate::identity::claim::{is_followable, looks_like_email};
use crate::oauth::openid::claims::BY_SCOPE;

const LONGEST_TEXT: usize = 1024;
/// The most that one claim of another type may hold, as JSON.
const LONGEST_VALUE: usize = 4096;

/// The claims of a provider that have a place in a user's record, each of the type it has there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The e-mail address.
    pub email: Option<String>,
    /// Whether the provider has verified it.
    pub email_verified: bool,
    /// The telephone number.
    pub phone_number: Option<String>,
    /// Whether the provider has verified it.
    pub phone_number_verified: bool,
    /// The other claims.
    pub claims: BTreeMap<String, Value>,
}

impl Profile {
    /// Reads the claims. What has a wrong type, is too long or nested too deep is left out: a name that cannot be shown keeps nobody
    /// from signing in.
    pub fn read(claims: &Map<String, Value>, provider: &Provider) -> Self {
        let source = |name: &str| {
            let theirs = provider.claims.get(name).map_or(name, String::as_str);
            claims.get(theirs).filter(|value| !value.is_null())
        };
        let email = source("email")
            .and_then(Value::as_str)
            .filter(|text| looks_like_email(text));
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
            email_verified: email.is_some() && source("email_verified").is_some_and(is_true),
            email: email.map(ToOwned::to_owned),
            phone_number_verified: phone_number.is_some()
                && source("phone_number_verified").is_some_and(is_true),
            phone_number: phone_number.map(ToOwned::to_owned),
            claims: others,
        }
    }

    /// Whether everything is there that a record wants and a provider usually has.
    pub fn is_complete(&self) -> bool {
        self.email.is_some() && self.claims.contains_key("name")
    }

    /// Takes from `other` what is missing here.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        if self.email.is_none() {
            self.email = other.email;
            self.email_verified = other.email_verified;
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

    /// Writes it into the record of a user whom the provider speaks for; says whether that changed anything. What
    /// the provider no longer says stays.
    pub fn write_to(&self, user: &mut User) -> bool {
        let before = (
            user.email.clone(),
            user.email_verified,
            user.phone_number.clone(),
            user.phone_number_verified,
            user.claims.clone(),
        );
        if self.email.is_some() {
            user.email.clone_from(&self.email);
            user.email_verified = self.email_verified;
        }
        if self.phone_number.is_some() {
            user.phone_number.clone_from(&self.phone_number);
            user.phone_number_verified = self.phone_number_verified;
        }
        for (name, value) in &self.claims {
            user.claims.insert(name.clone(), value.clone());
        }
        before
            != (
                user.email.clone(),
                user.email_verified,
                user.phone_number.clone(),
                user.phone_number_verified,
                user.claims.clone(),
            )
    }
}

/// Claims that have a place of their own in the record, or that the service itself writes.
fn is_column(name: &str) -> bool {
    matches!(
        name,
        "email" | "email_verified" | "phone_number" | "phone_number_verified" | "updated_at"
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
    is_followable(value) && value.to_string().len() <= LONGEST_VALUE
}

fn is_text(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= LONGEST_TEXT && !text.chars().any(char::is_control)
}

/// Some providers write the boolean as a text.
fn is_true(value: &Value) -> bool {
    *value == Value::Bool(true) || value.as_str() == Some("true")
}
