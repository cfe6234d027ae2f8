//! Whether a client can be as an operator says.

use std::collections::BTreeSet;

use crate::admin::Wording;
use crate::federation::metadata::https;
use crate::jose::alg::Algorithm;
use crate::oauth::client::{
    AuthMethod, Client, ConsentRequirement, GrantType, PkceRequirement, RefreshPolicy, is_theme_name,
};
use crate::oauth::client_metadata::ClientFields;
use crate::oauth::redirect_uri::{
    LOGOUT_PARAMETERS, RESPONSE_PARAMETERS, check_query, check_registrable, is_origin,
};

const MOST_URIS: usize = 100;
const MOST_KEYS: usize = 20;
const LONGEST_URI: usize = 2048;
/// What to do about a scope value that a client lacks: the flag says the whole list.
const SCOPES_TOO: &str = "name them with --scope, beside every other scope that the client keeps";

/// Takes a change over into a client, and what follows from it. The default scope is cut to what stays allowed unless it
/// was named. Keys that are registered and an address where they are published replace each other.
pub(in crate::admin) fn apply(change: ClientFields, client: &mut Client, faults: &mut Vec<String>) {
    let names_default_scope = change.default_scope.is_some();
    let brings_keys = change.jwks.as_ref().is_some_and(|keys| !keys.is_empty());
    change.apply(&mut client.metadata, faults);
    if !names_default_scope {
        client.default_scope = client.default_scope.filter(|value| client.scope.contains(value));
    }
    if brings_keys {
        client.jwks_uri = None;
    } else if client.jwks_uri.is_some() {
        client.jwks.clear();
    }
    if client.has_keys() {
        client
            .token_endpoint_auth_methods
            .insert(AuthMethod::PrivateKeyJwt);
    }
}

/// The grants of a client of which none are named: those of sign-ins, where people can be sent back. That there are to be
/// none has to be said.
pub(in crate::admin) fn usual_grants(
    redirect_uris: &[String],
    wording: Wording,
    faults: &mut Vec<String>,
) -> Vec<GrantType> {
    if redirect_uris.is_empty() {
        faults.push(format!(
            "the client has no grant: name {} for an API that only introspects tokens",
            wording.say(
                "a --redirect-uri for sign-ins, or --no-grants",
                "redirect_uris for sign-ins, or grant_types = []"
            )
        ));
        return Vec::new();
    }
    vec![GrantType::AuthorizationCode, GrantType::RefreshToken]
}

/// Everything about the record as a whole that cannot be, but for addresses that it had `before`. At the providers
/// `exchange_only` nobody signs in.
pub(in crate::admin) fn check(
    before: Option<&Client>,
    client: &Client,
    usable: &[Algorithm],
    exchange_only: &BTreeSet<String>,
    wording: Wording,
    faults: &mut Vec<String>,
) {
    check_addresses(before, client, faults);
    if let Some(theme) = client.theme.as_ref().filter(|theme| !is_theme_name(theme)) {
        faults.push(format!(
            "theme {theme:?}: names of themes are lower-case letters, digits and hyphens; idsvc theme list shows all"
        ));
    }
    if client.is_public() && client.pkce == PkceRequirement::Optional {
        faults.push("pkce cannot be optional: a public client always needs it".to_owned());
    }
    for scope in client.scope_texts.keys() {
        if !client.scope.contains(scope) {
            let remedy = match wording {
                Wording::Flags => {
                    format!(
                        "name it with --scope, beside every other scope that the client keeps, or take the text away with --scope-text {scope}="
                    )
                }
                Wording::Keys => "add it to scope, or take the text out of scope_texts".to_owned(),
            };
            faults.push(format!(
                "scope text {scope:?}: the client may not ask for this scope; {remedy}"
            ));
        }
    }
    if !client.default_scope.is_within(&client.scope) {
        faults.push(format!(
            "the default scope names values that are not allowed: {}",
            wording.say(SCOPES_TOO, "add them to scope")
        ));
    }
    let uses_code = client.may_use(GrantType::AuthorizationCode);
    if uses_code && client.redirect_uris.is_empty() {
        faults.push(format!(
            "the grant authorization_code needs a redirect URI: name one {}",
            wording.say("with --redirect-uri", "in redirect_uris")
        ));
    }
    if !uses_code && !client.redirect_uris.is_empty() {
        faults.push(format!(
            "redirect URIs are for the grant authorization_code: {}",
            wording.say("name it with --grant, beside the others", "add it to grant_types")
        ));
    }
    let is_anonymous = client.may_use(GrantType::Anonymous);
    let exchanges = client.may_use(GrantType::JwtBearer);
    check_exchange(client, wording, faults);
    if client.grant_types.is_empty() && client.is_public() {
        faults.push(
            "a client without grants only introspects tokens, which is for clients that authenticate"
                .to_owned(),
        );
    } else if client.may_use(GrantType::RefreshToken) && !uses_code && !is_anonymous && !exchanges {
        faults.push(
            "the grant refresh_token needs authorization_code, anonymous or jwt-bearer beside it".to_owned(),
        );
    }
    if lets_nobody_in(client, exchange_only) {
        faults.push(format!(
            "nobody could sign in: name {}",
            wording.say(
                "a --provider that has a --client-id, or allow passwords with --password-sign-in yes",
                "one of the providers that have a client_id, or allow passwords with password_sign_in = true"
            )
        ));
    }
    if is_anonymous && client.is_public() {
        faults.push("the grant anonymous is for clients that authenticate, not for public ones".to_owned());
    }
    if client.is_public() && client.refresh_policy == RefreshPolicy::Reuse {
        faults.push(
            "the refresh policy reuse is for clients that authenticate, not for public ones".to_owned(),
        );
    }
    check_credentials(client, wording, faults);
    for alg in [client.id_token_signed_response_alg, client.access_token_alg]
        .into_iter()
        .flatten()
    {
        if !usable.contains(&alg) {
            faults.push(format!(
                "there is no key for {alg}: make one with idsvc key rotate --alg {alg}"
            ));
        }
    }
}

