//! Imports users from another system. The lines of a request are all checked before the first user is stored.

mod seeds;
#[cfg(test)]
mod tests;
mod user_line;

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use self::seeds::{LineSeeds, TakenSeeds};
pub use self::user_line::UserLine;
use super::operation::{Done, Effect, Operation};
use super::user::{KIND, put};
use super::{Admin, AdminRefusal, AdminResult, AdminTxError, already_exists};
use crate::clock::Timestamp;
use crate::identity::User;
use crate::oauth::group::Groups;
use crate::oauth::{Fault, FaultCode};
use crate::password::PasswordHash;
use crate::store::StoreError;
use crate::store::engine::Snapshot;

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

/// An authenticator app that is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutApp {
    pub line: u64,
    /// The account identifier of the user.
    pub user: String,
    /// Why it is left out.
    pub reason: String,
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
    pub authenticator_apps: u64,
    /// Authenticator apps that are left out. Their users are imported without them.
    pub left_out: Vec<LeftOutApp>,
    /// Bad lines. If there are any and they are not to be skipped, nothing was stored.
    pub bad: Vec<BadLine>,
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

/// What a user gets whose line does not say otherwise, and the groups that lines may name.
#[derive(Clone, Copy)]
struct ImportDefaults<'a> {
    organization: &'a str,
    groups: &'a Groups,
}

/// A line that could be read.
struct ParsedLine {
    line: u64,
    fields: UserLine,
    password: Option<PasswordHash>,
    seeds: LineSeeds,
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
        let seeds = LineSeeds::read(&fields.totp)?;
        if fields.name().is_none() {
            return Err(no_name());
        }
        Ok(Self {
            line,
            fields,
            password,
            seeds,
            new_uuid,
        })
    }

    fn decide(
        &self,
        snapshot: &dyn Snapshot,
        existing: ExistingUsers,
        defaults: ImportDefaults<'_>,
        now: Timestamp,
    ) -> Result<(ImportAction, TakenSeeds), AdminTxError> {
        let before = self.fields.existing(snapshot)?;
        let mut user = self.fields.to_user(
            before.as_ref(),
            self.new_uuid,
            defaults.organization,
            defaults.groups,
            now,
        )?;
        if let Some(fault) = self.fields.reserved_user_type(before.as_ref()) {
            return Err(fault.into());
        }
        let Some(before) = before else {
            if let Some(hash) = &self.password {
                user.take_declared(hash);
            }
            let taken = self.seeds.take(self.line, snapshot, &mut user)?;
            return Ok((ImportAction::Add(user), taken));
        };
        let keep = (ImportAction::Keep, TakenSeeds::default());
        // The password is not compared: the stored one may have been rehashed or changed since an earlier import.
        let is_repeated = before == user && before.source == User::IMPORT;
        match existing {
            _ if is_repeated && existing != ExistingUsers::Update => Ok(keep),
            ExistingUsers::Skip => Ok(keep),
            ExistingUsers::Refuse => Err(already_exists(KIND, &before.account_id).into()),
            ExistingUsers::Update => {
                if let Some(fault) = self.fields.federated_namesake(&before) {
                    return Err(fault.into());
                }
                if let Some(hash) = &self.password {
                    user.take_declared(hash);
                }
                let taken = self.seeds.take(self.line, snapshot, &mut user)?;
                let action = if user == before {
                    ImportAction::Keep
                } else if before.is_as_declared(&user) {
                    ImportAction::UpdateDeclaredHash(user)
                } else {
                    user.updated_at = now;
                    ImportAction::Change(Box::new(before), user)
                };
                Ok((action, taken))
            }
        }
    }
}

enum ImportAction {
    Add(User),
    Change(Box<User>, User),
    /// Only the record of which hash was declared changes.
    UpdateDeclaredHash(User),
    Keep,
}

