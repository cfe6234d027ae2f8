//! What ends and goes with a user.

use std::ops::ControlFlow;
use std::sync::PoisonError;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::factor_wait;
use super::factors;
use super::failed_passwords;
use super::login::remembered_device;
use super::login::session;
use super::login::session::EndedSessions;
use super::logout_notice;
use super::one_time_link::invitations;
use super::{Catalog, Core, Failure};
use crate::clock::Timestamp;
use crate::identity::{Factor, LoginName, User};
use crate::oauth::Client;
use crate::oauth::client::GrantType;
use crate::oauth::group::Groups;
use crate::oauth::token_length;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{
    CONSENTS, FAILED_PASSWORDS, FAMILIES, FAMILIES_BY_OWNER, USER_ACTIVITY, USERS, USERS_BY_IDENTITY,
};
use crate::store::{StoreError, login_names};

/// Removes a user with everything that belongs to them: names and their invitations, identities, sessions, consents, refresh
/// families, factors, the count of wrong passwords, the days of the last sign-in and use. Logout notices stay until they are sent.
pub fn remove_user(tx: &mut dyn Tx, user: &User, now: Timestamp) -> Result<(), StoreError> {
    end_sessions_and_families(tx, user.uuid, now)?;
    for (key, ()) in FAMILIES_BY_OWNER.scan_prefix(&*tx, &user.uuid, usize::MAX)? {
        let (_, (_, id)) = &key;
        match FAMILIES.get(&*tx, id)? {
            Some(family) => session::forget_family(tx, *id, &family)?,
            None => {
                FAMILIES_BY_OWNER.remove(tx, &key)?;
            }
        }
    }
    remove_consents_and_identities(tx, user)?;
    invitations::end_of_lost_names(tx, user, None, now)?;
    login_names::remove(tx, user)?;
    factors::remove_all(tx, user.uuid)?;
    logout_notice::forget_user(tx, user.uuid)?;
    FAILED_PASSWORDS.remove(tx, &user.uuid)?;
    USER_ACTIVITY.remove(tx, &user.uuid)?;
    USERS.remove(tx, &user.uuid).map(|_| ())
}

fn remove_consents_and_identities(tx: &mut dyn Tx, user: &User) -> Result<(), StoreError> {
    for (key, _) in CONSENTS.scan_prefix(&*tx, &user.uuid, usize::MAX)? {
        CONSENTS.remove(tx, &key)?;
    }
    for identity in &user.identities {
        USERS_BY_IDENTITY.remove(tx, &(identity.issuer.clone(), identity.subject.clone()))?;
    }
    Ok(())
}

/// Marks the address of a user as proven by a person or a provider, and stores the record.
///
/// If the person who made the account never proved the address, it may be that of another person, who has proven it now.
/// Then everything ends that the first person has: the password, factors, linked accounts, consents, sessions and grants.
pub fn prove_address(tx: &mut dyn Tx, user: &mut User, now: Timestamp) -> Result<EndedByProof, StoreError> {
    let was_unproven = user.is_unproven();
    user.email_verified = true;
    user.unproven_holder = false;
    if !was_unproven {
        USERS.put(tx, &user.uuid, user)?;
        return Ok(EndedByProof::default());
    }
    remove_consents_and_identities(tx, user)?;
    user.identities.clear();
    user.password = None;
    user.updated_at = now;
    USERS.put(tx, &user.uuid, user)?;
    failed_passwords::reset_second_step(tx, user.uuid)?;
    let removed = factors::remove_all(tx, user.uuid)?;
    Ok(EndedByProof {
        factors: removed.into_iter().map(|(_, factor)| factor).collect(),
        sessions: end_sessions_and_families(tx, user.uuid, now)?,
        wait: None,
    })
}

/// What ended because an address was proven for the first time.
#[derive(Default)]
pub struct EndedByProof {
    factors: Vec<Factor>,
    sessions: EndedSessions,
    /// Why a wait without factors ended, if one did.
    wait: Option<&'static str>,
}

impl EndedByProof {
    /// Adds factors that were removed beside that.
    pub(in crate::flow) fn add_factors(&mut self, removed: Vec<Factor>) {
        self.factors.extend(removed);
    }

    /// Adds the end of a wait without factors ([`crate::flow::login::lost_factors`]).
    pub(in crate::flow) fn end_wait(&mut self, reason: &'static str) {
        self.wait = Some(reason);
    }

    /// Records it in the audit log, after the commit.
    pub fn record(self, core: &Core, user: Uuid, now: Timestamp) {
        for factor in &self.factors {
            let factor = factor.kind.name();
            audit::record(&Event::FactorRemoved { user, factor });
            core.outbox_filled.notify_one();
        }
        if let Some(reason) = self.wait {
            factor_wait::record_end(user, reason);
        }
        session::record_ended(core, self.sessions, now);
    }
}

