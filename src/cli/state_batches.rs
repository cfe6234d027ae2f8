//! Applies a file: everything but its users in one transaction, then its users 100 in a transaction, because sign-ins and
//! refreshes wait for a transaction. Every entry is checked before the first change, so a fault in the file changes
//! nothing. Only a failure, or another change at the same time, can end an apply among the users.
//!
//! The file is read three times: its own faults are found without the service, then the service plans every batch, then it
//! applies them. So the users of a file of any size are never in memory together.

use clap::Args;
use std::collections::{BTreeSet, HashSet};
use std::mem;
use std::path::PathBuf;

use super::admin_connection::AdminConnection;
use super::change_list::{ChangeList, heading};
use super::change_summary::ChangeSummary;
use super::name_index::{NameIndex, names_of};
use super::output::{CliError, Output};
use super::progress::Progress;
use super::refusal::{StateFile, hint, message};
use super::rewind::Rewind;
use super::state_file::{Declared, Sources};
use super::state_kinds::Places;
use super::state_reader;
use crate::admin::apply::users::{DeclaredUser, is_declared_in_files};
use crate::admin::apply::{Action, Applied, Apply as Request, DeclaredState, RemovedUser};
use crate::admin::user::{ListUsers, UserView};
use crate::identity::LoginName;
use crate::oauth::{Fault, FaultCode};

/// The flags of `idsvc apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// The state, as export writes it, - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Remove what the file does not declare, of each kind of record that it declares
    #[arg(long)]
    pub prune: bool,
    /// Do not ask before something is removed
    #[arg(long)]
    pub yes: bool,
}

/// The most users of one transaction.
const BATCH_USERS: usize = 100;
/// The most faults that are shown.
const MAX_FAULTS: usize = 20;

/// What a file declares, without its users.
#[derive(Default)]
pub(super) struct Survey {
    others: Declared,
    has_users: bool,
    users: u64,
    names: NameIndex,
    /// The pairs of names that one entry has.
    pairs: NameIndex,
    /// The claims of the users.
    pub(super) claims: BTreeSet<String>,
}

impl Survey {
    /// Everything but the users.
    pub(super) fn others(&self) -> &DeclaredState {
        &self.others.state
    }

    /// The names of the groups that the file declares, if it declares any.
    fn groups(&self) -> Option<Vec<String>> {
        let groups = self.others.state.group.as_ref()?;
        Some(groups.iter().map(|group| group.name.clone()).collect())
    }
}

/// Reads the file, without the service.
pub(super) fn survey(source: &mut dyn Rewind, file: &str, sources: &Sources<'_>) -> Result<Survey, CliError> {
    let mut survey = Survey::default();
    let mut others = Declared::default();
    read(source, file, sources, Some(&mut others), &mut |batch| {
        survey.has_users = true;
        for user in batch.state.user.iter().flatten() {
            survey.users += 1;
            let names = names(user);
            survey.pairs.add(&pairs(&names));
            survey.names.add(&names);
            let claims = user.line.claims.keys();
            let new: Vec<_> = claims.filter(|claim| !survey.claims.contains(*claim)).collect();
            survey.claims.extend(new.into_iter().cloned());
        }
        Ok(())
    })?;
    survey.others = others;
    survey.names.sort();
    survey.pairs.sort();
    Ok(survey)
}

/// Reads the file. Passes its users to `take` in batches, and adds everything else to `others`, or passes over it: a secret
/// that comes through a pipe can be read once.
fn read(
    source: &mut dyn Rewind,
    file: &str,
    sources: &Sources<'_>,
    mut others: Option<&mut Declared>,
    take: &mut dyn FnMut(Declared) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut faults = Vec::new();
    let mut batch = Declared::default();
    state_reader::read(source, file, &mut |parsed| {
        match parsed {
            Err(fault) => faults.push(fault),
            Ok((kind, entries)) if kind.name == "user" && entries.len() > 1 => {
                for entry in entries {
                    batch.add((kind, vec![entry]), sources, &mut faults);
                    pass_if_full(&mut batch, &faults, take)?;
                }
            }
            Ok(section) if section.0.name == "user" => batch.add(section, sources, &mut faults),
            Ok(section) => {
                if let Some(others) = &mut others {
                    others.add(section, sources, &mut faults);
                }
            }
        }
        if faults.len() >= MAX_FAULTS {
            return Err(in_file(file, &faults));
        }
        pass_if_full(&mut batch, &faults, take)
    })?;
    if !faults.is_empty() {
        return Err(in_file(file, &faults));
    }
    if batch.state.user.is_some() {
        take(batch)?;
    }
    Ok(())
}

