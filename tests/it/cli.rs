//! The command line, with and without a running service: the same words, the same answers.

mod api;
mod chain;
mod client_certificates;
mod health;
mod init;
mod lists;
mod messages;
mod output;
mod provider;

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Output;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idsvc::clock::Clock;
use idsvc::jose::jwt;
use idsvc::jose::keyring::SigningKey;
use idsvc::random::Random;

use crate::harness::Jwt;
use crate::harness::process::{Running, Service, run_with_closed_output, run_with_input, said, shown};
use crate::harness::terminal::OnTerminal;

pub(crate) const ADD_WEB: [&str; 7] = [
    "client",
    "add",
    "web",
    "--redirect-uri",
    "https://app.example/cb",
    "--pkce",
    "optional",
];

pub(crate) fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn what_was_added_to_a_stopped_service_is_there_when_it_runs_and_the_other_way_around() {
    let service = Service::new();
    let web = service.json(&[&ADD_WEB[..], &["--json"]].concat());
    assert!(web["client_secret"].as_str().unwrap().starts_with("idsvc_cs_"));
    let mut running = service.serve();
    let shown = service.json(&["client", "show", "web", "--json"]);
    assert_eq!(shown["client_uuid"], web["client_uuid"]);
    assert!(shown.get("client_secret").is_none());
    let alice = service.json(&[
        "user",
        "add",
        "alice@example.com",
        "--generate-password",
        "--email-verified",
        "--claim",
        "address.locality=Ghent",
        "--json",
    ]);
    assert!(alice["password"].is_string());
    assert_eq!(alice["claims"]["address"]["locality"], "Ghent");
    let while_running = service.json(&["user", "show", "alice@example.com", "--json"]);
    running.terminate();
    assert_eq!(
        service.json(&["user", "show", "alice@example.com", "--json"]),
        while_running
    );
}

#[test]
fn a_killed_service_leaves_nothing_in_the_way() {
    let service = Service::new();
    let mut running = service.serve();
    service.json(&[&ADD_WEB[..], &["--json"]].concat());
    running.kill();
    assert_eq!(service.json(&["client", "list", "--json"])[0]["client_id"], "web");
    let _again = service.serve();
    assert_eq!(service.json(&["client", "list", "--json"])[0]["client_id"], "web");
}

#[test]
fn api_keys_come_and_go_one_by_one() {
    let service = Service::new();
    let web = service.json(&[&ADD_WEB[..], &["--api-key", "--json"]].concat());
    let first = web["api_key"].as_str().unwrap().to_owned();
    assert!(first.starts_with("idsvc_key_"));
    let added = service.json(&["client", "api-key", "add", "web", "--json"]);
    assert!(added["api_key"].as_str().is_some_and(|key| *key != first));
    let mut running = service.serve();
    let listed = service.json(&["client", "api-key", "list", "web", "--json"]);
    let keys = listed.as_array().unwrap();
    assert_eq!(keys.len(), 2);
    assert!(
        keys.iter()
            .all(|key| key.get("api_key").is_none() && key["last_used_at"].is_null())
    );
    let id = added["id"].as_str().unwrap();
    let revoke = ["client", "api-key", "revoke", "web", id];
    let unasked = service.run(&revoke);
    assert_eq!(code(&unasked), Some(2));
    assert!(said(&unasked).contains("--yes"));
    let revoked = service.json(&[&revoke[..], &["--yes", "--json"]].concat());
    assert_eq!(
        (&revoked["id"], &revoked["revoked"]),
        (&added["id"], &true.into())
    );
    running.terminate();
    let left = service.json(&["client", "api-key", "list", "web", "--json"]);
    assert_eq!(left.as_array().map(Vec::len), Some(1));
    let twice = service.run(&[&revoke[..], &["--yes"]].concat());
    assert_eq!(code(&twice), Some(1));
    assert!(said(&twice).contains("has no API key"));
    let by_itself = service.run(&["client", "api-key", "revoke", "web", &first]);
    assert_eq!(code(&by_itself), Some(2));
    assert!(
        said(&by_itself).contains("idsvc client api-key list ID shows it"),
        "{}",
        said(&by_itself)
    );
}

