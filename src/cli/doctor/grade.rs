//! Checks a client: what weakens it, and with a profile the rules of OAuth 2.1 or the FAPI 2.0 Security Profile.

use std::collections::BTreeMap;

use clap::ValueEnum;

use super::finding::Finding;
use crate::admin::client::ClientView;
use crate::jose::alg::Algorithm;
use crate::oauth::client::{AssertionAudience, AuthMethod, GrantType, PkceRequirement, RefreshPolicy};
use crate::oauth::redirect_uri::{check_registrable, is_origin, is_private_by_name};
use crate::oauth::scope::Scope;

// OAuth 2.1 is a draft whose section numbers change, so this names the rule instead.
const OAUTH_PKCE: &str = "OAuth 2.1: a code challenge with every authorization request";
const FAPI_AUTHENTICATION: &str =
    "FAPI 2.0 Security Profile section 5.3.2.1: clients authenticate with a key";
const FAPI_AUDIENCE: &str = "FAPI 2.0 Security Profile section 5.3.2.1: assertions name the issuer alone";
const FAPI_PUSHED: &str =
    "FAPI 2.0 Security Profile section 5.3.2.2: authorization requests that were not pushed are refused";
const FAPI_BOUND: &str =
    "FAPI 2.0 Security Profile section 5.3.2.1: access tokens are bound to a key of the client";
const FAPI_ROTATION: &str = "FAPI 2.0 Security Profile section 5.3.2.1: refresh tokens are not rotated";
const FAPI_ALGORITHM: &str = "FAPI 2.0 Security Profile section 5.4: PS256, ES256 or EdDSA";
const NATIVE_SCHEME: &str = "RFC 8252 section 7.1: private-use schemes are named after a domain";

/// The standard that clients are graded by. Only rules that the service enforces for a registered client are graded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// OAuth 2.1
    Oauth21,
    /// The FAPI 2.0 Security Profile, with OAuth 2.1
    Fapi2,
}

/// Checks a client. Returns at least one finding.
pub(super) fn check_client(client: &ClientView, profile: Option<Profile>) -> Vec<Finding> {
    let mut findings: Vec<_> = check_scope(client)
        .chain(check_schemes(client))
        .chain(check_old_addresses(client))
        .collect();
    let summary = match profile {
        None => "in order",
        Some(Profile::Oauth21) => {
            findings.extend(check_oauth21(client));
            "it meets the rules of OAuth 2.1 that are set per client"
        }
        Some(Profile::Fapi2) => {
            findings.extend(check_oauth21(client));
            findings.extend(check_fapi2(client));
            "it meets the rules of OAuth 2.1 and FAPI 2.0 that are set per client"
        }
    };
    if findings.is_empty() {
        findings.push(Finding::good("client", &client.client_id, summary));
    }
    findings
}

fn check_oauth21(client: &ClientView) -> Option<Finding> {
    let id = &client.client_id;
    let signs_in = client.grant_types.contains(&GrantType::AuthorizationCode);
    (signs_in && client.pkce == PkceRequirement::Optional).then(|| {
        let remedy = format!("idsvc client update {id} --pkce required");
        let message = "PKCE is optional: a stolen code can be injected into another sign-in";
        Finding::advice("client", id, message, remedy).by(OAUTH_PKCE)
    })
}

fn check_fapi2(client: &ClientView) -> Vec<Finding> {
    let id = &client.client_id;
    let mut findings = Vec::new();
    let mut advise = |rule: &'static str, message: &str, remedy: String| {
        findings.push(Finding::advice("client", id, message, remedy).by(rule));
    };
    let update = |flags: &str| format!("idsvc client update {id} {flags}");
    let uses_secret = client.auth_methods.contains(&AuthMethod::ClientSecretBasic);
    let has_key = client.auth_methods.contains(&AuthMethod::PrivateKeyJwt);
    let uses_key = has_key || client.auth_methods.iter().any(|method| method.uses_certificate());
    if client.public {
        advise(
            FAPI_AUTHENTICATION,
            "it is public: any program that has its identifier can pass for it",
            format!("if {id} runs on a server, register a confidential client instead with idsvc client add"),
        );
    } else if uses_secret && uses_key {
        advise(
            FAPI_AUTHENTICATION,
            "it may authenticate with its secret as well as with its key",
            format!("once it uses its key, {}", update("--no-secret")),
        );
    } else if uses_secret {
        advise(
            FAPI_AUTHENTICATION,
            "it authenticates with a secret, not with a key",
            update("--public-key-file PEM"),
        );
    }
    if has_key && client.assertion_audience == AssertionAudience::Any {
        advise(
            FAPI_AUDIENCE,
            "its assertions may name the token endpoint: another server can ask for such an assertion and use it here",
            update("--assertion-audience strict"),
        );
    }
    let refreshes = client.grant_types.contains(&GrantType::RefreshToken);
    if refreshes && !client.public && client.refresh_policy == RefreshPolicy::Rotate {
        advise(
            FAPI_ROTATION,
            "each refresh replaces its refresh token",
            update("--refresh-policy reuse"),
        );
    }
    let signs_in = client.grant_types.contains(&GrantType::AuthorizationCode);
    if signs_in && !client.require_pushed_authorization_requests {
        advise(
            FAPI_PUSHED,
            "its sign-ins may begin with parameters that the browser carries",
            update("--require-par"),
        );
    }
    if !client.dpop_bound_access_tokens {
        advise(
            FAPI_BOUND,
            "its access tokens work without a key: a stolen one can be used",
            update("--require-dpop"),
        );
    }
    let id_token_alg = client.id_token_signed_response_alg.unwrap_or(Algorithm::Rs256);
    if signs_in && id_token_alg == Algorithm::Rs256 {
        advise(
            FAPI_ALGORITHM,
            "its ID tokens are signed with RS256",
            format!(
                "if its library can verify ES256, {}",
                update("--id-token-alg ES256")
            ),
        );
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
            "use a scheme named after your domain, as in com.example.app:/cb. Until no installed application uses the old one, name both with idsvc client update {id} --redirect-uri"
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
        let message = format!("the address {uri} could not be registered today: {error}");
        Some((message, "--redirect-uri and --post-logout-redirect-uri"))
    });
    let origins = client.cors_origins.iter().filter(|origin| !is_origin(origin));
    let origins = origins.map(|origin| {
        let message = format!("the origin {origin} allows no browser: no browser sends an origin like that");
        (message, "--cors-origin")
    });
    uris.chain(origins).map(move |(message, flags)| {
        let remedy = format!("name the addresses that are in use with idsvc client update {id} {flags}");
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
        let remedy = format!("idsvc client update {id} --scope {meant}, with a --scope for each other value");
        Some(Finding::advice("client", id, &message, remedy))
    })
}

