//! Runs `idsvc provider …`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::admin_connection::AdminConnector;
use super::list_flags::{ListFlags, show_updated};
use super::output::{CliError, Output, field_facts, moment, yes_no};
use super::refusal::flags_of;
use super::value_parsers::{
    KeyForm, algorithm, change, read_keys, read_secret, seconds, unreadable, warn_of_claims, words,
};
use crate::admin::SecretString;
use crate::admin::provider::test::{Finding, FindingStatus, ProviderReport};
use crate::admin::provider::{
    AddProvider, ListProviders, ProviderFields, ProviderView, RemoveProvider, ShowProvider, TestProvider,
    UpdateProvider,
};
use crate::admin::scope::ListScopes;
use crate::federation::provider::AddressPolicy;
use crate::jose::alg::Algorithm;

/// The verbs of providers.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Register a provider
    #[command(
        after_help = "Examples:\n  idsvc provider add google --issuer https://accounts.google.com --client-id ID --client-secret-file secret.txt --name Google --create-users\n  idsvc provider add partner --issuer https://id.partner.example --exchange --audience https://api.example --create-users"
    )]
    Add(Box<Add>),
    /// Show all providers
    List,
    /// Show one provider
    Show(Id),
    /// Change the named fields of a provider. A list replaces the stored list, and '' removes a value
    Update(Box<Update>),
    /// Check a provider as a sign-in would. The exit code is 1 if something is wrong
    Test(Id),
    /// Remove a provider that no client uses. Its users stay
    Remove(Remove),
}

/// The id of a provider.
#[derive(Debug, Args)]
pub struct Id {
    /// The provider's id
    #[arg(value_name = "ID")]
    pub id: String,
}