impl Operation for ImportUsers {
    const NAME: &'static str = "user import";
    const EFFECT: Effect = Effect::Write;
    const MAY_CREATE_DATA_DIR: bool = true;
    type Output = Imported;

    /// Checks the lines, and imports them if requested and if they are good. One transaction.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Imported>> {
        let core = admin.core;
        let since_epoch = core.clock.since_epoch();
        let now = core.clock.now();
        let Self {
            lines,
            existing,
            skip_bad,
            write,
        } = self;
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
        if write {
            seeds::seal(admin, &mut parsed, now).await?;
        }
        let (organization, groups) = (
            core.policy.organization.clone(),
            Arc::clone(core.catalog().groups()),
        );
        if !write {
            let look = |snapshot: &dyn Snapshot| {
                let defaults = ImportDefaults {
                    organization: &organization,
                    groups: &groups,
                };
                plan(snapshot, &parsed, existing, defaults, now, report.clone()).map(|(report, _)| report)
            };
            return Ok(Done::unrecorded(core.store.read(look).await?));
        }
        let write = admin.write(Self::NAME, move |tx| {
            let defaults = ImportDefaults {
                organization: &organization,
                groups: &groups,
            };
            let (mut report, actions) = plan(&*tx, &parsed, existing, defaults, now, report.clone())?;
            if !report.bad.is_empty() && !skip_bad {
                return Ok(report);
            }
            for (line, action, seeds) in actions {
                let put = match &action {
                    ImportAction::Add(user) => put(tx, None, user),
                    ImportAction::Change(before, user) => put(tx, Some(before), user),
                    ImportAction::UpdateDeclaredHash(user) => put(tx, Some(user), user),
                    ImportAction::Keep => Ok(()),
                };
                match put {
                    Ok(()) => seeds.put(tx)?,
                    // `refuse_repeats` and the plan refuse names that are taken, so this does not happen.
                    Err(AdminTxError::Refused(AdminRefusal(faults))) => {
                        report.bad.push(BadLine { line, faults });
                    }
                    Err(failed) => return Err(failed),
                }
            }
            Ok(report)
        });
        let report = write.await?;
        let Imported {
            added,
            updated,
            authenticator_apps,
            ..
        } = report;
        if added + updated == 0 || !(skip_bad || report.bad.is_empty()) {
            return Ok(Done::unrecorded(report));
        }
        let apps = match authenticator_apps {
            0 => String::new(),
            count => format!(", {count} authenticator apps"),
        };
        Ok(Done::about(
            format!("{added} added, {updated} updated{apps}"),
            report,
        ))
    }

    fn changes_nothing(&self) -> bool {
        !self.write
    }
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

type Planned = (Imported, Vec<(u64, ImportAction, TakenSeeds)>);

fn plan(
    snapshot: &dyn Snapshot,
    parsed: &[ParsedLine],
    existing: ExistingUsers,
    defaults: ImportDefaults<'_>,
    now: Timestamp,
    mut report: Imported,
) -> Result<Planned, StoreError> {
    let mut actions = Vec::new();
    for parsed_line in parsed {
        match parsed_line.decide(snapshot, existing, defaults, now) {
            Ok((action, mut seeds)) => {
                report.authenticator_apps += seeds.count;
                report.left_out.append(&mut seeds.left_out);
                match &action {
                    ImportAction::Add(user) => {
                        report.added += 1;
                        report.passwords += u64::from(user.password.is_some());
                    }
                    ImportAction::Change(..) => report.updated += 1,
                    ImportAction::UpdateDeclaredHash(_) | ImportAction::Keep => report.unchanged += 1,
                }
                actions.push((parsed_line.line, action, seeds));
            }
            Err(AdminTxError::Refused(AdminRefusal(faults))) => report.bad.push(BadLine {
                line: parsed_line.line,
                faults,
            }),
            Err(AdminTxError::Failed(error)) => return Err(error),
        }
    }
    report.bad.sort_by_key(|bad| bad.line);
    Ok((report, actions))
}
