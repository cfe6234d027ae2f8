use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{DEVELOPMENT, ISSUER, MASTER_KEY};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::clock::Timestamp;
use crate::flow::factors::FactorSummary;
use crate::flow::users::{NearTokenLimit, clients_without_users, near_token_limit};
use crate::flow::{clock_watermark, factors, node_digests};
use crate::oauth::refresh::RefreshFamily;
use crate::store::engine::{FileId, Snapshot};
use crate::store::records::NodeDigests;
use crate::store::schema::meta_get;
use crate::store::tables::FAMILIES;
use crate::store::{ClockState, ServerWarning, StoreError, login_names};

/// A request for what `doctor` checks of an open store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadInstallation;

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
    /// The users with a name that another user has in another form.
    pub name_conflicts: Vec<Uuid>,
    /// The users whose tokens are near the longest that are issued.
    #[serde(default)]
    pub near_token_limit: Option<NearTokenLimit>,
    /// The clients for some groups in which there is no user who may sign in.
    #[serde(default)]
    pub clients_without_users: Vec<String>,
    /// How much of the room is used up for clients that the operator did not register, in percent.
    #[serde(default)]
    pub registrant_room_used: Option<u64>,
    /// Why the node should get no requests, and the cause, if nodes share the store.
    #[serde(default)]
    pub outage: Option<String>,
    /// The settings of the database server that should be changed.
    pub server_warnings: Vec<ServerWarning>,
    /// The settings and themes of the nodes that share the store, by the name of the node.
    #[serde(default)]
    pub nodes: BTreeMap<String, NodeDigests>,
    /// The clocks of this machine and the database, if nodes share it.
    #[serde(default)]
    pub clocks: Option<ClockState>,
}

impl Operation for ReadInstallation {
    const NAME: &'static str = "installation state";
    const EFFECT: Effect = Effect::Read;
    type Output = InstallationState;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<InstallationState>> {
        let (store, now) = (&admin.core.store, admin.core.clock.now());
        let lifetime = admin.core.policy.lifetimes.refresh_token;
        if store.outage().is_none() {
            store.try_commit().await;
        }
        let outage = store.outage();
        let names = |snapshot: &dyn Snapshot| -> Result<_, StoreError> {
            Ok((
                meta_get(snapshot, ISSUER)?,
                meta_get(snapshot, DEVELOPMENT)?.is_some(),
                meta_get(snapshot, MASTER_KEY)?,
            ))
        };
        let (issuer, for_development, master_key_fingerprint) = store.read(names).await?;
        let catalog = admin.core.catalog();
        let count = move |snapshot: &dyn Snapshot| {
            let outlasts = |family: &RefreshFamily| {
                family.is_live(now) && (family.expires_at - lifetime).is_ahead_of(now)
            };
            let outlasting = FAMILIES.keys_where(snapshot, |_, family| outlasts(family))?;
            Ok((
                outlasting.len(),
                factors::summary(snapshot)?,
                login_names::in_conflict(snapshot)?,
                near_token_limit(snapshot, catalog.groups())?,
                clients_without_users(snapshot, &catalog)?,
            ))
        };
        let counted = admin.core.stream("installation_state", count).await?;
        let (outlasting, factors, name_conflicts, near_token_limit, clients_without_users) = counted;
        let state = InstallationState {
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
            name_conflicts,
            near_token_limit,
            clients_without_users,
            registrant_room_used: admin.core.registrant_room_used(),
            outage,
            server_warnings: store.server_warnings().await?,
            nodes: store.read(|snapshot| node_digests::read(snapshot, now)).await?,
            clocks: store.clock_state(),
        };
        Ok(Done::unrecorded(state))
    }
}
