//! Runs `idsvc key …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::admin_connection::{AdminConnector, unexpected};
use super::output::{CliError, Output, moment};
use super::value_parsers::{algorithm, read_secret};
use crate::admin::key::{ImportKey, KeyStateView, KeyView, RotateKey};
use crate::clock::Clock;
use crate::control::protocol::{Command, Reply};
use crate::jose::alg::Algorithm;
use crate::oauth::policy::KeyRotation;

/// The verbs of signing keys.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show all keys
    List,
    /// Make a new key to take the place of the one that signs
    Rotate(Rotate),
    /// Take a key out of service; retire it a second time to withdraw it at once
    #[command(
        after_help = "A key that signed stays published for as long as access tokens, ID tokens and sessions last at most.\nRetire it a second time to withdraw it at once: tokens it signed stop being accepted. For a key that has leaked:\n  idsvc key rotate --now --alg ALG\n  idsvc key retire KID"
    )]
    Retire(Retire),
    /// Bring in a private key that was made elsewhere
    Import(Import),
}

/// The flags of `rotate`.
#[derive(Debug, Args)]
pub struct Rotate {
    /// The algorithm whose key is replaced.
    #[arg(
        long,
        help = "The algorithm whose key is replaced: RS256, PS256, ES256 or EdDSA",
        default_value_t = Algorithm::Es256,
        value_parser = algorithm
    )]
    pub alg: Algorithm,
    /// Sign with it at once, without announcing it first; verifiers that keep old key sets will fail for a while
    #[arg(long)]
    pub now: bool,
}

/// The flags of `retire`.
#[derive(Debug, Args)]
pub struct Retire {
    /// The key's name, as key list shows it
    #[arg(value_name = "KID", allow_hyphen_values = true)]
    pub kid: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// The flags of `import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The private key in PEM form, - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// What it signs with, where the key allows several: RS256 or PS256
    #[arg(long, value_parser = algorithm)]
    pub alg: Option<Algorithm>,
    /// Sign with it at once, without announcing it first
    #[arg(long)]
    pub now: bool,
}

/// Warns if the key of one of these algorithms is so new that verifiers may not have it yet.
pub(super) fn warn_of_new_keys(algs: &[Algorithm], connector: &AdminConnector<'_>, output: &mut Output<'_>) {
    if algs.is_empty() {
        return;
    }
    let Ok(Reply::Keys(keys)) = connector.ask(Command::KeyList, output) else {
        return;
    };
    let now = Clock::System.now();
    let is_new = |key: &&KeyView| {
        matches!(key.standing, KeyStateView::Active { .. })
            && algs.contains(&key.alg)
            && now.since(key.created_at) < KeyRotation::KEPT_BY_VERIFIERS
    };
    for key in keys.iter().filter(is_new) {
        output.say(&format!(
            "warning: the key that signs {} is not yet five minutes old: verifiers that keep older key sets refuse what it signs",
            key.alg
        ));
    }
}

/// The question before a key is retired, which depends on its state.
fn question(kid: &str, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<String, CliError> {
    let Reply::Keys(keys) = connector.ask(Command::KeyList, output)? else {
        return Err(unexpected());
    };
    let is_retired = keys
        .iter()
        .any(|key| key.kid == kid && matches!(key.standing, KeyStateView::Retired { .. }));
    Ok(if is_retired {
        format!("Withdraw the retired key {kid} at once? Tokens it signed stop being accepted.")
    } else {
        format!("Take key {kid} out of service?")
    })
}

/// Runs a verb.
pub fn run(verb: Verb, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let command = match verb {
        Verb::List => Command::KeyList,
        Verb::Rotate(rotate) => Command::KeyRotate(RotateKey {
            alg: rotate.alg,
            at_once: rotate.now,
        }),
        Verb::Retire(retire) => {
            if !retire.yes {
                let question = question(&retire.kid, connector, output)?;
                output.confirm(&question, false)?;
            }
            Command::KeyRetire(retire.kid)
        }
        Verb::Import(import) => Command::KeyImport(ImportKey {
            pem: read_secret(&import.file)?,
            alg: import.alg,
            at_once: import.now,
        }),
    };
    connector.run(command, output, |reply, output| match reply {
        Reply::Key(view) if output.json => output.document(&view),
        Reply::Key(view) => table(&[view], output),
        Reply::Keys(views) if output.json => output.document(&views),
        Reply::Keys(views) => {
            table(&views, output)?;
            if views.is_empty() {
                output.hint("no key yet: the first start makes them");
            }
            Ok(())
        }
        _ => Err(unexpected()),
    })
}

fn table(views: &[KeyView], output: &mut Output<'_>) -> Result<(), CliError> {
    output.table(
        &["KEY", "ALG", "STATE", "CREATED"],
        views.iter().map(|view| {
            let state = match view.standing {
                KeyStateView::Announced { active_from } => {
                    format!("announced, signs from {}", moment(active_from))
                }
                KeyStateView::Active { since } => format!("active since {}", moment(since)),
                KeyStateView::Retired { remove_at } => format!("retired, goes {}", moment(remove_at)),
            };
            [
                view.kid.clone(),
                view.alg.to_string(),
                state,
                moment(view.created_at),
            ]
        }),
    )
}
