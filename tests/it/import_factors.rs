//! Authenticator apps of users from another system.

use std::fs;

use idsvc::admin::import::{ExistingUsers, ImportUsers, Imported};
use idsvc::admin::user;
use idsvc::pages::text::EN;
use serde_json::{Value, json};

use crate::account_self_service::{at, form};
use crate::harness::process::{Service, said, shown};
use crate::harness::{Person, Server};
use crate::second_factor::{App, factor_rows, half, is_signed_in, recovery_codes, scene, type_code};

const STEP: u64 = 30;
/// Keycloak writes the text that the seed is, and not what encodes it.
const KEYCLOAK_SEED: &str = "wGOzNbRNi1ItXvKVtlXc";
/// The bytes of the seed in hexadecimal digits, as Authentik writes them.
const AUTHENTIK_KEY: &str = "00ff10ee20dd30cc40bb50aa609970887f66a05b";

fn keycloak(seed: &str, changes: &Value) -> Value {
    let mut data =
        json!({"subType": "totp", "digits": 6, "counter": 0, "period": 30, "algorithm": "HmacSHA1"});
    for (name, value) in changes.as_object().unwrap() {
        data[name] = value.clone();
    }
    let secret = json!({"value": seed}).to_string();
    json!({"keycloak": {"userLabel": "My phone", "secretData": secret, "credentialData": data.to_string()}})
}

fn authentik(key: &str) -> Value {
    json!({"authentik": {
        "user": 7, "name": "TOTP Authenticator", "confirmed": true, "throttling_failure_timestamp": null,
        "throttling_failure_count": 0, "key": key, "step": 30, "t0": 0, "digits": 6, "tolerance": 1, "drift": 0,
        "last_t": 57_853_920,
    }})
}

async fn bring(server: &Server, line: &Value, existing: ExistingUsers) -> Imported {
    let request = ImportUsers {
        lines: vec![(1, line.to_string())],
        existing,
        skip_bad: false,
        write: true,
    };
    server.admin().call(request).await.unwrap()
}

/// A line about a user who is here and has a password.
fn line_of(person: &Person, totp: &[Value]) -> Value {
    json!({"uuid": person.user.uuid, "email": person.user.email, "totp": totp})
}

#[tokio::test]
async fn an_imported_authenticator_app_answers_the_second_step() {
    let authentik_seed: Vec<u8> = (0..AUTHENTIK_KEY.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&AUTHENTIK_KEY[at..at + 2], 16).unwrap())
        .collect();
    for (exported, seed) in [
        (keycloak(KEYCLOAK_SEED, &json!({})), KEYCLOAK_SEED.as_bytes()),
        (authentik(AUTHENTIK_KEY), &authentik_seed),
    ] {
        let (server, acme, alice) = scene().await;
        let report = bring(&server, &line_of(&alice, &[exported]), ExistingUsers::Update).await;
        assert_eq!((report.updated, report.authenticator_apps), (1, 1), "{report:?}");
        let app = App::with_seed(seed);
        let asked = half(&alice, &acme).await;
        assert_eq!(asked.heading(), EN.second_factor_title);
        let stranger = App::with_seed(b"another seed of 20 b");
        let wrong = type_code(&asked, &stranger.code(&server, 0)).await;
        assert!(wrong.text().contains(EN.problem_second_factor));
        let code = app.code(&server, 0);
        let callback = type_code(&asked, &code).await;
        assert!(is_signed_in(&callback), "{}", callback.text());
        let id = acme
            .redeem(&callback.callback().code())
            .await
            .tokens()
            .id()
            .claims;
        assert_eq!(
            (&id["acr"], &id["amr"]),
            (&json!("2"), &json!(["pwd", "otp", "mfa"]))
        );
        // One use a step, as with an app that was set up here.
        assert!(!is_signed_in(&type_code(&half(&alice, &acme).await, &code).await));

        // The user makes recovery codes: the import brings none.
        let page = at(callback.browser(), "/account/security").await;
        assert_eq!(factor_rows(&page), 1);
        let renewed = page.browser().submit(&form(&page, "recovery-codes")).await;
        let codes = recovery_codes(&renewed);
        server.advance(STEP);
        let asked = half(&alice, &acme).await;
        assert!(is_signed_in(&type_code(&asked, &codes[0]).await));
    }
}

