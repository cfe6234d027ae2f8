//! Runs `idsvc apply`.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;

use super::admin_connection::{AdminConnection, AdminConnector, Opening};
use super::change_list::{ChangeList, heading};
use super::change_summary::ChangeSummary;
use super::key::warn_of_new_keys;
use super::output::{CliError, Output};
use super::refusal::{StateFile, hint, message};
use super::rewind::{self, Rewind};
use super::state_batches::BatchedApply;
use super::state_file::{Declared, Sources};
use super::state_kinds::Places;
use super::state_reader;
use super::value_parsers::{unreadable, warn_of_claims};
use crate::admin::apply::{Action, Applied, Apply as Request, DeclaredState};
use crate::admin::scope::ListScopes;
use crate::admin::user::ListUsers;

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

/// The largest file that is applied in one transaction, in bytes. A larger one is applied in batches.
const WHOLE_LIMIT: u64 = 1 << 20;
/// The most users of a service whom `--prune` compares with the file in one transaction.
const PRUNE_WHOLE_LIMIT: u64 = 1000;

/// The text, if it is short enough to be applied as a whole.
fn read_whole(source: &mut dyn Rewind, file: &str) -> Result<Option<String>, CliError> {
    let mut bytes = Vec::new();
    let read = source.take(WHOLE_LIMIT + 1).read_to_end(&mut bytes);
    let length = read.map_err(|error| unreadable(Path::new(file), &error))?;
    if u64::try_from(length).is_ok_and(|length| length > WHOLE_LIMIT) {
        return Ok(None);
    }
    let text = String::from_utf8(bytes).map_err(|_| unreadable(Path::new(file), &"it is not UTF-8"))?;
    if state_reader::is_cut_off(text.lines()) {
        return Err(state_reader::cut_off(file));
    }
    Ok(Some(text))
}

/// Runs `idsvc apply`.
pub fn apply(
    request: &Apply,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let mut source = rewind::open(&request.file)?;
    let folder = request.file.parent().unwrap_or(Path::new(""));
    let sources = Sources {
        folder,
        variable: &|name| std::env::var(name).ok(),
    };
    let name = if request.file.as_os_str() == "-" {
        "standard input".to_owned()
    } else {
        request.file.display().to_string()
    };
    let declared = match read_whole(source.as_mut(), &name)? {
        Some(text) => Some(state_reader::parse(&text, &sources).map_err(|faults| in_file(&name, &faults))?),
        None => None,
    };
    let first = Request {
        dry_run: request.dry_run,
        ..Request::default()
    };
    let connection = connector.connect(Opening::of(&first), output)?;
    let others = match declared {
        Some(declared) if !prunes_many(request, &declared.state, &connection)? => {
            apply_whole(request, &name, &declared, &connection, output)?;
            declared.state
        }
        _ => BatchedApply {
            request,
            file: &name,
            sources: &sources,
            connection: &connection,
        }
        .run(source.as_mut(), output)?,
    };
    if !request.dry_run {
        let clients = others.client.iter().flatten();
        let algs: Vec<_> = clients.flat_map(|client| client.fields.signing_algs()).collect();
        drop(connection);
        warn_of_new_keys(&algs, connector, output);
    }
    Ok(())
}

/// Whether `--prune` has to compare more users with the file than one transaction may.
fn prunes_many(
    request: &Apply,
    state: &DeclaredState,
    connection: &AdminConnection,
) -> Result<bool, CliError> {
    if !request.prune || state.user.is_none() {
        return Ok(false);
    }
    let first = ListUsers {
        limit: Some(PRUNE_WHOLE_LIMIT + 1),
        ..ListUsers::default()
    };
    connection.take_records(first, "list", |users| {
        let count = users.try_fold(0, |count, user| user.map(|_| count + 1))?;
        Ok(count > PRUNE_WHOLE_LIMIT)
    })
}

/// Applies a state in one transaction.
fn apply_whole(
    request: &Apply,
    name: &str,
    Declared { state, places }: &Declared,
    connection: &AdminConnection,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let users = state.user.iter().flatten();
    let claims = users.flat_map(|user| user.line.claims.keys());
    warn_of_unreleased(claims, state, connection, output);
    let wanted = |dry_run, only| Request {
        state: state.clone(),
        dry_run,
        prune: request.prune,
        only,
        ..Request::default()
    };
    let call = |wanted| {
        connection
            .call(wanted)
            .map_err(|error| located(error, name, places))
    };
    let mut confirmed = None;
    if request.prune && !request.dry_run && !request.yes {
        let planned = call(wanted(true, None))?;
        say_removed(&planned, output);
        let removed: Vec<_> = planned.removed().collect();
        confirm_removal(removed.len(), output)?;
        // The service removes only these. Records that are added after the question stay.
        confirmed = Some(removed);
    }
    let applied = call(wanted(request.dry_run, confirmed))?;
    let mut list = ChangeList::begin(request.dry_run, output);
    list.add(&applied, output);
    let summary = summary(request.dry_run);
    list.end(output)
        .map_err(|error| ChangeSummary::error_after(summary, error))
}

/// What was done, for the error if the list of changes cannot be printed.
pub(super) fn summary(is_dry_run: bool) -> Option<ChangeSummary> {
    let remedy =
        "idsvc client rotate-secret ID makes a new secret for a client that was added without one".to_owned();
    let lost = "what changed, and any secret that was made,";
    (!is_dry_run).then(|| ChangeSummary::losing("the state was applied", lost, [remedy]))
}

/// Warns of claims that neither a stored scope value nor a scope value of the file releases. `claims` are claims of
/// users; the claims that claims of providers are mapped to are checked too.
pub(super) fn warn_of_unreleased<'a>(
    claims: impl Iterator<Item = &'a String>,
    state: &'a DeclaredState,
    connection: &AdminConnection,
    output: &mut Output<'_>,
) {
    let providers = state.provider.iter().flatten();
    let mapped = providers.flat_map(|provider| provider.fields.claims.iter().flatten().map(|(ours, _)| ours));
    let released = |claim: &String| {
        let mut scopes = state.scope.iter().flatten();
        scopes.any(|scope| {
            scope
                .fields
                .claims
                .iter()
                .flatten()
                .any(|released| released == claim)
        })
    };
    let names = claims.chain(mapped).filter(|claim| !released(claim));
    let list_scopes = |_: &mut Output<'_>| connection.call(ListScopes);
    warn_of_claims(names.map(String::as_str), list_scopes, output);
}

/// Names the records that a plan removes.
pub(super) fn say_removed(planned: &Applied, output: &mut Output<'_>) {
    let changes = planned.changes.iter();
    for change in changes.filter(|change| change.action == Action::Remove) {
        output.say(&heading(change));
    }
}

/// Asks whether so many records are to be removed, if there are any.
pub(super) fn confirm_removal(count: usize, output: &mut Output<'_>) -> Result<(), CliError> {
    if count == 0 {
        return Ok(());
    }
    output.confirm(
        &format!("Remove these {count} with everything granted to them?"),
        false,
    )
}

/// The error about faults in the file.
pub(super) fn in_file(name: &str, faults: &[String]) -> CliError {
    let located = faults.iter().map(|fault| format!("{name}: {fault}"));
    CliError::refused(located.collect::<Vec<_>>().join("\n"))
}

/// A refusal of the service with the places in the file.
pub(super) fn located(error: CliError, name: &str, places: &Places) -> CliError {
    let file = StateFile { name, places };
    match error {
        CliError::Faults(faults) => CliError::Refused {
            message: message(&faults, Some(&file)),
            hint: hint(&faults, Some(&file)),
        },
        other => other,
    }
}
