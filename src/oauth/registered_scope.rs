//! Scope values that the operator registers, each with the claims that it releases: OpenID Connect Core 5.4.

use std::collections::{BTreeMap, BTreeSet};

use crate::oauth::fields::fields;
use crate::oauth::named::NamedRecord;

fields! {
    /// The settings of a scope value.
    ScopeMetadata;

    /// A change of the settings of a scope value. A field that is left out keeps its value.
    ///
    /// An empty text removes the description. A list replaces the stored list.
    ScopeFields;

    /// The claims of the user that it releases.
    claims: BTreeSet<String>;
    /// Its description on the consent page.
    text: Option<String>;
}

/// A scope value that the operator registered.
pub type RegisteredScope = NamedRecord<ScopeMetadata>;

#[derive(Debug, Default)]
pub struct RegisteredScopes {
    by_value: BTreeMap<String, ScopeMetadata>,
}

impl RegisteredScopes {
    pub fn new(scopes: impl IntoIterator<Item = RegisteredScope>) -> Self {
        let by_value = scopes.into_iter().map(|scope| (scope.name, scope.metadata));
        Self {
            by_value: by_value.collect(),
        }
    }

    /// The description of a value on the consent page.
    pub fn text(&self, value: &str) -> Option<&String> {
        self.by_value.get(value)?.text.as_ref()
    }

    /// The claims that a value releases.
    pub fn claims_of(&self, value: &str) -> impl Iterator<Item = &str> {
        let claims = self.by_value.get(value).map(|scope| scope.claims.iter());
        claims.into_iter().flatten().map(String::as_str)
    }

    pub fn releases(&self, value: &str, claim: &str) -> bool {
        let scope = self.by_value.get(value);
        scope.is_some_and(|scope| scope.claims.contains(claim))
    }

    pub fn releasing<'a>(&'a self, claim: &'a str) -> impl Iterator<Item = &'a str> {
        let releasing = self
            .by_value
            .iter()
            .filter(move |(_, scope)| scope.claims.contains(claim));
        releasing.map(|(value, _)| value.as_str())
    }

    /// All claims that are released, each once.
    pub fn claims(&self) -> BTreeSet<&str> {
        let claims = self.by_value.values().flat_map(|scope| &scope.claims);
        claims.map(String::as_str).collect()
    }
}
