//! Runs `idsvc config …`.

use clap::{Args, Subcommand};
use serde_json::json;

use super::Global;
use super::admin_connection::{AdminConnector, Opening};
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output};
use super::setting_flags::SettingFlags;
use crate::admin::installation::{self, IssuerView, ReadInstallation};
use crate::clock::Clock;
use crate::config::base_url::check_base_url;
use crate::config::reference_text::reference;
use crate::config::resolve::{Named, resolve_all};
use crate::config::schema::schema;
use crate::config::{ConfigError, Fault, logo_fault};
use crate::net::certificate::{CertificateWarnings, examine};
use crate::net::certificate_file::{read_chain, read_key};
use crate::net::chain::KnownRoots;
use crate::net::tls_error::TlsError;
use crate::themes::folder::ThemeFolder;
use crate::themes::theme_set::Themes;

/// The verbs of settings.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Check the settings and the TLS files that they name, and report all faults
    Check(Box<SettingFlags>),
    /// Print the commented configuration file
    Reference,
    /// Print the JSON Schema of the configuration file, for editors
    Schema,
    /// Change the issuer, which the first start fixed
    SetIssuer(SetIssuer),
}

/// The flags of `set-issuer`.
#[derive(Debug, Args)]
pub struct SetIssuer {
    /// The issuer.
    #[arg(help = "The issuer [default: the configured base_url]", value_name = "URL")]
    pub issuer: Option<String>,
    /// Confirm that issued access tokens are refused, and that clients must be configured with the new issuer
    #[arg(long)]
    pub i_know: bool,
}

/// Runs a verb.
pub fn run(
    verb: Verb,
    global: &Global,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match verb {
        Verb::Check(flags) => check(*flags, global, output),
        Verb::Reference => {
            output.only_text("the configuration file")?;
            let text = reference();
            output.line(text.trim_end())
        }
        Verb::Schema => output.document(&schema()),
        Verb::SetIssuer(request) => set_issuer(request, connector, output),
    }
}

fn check(flags: SettingFlags, global: &Global, output: &mut Output<'_>) -> Result<(), CliError> {
    let sources = global.sources(flags.into_given());
    for warning in &sources.warnings {
        output.say(&format!("warning: {warning}"));
    }
    let file = sources.file.as_ref().map(|file| file.display().to_string());
    let resolved = resolve_all(&sources);
    let checked_tls = check_tls(&resolved.named);
    let tls_warnings = checked_tls.as_deref().unwrap_or_default();
    let warnings = resolved.warnings.iter().map(ToString::to_string);
    let warnings = warnings.chain(tls_warnings.iter().cloned());
    for warning in warnings.chain(check_theme(&resolved.named)) {
        output.say(&format!("warning: {warning}"));
    }
    let mut file_faults = checked_tls.err().unwrap_or_default();
    file_faults.extend(logo_fault(&sources));
    let config = match resolved.config {
        Ok(config) if file_faults.is_empty() => Ok(config),
        Ok(_) => Err(file_faults),
        Err(error) => Err([error.faults, file_faults].concat()),
    };
    let config = match config {
        Ok(config) => config,
        Err(faults) => return refuse(faults, file.as_deref(), output),
    };
    if output.json {
        return output.document(&json!({
            "ok": true,
            "file": file,
            "issuer": config.issuer,
            "data_dir": config.settings.data_dir,
            "listen": config.listen,
            "store": config.settings.store.as_ref().map(ToString::to_string),
        }));
    }
    let listen: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
    let mut facts = vec![
        ("settings", "all right".to_owned()),
        ("file", file.unwrap_or_else(|| "none".to_owned())),
        ("issuer", config.issuer.clone()),
        ("data_dir", config.settings.data_dir.display().to_string()),
        ("listen", listen.join(" ")),
    ];
    facts.extend(
        config
            .settings
            .store
            .map(|address| ("store", address.to_string())),
    );
    output.facts(&facts)
}

/// Reports all faults.
fn refuse(faults: Vec<Fault>, file: Option<&str>, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        let document: Vec<_> = faults
            .iter()
            .map(|fault| json!({ "place": fault.place, "message": fault.message }))
            .collect();
        // The exit code says so even if the output cannot be written.
        let _ = output.document(&json!({ "ok": false, "file": file, "faults": document }));
    }
    Err(CliError::refused(ConfigError { faults }))
}

