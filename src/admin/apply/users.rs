//! Users in a declared state.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::plan::{Comparison, Entry, Plan};
use super::stored_record::StoredRecord;
use super::{FieldChange, refuse_duplicates};
use crate::admin::import::{UserLine, no_name, read_hash};
pub(super) use crate::admin::user::KIND;
use crate::admin::user::check_chosen;
use crate::admin::{Admin, AdminRefusal, AdminResult, SecretString, about};
use crate::clock::Timestamp;
use crate::flow::check_password::check_password;
use crate::identity::{LoginName, User};
use crate::limit::password_attempt::PasswordAttempt;
use crate::oauth::fields::Form;
use crate::oauth::group::Groups;
use crate::oauth::{Fault, FaultCode};
use crate::password::{PasswordHash, SALT_LEN};
use crate::store::engine::Snapshot;
use crate::store::login_names;
use crate::store::{StoreError, TxError};

/// The keys of an entry, including those for files and variables that passwords are read from.
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
    ("groups", Form::Texts),
    ("password_file", Form::Text),
    ("password_env", Form::Text),
    ("password_hash", Form::TextOrTable),
];

/// A declared user. A missing field gets its default. A missing password does not change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredUser {
    pub password: Option<SecretString>,
    /// The other fields, as in a line of an import.
    #[serde(flatten)]
    pub line: UserLine,
}

/// A declared user, with what was hashed and drawn before the transaction.
pub(super) struct PreparedUser {
    line: UserLine,
    name: String,
    new_uuid: Uuid,
    organization: String,
    now: Timestamp,
    /// The new password. `None` if the password does not change.
    password: Option<DeclaredPassword>,
}

/// The password of an entry.
enum DeclaredPassword {
    /// The entry has this hash.
    Hash(PasswordHash),
    /// The entry has a password in the clear, which is not the stored one. This is its hash.
    Cleartext(PasswordHash),
}

/// Hashes the passwords that differ from the stored ones.
pub(super) async fn prepare(
    admin: Admin<'_>,
    declared: Vec<DeclaredUser>,
    faults: &mut Vec<Fault>,
) -> AdminResult<Vec<PreparedUser>> {
    let core = admin.core;
    let name_of = |entry: &DeclaredUser| entry.line.name().unwrap_or_default().to_owned();
    let names: Vec<String> = declared.iter().map(name_of).collect();
    let login_names = names.iter().map(|name| LoginName::new(name).as_str().to_owned());
    refuse_duplicates(KIND, login_names, faults);
    let mut new_uuids: Vec<Uuid> = names
        .iter()
        .map(|_| core.random.uuid_v7(core.clock.since_epoch()))
        .collect();
    new_uuids.sort_unstable();
    let mut all = Vec::new();
    for ((entry, name), new_uuid) in declared.into_iter().zip(names).zip(new_uuids) {
        let mut own = Vec::new();
        if name.is_empty() {
            own.push(no_name());
        }
        if !entry.line.totp.is_null() {
            own.push(FaultCode::NotAllowed.at(["totp"], "a state file cannot have the factors of users"));
        }
        let password = match (&entry.password, &entry.line.password_hash) {
            (Some(_), Some(_)) => {
                let detail = "there are both a password and a hash";
                own.push(FaultCode::NotAllowed.at(["password_hash", "password"], detail));
                None
            }
            (None, Some(hash)) => read_hash(hash)
                .map_err(|fault| own.push(fault))
                .ok()
                .map(DeclaredPassword::Hash),
            (Some(password), None) => {
                let hash = hash_if_changed(admin, &entry.line, password, &mut own).await?;
                hash.map(DeclaredPassword::Cleartext)
            }
            (None, None) => None,
        };
        faults.extend(about(KIND, &name, own));
        all.push(PreparedUser {
            line: entry.line,
            name,
            new_uuid,
            organization: core.policy.organization.clone(),
            now: core.clock.now(),
            password,
        });
    }
    Ok(all)
}

/// Checks and hashes a password, unless the user has it already.
async fn hash_if_changed(
    admin: Admin<'_>,
    line: &UserLine,
    password: &SecretString,
    faults: &mut Vec<Fault>,
) -> AdminResult<Option<PasswordHash>> {
    let core = admin.core;
    if let Some(user) = line.existing_now(admin).await?
        && user.password.is_some()
    {
        let attempt = PasswordAttempt::trusted();
        let verdict = check_password(core, user.password, password.to_zeroizing(), attempt).await?;
        if verdict.matches {
            return Ok(None);
        }
    }
    // A line that describes no valid user is refused by `merge`.
    let line = UserLine {
        groups: None,
        ..line.clone()
    };
    let (organization, groups) = (core.policy.organization.as_str(), Groups::default());
    if let Ok(user) = line.to_user(None, Uuid::nil(), organization, &groups, core.clock.now()) {
        let before = faults.len();
        check_chosen(admin, &user, password, faults);
        if faults.len() > before {
            return Ok(None);
        }
    }
    let salt = core.random.bytes::<SALT_LEN>();
    Ok(Some(core.passwords.hash(password.to_zeroizing(), salt).await?))
}