#[test]
fn a_client_opts_in_to_anonymous_users() {
    let service = Service::new();
    let grants = ["--grant", "anonymous", "--grant", "refresh_token"];
    let tv = service.json(&[&["client", "add", "tv"][..], &grants, &["--json"]].concat());
    assert_eq!(
        tv["grant_types"],
        serde_json::json!(["refresh_token", "anonymous"])
    );
    let shown = service.run(&[&["client", "add", "tv-2"][..], &grants].concat());
    assert!(
        !said(&shown).contains("PKCE"),
        "nobody signs in there: {}",
        said(&shown)
    );
    let public = service.run(&[&["client", "add", "app", "--public"][..], &grants].concat());
    assert_eq!(code(&public), Some(1));
    assert!(said(&public).contains("clients that authenticate"));
}

#[test]
fn a_client_acts_for_itself_by_key_and_a_used_assertion_stays_used_through_a_crash() {
    let service = Service::new();
    let random = Random::system();
    let key = SigningKey::generate_es256(&random).unwrap();
    let file = service.folder.path().join("jwks.json");
    let set = serde_json::json!({"keys": [key.public().to_jwk()]});
    std::fs::write(&file, set.to_string()).unwrap();
    let add = [
        "client",
        "add",
        "robot",
        "--grant",
        "client_credentials",
        "--scope",
        "notes.read",
    ];
    let bare = service.run(&add);
    assert_eq!(code(&bare), Some(1));
    assert!(said(&bare).contains("add --public-key-file, --jwks-file, --jwks-uri or --max-scope"));
    let with_key = ["--jwks-file", file.to_str().unwrap(), "--json"];
    let robot = service.json(&[&add[..], &with_key].concat());
    assert!(robot.get("client_secret").is_none());
    assert_eq!(robot["auth_methods"], serde_json::json!(["private_key_jwt"]));
    let by_secret = [
        "client",
        "add",
        "cron",
        "--grant",
        "client_credentials",
        "--scope",
        "notes.read",
    ];
    let half = service.run(&[&by_secret[..], &["--allow-secret-credentials"]].concat());
    assert_eq!(code(&half), Some(2));
    let most = [
        "--allow-secret-credentials",
        "--max-scope",
        "notes.read",
        "--json",
    ];
    let cron = service.json(&[&by_secret[..], &most].concat());
    assert_eq!(cron["max_scope"], "notes.read");

    let claims = serde_json::json!({
        "iss": "robot", "sub": "robot", "aud": service.issuer(), "jti": random.uuid_v4(),
        "exp": Clock::System.now().seconds() + 600,
    });
    let assertion = jwt::sign(&key, "JWT", &claims).unwrap();
    let form = [
        ("grant_type", "client_credentials"),
        ("scope", "notes.read"),
        (
            "client_assertion_type",
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        ),
        ("client_assertion", &assertion),
    ];
    let mut running = service.serve();
    let first = running.post_form("/oauth2/token", &[], &form).unwrap();
    assert_eq!(
        (first.status, &first.json()["account_id"]),
        (200, &"robot".into())
    );
    running.kill();
    let again = service.serve();
    let second = again.post_form("/oauth2/token", &[], &form).unwrap();
    assert_eq!(
        (second.status, &second.json()["error"]),
        (401, &"invalid_client".into())
    );
    service.logged("assertion_replayed");
}