/// Whether the client is one that people sign in for, and none of them can. At the providers `exchange_only` nobody does.
pub(in crate::admin) fn lets_nobody_in(client: &Client, exchange_only: &BTreeSet<String>) -> bool {
    client.may_use(GrantType::AuthorizationCode)
        && !client.password_sign_in
        && client.providers.is_subset(exchange_only)
}

type Addresses = fn(&Client) -> &Vec<String>;

/// Where browsers may come from and be sent. An address that an earlier release took stays: whoever changes something
/// else, or applies the file of then again, is not told to change it.
fn check_addresses(before: Option<&Client>, client: &Client, faults: &mut Vec<String>) {
    let before = before.filter(|before| before.is_public() == client.is_public());
    let is_new =
        |list: Addresses, address: &String| before.is_none_or(|before| !list(before).contains(address));
    let lists = [
        &client.redirect_uris,
        &client.post_logout_redirect_uris,
        &client.cors_origins,
    ];
    if lists.iter().any(|list| list.len() > MOST_URIS) {
        faults.push(format!("more than {MOST_URIS} addresses in one list"));
    }
    let uris: [(&str, Addresses, &[&str]); 2] = [
        (
            "redirect URI",
            |client| &client.redirect_uris,
            RESPONSE_PARAMETERS,
        ),
        (
            "post-logout redirect URI",
            |client| &client.post_logout_redirect_uris,
            LOGOUT_PARAMETERS,
        ),
    ];
    for (field, list, added) in uris {
        for uri in list(client).iter().filter(|uri| is_new(list, uri)) {
            if uri.len() > LONGEST_URI {
                faults.push(format!("{field} is longer than {LONGEST_URI} bytes"));
            } else if let Err(error) =
                check_registrable(uri, client.is_public()).and_then(|()| check_query(uri, added))
            {
                faults.push(format!("{field} {uri:?}: {error}"));
            }
        }
    }
    let origins: Addresses = |client| &client.cors_origins;
    for origin in origins(client).iter().filter(|origin| is_new(origins, origin)) {
        if !is_origin(origin) {
            faults.push(format!(
                "origin {origin:?}: an origin is scheme, host and port in lower-case letters, without a wildcard, as in \
                 https://app.example or capacitor://localhost"
            ));
        }
    }
}

/// What it takes to exchange tokens of a provider.
fn check_exchange(client: &Client, wording: Wording, faults: &mut Vec<String>) {
    if !client.may_use(GrantType::JwtBearer) {
        return;
    }
    if client.is_public() {
        faults.push("the grant jwt-bearer is for clients that authenticate, not for public ones".to_owned());
    }
    if client.providers.is_empty() {
        faults.push(format!(
            "the grant jwt-bearer needs a provider: name one {}",
            wording.say("with --provider", "in providers")
        ));
    }
    let asks_people = client.may_use(GrantType::AuthorizationCode);
    if client.consent == ConsentRequirement::Require && !asks_people {
        faults.push(format!(
            "nobody could be asked for consent, and no token be exchanged: people consent when they sign in, for which \
             it takes the grant authorization_code and a redirect URI; or leave the question out {}",
            wording.say("with --consent skip", "with consent = \"skip\"")
        ));
    }
}

/// What a client proves itself with, against what it may do for itself.
fn check_credentials(client: &Client, wording: Wording, faults: &mut Vec<String>) {
    if client.jwks.len() > MOST_KEYS {
        faults.push(format!("more than {MOST_KEYS} keys in the set"));
    }
    if let Some(uri) = client.jwks_uri.as_ref().filter(|uri| https(uri).is_none()) {
        faults.push(format!("jwks uri {uri:?} is not an https address"));
    }
    let acts_for_itself = client.may_use(GrantType::ClientCredentials);
    if !client.is_public() && !client.has_keys() && client.secrets.is_empty() {
        faults.push(
            "the client would have nothing to authenticate with: it needs a key or a secret".to_owned(),
        );
    }
    if client.is_public() && (acts_for_itself || client.has_keys()) {
        faults.push("a public client has no key and cannot use client_credentials".to_owned());
    } else if acts_for_itself && !client.has_keys() && client.max_scope.is_none() {
        faults.push(format!(
            "the grant client_credentials needs a key: {}",
            wording.say(
                "--public-key-file, --jwks-file or --jwks-uri; \
                 or, at your own risk, --allow-secret-credentials with --max-scope",
                "public_key_file, jwks_file, jwks_uri or keys; or, at your own risk, a secret with max_scope"
            )
        ));
    }
    if let Some(most) = &client.max_scope {
        if !acts_for_itself {
            faults.push("max scope is for the grant client_credentials".to_owned());
        }
        if !client.uses_secret() {
            faults.push("max scope is for clients that have a secret".to_owned());
        }
        if !most.is_within(&client.scope) {
            faults.push(format!(
                "max scope names values that are not allowed: {}",
                wording.say(SCOPES_TOO, "add them to scope")
            ));
        }
    }
}

/// Whether an identifier survives every header, form and log line it will stand in.
pub(in crate::admin) fn check_client_id(client_id: &str, faults: &mut Vec<String>) {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/~@-".contains(&byte);
    if client_id.is_empty() || client_id.len() > 200 || !client_id.bytes().all(is_fit) {
        faults.push(format!(
            "client id {client_id:?}: use 1 to 200 letters, digits and . _ : / ~ @ -"
        ));
    }
}
