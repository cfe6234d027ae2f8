//! What an operator says about a client, and whether it can be.

use serde::{Deserialize, Serialize};

use crate::flow::admin::check_text;
use crate::jose::alg::Algorithm;
use crate::oauth::client::{Client, ConsentRequirement, GrantType, PkceRequirement};
use crate::oauth::redirect_uri::check_registrable;
use crate::oauth::scope::Scope;

const MOST_URIS: usize = 100;
const LONGEST_URI: usize = 2048;

/// What an operator says about a client; what is left out keeps its default or its value.
///
/// An empty text removes an optional value; a list replaces the one before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientFields {
    /// The name shown to people.
    pub name: Option<String>,
    /// Redirect URIs.
    pub redirect_uris: Option<Vec<String>>,
    /// Redirect URIs after signing out.
    pub post_logout_redirect_uris: Option<Vec<String>>,
    /// Origins beside those of the redirect URIs.
    pub cors_origins: Option<Vec<String>>,
    /// Allowed scope values.
    pub scope: Option<Vec<String>>,
    /// Scope values when a request names none.
    pub default_scope: Option<Vec<String>>,
    /// Allowed grants.
    pub grant_types: Option<Vec<GrantType>>,
    /// Whether PKCE is demanded.
    pub pkce: Option<PkceRequirement>,
    /// Whether people are asked for consent.
    pub consent: Option<ConsentRequirement>,
    /// `aud` of access tokens.
    pub audience: Option<String>,
    /// The algorithm of ID tokens.
    pub id_token_alg: Option<Algorithm>,
    /// The algorithm of access tokens.
    pub access_token_alg: Option<Algorithm>,
}

fn scope_of(faults: &mut Vec<String>, field: &str, values: &[String]) -> Scope {
    let values = values
        .iter()
        .flat_map(|value| value.split(' '))
        .filter(|value| !value.is_empty());
    let scope = Scope::of(values).unwrap_or_else(|error| {
        faults.push(format!("{field}: {error}"));
        Scope::empty()
    });
    for marker in [Scope::AUTHENTICATED, Scope::ANONYMOUS] {
        if scope.contains(marker) {
            faults.push(format!(
                "{field}: {marker} is granted by the service and cannot be registered"
            ));
        }
    }
    scope
}

fn text_or_none(faults: &mut Vec<String>, field: &str, text: String) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    check_text(faults, field, &text);
    Some(text)
}

fn without_blank(values: Vec<String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for value in values {
        if !value.is_empty() && !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

impl ClientFields {
    /// Writes what was said into the record. The default scope is cut to what stays allowed unless it was
    /// named.
    pub(super) fn apply(self, client: &mut Client, faults: &mut Vec<String>) {
        if let Some(name) = self.name {
            client.name = text_or_none(faults, "name", name);
        }
        if let Some(uris) = self.redirect_uris {
            client.redirect_uris = without_blank(uris);
        }
        if let Some(uris) = self.post_logout_redirect_uris {
            client.post_logout_redirect_uris = without_blank(uris);
        }
        if let Some(origins) = self.cors_origins {
            client.cors_origins = without_blank(origins);
        }
        if let Some(values) = self.scope {
            client.scope = scope_of(faults, "scope", &values);
            if self.default_scope.is_none() {
                let allowed = client.scope.clone();
                client.default_scope = client.default_scope.filter(|value| allowed.contains(value));
            }
        }
        if let Some(values) = self.default_scope {
            client.default_scope = scope_of(faults, "default scope", &values);
        }
        if let Some(grants) = self.grant_types {
            client.grant_types = grants.into_iter().collect();
        }
        if let Some(pkce) = self.pkce {
            client.pkce = pkce;
            if client.is_public() && pkce == PkceRequirement::Optional {
                faults.push("pkce cannot be optional: a public client always needs it".to_owned());
            }
        }
        client.consent = self.consent.unwrap_or(client.consent);
        if let Some(audience) = self.audience {
            client.audience = text_or_none(faults, "audience", audience);
        }
        client.id_token_signed_response_alg = self.id_token_alg.or(client.id_token_signed_response_alg);
        client.access_token_alg = self.access_token_alg.or(client.access_token_alg);
    }
}

/// Everything about the record as a whole that cannot be.
pub(super) fn check(client: &Client, usable: &[Algorithm], faults: &mut Vec<String>) {
    let lists = [
        &client.redirect_uris,
        &client.post_logout_redirect_uris,
        &client.cors_origins,
    ];
    if lists.iter().any(|list| list.len() > MOST_URIS) {
        faults.push(format!("more than {MOST_URIS} addresses in one list"));
    }
    for (field, uris) in [
        ("redirect URI", &client.redirect_uris),
        ("post-logout redirect URI", &client.post_logout_redirect_uris),
    ] {
        for uri in uris {
            if uri.len() > LONGEST_URI {
                faults.push(format!("{field} is longer than {LONGEST_URI} bytes"));
            } else if let Err(error) = check_registrable(uri, client.is_public()) {
                faults.push(format!("{field} {uri:?}: {error}"));
            }
        }
    }
    for origin in &client.cors_origins {
        let canonical = url::Url::parse(origin).map(|url| url.origin().ascii_serialization());
        if !origin.starts_with("http") || canonical.as_ref() != Ok(origin) {
            faults.push(format!(
                "origin {origin:?}: an origin is scheme, host and port, as in https://app.example"
            ));
        }
    }
    if !client.default_scope.is_within(&client.scope) {
        faults.push("the default scope names values that are not allowed: add them with --scope".to_owned());
    }
    let uses_code = client.grant_types.contains(&GrantType::AuthorizationCode);
    if uses_code && client.redirect_uris.is_empty() {
        faults.push(
            "the grant authorization_code needs a redirect URI: name one with --redirect-uri".to_owned(),
        );
    }
    if !uses_code && !client.redirect_uris.is_empty() {
        faults.push("redirect URIs are for the grant authorization_code: allow it with --grant".to_owned());
    }
    let is_anonymous = client.grant_types.contains(&GrantType::Anonymous);
    if client.grant_types.is_empty() {
        faults.push("the client has no grant: name a --redirect-uri for sign-ins".to_owned());
    } else if !uses_code && !is_anonymous {
        faults.push("the grant refresh_token needs authorization_code or anonymous beside it".to_owned());
    }
    if is_anonymous && client.is_public() {
        faults.push("the grant anonymous is for clients that authenticate, not for public ones".to_owned());
    }
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

/// Whether an identifier survives every header, form and log line it will stand in.
pub(super) fn check_client_id(client_id: &str, faults: &mut Vec<String>) {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/~@-".contains(&byte);
    if client_id.is_empty() || client_id.len() > 200 || !client_id.bytes().all(is_fit) {
        faults.push(format!(
            "client id {client_id:?}: use 1 to 200 letters, digits and . _ : / ~ @ -"
        ));
    }
}