#[test]
fn refused_is_1_and_misused_is_2() {
    let service = Service::new();
    assert_eq!(code(&service.run(&ADD_WEB)), Some(0));
    let twice = service.run(&ADD_WEB);
    assert_eq!(code(&twice), Some(1));
    assert!(twice.stdout.is_empty());
    assert!(said(&twice).contains("there is a client web already"));
    let misspelt = service.run(&["clinet", "list"]);
    assert_eq!(code(&misspelt), Some(2));
    assert!(said(&misspelt).contains("client"));
    let unasked = service.run(&["client", "remove", "web"]);
    assert_eq!(code(&unasked), Some(2));
    assert!(said(&unasked).contains("--yes"));
    assert_eq!(
        service.json(&["client", "remove", "web", "--yes", "--json"])["removed"],
        true
    );
    assert_eq!(code(&service.run(&["--help"])), Some(0));
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let service = Service::new();
    for words in [&["--help"][..], &["client", "add", "--help"], &["--version"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = service.command(words).stdout(full).output().unwrap();
        assert_eq!(code(&output), Some(1), "{words:?}");
        let said = said(&output);
        assert!(
            said.starts_with("error: standard output cannot be written to"),
            "{said}"
        );
        let closed = std::io::pipe().unwrap().1;
        let output = service.command(words).stdout(closed).output().unwrap();
        assert_eq!(code(&output), Some(0), "{words:?}");
    }
}

#[test]
fn no_events_are_asked_for_only_where_more_are_to_come() {
    let service = Service::with_client();
    let misused = service.run(&["events", "--limit", "0"]);
    assert_eq!(code(&misused), Some(2));
    assert!(
        said(&misused).contains("--limit 0 shows nothing"),
        "{}",
        said(&misused)
    );
}

#[test]
fn nobody_reading_is_no_failure() {
    let service = Service::new();
    service.run(&ADD_WEB);
    let output = run_with_closed_output(&mut service.command(&["client", "list"]));
    assert_eq!((code(&output), said(&output)), (Some(0), String::new()));
}

#[test]
fn a_password_comes_from_standard_input_and_never_back() {
    let service = Service::new();
    let mut command = service.command(&["user", "add", "alice@example.com", "--password-stdin", "--json"]);
    let output = run_with_input(&mut command, b"correct horse battery staple\n");
    assert_eq!(code(&output), Some(0));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("\"has_password\": true"), "{printed}");
    assert!(!printed.contains("correct horse") && !printed.contains("argon2"));
}

#[test]
fn a_second_service_on_the_same_data_says_so() {
    let service = Service::new();
    let _running = service.serve();
    let second = service
        .command(&["serve"])
        .env("IDSVC_LISTEN", "127.0.0.1:0")
        .output()
        .unwrap();
    assert_eq!(code(&second), Some(1));
    assert!(
        said(&second).contains("in use by another process"),
        "{}",
        said(&second)
    );
}

#[test]
fn a_start_that_waits_for_the_data_ends_when_it_is_told_to() {
    let service = Service::new();
    service.run(&ADD_WEB);
    let database = service.data().join("idsvc.redb");
    let held = fs::File::options().read(true).write(true).open(database).unwrap();
    held.lock().unwrap();
    let mut waiting = service.launch();
    let address = service.issuer().replace("http://", "");
    waiting.until(|_| TcpStream::connect(&address).is_ok());
    waiting.terminate();
    assert!(waiting.log().contains("stopped before"), "{}", waiting.log());
}

#[test]
fn another_issuer_is_refused_with_the_remedy_which_works() {
    let service = Service::new();
    service.run(&ADD_WEB);
    let moved = |words: &[&str]| {
        service
            .command(words)
            .env("IDSVC_BASE_URL", "https://id.example.com")
            .output()
            .unwrap()
    };
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let refused = moved(&serve);
    assert_eq!(code(&refused), Some(1));
    assert!(said(&refused).contains("idsvc config set-issuer https://id.example.com --i-know"));
    assert_eq!(code(&moved(&["config", "set-issuer"])), Some(2));
    let set = moved(&["config", "set-issuer", "--i-know"]);
    assert_eq!(code(&set), Some(0));
    assert!(said(&set).contains("next start"), "{}", said(&set));
    // Nothing ends where nothing changes, so there is nothing to know.
    for words in [
        &["config", "set-issuer", "--i-know"][..],
        &["config", "set-issuer"],
    ] {
        let again = moved(words);
        assert_eq!(code(&again), Some(0));
        assert!(said(&again).contains("nothing was changed"), "{}", said(&again));
    }
    let events = service.json(&["events", "--about", "config set-issuer", "--json"]);
    assert_eq!(events.as_array().map(Vec::len), Some(1), "{events}");
    let refused = service.run(&serve);
    assert!(said(&refused).contains(&format!("idsvc config set-issuer {}", service.issuer())));
}

