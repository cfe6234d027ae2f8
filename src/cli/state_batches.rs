//! Applies a large file. Requests would wait for a transaction of that size, so users are applied 100 at a time. Every
//! entry is checked before the first change. Two users cannot swap names across batches: each batch is checked against the
//! stored users.

use std::collections::{BTreeSet, HashSet};
use std::mem;

use super::admin_connection::AdminConnection;
use super::change_list::ChangeList;
use super::change_summary::ChangeSummary;
use super::name_index::{NameIndex, names_of};
use super::output::{CliError, Output};
use super::progress::Progress;
use super::rewind::Rewind;
use super::state::{Apply, confirm_removal, in_file, located, say_removed, summary, warn_of_unreleased};
use super::state_file::{Declared, Sources};
use super::state_reader;
use crate::admin::apply::users::{DeclaredUser, is_declared_in_files};
use crate::admin::apply::{Applied, Apply as Request, DeclaredState, RemovedUser};
use crate::admin::user::{ListUsers, UserView};
use crate::identity::LoginName;
use crate::oauth::FaultCode;

/// The most users of one transaction. Sign-ins and refreshes wait for a transaction.
const BATCH_USERS: usize = 100;
/// The most faults that are shown.
const MAX_FAULTS: usize = 20;

/// A file that is applied in batches.
pub(super) struct BatchedApply<'a> {
    pub(super) request: &'a Apply,
    /// The name of the file in messages.
    pub(super) file: &'a str,
    pub(super) sources: &'a Sources<'a>,
    pub(super) connection: &'a AdminConnection,
}

/// What a file declares, without its users.
#[derive(Default)]
struct Survey {
    /// Providers and clients.
    others: Declared,
    has_users: bool,
    users: u64,
    names: NameIndex,
    /// The pairs of names that one entry has.
    pairs: NameIndex,
    claims: BTreeSet<String>,
}

impl Survey {
    /// The names of the groups that the file declares.
    fn groups(&self) -> Vec<String> {
        let groups = self.others.state.group.iter().flatten();
        groups.map(|group| group.name.clone()).collect()
    }
}

