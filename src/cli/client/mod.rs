//! Runs `idsvc client …`.

mod access;
mod api_key;
mod certificate_flags;
mod group_flags;
mod link_flags;
mod print;
mod registration_token;
mod secret;
mod signing_flags;

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use serde::Serialize;

use self::certificate_flags::CertificateFields;
use self::group_flags::GroupFields;
use self::link_flags::LinkFields;
use self::print::{list, show, warn_after_change, warn_of_refresh, warn_of_scope, warn_of_theme};
use self::signing_flags::SigningFields;
use super::admin_connection::AdminConnector;
use super::change_summary::ChangeSummary;
use super::list_flags::{ListFlags, show_updated};
use super::output::{CliError, Output};
use super::provider::{file, read_flag, read_logo};
use super::value_parsers::{
    KeyForm, change, optional_algorithm, optional_seconds, read_keys, read_secret, removable_seconds,
    scope_text, seconds, token_typ, words,
};
use crate::admin;
use crate::admin::client::{
    AddClient, ClientView, DisableClient, EnableClient, RemoveClient, ShowClient, UpdateClient,
};
use crate::jose::alg::Algorithm;
use crate::oauth::ClientFields;
use crate::oauth::client::GrantType;
use crate::oauth::fields::Removable;

/// The verbs of clients.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Register a client
    #[command(
        after_help = "Examples:\n  idsvc client add web --redirect-uri https://app.example/cb\n  idsvc client add phone --public --redirect-uri com.example.app:/cb"
    )]
    Add(Box<Add>),
    /// Show all clients
    List,
    /// Show one client
    Show(Id),
    /// Change the named fields of a client. A list replaces the stored list, and '' removes a value
    Update(Box<Update>),
    /// Remove a client and end everything granted to it
    Remove(Remove),
    /// Give a client a new secret, or a first one in addition to its key
    RotateSecret(Rotate),
    /// The secrets of a client, which idsvc client rotate-secret replaces
    #[command(subcommand)]
    Secret(secret::Verb),
    /// API keys, for refreshing at /v4/tokens
    #[command(subcommand)]
    ApiKey(api_key::Verb),
    /// Initial access tokens, with which clients register themselves at /oauth2/register
    #[command(subcommand)]
    RegistrationToken(registration_token::Verb),
    /// Enable a disabled client
    Enable(Id),
    /// Disable a client without removing it
    Disable(Id),
    /// Show who may use a client, and who has used it
    Access(access::Access),
}

/// The identifier of a client.
#[derive(Debug, Args)]
pub struct Id {
    /// The client's identifier
    #[arg(value_name = "ID")]
    pub id: String,
}

