//! Imports users from another system. The lines of a request are all checked before the first user is stored.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::named::group_ids;
use super::user::{KIND, put, reserved_user_type};
use super::{Admin, AdminRefusal, AdminResult, already_exists, check_account_id, check_text, claim};
use crate::clock::Timestamp;
use crate::flow::or_refuse;
use crate::identity::claim::looks_like_email;
use crate::identity::{LoginName, User};
use crate::oauth::group::Groups;
use crate::oauth::{Fault, FaultCode};
use crate::password::PasswordHash;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{USERS, USERS_BY_LOGIN_NAME};

/// How far the clock of the other system may be ahead of ours.
const CLOCK_SKEW: Duration = Duration::from_mins(5);

/// What happens if a line is about a user who is here already and differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExistingUsers {
    /// The line is refused.
    #[default]
    Refuse,
    /// The user is not changed.
    Skip,
    /// The user is changed as the line says.
    Update,
}

/// Some lines of an import.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportUsers {
    /// Each line with its number.
    pub lines: Vec<(u64, String)>,
    /// What happens to users who are here already.
    pub existing: ExistingUsers,
    /// Whether good lines are imported even if others are bad.
    pub skip_bad: bool,
    /// Whether users are stored. If not, the lines are only checked.
    pub write: bool,
}

/// A line that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadLine {
    /// Its number, from 1 on.
    pub line: u64,
    /// What is wrong with it.
    pub faults: Vec<Fault>,
}

/// The result of an import or of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Users that are new.
    pub added: u64,
    /// Users that changed.
    pub updated: u64,
    /// Users that were here already and did not change.
    pub unchanged: u64,
    /// Users that are new and have a password.
    pub passwords: u64,
    /// Bad lines. If there are any and they are not to be skipped, nothing was stored.
    pub bad: Vec<BadLine>,
}

/// The fields of one user, in a line of an import or an entry of a state file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UserLine {
    /// The user's identifier in the platform.
    pub uuid: Option<Uuid>,
    /// The account identifier. Without one it is the e-mail address.
    pub account_id: Option<String>,
    /// The e-mail address.
    pub email: Option<String>,
    /// Whether it was shown to be the user's.
    pub email_verified: Option<bool>,
    /// The telephone number.
    pub phone_number: Option<String>,
    /// Whether it was shown to be the user's.
    pub phone_number_verified: Option<bool>,
    /// The user's type.
    pub user_type: Option<String>,
    /// The venue.
    pub venue_id: Option<String>,
    /// The organization.
    pub organization: Option<String>,
    /// Whether the user may be given tokens.
    pub enabled: Option<bool>,
    /// Claims by name.
    pub claims: BTreeMap<String, Value>,
    /// The names of the groups that the user is in.
    pub groups: Option<Vec<String>>,
    /// The password's hash, as [`PasswordHash::import`] reads it.
    pub password_hash: Option<Value>,
    /// When the user was made, in seconds since the epoch.
    pub created_at: Option<u64>,
}

impl UserLine {
    /// The name that messages call the user by.
    pub fn name(&self) -> Option<&str> {
        self.account_id.as_deref().or(self.email.as_deref())
    }

    fn names(&self) -> impl Iterator<Item = LoginName> {
        [&self.account_id, &self.email]
            .into_iter()
            .flatten()
            .map(|name| LoginName::new(name))
    }

    /// The stored user that the line is about, if there is one.
    pub(super) fn existing(
        &self,
        snapshot: &dyn Snapshot,
    ) -> Result<Result<Option<User>, AdminRefusal>, StoreError> {
        let mut owners = Vec::new();
        if let Some(uuid) = self.uuid
            && USERS.contains(snapshot, &uuid)?
        {
            owners.push(uuid);
        }
        for name in self.names() {
            if let Some(uuid) = USERS_BY_LOGIN_NAME.get(snapshot, name.as_str())?
                && !owners.contains(&uuid)
            {
                owners.push(uuid);
            }
        }
        match owners.as_slice() {
            [] => Ok(Ok(None)),
            [one] => Ok(Ok(USERS.get(snapshot, one)?)),
            _ => {
                let detail = "its names belong to different users";
                Ok(Err(FaultCode::AlreadyExists
                    .at(["uuid", "account_id", "email"], detail)
                    .into()))
            }
        }
    }