impl BatchedApply<'_> {
    /// Applies the file. Returns its providers and clients.
    pub(super) fn run(
        &self,
        source: &mut dyn Rewind,
        output: &mut Output<'_>,
    ) -> Result<DeclaredState, CliError> {
        let survey = self.check(source)?;
        let state = &survey.others.state;
        warn_of_unreleased(survey.claims.iter(), state, self.connection, output);
        let planned = self.apply_others(&survey, true, None)?;
        let asks = self.request.prune && !self.request.dry_run && !self.request.yes;
        if asks {
            say_removed(&planned, output);
        }
        let mut removed_users = Vec::new();
        if self.request.prune && survey.has_users {
            visit_undeclared(&survey.names, self.connection, |user| {
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
            confirmed = Some(removed);
        }
        let others = if self.request.dry_run {
            planned
        } else {
            self.apply_others(&survey, false, confirmed)?
        };
        let mut list = ChangeList::begin(self.request.dry_run, output);
        list.add(&others, output);
        self.apply_users(source, &survey, &removed_users, &mut list, output)
            .map_err(|error| self.broken_off(&list, error))?;
        let summary = summary(self.request.dry_run);
        list.end(output)
            .map_err(|error| ChangeSummary::error_after(summary, error))?;
        Ok(survey.others.state)
    }

    /// Reads the file. Passes its users to `take` in batches, and adds everything else to `others`.
    fn read(
        &self,
        source: &mut dyn Rewind,
        others: &mut Declared,
        take: &mut dyn FnMut(Declared) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut faults = Vec::new();
        let mut batch = Declared::default();
        state_reader::read(source, self.file, &mut |parsed| {
            match parsed {
                Err(fault) => faults.push(fault),
                Ok(section) if section.0.name == "user" => batch.add(section, self.sources, &mut faults),
                Ok(section) => others.add(section, self.sources, &mut faults),
            }
            if faults.len() >= MAX_FAULTS {
                return Err(in_file(self.file, &faults));
            }
            if batch
                .state
                .user
                .as_ref()
                .is_some_and(|users| users.len() >= BATCH_USERS)
            {
                let batch = mem::take(&mut batch);
                if faults.is_empty() {
                    return take(batch);
                }
            }
            Ok(())
        })?;
        if !faults.is_empty() {
            return Err(in_file(self.file, &faults));
        }
        if batch.state.user.is_some() {
            take(batch)?;
        }
        Ok(())
    }

    /// Checks every entry, and changes nothing.
    fn check(&self, source: &mut dyn Rewind) -> Result<Survey, CliError> {
        let mut survey = Survey::default();
        self.read(source, &mut survey.others, &mut |_| Ok(()))?;
        let groups = survey.groups();
        let mut progress = Progress::of("check");
        self.read(source, &mut Declared::default(), &mut |batch| {
            survey.has_users = true;
            for user in batch.state.user.iter().flatten() {
                survey.users += 1;
                let names = names(user);
                survey.pairs.add(&pairs(&names));
                survey.names.add(&names);
                for claim in user.line.claims.keys() {
                    if !survey.claims.contains(claim) {
                        survey.claims.insert(claim.clone());
                    }
                }
            }
            self.apply_batch(batch, &groups, true)?;
            progress.show(survey.users, None);
            Ok(())
        })?;
        survey.names.sort();
        if survey.names.has_repeated() {
            self.refuse_repeated(source, &survey.names)?;
        }
        survey.pairs.sort();
        if survey.has_users {
            self.refuse_two_of_one_user(&survey)?;
        }
        Ok(survey)
    }

    /// Refuses entries that find one stored user by different names. No name occurs in two entries.
    fn refuse_two_of_one_user(&self, survey: &Survey) -> Result<(), CliError> {
        let mut faults = Vec::new();
        visit_users(self.connection, |user, mut names| {
            names.retain(|name| survey.names.occurrences(name) > 0);
            let is_of_two_entries = |pair: &LoginName| survey.pairs.occurrences(pair) == 0;
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

    /// Refuses entries about the user of an earlier entry.
    fn refuse_repeated(&self, source: &mut dyn Rewind, index: &NameIndex) -> Result<(), CliError> {
        let mut seen = HashSet::new();
        self.read(source, &mut Declared::default(), &mut |batch| {
            let mut faults = Vec::new();
            for user in batch.state.user.iter().flatten() {
                let mut names = names(user);
                names.retain(|name| index.occurrences(name) > 1);
                if names.iter().any(|name| seen.contains(name)) {
                    let id = user.line.name().unwrap_or_default();
                    let detail = "another entry is about the same user";
                    faults.push(FaultCode::AlreadyExists.of("user", id, detail));
                }
                seen.extend(names);
            }
            if faults.is_empty() {
                return Ok(());
            }
            Err(located(CliError::Faults(faults), self.file, &batch.places))
        })
    }

    /// Applies providers and clients, or plans that.
    fn apply_others(
        &self,
        survey: &Survey,
        dry_run: bool,
        only: Option<Vec<(String, String)>>,
    ) -> Result<Applied, CliError> {
        let request = Request {
            state: survey.others.state.clone(),
            prune: self.request.prune,
            only,
            ..request(dry_run)
        };
        self.connection
            .call(request)
            .map_err(|error| located(error, self.file, &survey.others.places))
    }

    fn apply_batch(
        &self,
        batch: Declared,
        new_groups: &[String],
        dry_run: bool,
    ) -> Result<Applied, CliError> {
        let request = Request {
            state: batch.state,
            new_groups: new_groups.to_vec(),
            ..request(dry_run)
        };
        self.connection
            .call(request)
            .map_err(|error| located(error, self.file, &batch.places))
    }

    /// Applies the users and removes `removed_users`, or plans that.
    fn apply_users(
        &self,
        source: &mut dyn Rewind,
        survey: &Survey,
        removed_users: &[RemovedUser],
        list: &mut ChangeList,
        output: &mut Output<'_>,
    ) -> Result<(), CliError> {
        let mut progress = Progress::of_output("apply");
        let total = survey.users + removed_users.len() as u64;
        let mut done = 0;
        self.read(source, &mut Declared::default(), &mut |batch| {
            done += batch.state.user.as_ref().map_or(0, |users| users.len() as u64);
            let applied = self.apply_batch(batch, &survey.groups(), self.request.dry_run)?;
            list.add(&applied, output);
            progress.show(done, Some(total));
            Ok(())
        })?;
        for users in removed_users.chunks(BATCH_USERS) {
            let request = Request {
                remove_users: users.to_vec(),
                ..request(self.request.dry_run)
            };
            list.add(&self.connection.call(request)?, output);
            done += users.len() as u64;
            progress.show(done, Some(total));
        }
        Ok(())
    }

    fn broken_off(&self, list: &ChangeList, error: CliError) -> CliError {
        if self.request.dry_run {
            return error;
        }
        CliError::Refused {
            message: format!(
                "{error}\nonly a part of the file was applied: {} records were changed",
                list.count()
            ),
            hint: Some("run the same command again: it continues where this one ended".to_owned()),
        }
    }
}

fn request(dry_run: bool) -> Request {
    Request {
        dry_run,
        ..Request::default()
    }
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

/// Visits the users that a file could declare, and this one does not.
fn visit_undeclared(
    index: &NameIndex,
    connection: &AdminConnection,
    mut visit: impl FnMut(UserView),
) -> Result<(), CliError> {
    visit_users(connection, |user, names| {
        let is_declared = || names.iter().any(|name| index.occurrences(name) > 0);
        if is_declared_in_files(&user.source) && !is_declared() {
            visit(user);
        }
    })
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