/// The flags of `remove`.
#[derive(Debug, Args)]
pub struct Remove {
    /// The client's identifier
    #[arg(value_name = "ID")]
    pub id: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// The flags of `rotate-secret`.
#[derive(Debug, Args)]
pub struct Rotate {
    /// The client's identifier
    #[arg(value_name = "ID")]
    pub id: String,
    /// The file of the new secret (at least 32 bytes), - for standard input [default: generate one]
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// How long the current secrets stay valid, as in 24h
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub keep_old: Option<u64>,
}

/// The common flags of `add` and `update`. A flag for a field has the name of the field in [`ClientFields`].
#[derive(Debug, Args, Serialize)]
pub struct Fields {
    /// The name shown to people
    #[arg(long)]
    pub name: Option<String>,
    /// A redirect URI for sign-ins; may be repeated
    #[arg(long = "redirect-uri", value_name = "URI")]
    pub redirect_uris: Option<Vec<String>>,
    /// A redirect URI after signing out; may be repeated
    #[arg(long = "post-logout-redirect-uri", value_name = "URI")]
    pub post_logout_redirect_uris: Option<Vec<String>>,
    /// The address at which the service tells the client that a session has ended (Back-Channel Logout): https, or http
    /// on a loopback address for a confidential client
    #[arg(long, value_name = "URL")]
    pub backchannel_logout_uri: Option<String>,
    /// The client needs the session in logout tokens, which always have it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub backchannel_logout_session_required: Option<bool>,
    /// The addresses that pages link to.
    #[command(flatten)]
    #[serde(flatten)]
    pub links: LinkFields,
    /// An origin whose scripts may call the service; may be repeated. Those of a public client's redirect URIs always may
    #[arg(long = "cors-origin", value_name = "ORIGIN")]
    pub cors_origins: Option<Vec<String>>,
    /// An allowed scope value; may be repeated.
    #[arg(
        long,
        help = "An allowed scope value; may be repeated [default: openid profile email phone address offline_access]"
    )]
    pub scope: Option<Vec<String>>,
    /// A scope value for requests without scope; may be repeated [default: openid, if allowed]
    #[arg(long, value_name = "SCOPE")]
    pub default_scope: Option<Vec<String>>,
    /// Whether tokens of signed-in users have the scope value authenticated [default: on]
    #[arg(long, value_name = "WHETHER", value_parser = words(&[
        ("on", "The service adds it to the granted scope"),
        ("off", "For libraries that refuse a scope value that they did not ask for"),
    ]).map(|word| word == "on"))]
    pub scope_marker: Option<bool>,
    /// An allowed grant; may be repeated.
    #[arg(
        long = "grant",
        value_name = "GRANT",
        help = "An allowed grant: authorization_code, refresh_token, device_code, anonymous, jwt-bearer, token-exchange, client_credentials, or a URN from discovery; may be repeated [default: the first two, with a redirect URI]"
    )]
    pub grant_types: Option<Vec<GrantType>>,
    /// Allow no grant: the client is an API that only introspects tokens
    #[arg(long, conflicts_with = "grant_types")]
    #[serde(skip)]
    pub no_grants: bool,
    /// The file of the public key (PEM) that verifies the client's assertions
    #[arg(long, value_name = "PEM", conflicts_with = "jwks_file")]
    #[serde(skip)]
    pub public_key_file: Option<PathBuf>,
    /// The file of the public keys (JWK Set) that verify the client's assertions
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub jwks_file: Option<PathBuf>,
    /// The https address of the public keys that verify the client's assertions
    #[arg(long, value_name = "URL", conflicts_with_all = ["public_key_file", "jwks_file"])]
    pub jwks_uri: Option<String>,
    /// The audience that the client's assertions must have [default: any]
    #[arg(long, value_parser = words(&[
        ("any", "The issuer, the address of the called endpoint or, at introspection, revocation and PAR, that of the token endpoint"),
        ("strict", "Only the issuer"),
    ]))]
    pub assertion_audience: Option<String>,
    /// Allow the client credentials grant with a secret, limited to --max-scope
    #[arg(long, requires = "max_scope")]
    #[serde(skip)]
    pub allow_secret_credentials: bool,
    /// A scope value that the client credentials grant with a secret may get; may be repeated
    #[arg(long, value_name = "SCOPE", requires = "allow_secret_credentials")]
    pub max_scope: Option<Vec<String>>,
    /// Whether a confidential client must use PKCE [default: required]
    #[arg(long, value_parser = words(&[
        ("required", "A request without a code challenge is refused"),
        ("optional", "The code challenge may be left out, for software that cannot send one"),
    ]))]
    pub pkce: Option<String>,
    /// Refuse authorization requests that the client did not push first (RFC 9126)
    #[arg(
        long = "require-par",
        alias = "require-pushed-authorization-requests",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub require_pushed_authorization_requests: Option<bool>,
    /// Refuse authorization requests that the client did not sign as request objects (RFC 9101)
    #[arg(
        long = "require-signed-request",
        alias = "require-signed-request-object",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub require_signed_request_object: Option<bool>,
    /// The algorithm of request objects [default: any]
    #[arg(long, value_name = "ALG", value_parser = optional_algorithm)]
    pub request_object_signing_alg: Option<Removable<Algorithm>>,
    /// Whether users are asked for consent [default: skip]
    #[arg(long, value_parser = words(&[
        ("require", "Users are asked for scopes that they have not allowed yet"),
        ("skip", "Users are not asked"),
    ]))]
    pub consent: Option<String>,
    /// Which groups may use it, and which it learns.
    #[command(flatten)]
    #[serde(flatten)]
    pub groups: GroupFields,
    /// A provider at which users may sign in, see idsvc provider; may be repeated
    #[arg(long = "provider", value_name = "ID")]
    pub providers: Option<Vec<String>>,
    /// Whether users may sign in with a password [default: yes]. If not, and with one provider, they go straight to it
    #[arg(
        long,
        value_name = "WHETHER",
        value_parser = words(&[("yes", "With a password or at a provider"), ("no", "At a provider only")]).map(|word| word == "yes")
    )]
    pub password_sign_in: Option<bool>,
    /// The level that each sign-in of this client has at least [default: none]
    #[arg(long, value_name = "LEVEL", value_parser = words(&[
        ("2", "Two factors. A user who has only a password sets up a second factor first"),
        ("phr", "A passkey, which resists phishing"),
        ("", "None"),
    ]))]
    pub acr: Option<String>,
    /// The greatest age of a sign-in if the request demands none, as in 12h; 0s demands a new sign-in [default: any]
    #[arg(long, value_name = "TIME", value_parser = removable_seconds)]
    pub default_max_age: Option<Removable<u64>>,
    /// Give a public client the access tokens of providers too
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub embed_upstream_token: Option<bool>,
    /// An API that the client may get tokens for, by its id, see idsvc api; may be repeated
    #[arg(long = "api", value_name = "ID")]
    pub apis: Option<Vec<String>>,
    /// The audience of access tokens that are for no API [default: the issuer]
    #[arg(long)]
    pub audience: Option<String>,
    /// The token exchanges that it may request [default: any]
    #[arg(long, value_name = "POLICY", value_parser = words(&[
        ("any", "With an actor token or without one"),
        ("delegation", "Only with an actor token, so that the new token names the actor"),
        ("off", "None"),
    ]))]
    pub token_exchange: Option<String>,
    /// The algorithms of what the service signs for it.
    #[command(flatten)]
    #[serde(flatten)]
    pub signing: SigningFields,
    /// The typ of access tokens [default: as configured]
    #[arg(long, value_name = "TYP", value_parser = token_typ())]
    pub access_token_typ: Option<String>,
    /// How long access tokens last, as in 15m [default: as configured]
    #[arg(long, value_name = "TIME", value_parser = optional_seconds)]
    pub access_token_lifetime: Option<u64>,
    /// How long each refresh token lasts, from its last use if it stays the same, as in 30d [default: as configured]
    #[arg(long, value_name = "TIME", value_parser = optional_seconds)]
    pub refresh_token_lifetime: Option<u64>,
    /// Refuse token requests without a DPoP proof (RFC 9449)
    #[arg(
        long = "require-dpop",
        alias = "dpop-bound-access-tokens",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub dpop_bound_access_tokens: Option<bool>,
    /// What concerns its certificate.
    #[command(flatten)]
    #[serde(flatten)]
    pub certificate: CertificateFields,
    /// What a refresh does with the refresh token [default: rotate]
    #[arg(long, value_name = "POLICY", value_parser = words(&[
        ("rotate", "Each use replaces it"),
        ("reuse", "It stays the same, for clients that authenticate, and for devices with --require-dpop"),
        ("reuse-unbound", "It stays the same for a public client with the grant device_code, although nothing binds it"),
    ]))]
    pub refresh_policy: Option<String>,
    /// Whether a refresh brings a new ID token [default: on]
    #[arg(long, value_name = "WHETHER", value_parser = words(&[
        ("on", "Each refresh with the scope openid brings one"),
        ("off", "Only the sign-in brings one: a refresh then takes far less processor time"),
    ]).map(|word| word == "on"))]
    pub id_token_on_refresh: Option<bool>,
    /// Which claims of the user are in ID tokens [default: userinfo, with a profile requested]
    #[arg(long, value_name = "CLAIMS", value_parser = words(&[
        ("requested", "Only claims that the parameter claims requests. The others are at UserInfo"),
        ("userinfo", "The claims of the scope as well, which much software expects"),
    ]))]
    pub id_token_claims: Option<String>,
    /// The rules that this client must follow. Sets each flag that the rules need and you do not name
    #[arg(long, value_parser = words(&[
        ("fapi2", "The FAPI 2.0 Security Profile: a key, pushed requests, PKCE, bound tokens, no RS256"),
        ("fapi2-message-signing", "FAPI 2.0 Message Signing as well: signed requests and answers"),
        ("", "None"),
    ]))]
    pub profile: Option<String>,
    /// The theme of the pages for this client [default: as configured]
    #[arg(long, value_name = "NAME")]
    pub theme: Option<String>,
    /// The file of the application's logo for the pages: PNG, JPEG, WebP or SVG, at most 64 KiB
    #[arg(long, value_name = "FILE", value_parser = file())]
    #[serde(skip)]
    pub logo_file: Option<PathBuf>,
    /// The description of a scope value on the consent page, as in notes.read="Read your notes"; may be repeated
    #[arg(long = "scope-text", value_name = "SCOPE=TEXT", value_parser = scope_text)]
    #[serde(skip)]
    pub scope_texts: Option<Vec<(String, String)>>,
}

