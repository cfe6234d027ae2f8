//! Runs `idsvc apply`.

use std::path::Path;

use super::admin_connection::{AdminConnection, AdminConnector, Opening};
use super::key::warn_of_new_keys;
use super::output::{CliError, Output};
use super::rewind;
use super::state_batches;
use super::state_batches::{Apply, FileApply};
use super::state_file::Sources;
use super::value_parsers::warn_of_claims;
use crate::admin::apply::{Apply as Request, DeclaredState};
use crate::admin::scope::ListScopes;

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
    let first = Request {
        dry_run: request.dry_run,
        ..Request::default()
    };
    let survey = state_batches::survey(source.as_mut(), &name, &sources)?;
    let connection = connector.connect(&Opening::of(&first), output)?;
    let file = FileApply {
        request,
        file: &name,
        sources: &sources,
        connection: &connection,
        survey: &survey,
    };
    warn_of_unreleased(survey.claims.iter(), survey.others(), &connection, output);
    file.run(source.as_mut(), output)?;
    if !request.dry_run {
        let clients = survey.others().client.iter().flatten();
        let algs: Vec<_> = clients.flat_map(|client| client.fields.signing_algs()).collect();
        drop(connection);
        warn_of_new_keys(&algs, connector, output);
    }
    Ok(())
}

/// Warns of claims that neither a stored scope value nor a scope value of the file releases. `claims` are claims of
/// users; the claims that claims of providers are mapped to are checked too.
fn warn_of_unreleased<'a>(
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
