//! Upstream providers.

mod add;
pub mod check;
mod list;
mod remove;
mod show;
pub mod test;
#[cfg(test)]
mod tests;
mod update;
pub mod view;

use std::collections::{BTreeMap, BTreeSet};

pub use self::add::AddProvider;
pub use self::list::ListProviders;
pub use self::remove::RemoveProvider;
pub use self::show::ShowProvider;
pub use self::test::TestProvider;
pub use self::update::UpdateProvider;
pub use self::view::ProviderView;
use super::{Admin, AdminResult, AdminTxError, not_found};
use crate::federation::Provider;
pub use crate::federation::provider::ProviderFields;
use crate::flow::client_check::{lets_nobody_in, stored_exchange_only};
use crate::oauth::FaultCode;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::{CLIENTS, PROVIDERS};

/// The kind of record in faults.
pub(super) const KIND: &str = "provider";

/// The other provider that has this issuer, among `issuers` by id. An issuer belongs to one provider, since the
/// issuer of a token tells which record the token is checked with.
pub(super) fn other_with_issuer<'a>(
    issuers: &'a BTreeMap<String, String>,
    id: &str,
    issuer: &str,
) -> Option<&'a str> {
    let mut others = issuers.iter().filter(|(other, _)| *other != id);
    others
        .find(|(_, theirs)| *theirs == issuer)
        .map(|(other, _)| other.as_str())
}

/// The issuers of all providers, by id.
pub(super) fn issuers(snapshot: &dyn Snapshot) -> Result<BTreeMap<String, String>, StoreError> {
    let all = PROVIDERS.scan(snapshot, .., usize::MAX)?;
    Ok(all
        .into_iter()
        .map(|(id, provider)| (id, provider.settings.issuer))
        .collect())
}

fn check_issuer(snapshot: &dyn Snapshot, provider: &Provider) -> Result<(), AdminTxError> {
    let issuers = issuers(snapshot)?;
    let Some(other) = other_with_issuer(&issuers, &provider.id, &provider.issuer) else {
        return Ok(());
    };
    let detail = format!("provider {other} has this issuer already");
    let fault = FaultCode::AlreadyExists.at(["issuer"], detail);
    Err(fault.about(KIND, &provider.id).into())
}

/// The record of one provider.
pub(super) async fn find(admin: Admin<'_>, id: &str) -> AdminResult<Provider> {
    let provider = admin
        .core
        .store
        .read(|snapshot| PROVIDERS.get(snapshot, id))
        .await?;
    Ok(provider.ok_or_else(|| not_found(KIND, id))?)
}

/// The clients whose users could sign in before, and cannot once sign-ins at the providers `after` are refused.
pub(super) fn shut_out(snapshot: &dyn Snapshot, after: &BTreeSet<String>) -> Result<Vec<String>, StoreError> {
    let before = stored_exchange_only(snapshot)?;
    let mut clients = CLIENTS.scan(snapshot, .., usize::MAX)?;
    clients.retain(|(_, client)| lets_nobody_in(client, after) && !lets_nobody_in(client, &before));
    Ok(clients.into_iter().map(|(client_id, _)| client_id).collect())
}