/// Passes a full batch on. If the file has faults, its users are dropped.
fn pass_if_full(
    batch: &mut Declared,
    faults: &[String],
    take: &mut dyn FnMut(Declared) -> Result<(), CliError>,
) -> Result<(), CliError> {
    if count_users(batch) < BATCH_USERS as u64 {
        return Ok(());
    }
    let full = mem::take(batch);
    if faults.is_empty() { take(full) } else { Ok(()) }
}

fn count_users(batch: &Declared) -> u64 {
    batch.state.user.as_ref().map_or(0, |users| users.len() as u64)
}

/// The error about faults in the file.
fn in_file(name: &str, faults: &[String]) -> CliError {
    let located = faults.iter().map(|fault| format!("{name}: {fault}"));
    CliError::refused(located.collect::<Vec<_>>().join("\n"))
}

/// A file that is applied.
pub(super) struct FileApply<'a> {
    pub(super) request: &'a Apply,
    /// The name of the file in messages.
    pub(super) file: &'a str,
    pub(super) sources: &'a Sources<'a>,
    pub(super) connection: &'a AdminConnection,
    pub(super) survey: &'a Survey,
}

impl FileApply<'_> {
    pub(super) fn run(&self, source: &mut dyn Rewind, output: &mut Output<'_>) -> Result<(), CliError> {
        let planned = self.check(source)?;
        let asks = self.request.prune && !self.request.dry_run && !self.request.yes;
        if asks {
            say_removed(&planned, output);
        }
        let mut removed_users = Vec::new();
        if self.request.prune && self.survey.has_users {
            self.visit_undeclared(|user| {
                if asks {
                    output.say(&format!("- user {}", user.account_id));
                }
                removed_users.push(RemovedUser {
                    uuid: user.uuid,
                    account_id: user.account_id,
                    email: user.email,
                });
            })?;
        }
        let mut confirmed = None;
        if asks {
            let removed: Vec<_> = planned.removed().collect();
            confirm_removal(removed.len() + removed_users.len(), output)?;
            // The service removes only these. Records that are added after the question stay.
            confirmed = Some(removed);
        }
        let others = if self.request.dry_run {
            planned
        } else {
            self.apply_others(false, confirmed)
                .map_err(|error| located(error, self.file, &self.survey.others.places))?
        };
        let mut list = ChangeList::begin(self.request.dry_run, output);
        list.add(&others, output);
        self.apply_users(source, &removed_users, &mut list, output)?;
        let summary = (!self.request.dry_run).then(|| {
            let remedy =
                "idsvc client rotate-secret ID makes a new secret for a client that was added without one";
            let lost = "what changed, and any secret that was made,";
            ChangeSummary::losing("the state was applied", lost, [remedy.to_owned()])
        });
        list.end(output)
            .map_err(|error| ChangeSummary::error_after(summary, error))
    }

    /// Has the service plan everything, and changes nothing. Returns the changes of all records but the users.
    fn check(&self, source: &mut dyn Rewind) -> Result<Applied, CliError> {
        let mut faults = FoundFaults::default();
        let others = faults.keep(self.apply_others(true, None), &self.survey.others.places)?;
        if self.survey.names.has_repeated() {
            self.refuse_repeated(source, &mut faults)?;
        }
        let mut progress = Progress::of("check");
        let mut done = 0;
        self.read_users(source, &mut |batch| {
            done += count_users(&batch);
            if faults.all.len() < MAX_FAULTS {
                faults.keep(self.apply_batch(&batch, true), &batch.places)?;
            }
            progress.show(done, Some(self.survey.users));
            Ok(())
        })?;
        if !faults.all.is_empty() {
            return Err(located(CliError::Faults(faults.all), self.file, &faults.places));
        }
        if self.survey.users > BATCH_USERS as u64 {
            self.refuse_two_of_one_user()?;
        }
        Ok(others)
    }

    fn read_users(
        &self,
        source: &mut dyn Rewind,
        take: &mut dyn FnMut(Declared) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        read(source, self.file, self.sources, None, take)
    }

    /// Refuses entries that find one stored user by different names. No name occurs in two entries. The service sees
    /// this within one batch only.
    fn refuse_two_of_one_user(&self) -> Result<(), CliError> {
        let mut faults = Vec::new();
        visit_users(self.connection, |user, mut names| {
            names.retain(|name| self.survey.names.occurrences(name) > 0);
            let is_of_two_entries = |pair: &LoginName| self.survey.pairs.occurrences(pair) == 0;
            if faults.len() < MAX_FAULTS && pairs(&names).iter().any(is_of_two_entries) {
                let names: Vec<_> = names.iter().map(LoginName::as_str).collect();
                let names = names.join(", ");
                faults.push(format!(
                    "user {}: several entries are about the same user: {names}",
                    user.account_id
                ));
            }
        })?;
        if faults.is_empty() {
            return Ok(());
        }
        Err(in_file(self.file, &faults))
    }

    /// Finds entries about the user of an earlier entry.
    fn refuse_repeated(&self, source: &mut dyn Rewind, faults: &mut FoundFaults) -> Result<(), CliError> {
        let mut seen = HashSet::new();
        self.read_users(source, &mut |batch| {
            let mut repeated = Vec::new();
            for user in batch.state.user.iter().flatten() {
                let mut names = names(user);
                names.retain(|name| self.survey.names.occurrences(name) > 1);
                if names.iter().any(|name| seen.contains(name)) {
                    let id = user.line.name().unwrap_or_default();
                    let detail = "another entry is about the same user";
                    repeated.push(FaultCode::AlreadyExists.of("user", id, detail));
                }
                seen.extend(names);
            }
            if !repeated.is_empty() && faults.all.len() < MAX_FAULTS {
                faults.all.extend(repeated);
                faults.places.extend(&batch.places);
            }
            Ok(())
        })
    }

    /// Applies all records but the users, or plans that.
    fn apply_others(&self, dry_run: bool, only: Option<Vec<(String, String)>>) -> Result<Applied, CliError> {
        self.connection.call(Request {
            state: self.survey.others.state.clone(),
            only,
            ..self.request(dry_run)
        })
    }

    /// Applies some users, or plans that. A plan is made before the groups of the file are stored.
    fn apply_batch(&self, batch: &Declared, dry_run: bool) -> Result<Applied, CliError> {
        self.connection.call(Request {
            state: batch.state.clone(),
            declared_groups: self.survey.groups().filter(|_| dry_run),
            ..self.request(dry_run)
        })
    }

    fn request(&self, dry_run: bool) -> Request {
        Request {
            dry_run,
            prune: self.request.prune,
            ..Request::default()
        }
    }

    /// Applies the users and removes `removed_users`, or plans that.
    fn apply_users(
        &self,
        source: &mut dyn Rewind,
        removed_users: &[RemovedUser],
        list: &mut ChangeList,
        output: &mut Output<'_>,
    ) -> Result<(), CliError> {
        let mut progress = Progress::of_output("apply");
        let total = self.survey.users + removed_users.len() as u64;
        let mut done = 0;
        let mut was_refused = false;
        self.read_users(source, &mut |batch| {
            let applied = self.apply_batch(&batch, self.request.dry_run).map_err(|error| {
                was_refused = matches!(error, CliError::Faults(_));
                located(error, self.file, &batch.places)
            })?;
            done += count_users(&batch);
            list.add(&applied, output);
            progress.show(done, Some(total));
            Ok(())
        })
        .map_err(|error| self.interrupted(done, total, was_refused, error))?;
        for users in removed_users.chunks(BATCH_USERS) {
            let request = Request {
                remove_users: users.to_vec(),
                ..self.request(self.request.dry_run)
            };
            let applied = self.connection.call(request);
            let applied = applied.map_err(|error| {
                let was_refused = matches!(error, CliError::Faults(_));
                self.interrupted(done, total, was_refused, error)
            })?;
            list.add(&applied, output);
            done += users.len() as u64;
            progress.show(done, Some(total));
        }
        Ok(())
    }

    /// The error of an apply that ended among the users. If a batch was not refused but failed, its reply may be lost, and
    /// its users may have been applied.
    fn interrupted(&self, done: u64, total: u64, was_refused: bool, error: CliError) -> CliError {
        if self.request.dry_run {
            return error;
        }
        let left = total - done;
        let (at_least, others) = if was_refused {
            ("", format!("the other {left} are as they were"))
        } else {
            (
                "at least ",
                format!("up to {BATCH_USERS} after them may have been applied too"),
            )
        };
        CliError::Refused {
            message: format!(
                "{error}\nonly a part of the file was applied: everything but the users, and {at_least}{done} of {total} users; \
                 {others}"
            ),
            hint: Some(
                "run the same command again: it changes nothing twice, and goes on where this one ended"
                    .to_owned(),
            ),
        }
    }

    /// Visits the users that a file could declare, and this one does not.
    fn visit_undeclared(&self, mut visit: impl FnMut(UserView)) -> Result<(), CliError> {
        let index = &self.survey.names;
        visit_users(self.connection, |user, names| {
            let is_declared = || names.iter().any(|name| index.occurrences(name) > 0);
            if is_declared_in_files(&user.source) && !is_declared() {
                visit(user);
            }
        })
    }
}