/// Names clients whose authorization requests hold scope values that do not exist.
pub(super) fn examine_unknown_scopes(unknown: &BTreeMap<String, Vec<String>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (client_id, values) in unknown {
        let message = format!(
            "its sign-ins ask for unknown scope values, which are not granted: {}",
            values.join(" ")
        );
        let mut meant = values
            .iter()
            .filter_map(|value| Scope::misspelled_standard(value));
        let remedy = match meant.next() {
            Some(meant) => format!("correct the spelling in the application: {meant} is probably meant"),
            None => format!(
                "correct the application, or allow the values with idsvc client update {client_id} --scope, with a --scope for each other value"
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

    fn remedies(view: &ClientView, profile: Option<Profile>) -> Vec<String> {
        let found = check_client(view, profile);
        found.into_iter().filter_map(|finding| finding.remedy).collect()
    }

    #[test]
    fn a_usual_client_gets_advice_by_a_profile_only() {
        let usual = view(&serde_json::json!({"grant_types": ["authorization_code", "refresh_token"]}));
        assert_eq!(remedies(&usual, None), [""; 0]);
        let by_oauth21 = remedies(&usual, Some(Profile::Oauth21));
        assert_eq!(by_oauth21, ["idsvc client update web --pkce required"]);
        let by_fapi2 = remedies(&usual, Some(Profile::Fapi2));
        for part in [
            "--pkce required",
            "--public-key-file",
            "--refresh-policy reuse",
            "--id-token-alg",
            "--require-par",
            "--require-dpop",
        ] {
            assert!(
                by_fapi2.iter().any(|remedy| remedy.contains(part)),
                "{part}: {by_fapi2:?}"
            );
        }
        assert_eq!(by_fapi2.len(), 6);
    }

    #[test]
    fn a_scope_that_nobody_knows_is_named_with_the_one_that_is_meant() {
        let remedies = remedies(&view(&serde_json::json!({"scope": "openid profil"})), None);
        assert!(
            remedies.iter().any(|remedy| remedy.contains("--scope profile")),
            "{remedies:?}"
        );
    }

    #[test]
    fn a_client_with_a_key_and_pkce_is_in_order() {
        let strict = view(&serde_json::json!({
            "pkce": "required", "auth_methods": ["private_key_jwt"], "assertion_audience": "strict", "id_token_signed_response_alg": "ES256",
            "require_pushed_authorization_requests": true, "dpop_bound_access_tokens": true,
        }));
        assert_eq!(check_client(&strict, Some(Profile::Fapi2))[0].level, Level::Good);
        let lax = view(&serde_json::json!({
            "pkce": "required", "auth_methods": ["private_key_jwt"], "id_token_signed_response_alg": "ES256",
        }));
        assert!(remedies(&lax, Some(Profile::Fapi2))[0].contains("--assertion-audience strict"));
    }

    #[test]
    fn addresses_that_would_be_refused_now_are_reported() {
        let app = |changes: serde_json::Value| {
            let found = check_client(&view(&changes), None);
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
            let found = check_client(&app, None);
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
    fn a_secret_beside_a_key_is_reported() {
        let both = view(&serde_json::json!({
            "auth_methods": ["client_secret_basic", "client_secret_post", "private_key_jwt"],
        }));
        let remedies = remedies(&both, Some(Profile::Fapi2));
        let has = |part: &str| remedies.iter().any(|remedy| remedy.contains(part));
        assert!(has("idsvc client update web --no-secret"), "{remedies:?}");
        assert!(!has("--public-key-file"), "{remedies:?}");
    }
}