impl Entry for PreparedUser {
    type Context = Groups;
    const KIND: &'static str = KIND;

    fn id(&self) -> &str {
        &self.name
    }

    fn compare(
        &self,
        snapshot: &dyn Snapshot,
        groups: &Groups,
        _: &mut Vec<Fault>,
    ) -> Result<Comparison, TxError<AdminRefusal>> {
        let before = self.line.existing(snapshot)?;
        let user = self.merge(before.as_ref(), groups)?;
        let former_password = before.as_ref().and_then(|before| before.password.as_ref());
        let has_new_password = user.password.is_some() && former_password != user.password.as_ref();
        let is_generated = before.is_none() && user.uuid == self.new_uuid;
        Ok(Comparison {
            secret: has_new_password.then(|| FieldChange::of_secret("password", true)),
            generated_field: is_generated.then_some("uuid"),
            ..Comparison::of(before, user)
        })
    }

    /// A request has some users of a file only, so it names the users to remove.
    fn prunable(_: &dyn Snapshot) -> Result<Vec<StoredRecord>, StoreError> {
        Ok(Vec::new())
    }
}

impl PreparedUser {
    /// Merges an entry with the stored user. The time of the last change is still that of the stored user.
    fn merge(&self, before: Option<&User>, groups: &Groups) -> Result<User, AdminRefusal> {
        let organization = self.organization.as_str();
        let mut user = self
            .line
            .to_user(None, self.new_uuid, organization, groups, self.now)?;
        if let Some(uuid) = self.line.uuid
            && before.is_some_and(|before| before.uuid != uuid)
        {
            return Err(FaultCode::NotAllowed
                .at(["uuid"], "it is there under another uuid")
                .into());
        }
        let namesake = before.and_then(|before| self.line.federated_namesake(before));
        if let Some(fault) = namesake.or_else(|| self.line.reserved_user_type(before)) {
            return Err(fault.into());
        }
        User::LOCAL.clone_into(&mut user.source);
        if let Some(before) = before {
            user.uuid = before.uuid;
            user.source.clone_from(&before.source);
            user.created_at = before.created_at;
            user.updated_at = before.updated_at;
            user.password.clone_from(&before.password);
            user.devices_forgotten_at = before.devices_forgotten_at;
            user.declared_hash = before.declared_hash;
            user.declared_seeds.clone_from(&before.declared_seeds);
            user.must_change_password = before.must_change_password;
            user.unproven_holder = before.unproven_holder;
            user.password_changed_at = before.password_changed_at;
            user.secured_at = before.secured_at;
            user.factors_end_at = before.factors_end_at;
            user.email_changed_at = before.email_changed_at;
            user.identities.clone_from(&before.identities);
            if groups.of(&user) == groups.of(before) {
                user.groups.clone_from(&before.groups);
            }
        }
        match &self.password {
            Some(DeclaredPassword::Hash(hash)) => user.take_declared(hash),
            Some(DeclaredPassword::Cleartext(hash)) => {
                user.password = Some(hash.clone());
                user.declared_hash = None;
            }
            None => {}
        }
        Ok(user)
    }
}

/// Checks that each name has one owner after the change.
pub(super) fn check_names(snapshot: &dyn Snapshot, plan: &mut Plan) -> Result<(), StoreError> {
    let mut owners: HashMap<LoginName, Uuid> = HashMap::new();
    let mut faults = Vec::new();
    let released: HashSet<Uuid> = plan.users_before().map(|user| user.uuid).collect();
    for user in plan.users_after() {
        for name in user.login_names() {
            let stored = login_names::owner(snapshot, &name)?;
            let is_stored_for_another =
                stored.is_some_and(|owner| owner != user.uuid && !released.contains(&owner));
            let is_declared_for_another = owners.get(&name).is_some_and(|owner| *owner != user.uuid);
            if is_stored_for_another || is_declared_for_another {
                let detail = format!("another user has the name {}", name.as_str());
                let fault = FaultCode::AlreadyExists.at(["account_id", "email"], detail);
                faults.push(fault.about(KIND, &user.account_id));
            }
            owners.insert(name, user.uuid);
        }
    }
    plan.faults.extend(faults);
    Ok(())
}

/// Whether a file can declare the user: an operator added or imported them.
pub(super) fn is_declarable(user: &User) -> bool {
    is_declared_in_files(&user.source)
}

/// Whether a file can declare users with this `source`.
pub fn is_declared_in_files(source: &str) -> bool {
    [User::LOCAL, User::IMPORT].contains(&source)
}