/// Checks the TLS files as a start would. Returns the warnings about them, or else their faults.
fn check_tls(named: &Named) -> Result<Vec<String>, Vec<Fault>> {
    let fault = |error: TlsError| Fault {
        place: "tls".to_owned(),
        message: error.to_string(),
    };
    let (cert, key) = match (&named.tls.cert, &named.tls.key) {
        (Some(cert), Some(key)) => (cert, key),
        (cert, key) => {
            let errors = [
                cert.as_deref().and_then(|file| read_chain(file).err()),
                key.as_deref().and_then(|file| read_key(file).err()),
            ];
            let faults: Vec<_> = errors.into_iter().flatten().map(fault).collect();
            return if faults.is_empty() {
                Ok(Vec::new())
            } else {
                Err(faults)
            };
        }
    };
    let now = Clock::System.now().seconds();
    let known_roots = KnownRoots::of(&named.outbound);
    let CertificateWarnings {
        expiry,
        mismatch,
        exposure,
        chain,
        expiring_issuer,
        not_after: _,
    } = examine(cert, key, named.host.as_deref(), &known_roots, now)
        .map_err(|errors| errors.into_iter().map(fault).collect::<Vec<_>>())?;
    let expiry = expiry.map(|warning| warning.to_string());
    let issuers = [chain.warning(), expiring_issuer.map(|issuer| issuer.to_string())];
    let warnings = expiry
        .into_iter()
        .chain(mismatch)
        .chain(issuers.into_iter().flatten());
    Ok(warnings
        .map(|warning| format!("{}: {warning}", cert.display()))
        .chain(exposure)
        .collect())
}

/// Checks the theme as a start would. Returns a warning if the default theme would replace it.
fn check_theme(named: &Named) -> Option<String> {
    let (theme, data_dir) = (named.theme.as_ref()?, named.data_dir.as_ref()?);
    let folder = ThemeFolder::new(&theme.folder, data_dir);
    let theme_set = Themes::open("", &theme.name, Some(folder)).current();
    if theme_set.theme(&theme.name).is_some() {
        return None;
    }
    let folder = theme.folder.join(&theme.name);
    let what = match theme_set.refused(&theme.name) {
        Some(_) => "cannot be used, idsvc theme check says why",
        None => "is not there",
    };
    Some(format!(
        "the theme {} {what}: the default theme is used",
        folder.display()
    ))
}

fn set_issuer(
    request: SetIssuer,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let issuer = match request.issuer {
        Some(issuer) => issuer,
        None => connector.settings(output)?.base_url.ok_or_else(|| {
            CliError::Misused(
                "no base_url is configured: name the issuer, as in https://id.example.com".to_owned(),
            )
        })?,
    };
    check_base_url(&issuer).map_err(|message| CliError::Misused(format!("{issuer:?}: {message}")))?;
    if !request.i_know {
        // Without a change of the issuer nothing ends, so --i-know is not needed.
        if let Ok(installation) = connector.call(ReadInstallation, output)
            && installation.issuer == issuer
        {
            let previous_issuer = Some(issuer.clone());
            let view = IssuerView {
                issuer,
                previous_issuer,
            };
            return show_issuer(&view, output);
        }
        return Err(CliError::Misused(format!(
            "with the issuer {issuer}, access tokens issued so far are refused, and clients must be configured with it. Refresh tokens stay valid, and so do sessions if the host is the same. idsvc session revoke --user WHO ends those of a user. Add --i-know to change the issuer"
        )));
    }
    let connection = connector.connect(&Opening::WithIssuer(issuer.clone()), output)?;
    let view = connection.call(installation::SetIssuer { issuer })?;
    show_issuer(&view, output).map_err(|error| ChangeSummary::plain("the change was made").unshown(error))
}

fn show_issuer(view: &IssuerView, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(view);
    }
    output.facts(&[
        ("issuer", view.issuer.clone()),
        (
            "previous_issuer",
            view.previous_issuer.clone().unwrap_or_default(),
        ),
    ])?;
    output.hint(if view.previous_issuer.as_ref() == Some(&view.issuer) {
        "This is the issuer already: nothing was changed."
    } else {
        "It takes effect at the next start. Set base_url to it as well."
    });
    Ok(())
}
