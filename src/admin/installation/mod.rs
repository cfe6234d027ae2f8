//! What is fixed at the first start: the issuer and the master key's fingerprint.

mod read;
mod set_issuer;

pub use self::read::{InstallationState, ReadInstallation};
pub use self::set_issuer::{IssuerView, SetIssuer};
use crate::store::schema::{meta_get, meta_put};
use crate::store::{Store, StoreError};

/// The name under which the issuer is stored.
pub(super) const ISSUER: &str = "issuer";
const DEVELOPMENT: &str = "development";
const MASTER_KEY: &str = "master_key_fingerprint";

/// The issuer that the first start fixed.
pub fn stored_issuer(store: &Store) -> Result<Option<String>, StoreError> {
    store.read_blocking(|snapshot| meta_get(snapshot, ISSUER))
}

/// Fixes the issuer, unless there is one. Returns the stored issuer.
pub fn fix_issuer(store: &Store, issuer: &str) -> Result<String, StoreError> {
    fix(store, "fix issuer", ISSUER, issuer)
}

/// Stores a value under a name, unless there is one. Returns the stored value. Processes that start at once agree on it,
/// because this is one transaction.
fn fix(
    store: &Store,
    transaction: &'static str,
    name: &'static str,
    value: &str,
) -> Result<String, StoreError> {
    let value = value.to_owned();
    store.write_blocking(transaction, move |tx| {
        if let Some(stored) = meta_get(&*tx, name)? {
            return Ok(stored);
        }
        meta_put(tx, name, &value)?;
        Ok(value.clone())
    })
}

/// Whether the development server set the store up. Then its example client and user are in it.
pub fn is_for_development(store: &Store) -> Result<bool, StoreError> {
    Ok(store
        .read_blocking(|snapshot| meta_get(snapshot, DEVELOPMENT))?
        .is_some())
}

/// Marks the store as the development server's.
pub fn put_development(store: &Store) -> Result<(), StoreError> {
    store.write_blocking("set development", move |tx| meta_put(tx, DEVELOPMENT, "true"))
}

/// The fingerprint of the master key that the store's secrets are sealed under.
pub fn stored_fingerprint(store: &Store) -> Result<Option<String>, StoreError> {
    store.read_blocking(|snapshot| meta_get(snapshot, MASTER_KEY))
}

/// Fixes the fingerprint of the master key, unless there is one. Returns the stored fingerprint.
pub fn fix_fingerprint(store: &Store, fingerprint: &str) -> Result<String, StoreError> {
    fix(store, "fix master key", MASTER_KEY, fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Options;

    #[test]
    fn the_first_value_is_fixed_and_others_get_it() {
        let store = Store::in_memory(Options::default()).unwrap();
        assert_eq!(
            fix_issuer(&store, "https://a.example").unwrap(),
            "https://a.example"
        );
        assert_eq!(
            fix_issuer(&store, "https://b.example").unwrap(),
            "https://a.example"
        );
        assert_eq!(fix_fingerprint(&store, "first").unwrap(), "first");
        assert_eq!(fix_fingerprint(&store, "second").unwrap(), "first");
        assert_eq!(
            stored_issuer(&store).unwrap().as_deref(),
            Some("https://a.example")
        );
        assert_eq!(stored_fingerprint(&store).unwrap().as_deref(), Some("first"));
    }
}