    /// The fault of a line that names a user of a provider without their UUID. The provider chose the name of that
    /// user, so the name alone does not show that the operator means them.
    pub(super) fn federated_namesake(&self, before: &User) -> Option<Fault> {
        let is_namesake = before.comes_from_provider() && self.uuid != Some(before.uuid);
        is_namesake.then(|| {
            let detail = format!(
                "provider {} created a user of this name: add its uuid, {}, to the line, or remove the user",
                before.source, before.uuid
            );
            FaultCode::AlreadyExists.at(["uuid"], detail)
        })
    }

    /// The fault of a user type that is reserved. A new user with a UUID comes from an export of another
    /// installation, and keeps the type that they have there.
    pub(super) fn reserved_user_type(&self, before: Option<&User>) -> Option<Fault> {
        let user_type = self
            .user_type
            .as_deref()
            .filter(|_| self.uuid.is_none() || before.is_some())?;
        reserved_user_type(before, user_type)
    }

    /// The user that the line describes, based on the stored one.
    pub(super) fn to_user(
        &self,
        before: Option<&User>,
        new_uuid: Uuid,
        (organization, groups): (&str, &Groups),
        now: Timestamp,
    ) -> Result<User, AdminRefusal> {
        let mut faults = Vec::new();
        if let Some(seconds) = self.created_at
            && Timestamp::from_seconds(seconds) > now + CLOCK_SKEW
        {
            let detail = format!("the time of creation is in seconds since 1970, and {seconds} lies ahead");
            faults.push(FaultCode::Invalid.at(["created_at"], detail));
        }
        let mut user = if let Some(user) = before {
            user.clone()
        } else {
            User {
                email: None,
                source: User::IMPORT.to_owned(),
                created_at: self.created_at.map_or(now, Timestamp::from_seconds).min(now),
                ..User::local(self.uuid.unwrap_or(new_uuid), "", organization, now)
            }
        };
        if let Some(uuid) = self.uuid
            && uuid != user.uuid
        {
            let detail = format!("the user exists with another uuid, {}", user.uuid);
            faults.push(FaultCode::NotAllowed.at(["uuid"], detail));
        }
        if let Some(email) = &self.email {
            if !looks_like_email(email) {
                faults.push(FaultCode::Invalid.at(["email"], format!("{email:?} is no e-mail address")));
            }
            user.set_email(Some(email.clone()));
        }
        match (&self.account_id, &self.email, before) {
            (Some(id), _, _) => {
                check_account_id(&mut faults, id);
                user.account_id.clone_from(id);
            }
            (None, Some(email), None) => user.account_id.clone_from(email),
            _ => {}
        }
        for (field, text) in [
            ("user_type", &self.user_type),
            ("organization", &self.organization),
            ("venue_id", &self.venue_id),
            ("phone_number", &self.phone_number),
        ] {
            if let Some(text) = text {
                check_text(&mut faults, field, text);
            }
        }
        let set = |field: &mut String, value: &Option<String>| {
            if let Some(value) = value {
                field.clone_from(value);
            }
        };
        set(&mut user.user_type, &self.user_type);
        set(&mut user.organization, &self.organization);
        user.venue_id = self.venue_id.clone().or(user.venue_id);
        if self.phone_number.is_some() {
            user.set_phone_number(self.phone_number.clone());
        }
        for (name, value) in &self.claims {
            if matches!(
                name.as_str(),
                "email" | "email_verified" | "phone_number" | "phone_number_verified"
            ) {
                let detail = format!("{name} is a member of the line, not of claims");
                faults.push(FaultCode::NotAllowed.at(["claims", name.as_str()], detail));
            } else if let Err(fault) = claim::set_value(&mut user, name, value) {
                faults.push(fault);
            }
        }
        if let Some(names) = &self.groups {
            user.groups = group_ids(groups, names, &mut faults);
        }
        claim::clear_unfounded_verification(&mut user);
        user.email_verified = self.email_verified.unwrap_or(user.email_verified);
        user.phone_number_verified = self.phone_number_verified.unwrap_or(user.phone_number_verified);
        faults.extend(claim::unfounded_verification(&user));
        user.enabled = self.enabled.unwrap_or(user.enabled);
        if faults.is_empty() {
            Ok(user)
        } else {
            Err(AdminRefusal(faults))
        }
    }
}