/// What cannot be seen from a new client's record: each remedy is a command that works.
#[test]
fn a_new_client_comes_with_advice() {
    let service = Service::new();
    let add = |words: &str| {
        let words = format!("client add {words}");
        let added = service.run(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(code(&added), Some(0), "{}", said(&added));
        said(&added)
    };
    let kiosk = add("kiosk --grant anonymous --grant refresh_token");
    assert!(kiosk.contains("refresh.retry_window"), "{kiosk}");
    let remedy = kiosk.split_once(": idsvc ").unwrap().1.trim();
    assert_eq!(remedy, "client update kiosk --refresh-policy reuse");
    let done = service.run(&remedy.split(' ').collect::<Vec<_>>());
    assert_eq!(code(&done), Some(0), "{}", said(&done));
    for none in [
        "one --public --redirect-uri http://127.0.0.1/cb",
        "two --public --redirect-uri http://localhost/cb",
        "three --redirect-uri http://localhost/cb --pkce optional",
        "four --grant anonymous --grant refresh_token --refresh-policy reuse",
        "five --grant anonymous --grant refresh_token --refresh-policy rotate",
    ] {
        let said = add(none);
        assert!(!said.contains("client update"), "{none}: {said}");
    }
}

#[test]
fn refresh_tokens_go_on_at_another_issuer_and_access_tokens_do_not() {
    const ANONYMOUS: &str = "urn:service:oauth2:grant-type:anonymous";
    let service = Service::new();
    let words = "client add kiosk --grant anonymous --grant refresh_token --scope openid --json";
    let kiosk = service.json(&words.split(' ').collect::<Vec<_>>());
    let basic = format!("kiosk:{}", kiosk["client_secret"].as_str().unwrap());
    let basic = format!("Basic {}", STANDARD.encode(basic));
    let ask = |running: &Running<'_>, form: &[(&str, &str)]| {
        let headers = [("Authorization", basic.as_str())];
        let reply = running.post_form("/oauth2/token", &headers, form).unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
        let member = |name: &str| reply.json()[name].as_str().unwrap().to_owned();
        (member("access_token"), member("refresh_token"))
    };
    let status = |running: &Running<'_>, access: &str| {
        let bearer = format!("Bearer {access}");
        let headers = [("Authorization", bearer.as_str())];
        running
            .request("GET", "/oauth2/userinfo", &headers, "")
            .unwrap()
            .status
    };
    let mut running = service.serve();
    let (before, refresh) = ask(&running, &[("grant_type", ANONYMOUS)]);
    assert_eq!(status(&running, &before), 200);
    running.terminate();
    drop(running);
    let moved = format!("http://localhost:{}", service.port);
    service.json(&["config", "set-issuer", &moved, "--i-know", "--json"]);
    let service = service.with("IDSVC_BASE_URL", &moved);
    let running = service.serve();
    assert_eq!(status(&running, &before), 401);
    let refresh = [("grant_type", "refresh_token"), ("refresh_token", &refresh)];
    let (after, _) = ask(&running, &refresh);
    assert_eq!(status(&running, &after), 200);
    assert_eq!(Jwt::read(&after).claims["iss"], moved);
}

#[test]
fn another_base_url_keeps_no_command_from_a_stopped_service() {
    let service = Service::new();
    service.run(&ADD_WEB);
    for words in [
        &["client", "show", "web", "--json"][..],
        &["client", "disable", "web", "--json"],
    ] {
        let output = service
            .command(words)
            .env("IDSVC_BASE_URL", "https://id.example.com")
            .output()
            .unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(shown["issuer"], service.issuer());
    }
}

#[test]
fn every_fault_of_the_settings_is_named_at_once() {
    let service = Service::new();
    let file = service.folder.path().join("idsvc.toml");
    std::fs::write(&file, "regoin = \"us\"\n[lifetimes]\ncode = \"1h\"\n").unwrap();
    let checked = service.run(&["config", "check"]);
    assert_eq!(code(&checked), Some(1));
    let said = said(&checked);
    assert!(
        said.contains("line 1: unknown key regoin: did you mean region?"),
        "{said}"
    );
    assert!(
        said.contains("line 3: lifetimes.code must be 1s to 10m"),
        "{said}"
    );
    let reference = service.run(&["config", "reference", "--config", "/dev/null"]);
    std::fs::write(&file, reference.stdout).unwrap();
    assert_eq!(code(&service.run(&["config", "check"])), Some(0));
}

#[test]
fn a_missing_master_key_is_refused_with_the_remedy() {
    let service = Service::new();
    service.run(&ADD_WEB);
    std::fs::remove_file(service.data().join("master.key")).unwrap();
    for words in [&["serve"][..], &["client", "list"]] {
        let refused = service.run(words);
        assert_eq!(code(&refused), Some(1));
        assert!(
            said(&refused).contains("master.key is missing"),
            "{}",
            said(&refused)
        );
    }
}

