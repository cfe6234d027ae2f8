//! Runs `idsvc health`.

use std::net::SocketAddr;

use clap::Args;
use serde_json::json;
use url::Url;

use super::Global;
use super::output::{CliError, Output};
use super::setting_flags::SettingFlags;
use crate::config::resolve::resolve;
use crate::config::{Config, Tls};
use crate::net::probe::{NoAnswer, Probe, ProbeAnswer, reachable_at};
use crate::route::Route;

/// The flags of `idsvc health`.
#[derive(Debug, Args)]
pub struct Health {
    /// Ask the development server
    #[arg(long)]
    pub dev: bool,
    /// The settings that `idsvc serve` is started with.
    #[command(flatten)]
    pub settings: SettingFlags,
}

/// The answer of the service, and the address that it came from.
struct Answered {
    address: SocketAddr,
    answer: ProbeAnswer,
}

/// Asks the service whether it is ready. Returns an error if it is not, or does not answer.
pub fn run(request: &Health, global: &Global, output: &mut Output<'_>) -> Result<(), CliError> {
    let flags = request.settings.clone().into_given();
    let sources = if request.dev {
        global.sources_for_development(flags)
    } else {
        global.sources(flags)
    };
    let config = resolve(&sources).map_err(CliError::refused)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(CliError::refused)?;
    let Answered { address, answer } = match runtime.block_on(ask(&config)) {
        Ok(answered) => answered,
        Err(problems) => {
            let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
            let problem = texts.join("; ");
            if output.json {
                output.document(&json!({ "ready": false, "problem": problem }))?;
            }
            let is_without_certificate =
                matches!(config.tls, Tls::Acme(_)) && problems.iter().any(|problem| problem.is_handshake);
            let hint = if is_without_certificate {
                "the service may have no certificate yet: its log and idsvc doctor say why. If it has one, give health the settings that serve has"
            } else {
                "give health the settings that serve has"
            };
            return Err(CliError::Refused {
                message: format!("the service does not answer: {problem}"),
                hint: Some(hint.to_owned()),
            });
        }
    };
    let told = answer.body.trim_end();
    let is_ready = answer.status == 200;
    if output.json {
        let problem = (!is_ready).then_some(told);
        output.document(
            &json!({ "ready": is_ready, "address": address, "status": answer.status, "problem": problem }),
        )?;
    }
    if !is_ready {
        let status = answer.status;
        return Err(CliError::refused(format!(
            "the service at {address} is not ready ({status}): {told}"
        )));
    }
    if output.json {
        return Ok(());
    }
    output.line(told)
}

/// Asks at each address until one answers.
async fn ask(config: &Config) -> Result<Answered, Vec<NoAnswer>> {
    let url = Route::Readyz.url(&config.issuer);
    let url = Url::parse(&url).map_err(|error| {
        vec![NoAnswer {
            problem: format!("{url} is no URL ({error})"),
            is_handshake: false,
        }]
    })?;
    let probe = Probe {
        path: url.path(),
        host: url.host_str().unwrap_or_default(),
        has_tls: config.tls != Tls::Off,
    };
    let mut problems = Vec::new();
    for address in config.listen.iter().copied().flat_map(reachable_at) {
        match probe.ask(address).await {
            Ok(answer) => return Ok(Answered { address, answer }),
            Err(problem) => problems.push(problem),
        }
    }
    Err(problems)
}