/// The hash of a password in a line of an import or an entry of a state file.
pub(super) fn read_hash(hash: &Value) -> Result<PasswordHash, Fault> {
    let fault = |problem| FaultCode::Invalid.at(["password_hash"], format!("{problem}"));
    PasswordHash::import(hash).map_err(fault)
}

/// The fault of a user without an e-mail address and an account identifier.
pub(super) fn no_name() -> Fault {
    FaultCode::Required.at(
        ["email", "account_id"],
        "a user needs an e-mail address or an account identifier",
    )
}

/// The fault of a line about the user of an earlier line.
pub fn same_user_as(line: u64) -> Fault {
    FaultCode::AlreadyExists.at(
        ["uuid", "account_id", "email"],
        format!("the same user as in line {line}"),
    )
}

/// A line that could be read.
struct ParsedLine {
    line: u64,
    fields: UserLine,
    password: Option<PasswordHash>,
    new_uuid: Uuid,
}

impl ParsedLine {
    fn read(line: u64, text: &str, new_uuid: Uuid) -> Result<Self, Fault> {
        // serde also reads a struct from a JSON array, by the order of its members. Such a line is a mistake.
        if !text.starts_with('{') {
            return Err(FaultCode::Invalid.at([], "a line is one JSON object, no list and nothing else"));
        }
        let fields: UserLine = serde_json::from_str(text).map_err(|error| {
            let message = error.to_string();
            // serde counts from the start of this line, so its line number is always 1.
            FaultCode::Invalid.at([], message.replace(" at line 1 column", ", at column"))
        })?;
        let password = match &fields.password_hash {
            Some(hash) => Some(read_hash(hash)?),
            None => None,
        };
        if fields.name().is_none() {
            return Err(no_name());
        }
        Ok(Self {
            line,
            fields,
            password,
            new_uuid,
        })
    }

    /// Decides what to do with the line.
    fn decide(
        &self,
        snapshot: &dyn Snapshot,
        existing: ExistingUsers,
        defaults: (&str, &Groups),
        now: Timestamp,
    ) -> Result<Result<ImportAction, AdminRefusal>, StoreError> {
        let before = or_refuse!(self.fields.existing(snapshot)?);
        let mut user = or_refuse!(self.fields.to_user(before.as_ref(), self.new_uuid, defaults, now));
        if let Some(fault) = self.fields.reserved_user_type(before.as_ref()) {
            return Ok(Err(fault.into()));
        }
        let Some(before) = before else {
            if let Some(hash) = &self.password {
                user.take_declared(hash);
            }
            return Ok(Ok(ImportAction::Add(user)));
        };
        // The password is not compared: the stored one may have been rehashed or changed since an earlier import.
        let is_repeated = before == user && before.source == User::IMPORT;
        Ok(match existing {
            _ if is_repeated && existing != ExistingUsers::Update => Ok(ImportAction::Keep),
            ExistingUsers::Skip => Ok(ImportAction::Keep),
            ExistingUsers::Refuse => Err(already_exists(KIND, &before.account_id).into()),
            ExistingUsers::Update => {
                if let Some(fault) = self.fields.federated_namesake(&before) {
                    return Ok(Err(fault.into()));
                }
                if let Some(hash) = &self.password {
                    user.take_declared(hash);
                }
                if user == before {
                    return Ok(Ok(ImportAction::Keep));
                }
                if before.is_as_declared(&user) {
                    return Ok(Ok(ImportAction::UpdateDeclaredHash(user)));
                }
                user.updated_at = now;
                Ok(ImportAction::Change(Box::new(before), user))
            }
        })
    }
}

/// What an import does with a line.
enum ImportAction {
    Add(User),
    Change(Box<User>, User),
    /// Only the record of which hash was declared changes.
    UpdateDeclaredHash(User),
    Keep,
}