pub async fn find(core: &Core, uuid: Uuid) -> Result<Option<User>, Failure> {
    Ok(core.store.read(|snapshot| USERS.get(snapshot, &uuid)).await?)
}

/// Ends every session, live or not, and every refresh family of a user, and the memory of browsers that need no second step.
/// Returns the sessions.
pub fn end_sessions_and_families(
    tx: &mut dyn Tx,
    user: Uuid,
    now: Timestamp,
) -> Result<EndedSessions, StoreError> {
    let ended = session::end_all(tx, user, None, now)?;
    session::end_families(tx, user, now)?;
    remembered_device::forget(tx, user, now)?;
    Ok(ended)
}

/// The user with this login name. For an unknown name, the user who was found last is looked for and read as well, so
/// that the answer takes as much time. A missing row or a made-up record is read too fast: records differ in size.
pub async fn user_named(core: &Core, name: &LoginName) -> Result<Option<User>, StoreError> {
    let lookup = NameLookup::new(core, name);
    core.store.read(|snapshot| lookup.find(core, snapshot)).await
}

/// Looks up a login name inside a read that needs other rows too.
#[derive(Clone, Copy)]
pub(in crate::flow) struct NameLookup<'a> {
    name: &'a LoginName,
    /// The user who was found last.
    other: Uuid,
}

impl<'a> NameLookup<'a> {
    pub(in crate::flow) fn new(core: &Core, name: &'a LoginName) -> Self {
        let last_found = core.last_found_user.lock();
        Self {
            name,
            other: *last_found.unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The user. For an unknown name, the record of another user is read.
    pub(in crate::flow) fn find(
        self,
        core: &Core,
        snapshot: &dyn Snapshot,
    ) -> Result<Option<User>, StoreError> {
        login_names::will_find_user(snapshot, self.name);
        let found = login_names::owner(snapshot, self.name)?;
        let read = USERS.get(snapshot, &found.unwrap_or(self.other));
        // A damaged record of the other user does not concern an unknown name.
        let Some(found) = found else {
            return Ok(None);
        };
        let user = read?;
        let last_found = core.last_found_user.lock();
        *last_found.unwrap_or_else(PoisonError::into_inner) = found;
        Ok(user)
    }
}

/// Whether the client can get tokens for people who are not anonymous.
pub fn is_for_people(client: &Client) -> bool {
    let exchanges = client.may_use(GrantType::JwtBearer) || client.may_use(GrantType::TokenExchange);
    client.signs_people_in() || exchanges
}

/// The enabled clients for some groups in which there is no user who may sign in. Reads users until each client has one.
pub fn clients_without_users(snapshot: &dyn Snapshot, catalog: &Catalog) -> Result<Vec<String>, StoreError> {
    let clients = catalog.clients();
    let mut alone: Vec<_> = clients
        .filter(|client| client.enabled && !client.allowed_groups.is_empty() && is_for_people(client))
        .collect();
    alone.sort_by(|one, other| one.client_id.cmp(&other.client_id));
    if alone.is_empty() {
        return Ok(Vec::new());
    }
    USERS.visit(snapshot, .., |_, user| {
        alone.retain(|client| !user.enabled || !client.lets_in(&user, catalog.groups()));
        Ok(if alone.is_empty() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    })?;
    Ok(alone.into_iter().map(|client| client.client_id.clone()).collect())
}

/// The users whose groups and claims take half of a token or more: how many, and the user with the longest.
pub fn near_token_limit(
    snapshot: &dyn Snapshot,
    groups: &Groups,
) -> Result<Option<NearTokenLimit>, StoreError> {
    let mut found: Option<NearTokenLimit> = None;
    USERS.visit(snapshot, .., |_, user| {
        if let Some(bytes) = token_length::near_limit(&groups.of(&user), &user.claims) {
            let users = 1 + found.as_ref().map_or(0, |found| found.users);
            let longer = found.take().filter(|found| found.bytes >= bytes);
            let (account_id, bytes) = match longer {
                Some(longer) => (longer.account_id, longer.bytes),
                None => (user.account_id, bytes),
            };
            found = Some(NearTokenLimit {
                users,
                account_id,
                bytes,
            });
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// See [`near_token_limit`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearTokenLimit {
    pub users: u64,
    /// The user whose groups and claims are the longest.
    pub account_id: String,
    /// The bytes of a token that this user's groups and claims take.
    pub bytes: usize,
}
