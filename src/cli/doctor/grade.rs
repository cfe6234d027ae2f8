//! Checks a client against OAuth 2.1 and the FAPI 2.0 Security Profile.

use std::collections::BTreeMap;
use std::time::Duration;

use super::finding::Finding;
use crate::admin::client::ClientView;
use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::oauth::client::{AssertionAudience, AuthMethod, GrantType, PkceRequirement};
use crate::oauth::redirect_uri::{check_registrable, is_origin, is_private_by_name};
use crate::oauth::scope::Scope;

// OAuth 2.1 is a draft whose section numbers change, so these name the rule instead.
const OAUTH_PKCE: &str = "OAuth 2.1: a code challenge with every authorization request";
const OAUTH_SECRET: &str = "OAuth 2.1: credentials are kept fresh";
const FAPI_AUTHENTICATION: &str =
    "FAPI 2.0 Security Profile section 5.3.2.1: clients authenticate with a key";
const FAPI_AUDIENCE: &str = "FAPI 2.0 Security Profile section 5.3.2.1: assertions name the issuer alone";
const FAPI_ALGORITHM: &str = "FAPI 2.0 Security Profile section 5.4: PS256, ES256 or EdDSA";
const NATIVE_SCHEME: &str = "RFC 8252 section 7.1: private-use schemes are named after a domain";

/// How old a secret may be.
const MAX_SECRET_AGE: Duration = Duration::from_hours(24 * 365);

/// Checks a client. Returns at least one finding.
pub(super) fn check_client(client: &ClientView, now: Timestamp) -> Vec<Finding> {
    let id = &client.client_id;
    let advice = |message: &str, remedy: String| Finding::advice("client", id, message, remedy);
    let mut findings = Vec::new();
    let signs_in = client.grant_types.contains(&GrantType::AuthorizationCode);
    if signs_in && client.pkce == PkceRequirement::Optional {
        findings.push(
            advice(
                "PKCE is optional: a code that is stolen can be injected",
                format!("idsvc client update {id} --pkce required"),
            )
            .by(OAUTH_PKCE),
        );
    }
    findings.extend(check_scope(client));
    findings.extend(check_schemes(client));
    findings.extend(check_old_addresses(client));
    let uses_secret = client.auth_methods.contains(&AuthMethod::ClientSecretBasic);
    let has_key = client.auth_methods.contains(&AuthMethod::PrivateKeyJwt);
    let by_key = if has_key {
        format!("once it uses its key, idsvc client update {id} --no-secret")
    } else {
        format!("idsvc client update {id} --public-key-file PEM")
    };
    if client.max_scope.is_some() {
        findings.push(
            advice(
                "it acts for itself with a secret, which travels with every request",
                by_key,
            )
            .by(FAPI_AUTHENTICATION),
        );
    } else if client.public {
        findings.push(
            advice(
                "it is public: any program that has its identifier can pass for it",
                format!(
                    "where {id} runs on a server, register a confidential client in its place with idsvc client add"
                ),
            )
            .by(FAPI_AUTHENTICATION),
        );
    } else if uses_secret {
        findings.push(
            advice(
                if has_key {
                    "its secret is good beside its key"
                } else {
                    "it authenticates with a secret, not with a key"
                },
                by_key,
            )
            .by(FAPI_AUTHENTICATION),
        );
    }
    if has_key && client.assertion_audience == AssertionAudience::Any {
        findings.push(
            advice(
                "its assertions may be addressed to the token endpoint: another server can be made to ask for them",
                format!("idsvc client update {id} --assertion-audience strict"),
            )
            .by(FAPI_AUDIENCE),
        );
    }
    let signs_weakly = client
        .id_token_signed_response_alg
        .is_none_or(|alg| alg == Algorithm::Rs256);
    if signs_in && signs_weakly {
        findings.push(
            advice(
                "its ID tokens are signed with RS256",
                format!("idsvc client update {id} --id-token-alg ES256, where its library can"),
            )
            .by(FAPI_ALGORITHM),
        );
    }
    let oldest = client
        .secrets
        .iter()
        .filter(|secret| secret.expires_at.is_none())
        .map(|secret| secret.created_at)
        .min();
    if let Some(made) = oldest
        && now.since(made) > MAX_SECRET_AGE
    {
        findings.push(
            advice(
                &format!("its secret is {} days old", now.since(made).as_secs() / 86_400),
                format!("idsvc client rotate-secret {id} --keep-old 24h"),
            )
            .by(OAUTH_SECRET),
        );
    }
    if findings.is_empty() {
        findings.push(Finding::good(
            "client",
            id,
            "in order by OAuth 2.1, and by FAPI 2.0 as far as registration goes",
        ));
    }
    findings
}

