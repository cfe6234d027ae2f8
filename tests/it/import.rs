//! Users from another system: with and without a running service, good lines and bad ones.

use std::fmt::Write as _;
use std::fs;
use std::process::Stdio;

use idsvc::store::tables::{USERS, USERS_BY_LOGIN_NAME};
use idsvc::store::{Options, Store};
use serde_json::json;

use crate::harness::process::{Service, said};

const BCRYPT: &str = "$2y$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e";
const KEYCLOAK: &str = r#"{"keycloak":{"secretData":"{\"value\":\"ndhWw3a4srcTtr4HQFTLiKRlVuARheqNDSZ/M5xlIWk=\",\"salt\":\"AAECAwQFBgcICQoLDA0ODw==\"}","credentialData":"{\"hashIterations\":1000,\"algorithm\":\"pbkdf2\"}"}}"#;
const PASSWORD: &str = "correct horse";
const TARGET: &str = "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https://app.example/cb";

fn write(service: &Service, text: &str) {
    fs::write(service.folder.path().join("users.jsonl"), text).unwrap();
}

fn stored_hash(service: &Service, name: &str) -> String {
    let store = Store::open(&service.data().join("idsvc.redb"), Options::default()).unwrap();
    let user = store
        .read_blocking(|snapshot| {
            let uuid = USERS_BY_LOGIN_NAME.get(snapshot, name)?.unwrap();
            USERS.get(snapshot, &uuid)
        })
        .unwrap();
    user.unwrap().password.unwrap().as_str().to_owned()
}

#[test]
fn imported_users_sign_in_and_their_passwords_are_hashed_anew() {
    let service = Service::with_client();
    let line =
        |name: &str, hash: &str| format!("{{\"email\":\"{name}@example.com\",\"password_hash\":{hash}}}\n");
    write(
        &service,
        &(line("alice", &format!("\"{BCRYPT}\"")) + &line("bob", KEYCLOAK) + "\n"),
    );
    let mut running = service.serve();
    let dry = service.json(&["user", "import", "users.jsonl", "--dry-run", "--json"]);
    assert_eq!((&dry["imported"], &dry["added"]), (&false.into(), &2.into()));
    let done = service.json(&["user", "import", "users.jsonl", "--json"]);
    assert_eq!((&done["imported"], &done["added"]), (&true.into(), &2.into()));
    for name in ["alice@example.com", "bob@example.com"] {
        let (refused, _) = running.type_in(TARGET, name, "wrong horse");
        assert_eq!(refused.status, 200);
        for _ in 0..2 {
            let (reply, _) = running.type_in(TARGET, name, PASSWORD);
            assert_eq!(reply.status, 303, "{name}: {reply:?}");
        }
    }
    let again = service.json(&["user", "import", "users.jsonl", "--json"]);
    assert_eq!((&again["added"], &again["unchanged"]), (&0.into(), &2.into()));
    running.kill();
    for name in ["alice@example.com", "bob@example.com"] {
        assert!(stored_hash(&service, name).starts_with("$argon2id$v=19$m=19456"));
    }
}

#[test]
fn a_byte_order_mark_before_the_first_line_is_passed_over_and_nowhere_else() {
    let service = Service::with_client();
    let line = |name: &str| format!("{{\"email\":\"{name}@example.com\"}}\n");
    write(&service, &format!("\u{feff}{}{}", line("a"), line("b")));
    let done = service.json(&["user", "import", "users.jsonl", "--json"]);
    assert_eq!(done["added"], 2);
    write(&service, &format!("{}\u{feff}{}", line("c"), line("d")));
    let refused = service.run(&["user", "import", "users.jsonl", "--json"]);
    let refused: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(
        (&refused["bad"][0]["line"], &refused["imported"]),
        (&2.into(), &false.into())
    );
}

