//! Users from another system, a bounded number at a time: all looked at before the first is written.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::user::{borrowed_type, put};
use super::{Admin, Done, check_account_id, check_text, claim};
use crate::clock::Timestamp;
use crate::identity::claim::looks_like_email;
use crate::identity::{LoginName, User};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::password::PasswordHash;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{USERS, USERS_BY_LOGIN_NAME};

/// How far the clock of the other system may be ahead of ours.
const CLOCK_SKEW: Duration = Duration::from_mins(5);

/// What happens to a user who is there already and differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// The line is bad.
    #[default]
    Refuse,
    /// The user stays as they are.
    Skip,
    /// The user becomes what the line says.
    Update,
}

/// Some lines of an import.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportUsers {
    /// Each line with its number.
    pub lines: Vec<(u64, String)>,
    /// What happens to users who are there already.
    pub existing: Existing,
    /// Whether good lines are imported though others of these are bad.
    pub skip_bad: bool,
    /// Whether anything is written; else the lines are only looked at.
    pub write: bool,
}

/// A line that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadLine {
    /// Its number, from 1 on.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// What came of some lines, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Users that are new.
    pub added: u64,
    /// Users that changed.
    pub updated: u64,
    /// Users that were there already, and stay.
    pub unchanged: u64,
    /// Users that are new and have a password.
    pub passwords: u64,
    /// Lines that are bad. When there are some and they are not to be skipped, nothing was written.
    pub bad: Vec<BadLine>,
}

/// One user, as a line or an entry of a file has them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UserLine {
    /// The user's identifier in the platform.
    pub uuid: Option<Uuid>,
    /// The account identifier; the address when there is none.
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

    /// The user that the line means, if they are there.
    pub(super) fn existing(
        &self,
        snapshot: &dyn Snapshot,
    ) -> Result<Result<Option<User>, String>, StoreError> {
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
            _ => Ok(Err("its names belong to different users".to_owned())),
        }
    }

    /// Why the user who is there is not the one that the line means, if it is so. A provider chooses the names of those
    /// whom it brings: by its name alone none of them becomes somebody that the operator speaks of.
    pub(super) fn mistakes(&self, before: &User) -> Option<String> {
        let is_brought = before.comes_from_provider() && self.uuid != Some(before.uuid);
        is_brought.then(|| {
            format!(
                "provider {} brought a user of this name: name its uuid, {}, to mean it, or remove it",
                before.source, before.uuid
            )
        })
    }

    /// Why the user may not have the type that the line wants, if it is so. One who is new here and whose uuid is named
    /// comes from another installation, as an export says, and is what they were there.
    pub(super) fn borrowed_type(&self, before: Option<&User>) -> Option<String> {
        let user_type = self
            .user_type
            .as_deref()
            .filter(|_| self.uuid.is_none() || before.is_some())?;
        borrowed_type(before, user_type)
    }

    /// The user as the line wants it, made of the one who is there.
    pub(super) fn onto(
        &self,
        before: Option<&User>,
        fresh: Uuid,
        organization: &str,
        now: Timestamp,
    ) -> Result<User, String> {
        let said = self;
        let mut faults = Vec::new();
        if let Some(seconds) = said.created_at
            && Timestamp::from_seconds(seconds) > now + CLOCK_SKEW
        {
            faults.push(format!(
                "created_at is in seconds since 1970, and {seconds} lies ahead"
            ));
        }
        let mut user = if let Some(user) = before {
            user.clone()
        } else {
            let made_at = said.created_at.map_or(now, Timestamp::from_seconds).min(now);
            User {
                email: None,
                source: User::IMPORT.to_owned(),
                created_at: made_at,
                ..User::local(said.uuid.unwrap_or(fresh), "", organization, now)
            }
        };
        if let Some(uuid) = said.uuid
            && uuid != user.uuid
        {
            faults.push(format!("the user is there under another uuid, {}", user.uuid));
        }
        if let Some(email) = &said.email {
            if !looks_like_email(email) {
                faults.push(format!("{email:?} is no e-mail address"));
            }
            user.set_email(Some(email.clone()));
        }
        match (&said.account_id, &said.email, before) {
            (Some(id), _, _) => {
                check_account_id(&mut faults, "account_id", id);
                user.account_id.clone_from(id);
            }
            (None, Some(email), None) => user.account_id.clone_from(email),
            _ => {}
        }
        for (field, text) in [
            ("user_type", &said.user_type),
            ("organization", &said.organization),
            ("venue_id", &said.venue_id),
            ("phone_number", &said.phone_number),
        ] {
            if let Some(text) = text {
                check_text(&mut faults, field, text);
            }
        }
        let set = |field: &mut String, said: &Option<String>| {
            if let Some(said) = said {
                field.clone_from(said);
            }
        };
        set(&mut user.user_type, &said.user_type);
        set(&mut user.organization, &said.organization);
        user.venue_id = said.venue_id.clone().or(user.venue_id);
        if said.phone_number.is_some() {
            user.set_phone_number(said.phone_number.clone());
        }
        for (name, value) in &said.claims {
            if matches!(
                name.as_str(),
                "email" | "email_verified" | "phone_number" | "phone_number_verified"
            ) {
                faults.push(format!("{name} stands beside claims, not in them"));
            } else if let Err(fault) = claim::set_value(&mut user, name, value) {
                faults.push(fault);
            }
        }
        claim::forget_verdicts(&mut user);
        user.email_verified = said.email_verified.unwrap_or(user.email_verified);
        user.phone_number_verified = said.phone_number_verified.unwrap_or(user.phone_number_verified);
        faults.extend(claim::unfounded(&user));
        user.enabled = said.enabled.unwrap_or(user.enabled);
        if faults.is_empty() {
            Ok(user)
        } else {
            Err(faults.join("; "))
        }
    }
}