/// The flags of `remove`.
#[derive(Debug, Args)]
pub struct Remove {
    /// The provider's id
    #[arg(value_name = "ID")]
    pub id: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// The common flags of `add` and `update`. A flag for a field has the name of the field in [`ProviderFields`].
#[derive(Debug, Args, Serialize)]
pub struct Fields {
    /// The issuer identifier, exactly as in the provider's tokens
    #[arg(long, value_name = "URL")]
    pub issuer: Option<String>,
    /// The client id of this service at the provider. Without it, only tokens are exchanged
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    /// The file of the client secret, - for standard input
    #[arg(long, value_name = "FILE", value_parser = file())]
    #[serde(skip)]
    pub client_secret_file: Option<PathBuf>,
    /// How the service authenticates at the provider.
    #[arg(
        long,
        value_name = "METHOD",
        help = "How the service authenticates at the provider [default: client_secret_basic]",
        value_parser = words(&[
            ("client_secret_basic", "The secret in a Basic header"),
            ("client_secret_post", "The secret in the body"),
            ("private_key_jwt", "An assertion, which the provider verifies with the keys at /oauth2/jwks"),
        ])
    )]
    pub auth_method: Option<String>,
    /// The team id at Apple. The service then signs the client secret with the key of --apple-key-file
    #[arg(long, value_name = "ID")]
    pub apple_team_id: Option<String>,
    /// The id of this key at Apple
    #[arg(long, value_name = "ID")]
    pub apple_key_id: Option<String>,
    /// The file of the private key from Apple (.p8), - for standard input
    #[arg(long, value_name = "FILE", value_parser = file(), conflicts_with = "client_secret_file")]
    #[serde(skip)]
    pub apple_key_file: Option<PathBuf>,
    /// The name shown to people
    #[arg(long)]
    pub name: Option<String>,
    /// A picture for the button: PNG, JPEG, WebP or SVG, up to 64 KiB
    #[arg(long, value_name = "FILE", value_parser = file())]
    #[serde(skip)]
    pub logo_file: Option<PathBuf>,
    /// A scope value to request; may be repeated.
    #[arg(
        long,
        help = "A scope value to request; may be repeated [default: openid profile email]"
    )]
    pub scope: Option<Vec<String>>,
    /// An audience that exchanged tokens may have; may be repeated [default: the client id]
    #[arg(long = "audience", value_name = "AUDIENCE")]
    pub audiences: Option<Vec<String>>,
    /// An algorithm that ID tokens may be signed with; may be repeated [default: RS256]
    #[arg(long = "alg", value_name = "ALG", value_parser = algorithm)]
    pub algs: Option<Vec<Algorithm>>,
    /// The file of the provider's public keys (JWK Set), if it publishes none
    #[arg(long, value_name = "FILE", value_parser = file(), conflicts_with = "jwks_uri")]
    #[serde(skip)]
    pub jwks_file: Option<PathBuf>,
    /// The address of the provider's public keys [default: as discovered]
    #[arg(long, value_name = "URL")]
    pub jwks_uri: Option<String>,
    /// Let clients exchange the provider's ID tokens
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub exchange: Option<bool>,
    /// Let clients present identity assertions that the provider made for this service and for them (ID-JAG)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub id_jag: Option<bool>,
    /// The greatest age of an exchanged token, as in 10m [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub max_age: Option<u64>,
    /// Create a user at the first sign-in of a person
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub create_users: Option<bool>,
    /// Which e-mail addresses of the provider its users get [default: never]
    #[arg(long, value_name = "POLICY", value_parser = words(&[
        ("never", "None"),
        ("verified", "Verified ones. With --domain, only those of the domains"),
    ]))]
    pub addresses: Option<String>,
    /// When a first sign-in is linked to an existing user [default: never]
    #[arg(long, value_name = "POLICY", value_parser = words(&[
        ("never", "Never"),
        ("verified-email", "If the e-mail address is the same, and verified there and here"),
    ]))]
    pub link: Option<String>,
    /// The claim of access tokens that holds the provider's access token, or off.
    #[arg(
        long,
        value_name = "CLAIM",
        help = "The claim of access tokens that holds the provider's access token, or off [default: upstream_access_token]"
    )]
    pub embed_token: Option<String>,
    /// An e-mail domain whose users go straight to the provider; may be repeated
    #[arg(long = "domain", value_name = "DOMAIN")]
    pub domains: Option<Vec<String>>,
    /// A value of amr in ID tokens that means two factors, as in mfa; may be repeated [default: trust none]
    #[arg(long, value_name = "VALUE")]
    pub mfa_amr: Option<Vec<String>>,
    /// A value of acr in ID tokens that means two factors; may be repeated [default: trust none]
    #[arg(long, value_name = "VALUE")]
    pub mfa_acr: Option<Vec<String>>,
    /// A claim that has another name at the provider, as in nickname=login; may be repeated
    #[arg(long = "claim", value_name = "OURS=THEIRS", value_parser = mapping)]
    #[serde(skip)]
    pub claims: Option<Vec<(String, String)>>,
}

/// Reads `OURS=THEIRS`. An empty text removes all claims.
fn mapping(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        None if text.is_empty() => Ok((String::new(), String::new())),
        Some((ours, theirs)) if !ours.is_empty() => Ok((ours.to_owned(), theirs.to_owned())),
        _ => Err("a claim is written OURS=THEIRS".to_owned()),
    }
}

/// A path, or an empty text to remove the stored value.
pub(super) fn file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// The content of the file, or `empty` if its path is empty.
pub(super) fn read_flag<T>(
    path: Option<&Path>,
    empty: T,
    read: impl FnOnce(&Path) -> Result<T, CliError>,
) -> Result<Option<T>, CliError> {
    match path {
        Some(path) if path.as_os_str().is_empty() => Ok(Some(empty)),
        path => path.map(read).transpose(),
    }
}

impl Fields {
    /// The secret and the rest.
    fn into_fields(self) -> Result<(Option<SecretString>, ProviderFields), CliError> {
        let fields = ProviderFields {
            logo: read_flag(self.logo_file.as_deref(), String::new(), read_logo)?,
            keys: read_flag(self.jwks_file.as_deref(), Vec::new(), |path| {
                read_keys(path, KeyForm::JwkSet)
            })?,
            ..change(&self)?
        };
        let secret_file = self.client_secret_file.or(self.apple_key_file);
        let secret = read_flag(secret_file.as_deref(), SecretString::new(""), read_secret)?;
        let claims = self.claims.map(|claims| claims.into_iter().collect());
        Ok((secret, ProviderFields { claims, ..fields }))
    }
}