/// Reports redirect URIs whose scheme any other application on the device can take.
fn check_schemes(client: &ClientView) -> impl Iterator<Item = Finding> {
    let id = &client.client_id;
    let shared = client.redirect_uris.iter().filter(|uri| !is_private_by_name(uri));
    shared.map(move |uri| {
        let message = format!("any application can take the scheme of {uri} on the same device");
        let remedy = format!(
            "give it one after a domain of its own, as in com.example.app:/cb, and name both with idsvc client update {id} --redirect-uri until nobody uses the old one"
        );
        Finding::advice("client", id, message, remedy).by(NATIVE_SCHEME)
    })
}

/// Reports addresses that an earlier release accepted and this one would refuse.
fn check_old_addresses(client: &ClientView) -> impl Iterator<Item = Finding> {
    let id = &client.client_id;
    let uris = client
        .redirect_uris
        .iter()
        .chain(&client.post_logout_redirect_uris);
    let uris = uris.filter_map(move |uri| {
        let error = check_registrable(uri, client.public).err()?;
        let message = format!("the address {uri} would not be registered any more: {error}");
        Some((message, "--redirect-uri and --post-logout-redirect-uri"))
    });
    let origins = client.cors_origins.iter().filter(|origin| !is_origin(origin));
    let origins = origins.map(|origin| {
        let message = format!("no browser is let in by the origin {origin}: none sends it");
        (message, "--cors-origin")
    });
    uris.chain(origins).map(move |(message, flags)| {
        let remedy = format!("name those that are in use with idsvc client update {id} {flags}");
        Finding::advice("client", id, message, remedy)
    })
}

/// Advice about scope values that are probably misspelled.
fn check_scope(client: &ClientView) -> impl Iterator<Item = Finding> {
    let id = &client.client_id;
    client.scope.iter().filter_map(move |value| {
        let meant = Scope::misspelled_standard(value)?;
        let message =
            format!("it may ask for the scope {value}, which is unknown: {meant} is probably meant");
        let remedy =
            format!("idsvc client update {id} --scope {meant}, beside every other scope that it keeps");
        Some(Finding::advice("client", id, &message, remedy))
    })
}

