//! What is fixed at the first start: the issuer and the master key's fingerprint.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Admin, AdminResult};
use crate::clock::Timestamp;
use crate::flow::factors::FactorSummary;
use crate::flow::{clock_watermark, factors};
use crate::oauth::refresh::RefreshFamily;
use crate::store::engine::{FileId, Snapshot};
use crate::store::schema::{meta_get, meta_put};
use crate::store::tables::FAMILIES;
use crate::store::{ServerWarning, Store, StoreError};

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

/// The issuer as it was and as it is from the next start on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuerView {
    /// The issuer from the next start on.
    pub issuer: String,
    /// The issuer before.
    pub previous_issuer: Option<String>,
}

/// What `doctor` checks of an open store: what it was set up for, and how it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallationState {
    /// The issuer from the next start on.
    pub issuer: String,
    /// Whether it belongs to the development server.
    pub for_development: bool,
    /// The fingerprint of the master key that it is sealed under.
    pub master_key_fingerprint: Option<String>,
    /// The file that is open.
    pub database: Option<FileId>,
    /// The newest time that the store knows of.
    pub clock_watermark: Option<Timestamp>,
    /// How many refresh tokens expire later than one that is issued now.
    pub outlasting: usize,
    /// Scope values that clients asked the running service for and that do not exist, by `client_id`.
    pub unknown_scopes: BTreeMap<String, Vec<String>>,
    /// For how many seconds the disk has delayed a write, if it hangs.
    pub stalled: Option<u64>,
    /// For how many password hashes there was no memory since the service started.
    pub memory_shortages: u64,
    /// How many users may sign in, by the factors that they have.
    pub factors: FactorSummary,
    /// The settings of the database server that should be changed.
    pub server_warnings: Vec<ServerWarning>,
}

/// Reads what `doctor` checks of an open store.
pub async fn installation_state(admin: Admin<'_>) -> AdminResult<InstallationState> {
    let (store, now) = (&admin.core.store, admin.core.clock.now());
    let lifetime = admin.core.policy.lifetimes.refresh_token;
    let names = |snapshot: &dyn Snapshot| -> Result<_, StoreError> {
        Ok((
            meta_get(snapshot, ISSUER)?,
            meta_get(snapshot, DEVELOPMENT)?.is_some(),
            meta_get(snapshot, MASTER_KEY)?,
        ))
    };
    let (issuer, for_development, master_key_fingerprint) = store.read(names).await?;
    let count = move |snapshot: &dyn Snapshot| {
        let outlasts =
            |family: &RefreshFamily| family.is_live(now) && (family.expires_at - lifetime).is_ahead_of(now);
        let outlasting = FAMILIES.keys_where(snapshot, |_, family| outlasts(family))?;
        Ok((outlasting.len(), factors::summary(snapshot)?))
    };
    let (outlasting, factors) = admin.core.stream("installation_state", count).await?;
    Ok(InstallationState {
        issuer: issuer.unwrap_or_else(|| admin.core.policy.issuer.clone()),
        for_development,
        master_key_fingerprint,
        database: store.file(),
        clock_watermark: clock_watermark::read(admin.core, now).await?,
        outlasting,
        unknown_scopes: admin.core.unknown_scopes.list(&admin.core.catalog()),
        stalled: store.stalled().map(|stalled| stalled.elapsed.as_secs()),
        memory_shortages: admin.core.passwords.shortages(),
        factors,
        server_warnings: store.server_warnings().await?,
    })
}

/// Replaces the issuer. A running server uses its old issuer until it is restarted.
pub async fn set_issuer(admin: Admin<'_>, issuer: String) -> AdminResult<IssuerView> {
    let view = admin
        .core
        .store
        .write("set issuer", move |tx| -> Result<_, StoreError> {
            let previous_issuer = meta_get(&*tx, ISSUER)?;
            if previous_issuer.as_ref() != Some(&issuer) {
                meta_put(tx, ISSUER, &issuer)?;
            }
            Ok(IssuerView {
                issuer: issuer.clone(),
                previous_issuer,
            })
        })
        .await?;
    if view.previous_issuer.as_ref() != Some(&view.issuer) {
        admin.record("config set-issuer", &view.issuer);
    }
    Ok(view)
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