/// The most bytes that are read of a picture. The service has a lower limit.
const LOGO_LIMIT: u64 = 1024 * 1024;

pub(super) fn read_logo(path: &Path) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(LOGO_LIMIT).read_to_end(&mut bytes))
        .map_err(|error| unreadable(path, &error))?;
    Ok(STANDARD.encode(bytes))
}

/// A new provider.
#[derive(Debug, Args)]
pub struct Add {
    /// The provider's id: a part of addresses, and the amr and source of its users
    #[arg(value_name = "ID")]
    pub id: String,
    /// The fields.
    #[command(flatten)]
    pub fields: Fields,
}

/// A changed provider.
#[derive(Debug, Args)]
pub struct Update {
    /// The provider's id
    #[arg(value_name = "ID")]
    pub id: String,
    /// Allow sign-ins at the provider again
    #[arg(long, conflicts_with = "disable")]
    pub enable: bool,
    /// Refuse sign-ins at the provider, and refreshes of grants that began there
    #[arg(long)]
    pub disable: bool,
    /// Single members of lists.
    #[command(flatten)]
    pub lists: ListFlags<Fields>,
    /// The changed fields.
    #[command(flatten)]
    pub fields: Fields,
}

pub fn run(verb: Verb, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    match verb {
        Verb::Add(add) => {
            let (client_secret, fields) = add.fields.into_fields()?;
            warn_of_unreleased(&fields, connector, output);
            let added = fields.clone();
            let add = AddProvider {
                id: add.id,
                client_secret,
                fields,
            };
            connector.run(add, output, |view, output| show(&view, Some(&added), output))
        }
        Verb::List => connector.run(ListProviders, output, |views, output| list(&views, output)),
        Verb::Show(Id { id }) => connector.run(ShowProvider { id }, output, |view, output| {
            show(&view, None, output)
        }),
        Verb::Update(update) => {
            let (client_secret, mut fields) = update.fields.into_fields()?;
            fields.edits = update.lists.edits(|fields| Ok(fields.into_fields()?.1))?;
            fields.enabled = (update.enable || update.disable).then_some(update.enable);
            if fields == ProviderFields::default() && client_secret.is_none() {
                return Err(CliError::Misused(
                    "nothing to change: name at least one flag, see idsvc provider update --help".to_owned(),
                ));
            }
            warn_of_unreleased(&fields, connector, output);
            let update = UpdateProvider {
                id: update.id,
                client_secret,
                fields,
            };
            connector.run(update, output, |updated, output| {
                show_updated(&updated, output, |view, output| show(view, None, output))
            })
        }
        Verb::Test(Id { id }) => connector.run(TestProvider { id }, output, |report, output| {
            show_report(&report, output)
        }),
        Verb::Remove(Remove { id, yes }) => {
            let question = format!("Remove provider {id} and end every session and grant that began there?");
            output.confirm(&question, yes)?;
            connector.run(RemoveProvider { id: id.clone() }, output, |(), output| {
                output.removed("provider", "id", &id)
            })
        }
    }
}

/// Warns of mapped claims that no scope releases.
fn warn_of_unreleased(fields: &ProviderFields, connector: &AdminConnector<'_>, output: &mut Output<'_>) {
    let added = fields.edits.iter().filter_map(|edits| edits.add.claims.as_ref());
    let ours = fields.claims.iter().chain(added).flat_map(|claims| claims.keys());
    let named = ours.filter(|ours| !ours.is_empty()).map(String::as_str);
    warn_of_claims(named, |output| connector.call(ListScopes, output), output);
}

