//! Users as a file declares them.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Plan, SecretChange, Step, about, members, refuse_twins};
use crate::admin::import::UserLine;
use crate::admin::user::check_chosen;
use crate::admin::{Admin, Done, SecretString};
use crate::clock::Timestamp;
use crate::flow::check_password::check_password;
use crate::identity::{LoginName, User};
use crate::oauth::fields::Form;
use crate::password::{PasswordHash, SALT_LEN};
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::{USERS, USERS_BY_LOGIN_NAME};

pub(super) const KIND: &str = "user";

/// What an entry may say, passwords still to be read among it.
pub const KEYS: &[(&str, Form)] = &[
    ("uuid", Form::Uuid),
    ("account_id", Form::Text),
    ("email", Form::Text),
    ("email_verified", Form::Flag),
    ("phone_number", Form::Text),
    ("phone_number_verified", Form::Flag),
    ("user_type", Form::Text),
    ("venue_id", Form::Text),
    ("organization", Form::Text),
    ("enabled", Form::Flag),
    ("claims", Form::Table),
    ("password_file", Form::Text),
    ("password_env", Form::Text),
    ("password_hash", Form::TextOrTable),
];

/// A user as they are to be. What is left out has its default; a password that is left out stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredUser {
    /// The password.
    pub password: Option<SecretString>,
    /// Everything else, as a line of an import has it.
    #[serde(flatten)]
    pub line: UserLine,
}

/// A declared user with a password that was hashed before the transaction.
pub(super) struct Prepared {
    line: UserLine,
    name: String,
    fresh: Uuid,
    organization: String,
    /// The hash of a new password; none when the password stays.
    password: Option<Given>,
}

/// How an entry gives a password.
enum Given {
    /// By this hash, which the file holds.
    Declared(PasswordHash),
    /// In the clear: this is its hash, made because the user has another password.
    Hashed(PasswordHash),
}

/// Hashes the passwords that differ from those that are there.
pub(super) async fn prepare(
    admin: Admin<'_>,
    declared: Vec<DeclaredUser>,
    faults: &mut Vec<String>,
) -> Done<Vec<Prepared>> {
    let core = admin.core;
    let named = |entry: &DeclaredUser| entry.line.name().unwrap_or_default().to_owned();
    let names: Vec<String> = declared.iter().map(named).collect();
    let reduced = names.iter().map(|name| LoginName::new(name).as_str().to_owned());
    refuse_twins(KIND, reduced, faults);
    let mut fresh: Vec<Uuid> = names
        .iter()
        .map(|_| core.random.uuid_v7(core.clock.since_epoch()))
        .collect();
    fresh.sort_unstable();
    let mut all = Vec::new();
    for ((entry, name), fresh) in declared.into_iter().zip(names).zip(fresh) {
        let mut own = Vec::new();
        if name.is_empty() {
            own.push("neither email nor account_id: the user would have no name".to_owned());
        }
        let password = match (&entry.password, &entry.line.password_hash) {
            (Some(_), Some(_)) => {
                own.push("password_hash beside another password: give one of them".to_owned());
                None
            }
            (None, Some(hash)) => PasswordHash::import(hash)
                .map_err(|problem| own.push(problem.to_string()))
                .ok()
                .map(Given::Declared),
            (Some(password), None) => {
                let hash = changed(admin, &entry.line, password, &mut own).await?;
                hash.map(Given::Hashed)
            }
            (None, None) => None,
        };
        faults.extend(about(KIND, &name, own));
        all.push(Prepared {
            line: entry.line,
            name,
            fresh,
            organization: core.policy.organization.clone(),
            password,
        });
    }
    Ok(all)
}

/// The hash of a password that is fit, unless the user has that password already.
async fn changed(
    admin: Admin<'_>,
    line: &UserLine,
    password: &SecretString,
    faults: &mut Vec<String>,
) -> Done<Option<PasswordHash>> {
    let core = admin.core;
    let existing = core.store.read(|snapshot| line.existing(snapshot))?;
    if let Ok(Some(user)) = existing
        && user.password.is_some()
    {
        let verdict = check_password(core, user.password, password.to_zeroizing()).await?;
        if verdict.matches {
            return Ok(None);
        }
    }
    // A line that makes no user is refused as such.
    if let Ok(user) = line.onto(None, Uuid::nil(), &core.policy.organization, core.clock.now()) {
        let before = faults.len();
        check_chosen(admin, &user, password, faults);
        if faults.len() > before {
            return Ok(None);
        }
    }
    let salt = core.random.bytes::<SALT_LEN>();
    Ok(Some(core.passwords.hash(password.to_zeroizing(), salt).await?))
}

