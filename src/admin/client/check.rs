//! Checks the settings of a client.

use std::collections::BTreeSet;

use crate::admin::InputSource;
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
const MAX_URI_BYTES: usize = 2048;
/// The hint for a missing scope value. The flag replaces the whole list.
const NAME_ALL_SCOPES: &str = "name them with --scope, beside every other scope that the client keeps";

/// Applies a change to a client. Unless the change names a default scope, it is reduced to what is still allowed.
/// Registered keys and the address of published keys replace each other.
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

/// The grants of a client without named ones: those of sign-ins, if it has a redirect URI. A client without grants
/// must be declared as such.
pub(in crate::admin) fn usual_grants(
    redirect_uris: &[String],
    input: InputSource,
    faults: &mut Vec<String>,
) -> Vec<GrantType> {
    if redirect_uris.is_empty() {
        faults.push(format!(
            "the client has no grant: name {} for an API that only introspects tokens",
            input.wording(
                "a --redirect-uri for sign-ins, or --no-grants",
                "redirect_uris for sign-ins, or grant_types = []"
            )
        ));
        return Vec::new();
    }
    vec![GrantType::AuthorizationCode, GrantType::RefreshToken]
}

/// Checks the record as a whole. Addresses that the client had `before` are not checked. Users cannot sign in at
/// the providers `exchange_only`.
pub(in crate::admin) fn check(
    before: Option<&Client>,
    client: &Client,
    usable: &[Algorithm],
    exchange_only: &BTreeSet<String>,
    input: InputSource,
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
            let remedy = match input {
                InputSource::Flags => {
                    format!(
                        "name it with --scope, beside every other scope that the client keeps, or take the text away with --scope-text {scope}="
                    )
                }
                InputSource::File => "add it to scope, or take the text out of scope_texts".to_owned(),
            };
            faults.push(format!(
                "scope text {scope:?}: the client may not ask for this scope; {remedy}"
            ));
        }
    }
    if !client.default_scope.is_within(&client.scope) {
        faults.push(format!(
            "the default scope names values that are not allowed: {}",
            input.wording(NAME_ALL_SCOPES, "add them to scope")
        ));
    }
    let uses_code = client.may_use(GrantType::AuthorizationCode);
    if uses_code && client.redirect_uris.is_empty() {
        faults.push(format!(
            "the grant authorization_code needs a redirect URI: name one {}",
            input.wording("with --redirect-uri", "in redirect_uris")
        ));
    }
    if !uses_code && !client.redirect_uris.is_empty() {
        faults.push(format!(
            "redirect URIs are for the grant authorization_code: {}",
            input.wording("name it with --grant, beside the others", "add it to grant_types")
        ));
    }
    let is_anonymous = client.may_use(GrantType::Anonymous);
    let exchanges = client.may_use(GrantType::JwtBearer);
    check_exchange(client, input, faults);
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
            input.wording(
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
    check_credentials(client, input, faults);
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

/// Whether the client is for sign-ins, but no user can sign in. Users cannot sign in at the providers
/// `exchange_only`.
pub(in crate::admin) fn lets_nobody_in(client: &Client, exchange_only: &BTreeSet<String>) -> bool {
    client.may_use(GrantType::AuthorizationCode)
        && !client.password_sign_in
        && client.providers.is_subset(exchange_only)
}

type AddressList = fn(&Client) -> &Vec<String>;

/// Checks redirect URIs and origins. An address that an earlier release accepted is not refused when something else
/// is changed, or when the same file is applied again.
fn check_addresses(before: Option<&Client>, client: &Client, faults: &mut Vec<String>) {
    let before = before.filter(|before| before.is_public() == client.is_public());
    let is_new =
        |list: AddressList, address: &String| before.is_none_or(|before| !list(before).contains(address));
    let lists = [
        &client.redirect_uris,
        &client.post_logout_redirect_uris,
        &client.cors_origins,
    ];
    if lists.iter().any(|list| list.len() > MOST_URIS) {
        faults.push(format!("more than {MOST_URIS} addresses in one list"));
    }
    let uris: [(&str, AddressList, &[&str]); 2] = [
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
            if uri.len() > MAX_URI_BYTES {
                faults.push(format!("{field} is longer than {MAX_URI_BYTES} bytes"));
            } else if let Err(error) =
                check_registrable(uri, client.is_public()).and_then(|()| check_query(uri, added))
            {
                faults.push(format!("{field} {uri:?}: {error}"));
            }
        }
    }
    let origins: AddressList = |client| &client.cors_origins;
    for origin in origins(client).iter().filter(|origin| is_new(origins, origin)) {
        if !is_origin(origin) {
            faults.push(format!(
                "origin {origin:?}: an origin is scheme, host and port in lower-case letters, without a wildcard, as in \
                 https://app.example or capacitor://localhost"
            ));
        }
    }
}

/// Checks what a client needs to exchange tokens of a provider.
fn check_exchange(client: &Client, input: InputSource, faults: &mut Vec<String>) {
    if !client.may_use(GrantType::JwtBearer) {
        return;
    }
    if client.is_public() {
        faults.push("the grant jwt-bearer is for clients that authenticate, not for public ones".to_owned());
    }
    if client.providers.is_empty() {
        faults.push(format!(
            "the grant jwt-bearer needs a provider: name one {}",
            input.wording("with --provider", "in providers")
        ));
    }
    let asks_people = client.may_use(GrantType::AuthorizationCode);
    if client.consent == ConsentRequirement::Require && !asks_people {
        faults.push(format!(
            "nobody could be asked for consent, and no token be exchanged: people consent when they sign in, for which \
             it takes the grant authorization_code and a redirect URI; or leave the question out {}",
            input.wording("with --consent skip", "with consent = \"skip\"")
        ));
    }
}

/// Checks the keys and secrets of a client, and what it may do with them.
fn check_credentials(client: &Client, input: InputSource, faults: &mut Vec<String>) {
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
            input.wording(
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
                input.wording(NAME_ALL_SCOPES, "add them to scope")
            ));
        }
    }
}

/// Checks an identifier, which must fit in headers, forms and log lines without escapes.
pub(in crate::admin) fn check_client_id(client_id: &str, faults: &mut Vec<String>) {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/~@-".contains(&byte);
    if client_id.is_empty() || client_id.len() > 200 || !client_id.bytes().all(is_fit) {
        faults.push(format!(
            "client id {client_id:?}: use 1 to 200 letters, digits and . _ : / ~ @ -"
        ));
    }
}