fn show_report(report: &ProviderReport, output: &mut Output<'_>) -> Result<(), CliError> {
    let shown = if output.json {
        output.document(report)
    } else {
        let label = |standing| match standing {
            FindingStatus::Ok => "ok",
            FindingStatus::Warning => "look",
            FindingStatus::Failed => "FAILED",
        };
        output.table(
            &["CHECK", "", "SEEN", "WHAT TO DO"],
            report.findings.iter().map(|finding| {
                [
                    finding.check.clone(),
                    label(finding.standing).to_owned(),
                    finding.seen.clone(),
                    remedy(&report.provider, finding).unwrap_or_default(),
                ]
            }),
        )
    };
    if report.works {
        shown?;
        output.hint(&format!("provider {} works", report.provider));
        return Ok(());
    }
    Err(CliError::refused(format!(
        "provider {} does not work",
        report.provider
    )))
}

/// What to do about a finding, with the flags of the members that it is about.
pub(super) fn remedy(id: &str, finding: &Finding) -> Option<String> {
    let remedy = finding.remedy.as_ref()?;
    let flags = finding
        .fields
        .iter()
        .flat_map(|field| flags_of("provider", field));
    let what = match flags.collect::<Vec<_>>().join(", ") {
        _ if finding.fields.is_empty() => return Some(remedy.clone()),
        none if none.is_empty() => "it".to_owned(),
        flags => flags,
    };
    Some(format!("{remedy}; idsvc provider update {id} changes {what}"))
}

fn list(views: &[ProviderView], output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(&views);
    }
    output.table(
        &["PROVIDER", "NAME", "SIGN-IN", "EXCHANGE", "ENABLED", "ISSUER"],
        views.iter().map(|view| {
            [
                view.id.clone(),
                view.name.clone().unwrap_or_default(),
                yes_no(view.client_id.is_some()),
                yes_no(view.exchange),
                yes_no(view.enabled),
                view.issuer.clone(),
            ]
        }),
    )?;
    if views.is_empty() {
        output.hint("no provider yet: idsvc provider add ID --issuer URL");
    }
    Ok(())
}

/// Prints a provider. `added` are the fields that were given for a new one.
fn show(
    view: &ProviderView,
    added: Option<&ProviderFields>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if output.json {
        return output.document(view);
    }
    let signs_people_in = view.client_id.is_some();
    let mut facts = vec![("id", view.id.clone())];
    facts.extend(field_facts(&view.settings, ProviderFields::FIELDS)?);
    facts.push(("redirect_uri", view.redirect_uri.clone()));
    for (name, value) in &mut facts {
        match *name {
            "auth_method" | "scope" | "redirect_uri" if !signs_people_in => value.clear(),
            "keys" if value.is_empty() && view.jwks_uri.is_none() => "as discovered".clone_into(value),
            "max_age" => value.push_str(" s"),
            "embed_token" if value.is_empty() => "off".clone_into(value),
            _ => {}
        }
    }
    facts.push(("created_at", moment(view.created_at)));
    facts.push(("updated_at", moment(view.updated_at)));
    output.facts(&facts)?;
    if let Some(given) = added {
        match view.addresses {
            _ if given.addresses.is_some() => {}
            AddressPolicy::Never => output.hint(&format!(
                "\nApplications do not get the e-mail addresses of this provider. If it verifies them: idsvc provider update {} --addresses verified",
                view.id
            )),
            AddressPolicy::Verified => {
                output.hint("\nApplications get the e-mail addresses that this provider has verified.");
            }
        }
        if signs_people_in {
            output.hint(&format!(
                "\nRegister at the provider the redirect URI {}",
                view.redirect_uri
            ));
        }
        output.hint(&format!(
            "Let a client use it: idsvc client update CLIENT --add-provider {}",
            view.id
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_names_the_command_and_the_flags() {
        let remedy_for = |fields: &[&str]| {
            let finding = Finding {
                check: "keys".to_owned(),
                standing: FindingStatus::Failed,
                seen: "none".to_owned(),
                remedy: Some("look".to_owned()),
                fields: fields.iter().map(|&field| field.to_owned()).collect(),
            };
            remedy("up", &finding).unwrap()
        };
        assert_eq!(remedy_for(&[]), "look");
        assert_eq!(
            remedy_for(&["enabled"]),
            "look; idsvc provider update up changes it"
        );
        assert_eq!(
            remedy_for(&["client_secret", "algs"]),
            "look; idsvc provider update up changes --client-secret-file, --alg"
        );
    }
}