#[test]
fn an_import_is_the_same_beside_a_running_service_and_without_one() {
    let text = format!(
        "{{\"email\":\"a@example.com\",\"password_hash\":\"{BCRYPT}\"}}\n{{\"email\":\"b@example.com\",\"venue_id\":\"v\"}}\n"
    );
    let run = |service: &Service| {
        write(service, &text);
        let done = service.run(&["user", "import", "users.jsonl"]);
        assert!(done.status.success(), "{}", said(&done));
        let users = service.json(&["user", "list", "--json"]);
        let mut users = users.as_array().unwrap().clone();
        for user in &mut users {
            for volatile in ["uuid", "created_at", "updated_at"] {
                user.as_object_mut().unwrap().remove(volatile);
            }
        }
        (
            String::from_utf8_lossy(&done.stdout).into_owned(),
            said(&done),
            users,
        )
    };
    let (one, other) = (Service::with_client(), Service::with_client());
    let _running = other.serve();
    assert_eq!(run(&one), run(&other));
}

#[test]
fn a_bad_line_is_named_and_nothing_is_imported_unless_it_is_to_be_skipped() {
    let service = Service::with_client();
    let mut text = String::new();
    for number in 1..=1200 {
        match number {
            7 => text.push_str("{\"email\":\"seven\"}\n"),
            // In another transaction than the first of that name.
            1100 => text.push_str("{\"email\":\"USER-3@example.com\"}\n"),
            1150 => writeln!(text, "{{\"email\":\"{}@example.com\"}}", "x".repeat(70_000)).unwrap(),
            _ => writeln!(text, "{{\"email\":\"user-{number}@example.com\"}}").unwrap(),
        }
    }
    write(&service, &text);
    for is_running in [false, true] {
        let _running = is_running.then(|| service.serve());
        let refused = service.run(&["user", "import", "users.jsonl", "--json"]);
        assert_eq!(refused.status.code(), Some(1));
        let document: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
        let lines: Vec<_> = document["bad"]
            .as_array()
            .unwrap()
            .iter()
            .map(|bad| bad["line"].as_u64().unwrap())
            .collect();
        assert_eq!(lines, [7, 1100, 1150]);
        assert!(said(&refused).contains("line 7: \"seven\""), "{}", said(&refused));
        assert!(said(&refused).contains("line 1100: the same user as in line 3"));
        assert!(
            service
                .json(&["user", "list", "--json"])
                .as_array()
                .unwrap()
                .is_empty()
        );
    }
    let done = service.json(&["user", "import", "users.jsonl", "--skip-bad", "--json"]);
    assert_eq!(done["added"], 1197);
    assert_eq!(
        service
            .json(&["user", "list", "--limit", "2000", "--json"])
            .as_array()
            .unwrap()
            .len(),
        1197
    );
}

#[test]
fn what_becomes_of_passwords_is_said_where_there_are_some() {
    let service = Service::with_client();
    for (line, has_password) in [
        (json!({"email": "alice@example.com"}), false),
        (json!({"email": "bob@example.com", "password_hash": BCRYPT}), true),
    ] {
        write(
            &service,
            &format!("{line}\n{{\"email\":\"carol\",\"password_hash\":\"{BCRYPT}\"}}\n"),
        );
        let done = service.run(&["user", "import", "users.jsonl", "--skip-bad"]);
        let said = said(&done);
        assert!(done.status.success() && said.contains("line 2"), "{said}");
        assert_eq!(said.contains("keep their passwords"), has_password, "{said}");
    }
}

