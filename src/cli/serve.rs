//! Runs `idsvc serve`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Global;
use super::output::{CliError, Output};
use super::setting_flags::SettingFlags;
use crate::config::resolve::resolve;
use crate::net::inherited::Inherited;
use crate::observe::log;
use crate::route::Route;
use crate::server::StartError;
use crate::server::dev;
use crate::server::run::{self, Announcement};

/// The flags of `idsvc serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Start for development: on loopback, with its own certificate, data directory, client and user
    #[arg(long)]
    pub dev: bool,
    /// The settings.
    #[command(flatten)]
    pub settings: SettingFlags,
}

/// Runs the service until it is told to stop.
pub fn run(serve: &Serve, global: &Global, output: &mut Output<'_>) -> Result<(), CliError> {
    let flags = serve.settings.clone().into_given();
    let sources = if serve.dev {
        global.sources_for_development(flags)
    } else {
        global.sources(flags)
    };
    let config = resolve(&sources).map_err(|error| CliError::Refused {
        hint: error
            .is_missing("base_url")
            .then(|| "to try the service without any settings: idsvc serve --dev".to_owned()),
        message: error.to_string(),
    })?;
    let inherited = Inherited::take().map_err(CliError::refused)?;
    log::start(config.log, &config.settings)
        .map_err(|error| CliError::refused(format!("the log cannot be started: {error}")))?;
    for warning in &sources.warnings {
        tracing::warn!("{warning}");
    }
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let config_flag = |file: &PathBuf| format!(" --config {}", in_shell(file));
    let commands = format!(
        "idsvc --data-dir {}{}",
        in_shell(&config.settings.data_dir),
        global.config.as_ref().map(config_flag).unwrap_or_default()
    );
    let announce = |announcement: &Announcement<'_>| match announce(announcement, &commands, output) {
        Err(CliError::BrokenPipe) => {
            tracing::warn!("standard output is closed: the credentials were not printed");
            Ok(())
        }
        announced => announced.map_err(StartError::new),
    };
    Ok(run::run(&config, inherited, announce)?)
}

/// Prints the addresses and the credentials of the development server. `commands` is how commands for it begin.
fn announce(
    announcement: &Announcement<'_>,
    commands: &str,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let Announcement {
        listening,
        issuer,
        mails,
        example,
    } = announcement;
    let discovery = Route::OpenidConfiguration.url(issuer);
    if output.json {
        return output.document(&serde_json::json!({
            "listen": listening,
            "issuer": issuer,
            "discovery": discovery,
            "mails": mails,
            "username": dev::USER,
            "password": example.password.as_str(),
            "client_id": dev::CLIENT,
            "client_secret": example.site.client_secret.as_str(),
        }));
    }
    output.line(&format!("listening  {} ({issuer}/)", listening.join(" ")))?;
    output.line(&format!("discovery  {discovery}"))?;
    if let Some(mails) = mails {
        output.line(&format!("mails      {mails}"))?;
    }
    output.line(&format!("commands   {commands} …"))?;
    output.line(&format!(
        "sign in    {} with the password {}",
        dev::USER,
        example.password.as_str()
    ))
}

/// A path as a word of a shell (POSIX section 2.2.2).
fn in_shell(path: &Path) -> String {
    let path = path.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@,=%".contains(c);
    if path.chars().all(is_plain) {
        return path.into_owned();
    }
    format!("'{}'", path.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_blank_is_one_word_of_a_shell() {
        for (path, word) in [
            ("/var/lib/idsvc", "/var/lib/idsvc"),
            ("./dev data", "'./dev data'"),
            ("/it's", r"'/it'\''s'"),
            ("/$HOME", "'/$HOME'"),
        ] {
            assert_eq!(in_shell(Path::new(path)), word);
        }
    }
}
