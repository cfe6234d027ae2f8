//! `idsvc provider …`, with and without a running service.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idsvc::clock::Clock;
use idsvc::flow::token::jwt_bearer::REPLAYED;
use idsvc::jose::keyring::SigningKey;
use idsvc::random::Random;
use serde_json::{Value, json};

use super::{ADD_WEB, code, said};
use crate::harness::Upstream;
use crate::harness::process::{Reply, Running, Service, run_with_input};

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ISSUER: &str = "https://accounts.example";

/// A service that has been set up: it has a client.
fn service() -> Service {
    let service = Service::new();
    assert_eq!(code(&service.run(&ADD_WEB)), Some(0));
    service
}

/// A file in the service's folder.
fn file(service: &Service, name: &str, text: &str) -> String {
    let path = service.folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The document of a command, without the moments that differ from run to run.
fn document(service: &Service, words: &[&str]) -> Value {
    let mut document = service.json(&[words, &["--json"]].concat());
    let forget = |record: &mut Value| {
        for name in ["created_at", "updated_at"] {
            let at = record[name].take().as_u64().unwrap_or_default();
            assert!(at > 1_700_000_000, "{name} is a time");
        }
    };
    match &mut document {
        Value::Array(records) => records.iter_mut().for_each(forget),
        record if record.get("created_at").is_some() => forget(record),
        _ => {}
    }
    document
}

/// What an operator may do to a provider, and every document that comes of it.
fn a_providers_life(service: &Service) -> Vec<Value> {
    let secret = file(service, "secret", "a secret of the provider\n");
    let add = [
        "provider",
        "add",
        "google",
        "--issuer",
        ISSUER,
        "--client-id",
        "ids",
    ];
    let show = ["provider", "show", "google"];
    let update = |flags: &[&str]| document(service, &[&["provider", "update", "google"], flags].concat());
    let none = document(service, &["provider", "list"]);
    let added = document(service, &[&add[..], &["--client-secret-file", &secret]].concat());
    let listed = document(service, &["provider", "list"]);
    let named = update(&["--name", "Google", "--scope", "email", "--domain", "a.example"]);
    let tuned = update(&[
        "--exchange",
        "--audience",
        "app",
        "--max-age",
        "10m",
        "--link",
        "verified-email",
        "--create-users",
        "--claim",
        "nickname=login",
        "--embed-token",
        "off",
        "--alg",
        "ES256",
        "--jwks-uri",
        "https://accounts.example/keys",
    ]);
    let shown = document(service, &show);
    let undone = update(&[
        "--name",
        "",
        "--domain",
        "",
        "--claim",
        "",
        "--jwks-uri",
        "",
        "--exchange=false",
        "--audience",
        "",
        "--create-users=false",
        "--auth-method",
        "private_key_jwt",
        "--client-secret-file",
        "",
        "--disable",
    ]);
    let enabled = update(&["--enable"]);
    let removed = document(service, &["provider", "remove", "google", "--yes"]);
    let left = document(service, &["provider", "list"]);
    vec![
        none, added, listed, named, tuned, shown, undone, enabled, removed, left,
    ]
}

#[test]
fn a_provider_has_the_same_life_with_and_without_a_service() {
    let stopped_service = service();
    let stopped = a_providers_life(&stopped_service);
    let port = stopped_service.port;
    let service = service();
    let running = service.serve();
    let mut lives = a_providers_life(&service);
    let text = Value::from(lives.clone())
        .to_string()
        .replace(&service.port.to_string(), &port.to_string());
    lives = serde_json::from_str(&text).unwrap();
    assert_eq!(stopped, lives);
    drop(running);

    let [
        none,
        added,
        listed,
        named,
        tuned,
        shown,
        undone,
        enabled,
        removed,
        left,
    ] = stopped.as_slice()
    else {
        unreachable!()
    };
    assert_eq!((none, left), (&json!([]), &json!([])));
    assert_eq!(
        *added,
        json!({
            "id": "google", "issuer": ISSUER, "name": null, "has_logo": false, "client_id": "ids",
            "has_secret": true, "auth_method": "client_secret_basic",
            "redirect_uri": format!("http://127.0.0.1:{port}/federation/google/callback"),
            "scope": "openid profile email", "audiences": ["ids"], "algs": ["RS256"], "keys": [],
            "jwks_uri": null, "exchange": false, "max_age": 3600, "create_users": false, "addresses": "never", "link": "never",
            "embed_token": "upstream_access_token", "domains": [], "claims": {}, "enabled": true,
            "created_at": null, "updated_at": null,
        })
    );
    assert_eq!(listed[0], *added);
    assert_eq!(
        (&named["name"], &named["scope"], &named["domains"]),
        (&json!("Google"), &json!("email openid"), &json!(["a.example"]))
    );
    let mut after_update = shown.clone();
    after_update["changes"] = tuned["changes"].clone();
    assert_eq!(after_update, *tuned);
    assert_eq!(
        tuned["changes"][1],
        json!({"field": "algs", "added": ["ES256"], "removed": ["RS256"]})
    );
    let chosen = [
        "exchange",
        "audiences",
        "max_age",
        "link",
        "create_users",
        "claims",
        "embed_token",
        "algs",
        "jwks_uri",
    ];
    assert_eq!(
        json!(chosen.map(|name| tuned[name].clone())),
        json!([
            true,
            ["app"],
            600,
            "verified-email",
            true,
            {"nickname": "login"},
            null,
            ["ES256"],
            "https://accounts.example/keys"
        ])
    );
    let taken_back = [
        "name",
        "domains",
        "claims",
        "jwks_uri",
        "exchange",
        "has_secret",
        "enabled",
    ];
    assert_eq!(
        json!(taken_back.map(|name| undone[name].clone())),
        json!([null, [], {}, null, false, false, false])
    );
    assert_eq!(enabled["enabled"], true);
    assert_eq!(*removed, json!({"id": "google", "removed": true}));
}

#[test]
fn what_a_file_gave_is_taken_away_by_an_empty_name() {
    let service = service();
    let upstream = SigningKey::generate_es256(&Random::system()).unwrap();
    let keys = json!({"keys": [upstream.public().to_jwk()]}).to_string();
    let keys = file(&service, "jwks", &keys);
    let logo = file(&service, "logo", "<svg xmlns='http://www.w3.org/2000/svg'/>");
    let secret = file(&service, "secret", "a secret of the provider");
    let mut add = vec!["provider", "add", "up", "--issuer", ISSUER, "--exchange"];
    add.extend([
        "--audience",
        "app",
        "--client-id",
        "ids",
        "--client-secret-file",
        &secret,
    ]);
    add.extend(["--jwks-file", &keys, "--logo-file", &logo]);
    let added = document(&service, &add);
    assert_eq!(
        (&added["has_logo"], &added["has_secret"], &added["keys"][0]["kty"]),
        (&json!(true), &json!(true), &json!("EC"))
    );
    let mut update = vec!["provider", "update", "up", "--jwks-file", "", "--logo-file", ""];
    update.extend(["--client-secret-file", "", "--client-id", ""]);
    let bare = document(&service, &update);
    assert_eq!(
        (
            &bare["has_logo"],
            &bare["has_secret"],
            &bare["client_id"],
            &bare["keys"]
        ),
        (&json!(false), &json!(false), &Value::Null, &json!([]))
    );
}

#[test]
fn people_are_told_what_to_do_next() {
    let service = service();
    let empty = service.run(&["provider", "list"]);
    assert!(said(&empty).contains("idsvc provider add"), "{}", said(&empty));
    let secret = file(&service, "secret", "a secret of the provider");
    let mut add = vec![
        "provider",
        "add",
        "google",
        "--issuer",
        ISSUER,
        "--client-id",
        "ids",
    ];
    add.extend(["--client-secret-file", &secret]);
    let added = service.run(&add);
    assert_eq!(code(&added), Some(0), "{}", said(&added));
    let shown = String::from_utf8(added.stdout.clone()).unwrap();
    assert!(
        shown.contains("keys          as discovered"),
        "facts for people: {shown}"
    );
    assert!(!shown.contains("a secret of the provider"));
    let hints = said(&added);
    let redirect_uri = format!("{}/federation/google/callback", service.issuer());
    assert!(hints.contains(&redirect_uri), "{hints}");
    assert!(
        hints.contains("idsvc client update CLIENT --add-provider google"),
        "{hints}"
    );
    let listed = service.run(&["provider", "list"]);
    let table = String::from_utf8(listed.stdout).unwrap();
    assert!(
        table.trim_start().starts_with("PROVIDER") && table.contains("google") && table.contains(ISSUER),
        "{table}"
    );
}

#[test]
fn every_fault_of_a_provider_is_named_at_once() {
    let service = service();
    let faulty = service.run(&[
        "provider",
        "add",
        "Google",
        "--issuer",
        "http://accounts.example?x=1",
        "--jwks-uri",
        "http://accounts.example/keys",
        "--max-age",
        "8d",
        "--domain",
        "example",
        "--claim",
        "iss=iss",
        "--embed-token",
        "scope",
        "--scope",
        "a\"b",
    ]);
    assert_eq!(code(&faulty), Some(1));
    assert!(faulty.stdout.is_empty());
    let said = said(&faulty);
    for fault in [
        "provider id \"Google\"",
        "issuer \"http://accounts.example?x=1\"",
        "jwks uri \"http://accounts.example/keys\"",
        "max age is 1 second to 7 days",
        "domain \"example\"",
        "claim iss=iss",
        "claim scope belongs to the service",
        "scope: scope values are printable ASCII",
        "add --client-id, --exchange or --id-jag",
    ] {
        assert!(said.contains(fault), "{fault} is not in {said}");
    }
    assert_eq!(service.json(&["provider", "list", "--json"]), json!([]));
}

/// Exit code, command, and a part of what is said. `UP` is a provider that can be, `''` an empty word.
const CASES: &str = "
1 | provider show up                                              | there is no provider up
2 | provider add                                                  | <ID>
2 | UP --alg HS256                                                | HS256
2 | UP --alg none                                                 | none
2 | UP --link always                                              | verified-email
2 | UP --claim nickname                                           | OURS=THEIRS
2 | UP --max-age soon                                             | soon
2 | UP --jwks-file symmetric --jwks-uri https://a.example         | --jwks-uri
1 | UP --jwks-file symmetric                                      | has no key for
1 | UP --jwks-file nowhere                                        | nowhere cannot be read
1 | UP --logo-file symmetric                                      | neither PNG nor
1 | UP --client-id x                                              | sign-ins need the secret that belongs to the client id
1 | provider add up --issuer https://a.example --exchange         | add --audience or --client-id
1 | provider add local --issuer https://a.example                 | is reserved             
1 | provider add credential --issuer https://a.example            | is reserved             
1 | provider add anonymous --issuer https://a.example             | is reserved             
1 | provider add client --issuer https://a.example                | is reserved             
0 | UP                                                            |
1 | UP                                                            | there is a provider up already
1 | provider add b --issuer ISSUER --exchange --audience app      | provider up has this issuer already
2 | provider update up                                            | nothing to change
2 | provider update up --enable --disable                         | --disable
1 | provider update down --enable                                 | there is no provider down
1 | provider update up --exchange=false                           | add --client-id, --exchange or --id-jag
1 | provider update up --audience ''                              | add --audience or --client-id
1 | client add shop --grant jwt-bearer --provider down            | down
0 | client add shop --grant jwt-bearer --provider up              |
2 | provider remove up                                            | --yes
1 | provider remove up --yes                                      | is named by client shop
0 | client remove shop --yes                                      |
0 | provider remove up --yes                                      |
1 | provider remove up --yes                                      | there is no provider up
";

#[test]
fn refusals_are_1_and_wrong_words_are_2() {
    let service = service();
    let set = r#"{"keys":[{"kty":"oct","k":"c2VjcmV0c2VjcmV0"}]}"#;
    file(&service, "symmetric", set);
    let up = "provider add up --issuer ISSUER --exchange --audience app";
    for is_running in [false, true] {
        let running = is_running.then(|| service.serve());
        for case in CASES.lines().skip(1) {
            let [expected, command, part] = case.split('|').collect::<Vec<_>>().try_into().unwrap();
            let command = command.replace("UP", up).replace("ISSUER", ISSUER);
            let words: Vec<_> = command
                .split_whitespace()
                .map(|word| if word == "''" { "" } else { word })
                .collect();
            let output = service.run(&words);
            let said = said(&output);
            assert_eq!(
                code(&output),
                expected.trim().parse().ok(),
                "{is_running}, {case}: {said}"
            );
            assert!(said.contains(part.trim()), "{is_running}, {case}: {said}");
            assert!(expected.trim() == "0" || output.stdout.is_empty(), "{case}");
        }
        drop(running);
    }
}

#[test]
fn the_secret_of_a_provider_comes_from_standard_input_and_never_back() {
    let service = Service::new();
    let secret = "the secret of the provider, typed in";
    let mut command = service.command(&[
        "provider",
        "add",
        "up",
        "--issuer",
        ISSUER,
        "--client-id",
        "ids",
        "--client-secret-file",
        "-",
        "--json",
    ]);
    let output = run_with_input(&mut command, format!("{secret}\n").as_bytes());
    assert_eq!(code(&output), Some(0), "{}", said(&output));
    let shown = service.run(&["provider", "show", "up", "--json"]);
    for text in [output.stdout, output.stderr, shown.stdout] {
        assert!(!String::from_utf8_lossy(&text).contains(secret));
    }
    let database = std::fs::read(service.data().join("idsvc.redb")).unwrap();
    let is_there = database
        .windows(secret.len())
        .any(|window| window == secret.as_bytes());
    assert!(!is_there, "the secret is sealed before it is stored");
}

fn exchange(running: &Running<'_>, client: &Value, assertion: &str) -> Reply {
    let (id, secret) = (client["client_id"].as_str(), client["client_secret"].as_str());
    let basic = STANDARD.encode(format!("{}:{}", id.unwrap(), secret.unwrap()));
    let basic = format!("Basic {basic}");
    let form = [("grant_type", JWT_BEARER), ("assertion", assertion)];
    running
        .post_form("/oauth2/token", &[("Authorization", &basic)], &form)
        .unwrap()
}

/// What the operator does counts at once, and a token that was exchanged stays used through a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_is_trusted_as_long_as_the_operator_says() {
    let upstream = Upstream::start().await;
    let service = Service::new().reaching(&upstream);
    let mut running = service.serve();
    let mut add = vec!["provider", "add", "up", "--issuer", &upstream.issuer];
    add.extend(["--exchange", "--audience", "app", "--create-users", "--json"]);
    service.json(&add);
    let add = [
        "client",
        "add",
        "web",
        "--grant",
        "jwt-bearer",
        "--provider",
        "up",
    ];
    let web = service.json(&[&add[..], &["--json"]].concat());
    let now = Clock::System.now().seconds();
    let token = |changes: Value| {
        let mut claims = upstream.claims("app", "u-1");
        claims["iat"] = json!(now);
        claims["exp"] = json!(now + 600);
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        upstream.sign(&claims)
    };
    let once = token(json!({"jti": "once"}));
    let first = exchange(&running, &web, &once);
    assert_eq!(first.status, 200, "{first:?}");
    let again = exchange(&running, &web, &once);
    assert_eq!(
        (again.status, &again.json()["error"]),
        (400, &json!("invalid_grant"))
    );

    let plain = token(json!({}));
    let update = |flags: &[&str]| service.json(&[&["provider", "update", "up", "--json"], flags].concat());
    update(&["--disable"]);
    assert_eq!(exchange(&running, &web, &plain).status, 400);
    update(&["--enable", "--audience", "other"]);
    assert_eq!(exchange(&running, &web, &plain).status, 400);
    update(&["--audience", "app"]);
    assert_eq!(exchange(&running, &web, &plain).status, 200);

    // Nothing comes between this answer and the end of the process.
    let last = token(json!({"jti": "last"}));
    assert_eq!(exchange(&running, &web, &last).status, 200);
    running.kill();
    let running = service.serve();
    for used in [&once, &last] {
        let replayed = exchange(&running, &web, used);
        assert_eq!(
            (replayed.status, &replayed.json()["error_description"]),
            (400, &json!(REPLAYED.description))
        );
    }
    service.logged("provider_token_replayed");
    let user = service.json(&["user", "show", "up:u-1", "--json"]);
    assert_eq!(user["uuid"], first.json()["uuid"]);
    assert_eq!(exchange(&running, &web, &plain).json()["uuid"], user["uuid"]);

    for flags in [&["export"][..], &["export", "--json"]] {
        let exported = service.run(flags);
        assert!(!String::from_utf8_lossy(&exported.stdout).contains("up:u-1"));
        assert_eq!(
            said(&exported).trim(),
            "warning: left out, because a file cannot hold them: 1 users that a provider created"
        );
    }
}