/// A line that was understood.
struct Arrival {
    line: u64,
    said: UserLine,
    password: Option<PasswordHash>,
    fresh: Uuid,
}

impl Arrival {
    fn read(line: u64, text: &str, fresh: Uuid) -> Result<Self, String> {
        // A record could be written as a list, too, by the order of its members: that is never what was meant.
        if !text.starts_with('{') {
            return Err("a line is one JSON object, no list and nothing else".to_owned());
        }
        let said: UserLine = serde_json::from_str(text).map_err(|error| {
            let message = error.to_string();
            // The place within the line is all that its number leaves open.
            message.replace(" at line 1 column", ", at column")
        })?;
        let password = match &said.password_hash {
            Some(hash) => Some(PasswordHash::import(hash).map_err(|problem| problem.to_string())?),
            None => None,
        };
        if said.email.is_none() && said.account_id.is_none() {
            return Err("neither email nor account_id: the user would have no name".to_owned());
        }
        Ok(Self {
            line,
            said,
            password,
            fresh,
        })
    }

    /// What is to be done, decided on one state of the store.
    fn decide(
        &self,
        snapshot: &dyn Snapshot,
        existing: Existing,
        organization: &str,
        now: Timestamp,
    ) -> Result<Result<Step, String>, StoreError> {
        let before = match self.said.existing(snapshot)? {
            Ok(before) => before,
            Err(fault) => return Ok(Err(fault)),
        };
        let mut user = match self.said.onto(before.as_ref(), self.fresh, organization, now) {
            Ok(user) => user,
            Err(fault) => return Ok(Err(fault)),
        };
        if let Some(fault) = self.said.borrowed_type(before.as_ref()) {
            return Ok(Err(fault));
        }
        let Some(before) = before else {
            if let Some(hash) = &self.password {
                user.take_declared(hash);
            }
            return Ok(Ok(Step::Add(user)));
        };
        // A password that was rehashed since, or changed, is newer than the line's.
        let is_repeated = before == user && before.source == User::IMPORT;
        Ok(match existing {
            _ if is_repeated && existing != Existing::Update => Ok(Step::Keep),
            Existing::Skip => Ok(Step::Keep),
            Existing::Refuse => Err(format!(
                "there is a user {} already: --existing skip leaves them, --existing update changes them",
                before.account_id
            )),
            Existing::Update => {
                if let Some(fault) = self.said.mistakes(&before) {
                    return Ok(Err(fault));
                }
                if let Some(hash) = &self.password {
                    user.take_declared(hash);
                }
                if user == before {
                    return Ok(Ok(Step::Keep));
                }
                if before.is_as_declared(&user) {
                    return Ok(Ok(Step::Note(user)));
                }
                user.updated_at = now;
                Ok(Step::Change(Box::new(before), user))
            }
        })
    }
}