impl Fields {
    fn into_fields(self) -> Result<ClientFields, CliError> {
        let mut fields: ClientFields = change(&self)?;
        if self.no_grants {
            fields.grant_types = Some(Vec::new());
        }
        if let Some(path) = &self.public_key_file {
            fields.jwks = Some(read_keys(path, KeyForm::Pem)?);
        }
        if let Some(path) = &self.jwks_file {
            fields.jwks = Some(read_keys(path, KeyForm::JwkSet)?);
        }
        fields.logo = read_flag(self.logo_file.as_deref(), String::new(), read_logo)?;
        fields.scope_texts = self.scope_texts.map(|texts| texts.into_iter().collect());
        Ok(fields)
    }
}

/// A new client.
#[derive(Debug, Args)]
pub struct Add {
    /// The client's identifier
    #[arg(value_name = "ID")]
    pub id: String,
    /// The client cannot keep a secret: a browser or native application
    #[arg(long, conflicts_with = "secret_file")]
    pub public: bool,
    /// The file of the client secret (at least 32 bytes), - for standard input [default: generate one]
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Generate an API key too, for refreshing at /v4/tokens
    #[arg(long)]
    pub api_key: bool,
    /// The fields.
    #[command(flatten)]
    pub fields: Fields,
}

/// A changed client. A list that is named replaces the one before; '' removes a value.
#[derive(Debug, Args)]
pub struct Update {
    /// The client's identifier
    #[arg(value_name = "ID")]
    pub id: String,
    /// Remove the client's secrets. It then authenticates with its key only
    #[arg(long, conflicts_with_all = ["max_scope", "add-max_scope"])]
    pub no_secret: bool,
    /// Single members of lists.
    #[command(flatten)]
    pub lists: ListFlags<Fields>,
    /// The changed fields.
    #[command(flatten)]
    pub fields: Fields,
}