/// Checks some lines, and imports them if requested and if they are good. One transaction.
pub async fn users(admin: Admin<'_>, request: ImportUsers) -> AdminResult<Imported> {
    let core = admin.core;
    let since_epoch = core.clock.since_epoch();
    let now = core.clock.now();
    let ImportUsers {
        lines,
        existing,
        skip_bad,
        write,
    } = request;
    let mut report = Imported::default();
    let mut parsed = Vec::new();
    // Sorted, so that users are stored in the order of their lines.
    let mut new_uuids: Vec<Uuid> = lines.iter().map(|_| core.random.uuid_v7(since_epoch)).collect();
    new_uuids.sort_unstable();
    for ((line, text), new_uuid) in lines.into_iter().zip(new_uuids) {
        match ParsedLine::read(line, &text, new_uuid) {
            Ok(parsed_line) => parsed.push(parsed_line),
            Err(fault) => report.bad.push(BadLine {
                line,
                faults: vec![fault],
            }),
        }
    }
    refuse_repeats(&mut parsed, &mut report.bad);
    let (organization, groups) = (
        core.policy.organization.clone(),
        Arc::clone(core.catalog().groups()),
    );
    if !write {
        return Ok(core.store.read(move |snapshot| {
            let defaults = (organization.as_str(), &*groups);
            plan(snapshot, &parsed, existing, defaults, now, report).map(|(report, _)| report)
        })?);
    }
    let report = core
        .store
        .write("user import", move |tx: &mut dyn Tx| {
            let defaults = (organization.as_str(), &*groups);
            let (mut report, actions) = plan(&*tx, &parsed, existing, defaults, now, report.clone())?;
            if !report.bad.is_empty() && !skip_bad {
                return Ok(report);
            }
            for (line, action) in actions {
                let put = match &action {
                    ImportAction::Add(user) => put(tx, None, user)?,
                    ImportAction::Change(before, user) => put(tx, Some(before), user)?,
                    ImportAction::UpdateDeclaredHash(user) => put(tx, Some(user), user)?,
                    ImportAction::Keep => Ok(()),
                };
                // `refuse_repeats` and the plan refuse names that are taken, so this does not happen.
                if let Err(AdminRefusal(faults)) = put {
                    report.bad.push(BadLine { line, faults });
                }
            }
            Ok(report)
        })
        .await?;
    if report.added + report.updated > 0 && (skip_bad || report.bad.is_empty()) {
        let done = format!("{} added, {} updated", report.added, report.updated);
        admin.record("user import", &done);
    }
    Ok(report)
}

/// Removes lines that repeat a name or UUID of an earlier line.
fn refuse_repeats(parsed: &mut Vec<ParsedLine>, bad: &mut Vec<BadLine>) {
    let mut seen: HashMap<String, u64> = HashMap::new();
    parsed.retain(|parsed_line| {
        let mut keys: Vec<String> = parsed_line
            .fields
            .names()
            .map(|name| name.as_str().to_owned())
            .collect();
        keys.extend(parsed_line.fields.uuid.map(|uuid| uuid.to_string()));
        if let Some(first) = keys.iter().find_map(|key| seen.get(key)) {
            bad.push(BadLine {
                line: parsed_line.line,
                faults: vec![same_user_as(*first)],
            });
            return false;
        }
        seen.extend(keys.into_iter().map(|key| (key, parsed_line.line)));
        true
    });
}

type Planned = (Imported, Vec<(u64, ImportAction)>);

fn plan(
    snapshot: &dyn Snapshot,
    parsed: &[ParsedLine],
    existing: ExistingUsers,
    defaults: (&str, &Groups),
    now: Timestamp,
    mut report: Imported,
) -> Result<Planned, StoreError> {
    let mut actions = Vec::new();
    for parsed_line in parsed {
        match parsed_line.decide(snapshot, existing, defaults, now)? {
            Ok(action) => {
                match &action {
                    ImportAction::Add(user) => {
                        report.added += 1;
                        report.passwords += u64::from(user.password.is_some());
                    }
                    ImportAction::Change(..) => report.updated += 1,
                    ImportAction::UpdateDeclaredHash(_) | ImportAction::Keep => report.unchanged += 1,
                }
                actions.push((parsed_line.line, action));
            }
            Err(AdminRefusal(faults)) => report.bad.push(BadLine {
                line: parsed_line.line,
                faults,
            }),
        }
    }
    report.bad.sort_by_key(|bad| bad.line);
    Ok((report, actions))
}
