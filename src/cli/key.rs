//! Runs `idsvc key …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::admin_connection::AdminConnector;
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output, moment};
use super::value_parsers::{read_secret, signing_algorithm};
use crate::admin::key::{ImportKey, KeyStateView, KeyView, ListKeys, RetireKey, RotateKey};
use crate::clock::{Clock, Timestamp};
use crate::jose::alg::Algorithm;
use crate::oauth::policy::KeyRotation;

/// The verbs of signing keys.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show all keys
    List,
    /// Make a new key that replaces the active one
    Rotate(Rotate),
    /// Retire a key. Retire it a second time to withdraw it at once
    #[command(
        after_help = "A retired key stays published until everything that it signed has expired.\nRetire it a second time to withdraw it at once. Tokens that it signed are then refused. If a key has leaked:\n  idsvc key rotate --now --alg ALG\n  idsvc key retire KID"
    )]
    Retire(Retire),
    /// Import a private key
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
        value_parser = signing_algorithm
    )]
    pub alg: Algorithm,
    /// Sign with it at once, without announcing it. Verifiers with an older key set refuse its signatures for a while
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
    /// The algorithm of an RSA key: RS256 or PS256
    #[arg(long, value_parser = signing_algorithm)]
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
    let Ok(keys) = connector.call(ListKeys, output) else {
        return;
    };
    for alg in algs_with_new_key(algs, &keys, Clock::System.now()) {
        output.say(&format!(
            "warning: the {alg} key is younger than five minutes: verifiers with an older key set refuse its signatures"
        ));
    }
}

/// The algorithms among `algs` whose active key verifiers may not have yet. If all keys are that new, so is the service,
/// and no verifier keeps an older key set.
fn algs_with_new_key(algs: &[Algorithm], keys: &[KeyView], now: Timestamp) -> Vec<Algorithm> {
    let is_new = |key: &KeyView| now.since(key.created_at) < KeyRotation::KEPT_BY_VERIFIERS;
    if keys.iter().all(is_new) {
        return Vec::new();
    }
    let signs =
        |key: &&KeyView| matches!(key.standing, KeyStateView::Active { .. }) && algs.contains(&key.alg);
    let new_keys = keys.iter().filter(signs).filter(|key| is_new(key));
    new_keys.map(|key| key.alg).collect()
}

/// The question before a key is retired, which depends on its state.
fn question(kid: &str, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<String, CliError> {
    let keys = connector.call(ListKeys, output)?;
    let is_retired = keys
        .iter()
        .any(|key| key.kid == kid && matches!(key.standing, KeyStateView::Retired { .. }));
    Ok(if is_retired {
        format!("Withdraw the retired key {kid} at once? Tokens that it signed are then refused.")
    } else {
        format!("Take key {kid} out of service?")
    })
}

pub fn run(verb: Verb, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    match verb {
        Verb::List => connector.run(ListKeys, output, |views, output| {
            if output.json {
                return output.document(&views);
            }
            table(&views, output)?;
            if views.is_empty() {
                output.hint("no key yet: the first start makes them");
            }
            Ok(())
        }),
        Verb::Rotate(rotate) => {
            let rotate = RotateKey {
                alg: rotate.alg,
                at_once: rotate.now,
            };
            connector.run_with_summary(rotate, new_key(), output, show)
        }
        Verb::Retire(retire) => {
            if !retire.yes {
                let question = question(&retire.kid, connector, output)?;
                output.confirm(&question, false)?;
            }
            connector.run(RetireKey { kid: retire.kid }, output, show)
        }
        Verb::Import(import) => {
            let import = ImportKey {
                pem: read_secret(&import.file)?,
                alg: import.alg,
                at_once: import.now,
            };
            connector.run_with_summary(import, new_key(), output, show)
        }
    }
}

fn new_key() -> ChangeSummary {
    let remedy = "idsvc key list shows it".to_owned();
    ChangeSummary::losing("there is a new key", "its name", [remedy])
}

fn show(view: KeyView, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(&view);
    }
    table(&[view], output)
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
                KeyStateView::Retired { remove_at } => format!("retired, removed at {}", moment(remove_at)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_warned_of_unless_the_service_is_as_new() {
        let key = |alg, created_at| KeyView {
            kid: "k".to_owned(),
            alg,
            standing: KeyStateView::Active {
                since: Timestamp::from_seconds(created_at),
            },
            created_at: Timestamp::from_seconds(created_at),
        };
        let keys = [key(Algorithm::Rs256, 1000), key(Algorithm::EdDsa, 1290)];
        let warned = |algs: &[Algorithm], now| algs_with_new_key(algs, &keys, Timestamp::from_seconds(now));
        let both = [Algorithm::Rs256, Algorithm::EdDsa];
        assert_eq!(warned(&both, 1299), []);
        assert_eq!(warned(&both, 1300), [Algorithm::EdDsa]);
        assert_eq!(warned(&both[..1], 1300), []);
        assert_eq!(warned(&both, 1590), []);
    }
}