enum Step {
    Add(User),
    Change(Box<User>, User),
    /// The user stays as they are, and it is kept which hash the line has of their password.
    Note(User),
    Keep,
}

/// Looks at some lines, and imports them if that is asked for and they are good. One transaction.
pub async fn users(admin: Admin<'_>, request: ImportUsers) -> Done<Imported> {
    let core = admin.core;
    let began = core.clock.since_epoch();
    let now = core.clock.now();
    let ImportUsers {
        lines,
        existing,
        skip_bad,
        write,
    } = request;
    let mut report = Imported::default();
    let mut arrivals = Vec::new();
    // Sorted, so that users stand in the order of their lines.
    let mut fresh: Vec<Uuid> = lines.iter().map(|_| core.random.uuid_v7(began)).collect();
    fresh.sort_unstable();
    for ((line, text), fresh) in lines.into_iter().zip(fresh) {
        match Arrival::read(line, &text, fresh) {
            Ok(arrival) => arrivals.push(arrival),
            Err(reason) => report.bad.push(BadLine { line, reason }),
        }
    }
    refuse_repeats(&mut arrivals, &mut report.bad);
    let organization = core.policy.organization.clone();
    if !write {
        return Ok(core.store.read(move |snapshot| {
            plan(snapshot, &arrivals, existing, &organization, now, report).map(|(report, _)| report)
        })?);
    }
    let report = core
        .store
        .write("user import", move |tx: &mut dyn Tx| {
            let begun = report.clone();
            let (mut report, steps) = plan(&*tx, &arrivals, existing, &organization, now, begun)?;
            if !report.bad.is_empty() && !skip_bad {
                return Ok(report);
            }
            for (line, step) in steps {
                let put = match &step {
                    Step::Add(user) => put(tx, None, user)?,
                    Step::Change(before, user) => put(tx, Some(before), user)?,
                    Step::Note(user) => put(tx, Some(user), user)?,
                    Step::Keep => Ok(()),
                };
                // Two lines of one request cannot mean the same name, so this is out of reach of a plan.
                if let Err(refusal) = put {
                    report.bad.push(BadLine {
                        line,
                        reason: refusal.message,
                    });
                }
            }
            Ok(report)
        })
        .await?;
    if report.added + report.updated > 0 && (skip_bad || report.bad.is_empty()) {
        audit::record(&Event::Administered {
            command: "user import",
            subject: &format!("{} added, {} updated", report.added, report.updated),
        });
    }
    Ok(report)
}

/// Takes lines out that use a name which an earlier one of them uses.
fn refuse_repeats(arrivals: &mut Vec<Arrival>, bad: &mut Vec<BadLine>) {
    let mut seen: HashMap<String, u64> = HashMap::new();
    arrivals.retain(|arrival| {
        let mut keys: Vec<String> = arrival
            .said
            .names()
            .map(|name| name.as_str().to_owned())
            .collect();
        keys.extend(arrival.said.uuid.map(|uuid| uuid.to_string()));
        if let Some(first) = keys.iter().find_map(|key| seen.get(key)) {
            bad.push(BadLine {
                line: arrival.line,
                reason: format!("the same user as in line {first}"),
            });
            return false;
        }
        seen.extend(keys.into_iter().map(|key| (key, arrival.line)));
        true
    });
}

type Planned = (Imported, Vec<(u64, Step)>);

fn plan(
    snapshot: &dyn Snapshot,
    arrivals: &[Arrival],
    existing: Existing,
    organization: &str,
    now: Timestamp,
    mut report: Imported,
) -> Result<Planned, StoreError> {
    let mut steps = Vec::new();
    for arrival in arrivals {
        match arrival.decide(snapshot, existing, organization, now)? {
            Ok(step) => {
                match &step {
                    Step::Add(user) => {
                        report.added += 1;
                        report.passwords += u64::from(user.password.is_some());
                    }
                    Step::Change(..) => report.updated += 1,
                    Step::Note(_) | Step::Keep => report.unchanged += 1,
                }
                steps.push((arrival.line, step));
            }
            Err(reason) => report.bad.push(BadLine {
                line: arrival.line,
                reason,
            }),
        }
    }
    report.bad.sort_by_key(|bad| bad.line);
    Ok((report, steps))
}