/// Names clients whose authorization requests hold scope values that do not exist.
pub(super) fn examine_unknown_scopes(unknown: &BTreeMap<String, Vec<String>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (client_id, values) in unknown {
        let message = format!(
            "its sign-ins ask for scope values that no client may have, and do not get them: {}",
            values.join(" ")
        );
        let mut meant = values
            .iter()
            .filter_map(|value| Scope::misspelled_standard(value));
        let remedy = match meant.next() {
            Some(meant) => format!("correct the spelling in the application: {meant} is probably meant"),
            None => format!(
                "correct the application, or allow them with idsvc client update {client_id} --scope, beside those that it has"
            ),
        };
        findings.push(Finding::advice("client", client_id, message, remedy));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn view(changes: &serde_json::Value) -> ClientView {
        let mut view = serde_json::json!({
            "client_id": "web", "client_uuid": "0193b2a4-7a10-7cc0-8000-000000000001", "name": null, "public": false,
            "auth_methods": ["client_secret_basic", "client_secret_post"], "secrets": [], "redirect_uris": ["https://a.example/"],
            "post_logout_redirect_uris": [], "cors_origins": [], "scope": "openid", "default_scope": "openid", "password_sign_in": true,
            "grant_types": ["authorization_code"], "pkce": "optional", "consent": "skip", "audience": null,
            "id_token_signed_response_alg": null, "access_token_alg": null, "refresh_policy": "rotate", "enabled": true,
            "created_at": 0, "updated_at": 0, "issuer": "https://id.example",
        });
        for (name, value) in changes.as_object().unwrap() {
            view[name] = value.clone();
        }
        serde_json::from_value(view).unwrap()
    }

    fn remedies(view: &ClientView, now: u64) -> Vec<String> {
        let found = check_client(view, Timestamp::from_seconds(now));
        found.into_iter().filter_map(|finding| finding.remedy).collect()
    }

    #[test]
    fn a_usual_client_gets_advice() {
        let remedies = remedies(&view(&serde_json::json!({})), 0);
        for part in ["--pkce required", "--public-key-file", "--id-token-alg"] {
            assert!(
                remedies.iter().any(|remedy| remedy.contains(part)),
                "{part}: {remedies:?}"
            );
        }
        assert_eq!(remedies.len(), 3);
    }

    #[test]
    fn a_scope_that_nobody_knows_is_named_with_the_one_that_is_meant() {
        let remedies = remedies(&view(&serde_json::json!({"scope": "openid profil"})), 0);
        assert!(
            remedies.iter().any(|remedy| remedy.contains("--scope profile")),
            "{remedies:?}"
        );
    }

    #[test]
    fn a_client_with_a_key_and_pkce_is_in_order() {
        let strict = view(&serde_json::json!({
            "pkce": "required", "auth_methods": ["private_key_jwt"], "assertion_audience": "strict", "id_token_signed_response_alg": "ES256",
        }));
        assert_eq!(
            check_client(&strict, Timestamp::from_seconds(0))[0].level,
            Level::Good
        );
        let lax = view(&serde_json::json!({
            "pkce": "required", "auth_methods": ["private_key_jwt"], "id_token_signed_response_alg": "ES256",
        }));
        assert!(remedies(&lax, 0)[0].contains("--assertion-audience strict"));
    }

    #[test]
    fn addresses_that_would_be_refused_now_are_reported() {
        let app = |changes: serde_json::Value| {
            let found = check_client(&view(&changes), Timestamp::from_seconds(0));
            let old = found.into_iter().filter(|finding| {
                let remedy = finding.remedy.as_deref().unwrap_or_default();
                remedy.contains("that are in use")
            });
            old.map(|finding| finding.message).collect::<Vec<_>>()
        };
        let old = app(serde_json::json!({
            "redirect_uris": ["https://a.example/", "tel:1"], "post_logout_redirect_uris": ["https:/a.example"],
            "cors_origins": ["https://a.example", "https://*.a.example"], "public": true,
        }));
        assert_eq!(old.len(), 3, "{old:?}");
        for (message, named) in old
            .iter()
            .zip(["tel:1", "https:/a.example", "https://*.a.example"])
        {
            assert!(message.contains(named), "{message}");
        }
        assert_eq!(app(serde_json::json!({})), [""; 0]);
    }

    #[test]
    fn a_scheme_that_any_application_can_take_is_reported() {
        let app = |uris: &[&str]| {
            let app = view(&serde_json::json!({"public": true, "pkce": "required", "redirect_uris": uris}));
            let found = check_client(&app, Timestamp::from_seconds(0));
            let named = found.iter().filter(|finding| finding.rule == Some(NATIVE_SCHEME));
            assert!(named.clone().all(|finding| finding.level == Level::Advice));
            named.map(|finding| finding.message.clone()).collect::<Vec<_>>()
        };
        let named = app(&["com.example.app:/cb", "myapp:/cb", "http://127.0.0.1/cb"]);
        assert_eq!(
            named,
            ["any application can take the scheme of myapp:/cb on the same device"]
        );
        assert_eq!(app(&["com.example.app:/cb", "https://app.example/cb"]), [""; 0]);
    }

    #[test]
    fn an_old_secret_and_one_that_acts_for_itself_are_reported() {
        let old =
            view(&serde_json::json!({"secrets": [{"created_at": 0, "expires_at": null}], "max_scope": "a"}));
        let remedies = remedies(&old, 400 * 86_400);
        for part in ["rotate-secret web", "--public-key-file"] {
            assert!(
                remedies.iter().any(|remedy| remedy.contains(part)),
                "{part}: {remedies:?}"
            );
        }
    }

    #[test]
    fn a_secret_beside_a_key_is_reported() {
        for max_scope in [None, Some("a")] {
            let both = view(&serde_json::json!({
                "auth_methods": ["client_secret_basic", "client_secret_post", "private_key_jwt"], "max_scope": max_scope,
            }));
            let remedies = remedies(&both, 0);
            assert!(
                remedies
                    .iter()
                    .any(|remedy| remedy.ends_with("idsvc client update web --no-secret")),
                "{remedies:?}"
            );
            assert!(!remedies.iter().any(|remedy| remedy.contains("--public-key-file")));
        }
    }
}