/// The faults that the service found, with the places of the entries.
#[derive(Default)]
struct FoundFaults {
    all: Vec<Fault>,
    places: Places,
}

impl FoundFaults {
    /// Keeps the faults of a plan, so that the faults of other entries are found too.
    fn keep(&mut self, planned: Result<Applied, CliError>, places: &Places) -> Result<Applied, CliError> {
        match planned {
            Err(CliError::Faults(faults)) => {
                self.all.extend(faults);
                self.places.extend(places);
                Ok(Applied::default())
            }
            other => other,
        }
    }
}

/// A refusal of the service with the places in the file.
fn located(error: CliError, name: &str, places: &Places) -> CliError {
    let file = StateFile { name, places };
    match error {
        CliError::Faults(faults) => CliError::Refused {
            message: message(&faults, Some(&file)),
            hint: hint(&faults, Some(&file)),
        },
        other => other,
    }
}

/// Names the records that a plan removes.
fn say_removed(planned: &Applied, output: &mut Output<'_>) {
    let changes = planned.changes.iter();
    for change in changes.filter(|change| change.action == Action::Remove) {
        output.say(&heading(change));
    }
}

/// Asks whether so many records are to be removed, if there are any.
fn confirm_removal(count: usize, output: &mut Output<'_>) -> Result<(), CliError> {
    if count == 0 {
        return Ok(());
    }
    output.confirm(
        &format!("Remove these {count} with everything granted to them?"),
        false,
    )
}

fn names(user: &DeclaredUser) -> Vec<LoginName> {
    let uuid = user.line.uuid.map(|uuid| uuid.to_string());
    names_of([
        uuid.as_deref(),
        user.line.account_id.as_deref(),
        user.line.email.as_deref(),
    ])
}

/// Each pair of names, as one name. No login name has a line end.
fn pairs(names: &[LoginName]) -> Vec<LoginName> {
    let mut sorted: Vec<_> = names.iter().map(LoginName::as_str).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut pairs = Vec::new();
    while let Some(last) = sorted.pop() {
        pairs.extend(
            sorted
                .iter()
                .map(|name| LoginName::new(&format!("{name}\n{last}"))),
        );
    }
    pairs
}

/// Visits all stored users, with their names.
fn visit_users(
    connection: &AdminConnection,
    mut visit: impl FnMut(UserView, Vec<LoginName>),
) -> Result<(), CliError> {
    connection.take_records(ListUsers::default(), "list", |users| {
        for user in users {
            let user = user?;
            let uuid = user.uuid.to_string();
            let names = names_of([Some(uuid.as_str()), Some(&user.account_id), user.email.as_deref()]);
            visit(user, names);
        }
        Ok(())
    })
}