pub fn run(verb: Verb, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let show_only = |view: ClientView, output: &mut Output<'_>| show(&view, None, output);
    match verb {
        Verb::Add(add) => self::add(*add, connector, output),
        Verb::ApiKey(verb) => api_key::run(verb, connector, output),
        Verb::Secret(verb) => secret::run(verb, connector, output),
        Verb::RegistrationToken(verb) => registration_token::run(verb, connector, output),
        Verb::List => list(connector, output),
        Verb::Access(request) => access::run(request, connector, output),
        Verb::Show(which) => connector.run(ShowClient { client_id: which.id }, output, show_only),
        Verb::Update(update) => self::update(*update, connector, output),
        Verb::Remove(Remove { id, yes }) => {
            output.confirm(
                &format!("Remove client {id} and end everything granted to it?"),
                yes,
            )?;
            let remove = RemoveClient {
                client_id: id.clone(),
            };
            connector.run(remove, output, |(), output| {
                output.removed("client", "client_id", &id)
            })
        }
        Verb::RotateSecret(rotate) => {
            let secret = rotate.secret_file.as_deref().map(read_secret).transpose()?;
            let done = format!("client {} has a new secret", rotate.id);
            let summary = ChangeSummary::with_credentials(done, &rotate.id, secret.is_none(), false);
            let rotate = admin::client::RotateSecret {
                client_id: rotate.id,
                secret,
                keep_old_seconds: rotate.keep_old,
            };
            connector.run_with_summary(rotate, summary, output, show_only)
        }
        Verb::Enable(which) => connector.run(EnableClient { client_id: which.id }, output, show_only),
        Verb::Disable(which) => connector.run(DisableClient { client_id: which.id }, output, show_only),
    }
}

fn add(add: Add, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let secret = add.secret_file.as_deref().map(read_secret).transpose()?;
    let fields = add.fields.into_fields()?;
    warn_of_theme(fields.theme.as_deref(), connector, output)?;
    let has_secret = !add.public && secret.is_none();
    let done = format!("client {} was added", add.id);
    let summary = ChangeSummary::with_credentials(done, &add.id, has_secret, add.api_key);
    let operation = AddClient {
        client_id: add.id,
        public: add.public,
        secret,
        api_key: add.api_key,
        fields: fields.clone(),
    };
    let mut apis = BTreeSet::new();
    connector.run_with_summary(operation, summary, output, |view, output| {
        show(&view, Some(&fields), output)?;
        warn_of_scope(&view, output);
        warn_of_refresh(&view, &fields, output);
        apis.clone_from(&view.apis);
        Ok(())
    })?;
    warn_after_change(&fields, &apis, connector, output);
    Ok(())
}

fn update(update: Update, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let fields = ClientFields {
        edits: update.lists.edits(Fields::into_fields)?,
        ..update.fields.into_fields()?
    };
    if fields == ClientFields::default() && !update.no_secret {
        return Err(CliError::Misused(
            "nothing to change: name at least one flag, see idsvc client update --help".to_owned(),
        ));
    }
    warn_of_theme(fields.theme.as_deref(), connector, output)?;
    let operation = UpdateClient {
        client_id: update.id,
        no_secret: update.no_secret,
        fields: fields.clone(),
    };
    let mut apis = BTreeSet::new();
    connector.run(operation, output, |updated, output| {
        show_updated(&updated, output, |view, output| show(view, None, output))?;
        let view = updated.view;
        warn_of_scope(&view, output);
        warn_of_refresh(&view, &fields, output);
        apis.clone_from(&view.apis);
        Ok(())
    })?;
    warn_after_change(&fields, &apis, connector, output);
    Ok(())
}
