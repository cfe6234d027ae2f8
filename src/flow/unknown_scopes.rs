//! Remembers the scope values that clients ask for and that do not exist, so that `doctor` can name them.
//!
//! Scope values that a client may not have are ignored in an authorization request (RFC 6749 section 3.3), so nothing else
//! tells a developer who writes `opnid`.
//!
//! Anybody can send a request in a client's name. So what is remembered is a hint, it is bounded, and nothing of it is
//! stored.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::Catalog;
use crate::oauth::scope::Scope;

/// The most values that are remembered for a client, the last ones.
const MAX_VALUES: usize = 5;
/// The longest value that is remembered, in bytes.
const MAX_LENGTH: usize = 64;

/// Unknown scope values by `client_id`. The service forgets them when it stops.
#[derive(Debug, Default)]
pub struct UnknownScopes(Mutex<BTreeMap<String, Vec<String>>>);

impl UnknownScopes {
    /// Remembers which of the requested values do not exist: the service gives them no meaning, and no client may have them.
    pub fn note(&self, catalog: &Catalog, client_id: &str, requested: &Scope) {
        let unknown = requested.filter(|value| {
            value.len() <= MAX_LENGTH && !Scope::is_built_in(value) && !catalog.has_scope(value)
        });
        // Clients without a record are left out: anyone can name the address of a metadata document.
        if unknown.is_empty() || catalog.client(client_id).is_none() {
            return;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let values = all.entry(client_id.to_owned()).or_default();
        for value in unknown.iter() {
            if !values.iter().any(|known| known == value) {
                values.push(value.to_owned());
            }
        }
        let surplus = values.len().saturating_sub(MAX_VALUES);
        values.drain(..surplus);
    }

    /// The remembered values that still do not exist, by client.
    pub fn list(&self, catalog: &Catalog) -> BTreeMap<String, Vec<String>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for values in all.values_mut() {
            values.retain(|value| !catalog.has_scope(value));
        }
        all.retain(|client_id, values| !values.is_empty() && catalog.client(client_id).is_some());
        all.clone()
    }
}
