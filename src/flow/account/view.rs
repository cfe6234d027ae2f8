//! A user opens the account page.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::launcher;
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::catalog::Catalog;
use crate::flow::grant_policy::has_ended;
use crate::flow::login::session;
use crate::flow::login::session::LiveSession;
use crate::flow::{Core, Failure, factors};
use crate::identity::{Factor, Session};
use crate::oauth::{Client, Scope, consent};
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::{CONSENTS, FAMILIES, FAMILIES_BY_OWNER};

/// The contents of the account page.
#[derive(Debug)]
pub struct Account {
    /// The user who is signed in, and the session.
    pub live: LiveSession,
    /// The user's live sessions, this one first, then the one used last.
    pub sessions: Vec<(Uuid, Session)>,
    /// The applications that the user may open, by name.
    pub launcher: Vec<Arc<Client>>,
    /// The applications that may act for the user, by name.
    pub applications: Vec<Application>,
    /// The factors of the user.
    pub factors: Vec<(Uuid, Factor)>,
}

/// An application that has a live grant of the user, or their consent for the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Application {
    pub client_id: String,
    pub name: String,
    /// When the oldest grant or consent began.
    pub since: Timestamp,
    /// What it may do.
    pub scope: Scope,
}

/// Reads what the page shows, in one snapshot. That is a use of the session. If the use cannot be recorded, the page
/// is shown nevertheless. `None` if nobody is signed in.
pub async fn view(core: &Core, browser: &Browser, now: Timestamp) -> Result<Option<Box<Account>>, Failure> {
    let (catalog, lifetimes) = (core.catalog(), core.policy.lifetimes.session);
    let account = core
        .store
        .read(|snapshot| -> Result<_, StoreError> {
            let Some(live) = session::find(snapshot, browser.session.as_ref(), lifetimes, now)? else {
                return Ok(None);
            };
            let mut sessions = session::live_of(snapshot, live.user.uuid, lifetimes, now)?;
            sessions.sort_by_key(|(id, session)| (*id != live.id, std::cmp::Reverse(session.last_used_at)));
            let factors = factors::of_user(snapshot, live.user.uuid)?;
            let applications = applications(snapshot, &catalog, live.user.uuid, now)?;
            Ok(Some(Box::new(Account {
                launcher: launcher::applications(&catalog, &live.user),
                live,
                sessions,
                applications,
                factors,
            })))
        })
        .await?;
    let Some(account) = account else {
        return Ok(None);
    };
    if account.live.session.is_due_for_touch(lifetimes, now) {
        let presented = browser.session.clone();
        let written = core.store.write("use_session", move |tx| {
            match session::find(&*tx, presented.as_ref(), lifetimes, now)? {
                Some(live) => session::touch(tx, &live, lifetimes, now),
                None => Ok(()),
            }
        });
        if let Err(error) = written.await {
            tracing::debug!(%error, "the use of a session was not recorded");
        }
    }
    Ok(Some(account))
}

/// Live refresh families and remembered consents, grouped by client. A client that is no longer registered is left
/// out.
pub fn applications(
    snapshot: &dyn Snapshot,
    catalog: &Catalog,
    user: Uuid,
    now: Timestamp,
) -> Result<Vec<Application>, StoreError> {
    let mut found: BTreeMap<String, (Timestamp, Scope)> = BTreeMap::new();
    let mut add = |client_id: String, since: Timestamp, scope: Scope| {
        let (known_since, known) = found.remove(&client_id).unwrap_or((since, Scope::empty()));
        found.insert(client_id, (known_since.min(since), known.union(&scope)));
    };
    for ((_, (_, id)), ()) in FAMILIES_BY_OWNER.scan_prefix(snapshot, &user, usize::MAX)? {
        if let Some(family) = FAMILIES.get(snapshot, &id)?.filter(|family| family.is_live(now)) {
            let client = catalog.client(&family.authorization.client_id);
            if has_ended(snapshot, client.as_deref(), &family.authorization)? {
                continue;
            }
            let granted = family.authorization;
            let scope = granted.scope.filter(|value| value != Scope::AUTHENTICATED);
            add(granted.client_id, family.created_at, scope);
        }
    }
    for ((_, client_id), consent) in CONSENTS.scan_prefix(snapshot, &user, usize::MAX)? {
        let client = catalog.client(&client_id);
        if client.is_none_or(|client| !client.owns_consent(&consent)) {
            continue;
        }
        let allowed = consent::allowed(Some(&consent)).unwrap_or_default();
        add(client_id, consent.given_at, allowed);
    }
    let mut applications: Vec<_> = found
        .into_iter()
        .filter_map(|(client_id, (since, scope))| {
            let name = catalog.client(&client_id)?.display_name().to_owned();
            Some(Application {
                client_id,
                name,
                since,
                scope,
            })
        })
        .collect();
    applications.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(applications)
}
