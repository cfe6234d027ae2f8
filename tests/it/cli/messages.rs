//! What the commands say on the command line.

use std::fs;
use std::process::Command;

use idsvc::jose::keyring::SigningKey;
use idsvc::random::Random;
use serde_json::json;

use super::code;
use crate::harness::process::{Service, said, shown};

fn run(service: &Service, line: &str) -> std::process::Output {
    service.run(&line.split(' ').collect::<Vec<_>>())
}

#[test]
fn a_first_try_without_settings_is_led_to_the_development_server() {
    let folder = tempfile::TempDir::new().unwrap();
    for words in [&[][..], &["serve"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_idsvc"))
            .args(words)
            .env_clear()
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(!output.status.success(), "{words:?}");
        assert!(
            said(&output).contains("idsvc serve --dev"),
            "{words:?}: {}",
            said(&output)
        );
    }
}

#[test]
fn a_verb_of_another_program_is_answered_with_the_verb_here() {
    let service = Service::new();
    let wrong = run(&service, "user delete alice@example.com");
    assert_eq!(code(&wrong), Some(2));
    assert!(said(&wrong).contains("'idsvc user remove'"), "{}", said(&wrong));
}

#[test]
fn the_check_of_the_settings_reports_all_faults_at_once() {
    let service = Service::new()
        .with("IDSVC_BASE_URL", "http://id.{region}.example.com")
        .with("IDSVC_TLS_MODE", "files")
        .with("IDSVC_TLS_CERT", "no.pem");
    let checked = run(
        &service,
        "config check --json --theme gone --lifetimes-code 1h --log-level loud",
    );
    assert_eq!(code(&checked), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    let faults = document["faults"].as_array().unwrap();
    let places: Vec<_> = faults
        .iter()
        .map(|fault| fault["place"].as_str().unwrap())
        .collect();
    for place in [
        "region",
        "IDSVC_BASE_URL",
        "tls.key",
        "--lifetimes-code",
        "--log-level",
        "tls",
    ] {
        let count = places.iter().filter(|found| **found == place).count();
        assert_eq!(count, 1, "{place}: {places:?}");
    }
    assert!(
        said(&checked).contains("warning: the theme"),
        "{}",
        said(&checked)
    );
}

#[test]
fn a_grant_may_be_typed_as_discovery_shows_it() {
    let service = Service::new();
    let tv = service.json(&[
        "client",
        "add",
        "tv",
        "--grant",
        "urn:service:oauth2:grant-type:anonymous",
        "--grant",
        "refresh_token",
        "--json",
    ]);
    assert_eq!(
        tv["grant_types"],
        serde_json::json!(["refresh_token", "anonymous"])
    );
}

#[test]
fn a_client_is_shown_with_what_applies_to_it() {
    let service = Service::with_client();
    let added = run(
        &service,
        "client add cron --grant client_credentials --scope a --allow-secret-credentials --max-scope a",
    );
    assert_eq!(code(&added), Some(0), "{}", said(&added));
    let (cron, web) = (
        shown(&run(&service, "client show cron")),
        shown(&run(&service, "client show web")),
    );
    for name in [
        "pkce",
        "consent",
        "password_sign_in",
        "refresh_policy",
        "id_token_on_refresh",
        "scope_marker",
    ] {
        let has = |text: &str| text.lines().any(|line| line.starts_with(name));
        assert!(!has(&cron) && has(&web), "{name}: {cron}{web}");
    }
    assert!(
        cron.contains("client_secret_basic") && cron.contains("max_scope"),
        "{cron}"
    );
    assert!(!web.contains("assertion_audience"), "{web}");
    let document = service.json(&["client", "show", "cron", "--json"]);
    assert_eq!(document["refresh_policy"], "rotate");
    assert_eq!(document["assertion_audience"], "any");
}

/// A token without a scope is rarely intended.
#[test]
fn a_client_that_acts_for_itself_without_a_scope_of_an_api_is_warned_of() {
    let service = Service::new();
    let robot = SigningKey::generate_es256(&Random::system()).unwrap();
    let keys = json!({"keys": [robot.public().to_jwk()]}).to_string();
    fs::write(service.folder.path().join("robot.jwks"), keys).unwrap();
    let add_api = "api add notes --identifier https://api.example/notes --scope notes.read";
    assert_eq!(code(&run(&service, add_api)), Some(0));
    let warning = |line: &str| {
        let output = run(&service, line);
        assert_eq!(code(&output), Some(0), "{line}: {}", said(&output));
        let said = said(&output);
        let line = said.lines().find(|line| line.starts_with("warning: "))?;
        Some(
            line.split_once(": idsvc ")
                .unwrap()
                .1
                .replace("NAME", "notes.read")
                .replace("API", "notes"),
        )
    };
    let add = "client add robot --grant client_credentials --jwks-file robot.jwks";
    let remedy = warning(add).unwrap();
    assert_eq!(
        remedy,
        "client update robot --add-api notes --default-scope notes.read"
    );
    assert!(warning("client update robot --name Robot --json").is_some());
    assert_eq!(warning(&remedy), None);
    assert_eq!(warning("client show robot"), None);
    let secret = "--grant client_credentials --allow-secret-credentials";
    let add = format!("client add cron {secret} --scope openid --scope a --max-scope openid");
    let remedy = warning(&add).unwrap();
    assert!(
        remedy.ends_with("--allow-secret-credentials --max-scope notes.read"),
        "{remedy}"
    );
    assert_eq!(warning(&remedy), None);
    let add = format!("client add meter {secret} --scope a --max-scope a");
    assert_eq!(warning(&add), None);
    let web = "client add web --redirect-uri https://app.example/cb";
    assert_eq!(warning(web), None);
}

#[test]
fn a_telephone_number_is_verified_by_a_flag() {
    let service = Service::new();
    let add =
        "user add alice@example.com --no-password --phone-number +3225550123 --phone-number-verified --json";
    let alice = service.json(&add.split(' ').collect::<Vec<_>>());
    assert_eq!(alice["phone_number_verified"], true);
    let update = ["user", "update", "alice@example.com", "--json"];
    let alice = service.json(&[&update[..], &["--phone-number-verified=false"]].concat());
    assert_eq!(alice["phone_number_verified"], false);
    let without = service.run(&[&update[..], &["--phone-number=", "--phone-number-verified"]].concat());
    assert_eq!(code(&without), Some(1));
    assert!(said(&without).contains("--phone-number"), "{}", said(&without));
}

#[test]
fn a_demand_for_a_level_and_the_trust_in_a_provider_are_shown_and_taken_back() {
    let service = Service::with_client();
    let client = |arguments: &str| run(&service, &format!("client update web {arguments}"));
    let shown_acr = || service.json(&["client", "show", "web", "--json"])["acr"].clone();
    assert_eq!(shown_acr(), serde_json::Value::Null);
    for level in ["2", "phr"] {
        assert_eq!(code(&client(&format!("--acr {level}"))), Some(0));
        assert_eq!(shown_acr(), level);
    }
    let refused = client("--password-sign-in no");
    assert!(said(&refused).contains("passkeys"), "{}", said(&refused));
    assert_eq!(code(&client("--acr=")), Some(0));
    assert_eq!(shown_acr(), serde_json::Value::Null);
    let provider = "--issuer https://up.example --client-id c --auth-method private_key_jwt";
    let added = run(
        &service,
        &format!("provider add up {provider} --mfa-amr mfa --mfa-acr 2"),
    );
    assert_eq!(code(&added), Some(0), "{}", said(&added));
    let shown_trust = || {
        let view = service.json(&["provider", "show", "up", "--json"]);
        (view["mfa_amr"].clone(), view["mfa_acr"].clone())
    };
    assert_eq!(
        shown_trust(),
        (serde_json::json!(["mfa"]), serde_json::json!(["2"]))
    );
    assert_eq!(code(&run(&service, "provider update up --mfa-amr=")), Some(0));
    assert_eq!(shown_trust(), (serde_json::Value::Null, serde_json::json!(["2"])));
}

#[test]
fn an_algorithm_that_the_service_does_not_sign_with_is_answered_with_those_that_it_does() {
    let service = Service::with_client();
    for line in [
        "client update web --id-token-alg ES384",
        "client update web --userinfo-signed-response-alg RS512",
        "client update web --authorization-signed-response-alg PS384",
        "api add notes --identifier https://notes.example --access-token-alg ES384",
    ] {
        let refused = run(&service, line);
        assert_eq!(code(&refused), Some(1), "{line}: {}", said(&refused));
        assert!(
            said(&refused).contains("the service signs with RS256, PS256, ES256 or EdDSA, not with"),
            "{line}: {}",
            said(&refused)
        );
        assert!(
            !said(&refused).contains("key rotate"),
            "{line}: {}",
            said(&refused)
        );
    }
    let without_key = run(&service, "client update web --id-token-alg PS256");
    assert!(
        said(&without_key).contains("key rotate"),
        "{}",
        said(&without_key)
    );
}

#[test]
fn what_concerns_refreshes_is_warned_of_if_the_client_has_not_the_grant() {
    let service = Service::with_client();
    let add = "client add app --redirect-uri https://a.example/cb --redirect-uri https://b.example/cb";
    for (line, flags) in [
        (
            format!("{add} --grant authorization_code --refresh-policy reuse"),
            &["--refresh-policy"][..],
        ),
        (
            "client update app --refresh-token-lifetime 30d --id-token-on-refresh off".to_owned(),
            &["--refresh-token-lifetime", "--id-token-on-refresh"],
        ),
        ("client update app --name App".to_owned(), &[]),
        (
            "client update app --grant authorization_code --grant refresh_token --refresh-policy reuse"
                .to_owned(),
            &[],
        ),
    ] {
        let ran = run(&service, &line);
        assert!(ran.status.success(), "{line}: {}", said(&ran));
        assert_eq!(
            said(&ran).matches("has no effect").count(),
            flags.len(),
            "{line}: {}",
            said(&ran)
        );
        for flag in flags {
            assert!(
                said(&ran).contains(&format!("warning: {flag} ")),
                "{}",
                said(&ran)
            );
        }
        if line.starts_with("client add") {
            for uri in ["https://a.example/cb", "https://b.example/cb"] {
                let row = format!("redirect_uri  {uri}");
                assert!(shown(&ran).contains(&row), "{}", shown(&ran));
            }
        }
    }
}

#[test]
fn a_name_in_place_of_an_address_is_named_in_letters_that_people_read() {
    let service = Service::with_client();
    let add = |address: &str| said(&service.run(&["user", "add", address, "--no-password"]));
    for name in ["Zoe\u{308}", "Zo\u{eb}"] {
        let text = add(name);
        assert!(text.contains("\"Zo\u{eb}\" is no e-mail address"), "{text}");
        assert!(text.contains("alice@example.com"), "{text}");
    }
    let text = add("zoe\u{200b}@example.com");
    assert!(text.contains("\\u{200b}"), "what nobody sees is shown: {text}");
}

#[test]
fn a_user_without_a_password_has_none_to_change_and_a_number_without_form_is_warned_of() {
    let service = Service::new();
    let both = run(
        &service,
        "user add ada@example.com --no-password --must-change-password",
    );
    assert_eq!(code(&both), Some(2));
    assert!(said(&both).contains("--no-password sets none"), "{}", said(&both));
    run(
        &service,
        "user add ada@example.com --no-password --must-change-password=false",
    );
    for (number, is_warned) in [
        ("abc", true),
        ("0470123456", true),
        ("+3225550123", false),
        ("+16045551234;ext=5678", false),
        ("", false),
    ] {
        let set = service.run(&["user", "update", "ada@example.com", "--phone-number", number]);
        assert_eq!(code(&set), Some(0), "{}", said(&set));
        assert_eq!(
            said(&set).contains("E.164"),
            is_warned,
            "{number}: {}",
            said(&set)
        );
    }
}