/// What must change so that the users are as declared.
pub(super) fn plan(
    snapshot: &dyn Snapshot,
    declared: &[Prepared],
    prune: bool,
    now: Timestamp,
    plan: &mut Plan,
) -> Result<(), StoreError> {
    let mut kept: HashSet<Uuid> = HashSet::new();
    let mut puts: Vec<(Option<User>, User)> = Vec::new();
    let mut removed: Vec<User> = Vec::new();
    let made: HashSet<Uuid> = declared.iter().map(|entry| entry.fresh).collect();
    for entry in declared {
        let mut faults = Vec::new();
        match settle(snapshot, entry, now)? {
            Ok((before, user)) => {
                if !kept.insert(user.uuid) {
                    faults.push("another entry means the same user".to_owned());
                }
                puts.push((before, user));
            }
            Err(fault) => faults.push(fault),
        }
        plan.faults.extend(about(KIND, &entry.name, faults));
    }
    if prune {
        USERS.visit(snapshot, .., |uuid, user| {
            if is_declarable(&user) && !kept.contains(&uuid) {
                removed.push(user);
            }
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
    }
    check_names(snapshot, &puts, &removed, plan)?;
    for (before, mut user) in puts {
        if before.as_ref().is_some_and(|before| before.is_as_declared(&user)) {
            plan.applied.unchanged += 1;
            if before.as_ref() != Some(&user) {
                plan.steps.push(Step::NoteUser(Box::new(user)));
            }
            continue;
        }
        let has_new_password = before
            .as_ref()
            .is_none_or(|before| before.password != user.password)
            && user.password.is_some();
        user.updated_at = now;
        let then = before.as_ref().map(|before| export(before, false));
        plan.note(KIND, &user.account_id, then.as_ref(), Some(&export(&user, false)));
        if before.is_none() && made.contains(&user.uuid) {
            plan.forget_made("uuid");
        }
        if has_new_password {
            plan.note_secret("password", SecretChange::New);
        }
        plan.steps
            .push(Step::PutUser(before.map(Box::new), Box::new(user)));
    }
    for user in removed {
        plan.note(KIND, &user.account_id, Some(&Map::new()), None);
        plan.steps.push(Step::RemoveUser(Box::new(user)));
    }
    Ok(())
}

/// The user that is there, and as they are to be; the time of the last change is still the former.
type Settled = Result<(Option<User>, User), String>;

fn settle(snapshot: &dyn Snapshot, entry: &Prepared, now: Timestamp) -> Result<Settled, StoreError> {
    let before = match entry.line.existing(snapshot)? {
        Ok(before) => before,
        Err(fault) => return Ok(Err(fault)),
    };
    let mut user = match entry.line.onto(None, entry.fresh, &entry.organization, now) {
        Ok(user) => user,
        Err(fault) => return Ok(Err(fault)),
    };
    if let Some(uuid) = entry.line.uuid
        && before.as_ref().is_some_and(|before| before.uuid != uuid)
    {
        return Ok(Err("it is there under another uuid".to_owned()));
    }
    let mistaken = before.as_ref().and_then(|before| entry.line.mistakes(before));
    if let Some(fault) = mistaken.or_else(|| entry.line.borrowed_type(before.as_ref())) {
        return Ok(Err(fault));
    }
    User::LOCAL.clone_into(&mut user.source);
    if let Some(before) = &before {
        user.uuid = before.uuid;
        user.source.clone_from(&before.source);
        user.created_at = before.created_at;
        user.updated_at = before.updated_at;
        user.password.clone_from(&before.password);
        user.declared_hash = before.declared_hash;
        user.identities.clone_from(&before.identities);
    }
    match &entry.password {
        Some(Given::Declared(hash)) => user.take_declared(hash),
        Some(Given::Hashed(hash)) => {
            user.password = Some(hash.clone());
            user.declared_hash = None;
        }
        None => {}
    }
    Ok(Ok((before, user)))
}

/// Whether every name has one owner in the end.
fn check_names(
    snapshot: &dyn Snapshot,
    puts: &[(Option<User>, User)],
    removed: &[User],
    plan: &mut Plan,
) -> Result<(), StoreError> {
    let mut owners: HashMap<LoginName, Uuid> = HashMap::new();
    let released: Vec<Uuid> = puts
        .iter()
        .filter_map(|(before, _)| before.as_ref())
        .chain(removed)
        .map(|user| user.uuid)
        .collect();
    let released: HashSet<Uuid> = released.into_iter().collect();
    for (_, user) in puts {
        for name in user.login_names() {
            let stored = USERS_BY_LOGIN_NAME.get(snapshot, name.as_str())?;
            let is_foreign = stored.is_some_and(|owner| owner != user.uuid && !released.contains(&owner));
            let is_taken = owners.get(&name).is_some_and(|owner| *owner != user.uuid);
            if is_foreign || is_taken {
                plan.faults.extend(about(
                    KIND,
                    &user.account_id,
                    vec![format!("another user has the name {}", name.as_str())],
                ));
            }
            owners.insert(name, user.uuid);
        }
    }
    Ok(())
}

/// Whether a user is one that an operator puts there: not a device's, not a provider's.
pub(super) fn is_declarable(user: &User) -> bool {
    user.source == User::LOCAL || user.source == User::IMPORT
}

/// A user as a file has it.
pub(super) fn export(user: &User, with_hashes: bool) -> Map<String, Value> {
    let hash = user.password.as_ref().filter(|_| with_hashes);
    let user_type = Some(user.user_type.clone()).filter(|name| name != User::DEFAULT_TYPE);
    let mut entry = members(&UserLine {
        uuid: Some(user.uuid),
        account_id: Some(user.account_id.clone()),
        email: user.email.clone(),
        email_verified: user.email_verified.then_some(true),
        phone_number: user.phone_number.clone(),
        phone_number_verified: user.phone_number_verified.then_some(true),
        user_type,
        venue_id: user.venue_id.clone(),
        organization: Some(user.organization.clone()),
        enabled: (!user.enabled).then_some(false),
        claims: user.claims.clone(),
        password_hash: hash.map(|hash| hash.as_str().into()),
        created_at: None,
    });
    if user.claims.is_empty() {
        entry.remove("claims");
    }
    entry.retain(|_, value| !value.is_null());
    entry
}