#[test]
fn a_lost_database_is_no_new_service() {
    let service = Service::new();
    service.run(&ADD_WEB);
    let data = service.data();
    let database = data.join("idsvc.redb");
    let saved = std::fs::read(&database).unwrap();
    std::fs::remove_file(&database).unwrap();
    for emptied in [false, true] {
        if emptied {
            std::fs::write(&database, "").unwrap();
        }
        for words in [&["serve"][..], &["client", "list"], &ADD_WEB] {
            let refused = service.run(words);
            assert_eq!(code(&refused), Some(1));
            assert!(
                said(&refused).contains("put the database back; to start anew remove master.key"),
                "{}",
                said(&refused)
            );
        }
    }
    std::fs::write(&database, saved).unwrap();
    assert_eq!(service.json(&["client", "list", "--json"])[0]["client_id"], "web");
    std::fs::write(&database, "").unwrap();
    std::fs::remove_file(data.join("master.key")).unwrap();
    assert_eq!(code(&service.run(&ADD_WEB)), Some(0));
}

#[test]
fn without_a_terminal_the_password_flag_is_asked_for() {
    let service = Service::new();
    let add = ["user", "add", "alice@example.com"];
    assert_eq!(
        code(&service.run(&[&add[..], &["--no-password"]].concat())),
        Some(0)
    );
    for words in [
        &["user", "add", "bob@example.com"][..],
        &["user", "set-password", add[2]],
    ] {
        let misused = service.run(words);
        assert_eq!(code(&misused), Some(2));
        for flag in ["--password-stdin", "--generate-password", "--no-password"] {
            assert!(said(&misused).contains(flag), "{}", said(&misused));
        }
    }
    let users = service.json(&["user", "list", "--json"]);
    assert_eq!(users.as_array().unwrap().len(), 1);
    assert_eq!(users[0]["has_password"], false);
}

#[test]
fn a_start_without_its_certificate_fixes_nothing() {
    let service = Service::empty();
    let files = ["--tls-cert", "no.pem", "--tls-key", "no.key"];
    let run = |words: &[&str]| {
        service
            .command(&[words, &files].concat())
            .env("IDSVC_TLS_MODE", "files")
            .env("IDSVC_BASE_URL", "https://id.example.com")
            .output()
            .unwrap()
    };
    let refused = run(&["serve"]);
    assert_eq!(code(&refused), Some(1));
    assert!(said(&refused).contains("no.pem"), "{}", said(&refused));
    assert!(!service.data().exists());
    let checked = run(&["config", "check"]);
    assert_eq!(code(&checked), Some(1));
    assert!(
        said(&checked).contains("no.pem") && said(&checked).contains("no.key"),
        "{}",
        said(&checked)
    );
}

#[test]
fn a_leaked_key_is_withdrawn() {
    let service = Service::new();
    let running = service.serve();
    let keys = service.json(&["key", "list", "--json"]);
    let leaked = keys
        .as_array()
        .unwrap()
        .iter()
        .find(|key| key["alg"] == "ES256")
        .unwrap()["kid"]
        .as_str()
        .unwrap()
        .to_owned();
    let published = || running.request("GET", "/oauth2/jwks", &[], "").unwrap().body;
    service.json(&["key", "rotate", "--alg", "es256", "--now", "--json"]);
    assert!(published().contains(&leaked));
    let asked = service.run(&["key", "retire", &leaked]);
    assert_eq!(code(&asked), Some(2));
    assert!(
        said(&asked).contains("Tokens that it signed are then refused"),
        "{}",
        said(&asked)
    );
    service.json(&["key", "retire", &leaked, "--yes", "--json"]);
    assert!(!published().contains(&leaked));
}