#[tokio::test]
async fn a_removed_app_stays_away_until_a_file_brings_another_seed() {
    let (server, acme, alice) = scene().await;
    let first = keycloak(KEYCLOAK_SEED, &json!({}));
    let second = keycloak("another seed of 20 b", &json!({}));
    bring(
        &server,
        &line_of(&alice, std::slice::from_ref(&first)),
        ExistingUsers::Update,
    )
    .await;
    server
        .admin()
        .call(user::ResetFactors {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    let again = bring(
        &server,
        &line_of(&alice, std::slice::from_ref(&first)),
        ExistingUsers::Update,
    )
    .await;
    assert_eq!((again.unchanged, again.authenticator_apps), (1, 0));
    assert!(is_signed_in(&half(&alice, &acme).await), "one step is enough");
    let both = line_of(&alice, &[first, second.clone(), second]);
    let skipped = bring(&server, &both, ExistingUsers::Skip).await;
    assert_eq!((skipped.unchanged, skipped.authenticator_apps), (1, 0));
    let other = bring(&server, &both, ExistingUsers::Update).await;
    assert_eq!((other.updated, other.authenticator_apps), (1, 1));
    let app = App::with_seed(b"another seed of 20 b");
    let asked = half(&alice, &acme).await;
    assert!(is_signed_in(&type_code(&asked, &app.code(&server, 0)).await));
}

#[tokio::test]
async fn two_imports_at_once_bring_one_app() {
    let (server, _acme, alice) = scene().await;
    let line = line_of(&alice, &[keycloak(KEYCLOAK_SEED, &json!({}))]);
    let (one, other) = tokio::join!(
        bring(&server, &line, ExistingUsers::Update),
        bring(&server, &line, ExistingUsers::Update)
    );
    assert_eq!(one.authenticator_apps + other.authenticator_apps, 1);
    let factors = server
        .admin()
        .call(user::ListFactors {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(factors.factors.len(), 1);
}

#[tokio::test]
async fn an_import_leaves_room_for_recovery_codes() {
    let (server, _acme, alice) = scene().await;
    let all: Vec<Value> = (10..32)
        .map(|number| keycloak(&format!("a seed with number {number}"), &json!({})))
        .collect();
    let report = bring(&server, &line_of(&alice, &all[..20]), ExistingUsers::Update).await;
    assert_eq!((report.authenticator_apps, report.left_out.len()), (19, 1));
    assert!(report.left_out[0].reason.contains("19 factors"), "{report:?}");
    let report = bring(&server, &line_of(&alice, &all[20..]), ExistingUsers::Update).await;
    assert_eq!(
        (report.unchanged, report.authenticator_apps, report.left_out.len()),
        (1, 0, 2)
    );
    let report = bring(&server, &line_of(&alice, &all), ExistingUsers::Update).await;
    assert_eq!(
        (report.bad.len(), &report.bad[0].faults[0].fields[..]),
        (1, &["totp".to_owned()][..])
    );
}

fn write(service: &Service, lines: &[Value]) {
    let lines: Vec<_> = lines.iter().map(Value::to_string).collect();
    fs::write(service.folder.path().join("users.jsonl"), lines.join("\n")).unwrap();
}

fn kinds(service: &Service, who: &str) -> Vec<Value> {
    let factors = service.json(&["user", "factors", who, "--json"]);
    let factors = factors["factors"].as_array().unwrap();
    factors.iter().map(|factor| factor["kind"].clone()).collect()
}

#[test]
fn what_the_service_cannot_check_is_named_and_its_user_is_imported_without_it() {
    let user = |name: &str, totp: Value| json!({"email": format!("{name}@example.com"), "totp": totp});
    let lines = [
        user("ada", json!([keycloak(KEYCLOAK_SEED, &json!({}))])),
        user("bob", json!([keycloak(KEYCLOAK_SEED, &json!({"digits": 8}))])),
        user(
            "carol",
            json!([keycloak(KEYCLOAK_SEED, &json!({"subType": "hotp", "period": 0}))]),
        ),
        user(
            "dave",
            json!([
                authentik(AUTHENTIK_KEY),
                keycloak(KEYCLOAK_SEED, &json!({"algorithm": "HmacSHA512"}))
            ]),
        ),
        user("eve", Value::Null),
    ];
    for is_running in [false, true] {
        let service = Service::with_client();
        write(&service, &lines);
        let running = is_running.then(|| service.serve());
        let dry = service.json(&["user", "import", "users.jsonl", "--dry-run", "--json"]);
        assert!(
            service
                .json(&["user", "list", "--json"])
                .as_array()
                .unwrap()
                .is_empty()
        );
        let done = service.run(&["user", "import", "users.jsonl"]);
        assert!(done.status.success());
        let said = said(&done);
        for sentence in [
            "line 2: user \"bob@example.com\" goes without this authenticator app: its codes have 8 digits",
            "line 3: user \"carol@example.com\" goes without this authenticator app: its codes are of the type \"hotp\"",
            "line 4: user \"dave@example.com\" goes without this authenticator app: its codes are made with \"HmacSHA512\"",
            "keep their authenticator apps",
        ] {
            assert!(said.contains(sentence), "{said}");
        }
        let facts = shown(&done);
        let facts: Vec<_> = facts.split_whitespace().collect();
        assert_eq!(facts[..2], ["added", "5"]);
        assert_eq!(facts[8..], ["authenticator_apps", "2", "left_out", "3"]);
        assert_eq!(kinds(&service, "ada@example.com"), ["totp"]);
        assert_eq!(kinds(&service, "bob@example.com"), Vec::<Value>::new());
        assert_eq!(kinds(&service, "dave@example.com"), ["totp"]);
        let again = service.json(&["user", "import", "users.jsonl", "--existing", "update", "--json"]);
        assert_eq!(
            (&again["unchanged"], &again["authenticator_apps"]),
            (&5.into(), &0.into())
        );
        for report in [&dry, &again] {
            assert_eq!(report["left_out_count"], 3);
            assert_eq!(report["left_out"][1]["user"], "carol@example.com");
        }
        assert_eq!(dry["authenticator_apps"], 2);
        assert_eq!(kinds(&service, "ada@example.com"), ["totp"]);
        drop(running);
    }
}

#[test]
fn a_seed_is_in_no_message_and_in_no_output() {
    let service = Service::with_client();
    for totp in [
        json!(KEYCLOAK_SEED),
        json!([KEYCLOAK_SEED]),
        json!({"value": KEYCLOAK_SEED}),
        json!([{"keycloak": {"secretData": KEYCLOAK_SEED, "credentialData": KEYCLOAK_SEED}}]),
        json!([{"keycloak": {"secretData": {"value": KEYCLOAK_SEED}, "credentialData": {"subType": KEYCLOAK_SEED}}}]),
        json!([keycloak(KEYCLOAK_SEED, &json!({"secretEncoding": "base32"}))]),
        json!([authentik(KEYCLOAK_SEED)]),
    ] {
        write(&service, &[json!({"email": "ada@example.com", "totp": totp})]);
        for flags in [&[][..], &["--json"]] {
            let refused = service.run(&[&["user", "import", "users.jsonl"], flags].concat());
            assert_eq!(refused.status.code(), Some(1), "{totp}");
            assert!(said(&refused).contains("line 1"), "{}", said(&refused));
            let all = said(&refused) + &shown(&refused);
            assert!(!all.contains(KEYCLOAK_SEED), "{all}");
        }
    }
    write(
        &service,
        &[json!({"email": "ada@example.com", "totp": [keycloak(KEYCLOAK_SEED, &json!({}))]})],
    );
    assert!(service.run(&["user", "import", "users.jsonl"]).status.success());
    for command in [
        &["user", "show", "ada@example.com", "--json"][..],
        &["user", "factors", "ada@example.com", "--json"],
        &["export", "--with-hashes"],
        &["events", "--since", "1h"],
    ] {
        let output = service.run(command);
        assert!(
            !(said(&output) + &shown(&output)).contains(KEYCLOAK_SEED),
            "{command:?}"
        );
    }
    for entry in fs::read_dir(service.data()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(bytes) = fs::read(&path) else { continue };
        let found = bytes
            .windows(KEYCLOAK_SEED.len())
            .any(|part| part == KEYCLOAK_SEED.as_bytes());
        assert!(!found, "{}", path.display());
    }
}

#[test]
fn a_state_file_has_no_factors_and_takes_none_away() {
    let service = Service::with_client();
    let state =
        json!({"user": [{"email": "ada@example.com", "totp": [keycloak(KEYCLOAK_SEED, &json!({}))]}]});
    fs::write(service.folder.path().join("state.json"), state.to_string()).unwrap();
    let refused = service.run(&["apply", "-f", "state.json"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("totp") && !said(&refused).contains(KEYCLOAK_SEED),
        "{}",
        said(&refused)
    );
    let doctor = |service: &Service| shown(&service.run(&["doctor", "--all"]));
    let none = "good  users factors: of 0 users who may sign in, 0 have an authenticator app, 0 a passkey, 0 neither";
    assert!(doctor(&service).contains(none), "{}", doctor(&service));

    let line = json!({"email": "ada@example.com", "totp": [keycloak(KEYCLOAK_SEED, &json!({}))]});
    write(&service, &[line, json!({"email": "bob@example.com"})]);
    assert!(service.run(&["user", "import", "users.jsonl"]).status.success());
    let only_app = "advice  users factors: of 2 users who may sign in, 1 have an authenticator app, 0 a passkey, 1 neither. 1 of those";
    assert!(doctor(&service).contains(only_app), "{}", doctor(&service));
    let exported = service.run(&["export", "--with-hashes"]);
    let warning = "warning: left out, because a file cannot hold them: authenticator apps, passkeys and recovery codes of 1 user";
    assert!(said(&exported).contains(warning), "{}", said(&exported));
    fs::write(service.folder.path().join("state.toml"), &exported.stdout).unwrap();
    let again = service.json(&["apply", "-f", "state.toml", "--json"]);
    assert_eq!(again["changes"], json!([]), "{again}");
    let state = "[[user]]\nemail = \"ada@example.com\"\nvenue_id = \"v\"\n";
    fs::write(service.folder.path().join("state.toml"), state).unwrap();
    for flags in [&[][..], &["--prune", "--yes"]] {
        let applied = service.run(&[&["apply", "-f", "state.toml"], flags].concat());
        assert!(applied.status.success(), "{}", said(&applied));
        assert_eq!(kinds(&service, "ada@example.com"), ["totp"]);
    }
}
