//! Checks a client: what weakens it, and with a profile the rules of OAuth 2.1 or the FAPI 2.0 Security Profile.

use std::collections::BTreeMap;

use clap::ValueEnum;

use super::finding::Finding;
use crate::admin::client::ClientView;
use crate::oauth::client::{ClientOrigin, GrantType, PkceRequirement, RefreshPolicy};
use crate::oauth::profile::ClientProfile;
use crate::oauth::redirect_uri::{check_registrable, has_private_scheme, is_origin, is_private_by_name};
use crate::oauth::scope::Scope;

// OAuth 2.1 is a draft whose section numbers change, so this names the rule instead.
const OAUTH_PKCE: &str = "OAuth 2.1: a code challenge with every authorization request";
const NATIVE_SCHEME: &str = "RFC 8252 section 7.1: private-use schemes are named after a domain";

/// The standard that clients are graded by. Only rules that the service enforces for a registered client are graded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// OAuth 2.1
    Oauth21,
    /// The FAPI 2.0 Security Profile, with OAuth 2.1
    Fapi2,
    /// FAPI 2.0 Message Signing, with the Security Profile
    Fapi2MessageSigning,
}

/// Checks a client. Returns at least one finding.
pub(super) fn check_client(client: &ClientView, profile: Option<Profile>) -> Vec<Finding> {
    let mut findings: Vec<_> = check_scope(client)
        .chain(check_schemes(client))
        .chain(check_native(client))
        .chain(check_refresh(client))
        .chain(check_old_addresses(client))
        .collect();
    let summary = match profile {
        None => "in order",
        Some(Profile::Oauth21) => {
            findings.extend(check_oauth21(client));
            "it meets the rules of OAuth 2.1 that are set per client"
        }
        Some(Profile::Fapi2) => {
            findings.extend(check_fapi2(client, ClientProfile::Fapi2));
            "it meets the rules of OAuth 2.1 and FAPI 2.0 that are set per client"
        }
        Some(Profile::Fapi2MessageSigning) => {
            findings.extend(check_fapi2(client, ClientProfile::Fapi2MessageSigning));
            "it meets the rules of FAPI 2.0 with Message Signing that are set per client"
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

fn check_fapi2(client: &ClientView, profile: ClientProfile) -> impl Iterator<Item = Finding> {
    let id = &client.client_id;
    let broken = profile.broken_rules(&client.metadata, &client.auth_methods);
    broken.into_iter().map(move |broken| {
        let update = |flags: &str| format!("idsvc client update {id} {flags}");
        let remedy = match broken.field {
            "assertion_audience" => update("--assertion-audience strict"),
            "refresh_policy" => update("--refresh-policy reuse"),
            "dpop_bound_access_tokens" => update("--require-dpop"),
            "require_pushed_authorization_requests" => update("--require-par"),
            "pkce" => update("--pkce required"),
            "access_token_alg" => update("--access-token-alg ES256"),
            "id_token_signed_response_alg" => {
                let update = update("--id-token-alg ES256");
                format!("if its library can verify ES256, {update}")
            }
            "require_signed_request_object" => update("--require-signed-request"),
            "request_object_signing_alg" => update("--request-object-signing-alg ES256"),
            "authorization_signed_response_alg" => update("--authorization-signed-response-alg ES256"),
            "introspection_signed_response_alg" => update("--introspection-signed-response-alg ES256"),
            "userinfo_signed_response_alg" => update("--userinfo-signed-response-alg ES256"),
            "keys" => update("--public-key-file PEM"),
            "no_secret" => format!("once it uses its key, {}", update("--no-secret")),
            _ => format!(
                "if {id} runs on a server, register a confidential client instead with idsvc client add --profile fapi2"
            ),
        };
        Finding::advice("client", id, broken.problem, remedy).by(broken.rule)
    })
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

/// Reports a public client whose refresh tokens stay the same and are not bound to a key.
fn check_refresh(client: &ClientView) -> Option<Finding> {
    let id = &client.client_id;
    (client.refresh_policy == RefreshPolicy::ReuseUnbound).then(|| {
        let message = "its refresh tokens stay the same and are bound to no key: nobody notices a stolen one, and each use prolongs it until the sign-in ends";
        let mut remedy = format!(
            "if its library knows DPoP, idsvc client update {id} --refresh-policy reuse --require-dpop"
        );
        if client.refresh_token_lifetime.is_none() {
            remedy.push_str("; else end those that are not used any more sooner, with --refresh-token-lifetime");
        }
        Finding::advice("client", id, message, remedy)
    })
}

/// Reports a client with a secret whose code goes to an application on the device.
fn check_native(client: &ClientView) -> Option<Finding> {
    let id = &client.client_id;
    let uri = client.redirect_uris.iter().find(|uri| has_private_scheme(uri))?;
    (!client.public).then(|| {
        let message = format!(
            "its codes may go to an application on the device ({uri}), although it has a secret: only PKCE prevents the use of a code from another sign-in"
        );
        let remedy = format!(
            "if its application can take an https address, name only that with idsvc client update {id} --redirect-uri"
        );
        Finding::advice("client", id, message, remedy)
    })
}

/// Reports addresses that an earlier release accepted and this one would refuse.
fn check_old_addresses(client: &ClientView) -> impl Iterator<Item = Finding> {
    let id = &client.client_id;
    let uris = client
        .redirect_uris
        .iter()
        .chain(&client.post_logout_redirect_uris);
    let is_operators = client.origin == ClientOrigin::Operator;
    let allows_private = client.public || (is_operators && client.pkce == PkceRequirement::Required);
    let uris = uris.filter_map(move |uri| {
        let error = check_registrable(uri, allows_private).err()?;
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
    fn a_client_with_a_secret_and_an_application_on_the_device_is_reported() {
        let uris = [
            "https://immich.example/auth/login",
            "app.immich:///oauth-callback",
        ];
        let app = |changes: serde_json::Value| {
            let mut app = serde_json::json!({"pkce": "required", "redirect_uris": uris});
            app.as_object_mut()
                .unwrap()
                .extend(changes.as_object().unwrap().clone());
            check_client(&view(&app), None)
        };
        let found = app(serde_json::json!({}));
        assert_eq!((found.len(), found[0].level), (1, Level::Advice), "{found:?}");
        assert!(found[0].message.contains("app.immich:///oauth-callback"));
        let web = app(serde_json::json!({"redirect_uris": uris[..1]}));
        assert_eq!(web[0].level, Level::Good);
        let public = app(serde_json::json!({"public": true}));
        assert_eq!(public[0].level, Level::Good);
        let lax = app(serde_json::json!({"pkce": "optional"}));
        assert!(
            lax.iter()
                .any(|finding| finding.message.contains("could not be registered today"))
        );
    }

    #[test]
    fn a_refresh_token_that_stays_the_same_unbound_is_reported() {
        let device = |policy: &str, lifetime: Option<u64>| {
            let device = serde_json::json!({
                "public": true, "pkce": "required", "redirect_uris": [], "refresh_policy": policy,
                "grant_types": ["device_code", "refresh_token"], "dpop_bound_access_tokens": policy == "reuse",
                "refresh_token_lifetime": lifetime,
            });
            remedies(&view(&device), None)
        };
        let unbound = &device("reuse-unbound", None)[0];
        assert!(unbound.contains("--require-dpop") && unbound.contains("--refresh-token-lifetime"));
        let short = &device("reuse-unbound", Some(86_400))[0];
        assert!(short.contains("--require-dpop") && !short.contains("--refresh-token-lifetime"));
        assert_eq!(device("reuse", None), [""; 0]);
        assert_eq!(device("rotate", None), [""; 0]);
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