#[test]
fn a_claim_that_nobody_is_given_is_kept_and_said() {
    let service = Service::with_client();
    let misspelt = "warning: applications do not get the claim given_nmae: did you mean given_name?\n";
    let unheard = "warning: applications do not get the claim department: no scope includes it\n";
    let both = format!("{unheard}{misspelt}");
    let add = [
        "user",
        "add",
        "alice@example.com",
        "--no-password",
        "--claim",
        "given_nmae=Alice",
        "--claim",
        "department=sales",
        "--claim",
        "address.locality=Ghent",
        "--json",
    ];
    let added = service.run(&add);
    assert_eq!(said(&added), both);
    let added: serde_json::Value = serde_json::from_slice(&added.stdout).unwrap();
    assert_eq!(added["claims"]["department"], "sales");
    let update = |claim| service.run(&["user", "update", "alice@example.com", "--json", "--claim", claim]);
    assert_eq!(said(&update("department=it")), unheard);
    assert_eq!(said(&update("department=")), "");
    let line = |name: &str| {
        format!(
            "{{\"email\":\"{name}@example.com\",\"claims\":{{\"given_nmae\":\"X\",\"department\":\"it\",\"name\":\"X\"}}}}\n"
        )
    };
    write(&service, &(line("bob") + &line("carol")));
    for flags in [&["--dry-run", "--json"][..], &["--json"]] {
        let imported = service.run(&[&["user", "import", "users.jsonl"], flags].concat());
        assert!(imported.status.success());
        assert_eq!(said(&imported), both);
    }
    let state =
        "[[user]]\nemail = \"alice@example.com\"\nclaims = { department = \"it\", nickname = \"al\" }\n";
    fs::write(service.folder.path().join("state.toml"), state).unwrap();
    let applied = service.run(&["apply", "-f", "state.toml", "--json"]);
    assert!(applied.status.success());
    assert_eq!(said(&applied), unheard);

    let mapped = [
        "--claim",
        "given_nmae=dept",
        "--claim",
        "nickname=login",
        "--json",
    ];
    let issuer = ["--issuer", "https://id.corp.example", "--client-id", "us"];
    let way = ["--auth-method", "private_key_jwt"];
    let add = [&["provider", "add", "corp"], &issuer[..], &way, &mapped].concat();
    let added = service.run(&add);
    assert!(added.status.success() && said(&added) == misspelt, "{added:?}");
    let updated = service.run(&[&["provider", "update", "corp"], &mapped[..]].concat());
    assert_eq!(said(&updated), misspelt);
    let none = service.run(&["provider", "update", "corp", "--claim", "", "--json"]);
    assert_eq!(said(&none), "");
    let state = "[[provider]]\nid = \"corp\"\nissuer = \"https://id.corp.example\"\nclient_id = \"us\"\n\
                 auth_method = \"private_key_jwt\"\nclaims = { given_nmae = \"dept\" }\n";
    fs::write(service.folder.path().join("state.toml"), state).unwrap();
    let applied = service.run(&["apply", "-f", "state.toml", "--json"]);
    assert!(applied.status.success());
    assert_eq!(said(&applied), misspelt);

    write(
        &service,
        "{\"email\":\"dave@example.com\",\"claims\":{\"a\\nwarning: b\":\"X\"}}\n",
    );
    let refused = service.run(&["user", "import", "users.jsonl"]);
    assert!(
        !refused.status.success() && !said(&refused).contains("warning"),
        "{refused:?}"
    );
}

/// A pipe that holds this text and then ends.
fn pipe_of(text: &str) -> std::io::PipeReader {
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, text.as_bytes()).unwrap();
    reader
}

#[test]
fn users_come_through_a_pipe_and_clashes_are_settled_as_told() {
    let service = Service::with_client();
    let import = |flags: &[&str], text: &str| {
        let mut child = service
            .command(&[&["user", "import", "-"][..], flags].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    service.json(&["user", "add", "alice@example.com", "--no-password", "--json"]);
    let by_path = service
        .command(&["user", "import", "/dev/stdin"])
        .stdin(pipe_of(r#"{"email":"bob@example.com"}"#))
        .output()
        .unwrap();
    assert!(by_path.status.success(), "{}", said(&by_path));
    service.json(&["user", "show", "bob@example.com", "--json"]);
    let line = r#"{"email":"alice@example.com","user_type":"staff"}"#;
    let refused = import(&[], line);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("--existing skip"), "{}", said(&refused));
    for (flag, expected) in [("skip", "user"), ("update", "staff")] {
        assert!(import(&["--existing", flag], line).status.success());
        let alice = service.json(&["user", "show", "alice@example.com", "--json"]);
        assert_eq!(
            (&alice["user_type"], &alice["source"]),
            (&expected.into(), &"LOCAL".into())
        );
    }
    let missing = service.run(&["user", "import", "nowhere.jsonl"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(said(&missing).contains("nowhere.jsonl cannot be read"));
}