/// No verifier keeps the key set of a service that is younger than five minutes.
#[test]
fn a_new_key_of_a_new_service_is_not_warned_of() {
    let service = Service::empty();
    service.run(&ADD_WEB);
    let mut running = service.serve();
    assert!(!running.log().contains("signs at once"), "{}", running.log());
    running.terminate();
    drop(running);
    let update = ["client", "update", "web", "--json", "--access-token-alg"];
    assert_eq!(code(&service.run(&[&update[..], &["EdDSA"]].concat())), Some(1));
    service.json(&["key", "rotate", "--alg", "EdDSA", "--json"]);
    let updated = service.run(&[&update[..], &["EdDSA"]].concat());
    assert_eq!((code(&updated), said(&updated)), (Some(0), String::new()));
    let state = service.run(&["export"]);
    fs::write(service.folder.path().join("state.toml"), &state.stdout).unwrap();
    let applied = service.run(&["apply", "-f", "state.toml", "--json"]);
    assert_eq!((code(&applied), said(&applied)), (Some(0), String::new()));
    let service = service.with("IDSVC_SIGNING_ACCESS_TOKEN_ALG", "PS256");
    let _running = service.serve();
    service.logged("signs at once");
}

#[test]
fn a_mistyped_directory_does_not_become_a_new_service() {
    let service = Service::new();
    for words in [
        &["key", "rotate", "--now", "--data-dir", "typo"][..],
        &["client", "disable", "web", "--data-dir", "typo"],
        &[
            "session",
            "revoke",
            "--user",
            "alice@example.com",
            "--yes",
            "--data-dir",
            "typo",
        ],
    ] {
        let refused = service.run(words);
        assert_eq!(code(&refused), Some(1), "{words:?}: {}", said(&refused));
        assert!(said(&refused).contains("typo"), "{}", said(&refused));
        assert!(!service.folder.path().join("typo").exists(), "{words:?}");
    }
}

#[test]
fn a_key_may_have_a_name_that_looks_like_a_flag() {
    let service = Service::with_client();
    for kid in ["-aBcD", "-hello", "--x", "-V_"] {
        for words in [["key", "retire", kid, "--yes"], ["key", "retire", "--yes", kid]] {
            let refused = service.run(&words);
            assert_eq!(code(&refused), Some(1), "{kid}: {}", said(&refused));
            assert!(said(&refused).contains(&format!("there is no key {kid}")));
        }
    }
}

#[test]
fn what_was_done_is_said_when_it_cannot_be_shown() {
    let service = Service::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let added = service.command(&ADD_WEB).stdout(full()).output().unwrap();
    assert_eq!(code(&added), Some(1));
    assert!(
        said(&added).contains("idsvc client rotate-secret web"),
        "{}",
        said(&added)
    );
    let mut command = service.command(&[
        "user",
        "add",
        "alice@example.com",
        "--generate-password",
        "--json",
    ]);
    let unread = run_with_closed_output(&mut command);
    assert_eq!(code(&unread), Some(1));
    assert!(
        said(&unread).contains("idsvc user set-password alice@example.com --generate-password"),
        "{}",
        said(&unread)
    );
    let listed = service
        .command(&["client", "list"])
        .stdout(full())
        .output()
        .unwrap();
    assert_eq!(code(&listed), Some(1));
    assert!(said(&listed).contains("standard output cannot be written to"));
}

#[test]
fn an_open_data_directory_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let service = Service::empty();
    service.run(&ADD_WEB);
    let data = service.data();
    assert_eq!(said(&service.run(&["client", "show", "web"])), "");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let warning = format!("chmod 700 {}", data.display());
    let listed = service.run(&["client", "list"]);
    assert_eq!(said(&listed).matches(&warning).count(), 1);
    let _running = service.serve();
    assert_eq!(service.logged("ready").matches(&warning).count(), 1);
}

#[test]
fn wrong_values_are_explained() {
    let service = Service::new();
    for (words, part) in [
        (&["session", "revoke", "x"][..], "idsvc session list WHO"),
        (&["user", "list", "--limit", "0"], "1..="),
        (&["key", "rotate", "--alg", "es257"], "ES256"),
    ] {
        let misused = service.run(words);
        assert_eq!(code(&misused), Some(2));
        assert!(said(&misused).contains(part), "{}", said(&misused));
    }
}

#[test]
fn an_imported_key_is_accounted_for_as_imported() {
    let service = Service::new();
    let key = SigningKey::generate_ed25519(&Random::system()).unwrap();
    let body = STANDARD.encode(key.pkcs8());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    std::fs::write(service.folder.path().join("key.pem"), pem).unwrap();
    let _running = service.serve();
    assert_eq!(
        service.json(&["key", "import", "key.pem", "--json"])["kid"],
        key.kid()
    );
    let log = service.logged(key.kid());
    let line = log.lines().find(|line| line.contains(key.kid())).unwrap();
    assert!(
        line.contains("key import") && !line.contains("key rotate"),
        "{line}"
    );
}

#[test]
fn a_failed_sign_in_is_in_the_log_with_its_address_and_without_what_was_typed() {
    let service = Service::with_client();
    let mut process = service.serve();
    let target = "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https://app.example/cb";
    let (name, password) = ("nobody-in-particular@example.com", "a password that was typed");
    let (reply, cookie) = process.type_in(target, name, password);
    let csrf = reply.hidden("csrf");
    assert_eq!(reply.status, 200, "{reply:?}");
    process.terminate();
    let log = service.log();
    let line = log.lines().find(|line| line.contains("sign_in_failed"));
    assert!(line.is_some_and(|line| line.contains("127.0.0.1")), "{log}");
    for secret in [
        "nobody-in-particular",
        "a password that was typed",
        &csrf,
        &cookie,
    ] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}

#[test]
fn whoever_ends_a_command_at_its_password_prompt_has_the_terminal_back() {
    for (key, signal, number) in [(Some("\x03"), "", 2), (None, "TERM", 15)] {
        for words in [
            &["user", "add", "alice@example.com"][..],
            &["user", "add", "alice@example.com", "--password-stdin"],
        ] {
            let service = Service::new();
            let mut program = OnTerminal::start(&service.command(words));
            program.wait_for_prompt();
            assert!(!program.shows_input(), "{words:?}");
            if let Some(key) = key {
                program.type_in(key);
            } else {
                let id = program.id().to_string();
                let sent = std::process::Command::new("kill")
                    .args(["-s", signal, &id])
                    .status();
                assert!(sent.unwrap().success());
            }
            let status = program.end();
            assert_eq!(status.signal(), Some(number), "{words:?}: {status}");
            assert!(program.shows_input(), "{words:?}");
        }
    }
}

#[test]
fn an_owner_who_is_shut_out_is_told_how_to_get_in() {
    const OWNER: u32 = 4711;
    let service = Service::with_client();
    let folder = service.folder.path();
    let data = folder.join("data");
    let database = data.join("idsvc.redb");
    // Nothing is closed to root, who is another user here.
    let is_root = fs::metadata(&data).unwrap().uid() == 0;
    if is_root {
        for path in [folder, &data, &data.join("events")] {
            for entry in fs::read_dir(path).unwrap() {
                chown(entry.unwrap().path(), Some(OWNER), Some(OWNER)).unwrap();
            }
        }
        chown(folder, Some(OWNER), Some(OWNER)).unwrap();
    }
    let run = |words: &[&str]| {
        let mut command = service.command(words);
        if is_root {
            command.uid(OWNER).gid(OWNER);
        }
        command.output()
    };
    let close = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    if run(&["client", "list"]).is_err() {
        // The executable is in a folder that only root can look into.
        return;
    }
    close(&database, 0o400);
    let remedy = format!("chmod 600 {}", database.display());
    let refused = run(&["client", "list"]).unwrap();
    assert!(
        said(&refused).ends_with(&format!(": {remedy}\n")),
        "{}",
        said(&refused)
    );
    let doctor = run(&["doctor"]).unwrap();
    assert!(shown(&doctor).contains(&remedy), "{}", shown(&doctor));
    close(&database, 0o600);
    close(&data, 0o500);
    let remedy = format!("chmod 700 {}", data.display());
    let refused = run(&["serve"]).unwrap();
    assert_eq!(code(&refused), Some(1));
    assert!(said(&refused).contains(&remedy), "{}", said(&refused));
    let doctor = run(&["doctor"]).unwrap();
    assert!(shown(&doctor).contains(&remedy), "{}", shown(&doctor));
    close(&data, 0o700);
}

#[test]
fn a_key_in_the_place_of_its_name_is_not_repeated() {
    let service = Service::with_client();
    let made = service.json(&["client", "api-key", "add", "web", "--json"]);
    let key = made["api_key"].as_str().unwrap();
    let misused = service.run(&["client", "api-key", "revoke", "web", key, "--yes"]);
    assert_eq!(code(&misused), Some(2));
    let said = said(&misused);
    assert!(said.contains("name the API key by its uuid"), "{said}");
    assert!(!said.contains(key) && !said.contains("idsvc_key_"), "{said}");
}
