//! Declared state from a file, and back into one.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::harness::process::{Service, run_with_input, said, shown};

const STATE: &str = r#"
[[provider]]
id = "corp"
issuer = "https://login.corp.example"
client_id = "us"
client_secret_file = "corp.secret"
domains = ["corp.example"]
claims = { given_name = "firstName" }
embed_token = "off"

[[client]]
client_id = "web"
client_uuid = "0193b2a4-7a10-7cc0-8000-000000000001"
name = "Acme Notes"
redirect_uris = ["https://app.example/cb"]
providers = ["corp"]
secret_file = "web.secret"

[[client]]
client_id = "phone"
public = true
redirect_uris = ["com.example.app:/cb"]

[[user]]
email = "alice@example.com"
email_verified = true
password_env = "ALICE_PASSWORD"
claims = { given_name = "Alice", address = { locality = "Ghent" } }
"#;

const TARGET: &str = "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https://app.example/cb";
const PASSWORD: &str = "correct horse battery staple";

fn declared() -> Service {
    let service = Service::new();
    fs::write(service.folder.path().join("state.toml"), STATE).unwrap();
    fs::write(
        service.folder.path().join("web.secret"),
        format!("{}\n", "s".repeat(40)),
    )
    .unwrap();
    fs::write(service.folder.path().join("corp.secret"), "zzzzzzzz").unwrap();
    service
}

fn apply(service: &Service, flags: &[&str]) -> Output {
    service
        .command(&[&["apply", "-f", "state.toml"][..], flags].concat())
        .env("ALICE_PASSWORD", PASSWORD)
        .output()
        .unwrap()
}

#[test]
fn a_state_is_applied_the_same_with_a_service_and_without_one_and_once_only() {
    let run = |service: &Service| {
        let outputs = [
            apply(service, &["--dry-run"]),
            apply(service, &[]),
            apply(service, &[]),
        ];
        for output in &outputs {
            assert!(output.status.success(), "{}", said(output));
        }
        // Identifiers that nobody declared are made anew each time.
        let is_made = |line: &str| line.contains("uuid = \"") && !line.contains("7cc0-8000-000000000001");
        outputs.map(|output| {
            let kept: Vec<_> = shown(&output)
                .lines()
                .filter(|line| !is_made(line))
                .map(|line| format!("{line}\n"))
                .collect();
            (kept.concat(), said(&output))
        })
    };
    let (one, other) = (declared(), declared());
    for service in [&one, &other] {
        service.json(&["user", "add", "bob@example.com", "--no-password", "--json"]);
    }
    let running = other.serve();
    let outputs = run(&one);
    assert_eq!(outputs, run(&other));
    assert!(outputs[0].1.contains("dry run"));
    assert!(
        outputs[1].0.contains("+ client web\n")
            && outputs[1]
                .0
                .ends_with("4 added, 0 changed, 0 removed, 0 as they were\n"),
        "{}",
        outputs[1].0
    );
    assert_eq!(outputs[2].0, "0 added, 0 changed, 0 removed, 4 as they were\n");
    assert!(
        !outputs
            .iter()
            .any(|(text, _)| text.contains(PASSWORD) || text.contains("ssss") || text.contains("zzzz"))
    );
    let (reply, _) = running.type_in(TARGET, "alice@example.com", PASSWORD);
    assert_eq!(reply.status, 303, "{reply:?}");
    let web = other.json(&["client", "show", "web", "--json"]);
    assert_eq!(web["client_uuid"], "0193b2a4-7a10-7cc0-8000-000000000001");
}

#[test]
fn export_and_apply_are_a_fixed_point_and_a_copy_is_the_same() {
    let service = declared();
    assert!(apply(&service, &[]).status.success());
    service.json(&[
        "user",
        "add",
        "bob@example.com",
        "--no-password",
        "--claim",
        "badge=7",
        "--json",
    ]);
    service.json(&[
        "client",
        "add",
        "robot",
        "--grant",
        "client_credentials",
        "--scope",
        "a b",
        "--allow-secret-credentials",
        "--max-scope",
        "a",
        "--json",
    ]);
    let exported = service.run(&["export"]);
    assert!(exported.status.success(), "{}", said(&exported));
    assert!(!shown(&exported).contains("hash") && !shown(&exported).contains("sha256"));
    let pipe = |service: &Service, text: &[u8], flags: &[&str]| {
        let mut command = service.command(&[&["apply", "-f", "-", "--json"][..], flags].concat());
        let output = run_with_input(&mut command, text);
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let applied = pipe(&service, &exported.stdout, &["--prune", "--yes"]);
    assert_eq!(
        (&applied["changes"], &applied["unchanged"]),
        (&serde_json::json!([]), &6.into())
    );
    assert_eq!(shown(&service.run(&["export"])), shown(&exported));
    let whole = service.run(&["export", "--with-hashes"]);
    let copy = Service::empty();
    let _running = copy.serve();
    // The secret of a provider is in no export: it is named again.
    let secret = service.folder.path().join("corp.secret");
    let named = shown(&whole).replacen(
        "id = \"corp\"\n",
        &format!("id = \"corp\"\nclient_secret_file = \"{}\"\n", secret.display()),
        1,
    );
    assert_eq!(
        pipe(&copy, named.as_bytes(), &[])["changes"]
            .as_array()
            .unwrap()
            .len(),
        6
    );
    assert_eq!(shown(&copy.run(&["export", "--with-hashes"])), shown(&whole));
    let json = copy.run(&["export", "--json"]);
    assert_eq!(pipe(&copy, &json.stdout, &[])["unchanged"], 6);

    assert!(!said(&whole).contains("left out"), "{}", said(&whole));
    copy.json(&["client", "rotate-secret", "robot", "--keep-old", "24h", "--json"]);
    let without_old = copy.run(&["export", "--with-hashes"]);
    assert!(
        without_old.status.success() && said(&without_old).contains("the old secret of client robot"),
        "{}",
        said(&without_old)
    );
}

#[test]
fn pruning_asks_and_a_faulty_file_changes_nothing() {
    let service = declared();
    assert!(apply(&service, &[]).status.success());
    service.json(&[
        "client",
        "add",
        "extra",
        "--redirect-uri",
        "https://x.example/",
        "--json",
    ]);
    let asked = apply(&service, &["--prune"]);
    assert_eq!(asked.status.code(), Some(2));
    assert!(
        said(&asked).contains("- client extra") && said(&asked).contains("--yes"),
        "{}",
        said(&asked)
    );
    let planned = apply(&service, &["--prune", "--dry-run"]);
    assert!(shown(&planned).contains("- client extra"));
    assert_eq!(
        service
            .json(&["client", "list", "--json"])
            .as_array()
            .unwrap()
            .len(),
        3
    );
    let pruned = apply(&service, &["--prune", "--yes"]);
    assert!(shown(&pruned).contains("1 removed"));
    fs::write(
        service.folder.path().join("state.toml"),
        format!("{STATE}\n[[user]]\nemial = \"x\"\n"),
    )
    .unwrap();
    let refused = apply(&service, &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("state.toml: line 31: unknown key emial "),
        "{}",
        said(&refused)
    );
    // What only the service can know has its place in the file too.
    let orphan = STATE.replacen("providers = [\"corp\"]", "providers = [\"corq\"]", 1);
    fs::write(service.folder.path().join("state.toml"), orphan).unwrap();
    for flags in [&["--dry-run"][..], &[], &["--prune"]] {
        let refused = apply(&service, flags);
        let said = said(&refused);
        assert!(
            said.starts_with("error: state.toml: line 11: client web: ") && said.contains("provider corq"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let public = STATE.replacen("secret_file = \"web.secret\"", "public = true", 1);
    fs::write(service.folder.path().join("state.toml"), public).unwrap();
    let planned = apply(&service, &["--dry-run"]);
    assert!(
        shown(&planned).contains("    secret (removed)\n"),
        "{}",
        shown(&planned)
    );
}

/// A client and 150 users. The password of the user with number 100, in the second batch, comes from a pipe.
fn many_users() -> String {
    let mut state =
        "[[client]]\nclient_id = \"app\"\npublic = true\nredirect_uris = [\"https://a.example/\"]\n"
            .to_owned();
    for number in 0..150 {
        let _ = write!(
            state,
            "[[user]]\naccount_id = \"user{number}\"\nemail = \"user{number}@example.com\"\n"
        );
        if number == 100 {
            state.push_str("password_file = \"pipe\"\n");
        }
    }
    state
}

/// The file is read three times. Each time it gets to the pipe, a new pipe takes its place, and the path is never empty.
/// `before_last` runs when the first batch is stored.
fn serve_pipe(pipe: &Path, child: &mut Child, before_last: impl FnOnce()) {
    let next = pipe.with_extension("next");
    let replace = || {
        assert!(Command::new("mkfifo").arg(&next).status().unwrap().success());
        fs::rename(&next, pipe).unwrap();
    };
    let mut before_last = Some(before_last);
    replace();
    for pass in 0..3 {
        let mut writer = writer_of(pipe, child);
        replace();
        if pass == 2 {
            before_last.take().unwrap()();
        }
        writer.write_all(PASSWORD.as_bytes()).unwrap();
    }
    fs::remove_file(pipe).unwrap();
}

/// Waits until the child reads the pipe.
fn writer_of(pipe: &Path, child: &mut Child) -> fs::File {
    let mut options = fs::OpenOptions::new();
    options
        .write(true)
        .custom_flags(i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap());
    loop {
        if let Ok(writer) = options.open(pipe) {
            return writer;
        }
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The check before the first change finds every fault of the file. Another change at the same time can still end it.
#[test]
fn a_user_who_is_refused_leaves_the_others_as_the_message_says() {
    let service = Service::new();
    let file = service.folder.path().join("state.toml");
    let pipe = service.folder.path().join("pipe");
    let users = || {
        service
            .json(&["user", "list", "--json"])
            .as_array()
            .unwrap()
            .len()
    };
    fs::write(&file, many_users()).unwrap();
    let _running = service.serve();
    let mut command = service.command(&["apply", "-f", "state.toml"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let add = |email: &str| service.json(&["user", "add", email, "--no-password", "--json"]);
    serve_pipe(&pipe, &mut child, || {
        add("user140@example.com");
        add("other@example.com");
        let update = [
            "user",
            "update",
            "other@example.com",
            "--account-id",
            "user140",
            "--json",
        ];
        service.json(&update);
    });
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(
        said(&output),
        "error: state.toml: line 426: user user140: its names belong to different users\n\
         error: only a part of the file was applied: everything but the users, and 100 of 150 users; the other 50 are as they were\n\
         hint: run the same command again: it changes nothing twice, and goes on where this one ended\n"
    );
    assert_eq!(users(), 102);
    service.json(&["client", "show", "app", "--json"]);
    for email in ["user140@example.com", "other@example.com"] {
        service.json(&["user", "remove", email, "--yes", "--json"]);
    }
    fs::write(&pipe, PASSWORD).unwrap();
    for sum in [
        "50 added, 0 changed, 0 removed, 101",
        "0 added, 0 changed, 0 removed, 151",
    ] {
        let again = service.run(&["apply", "-f", "state.toml"]);
        assert!(
            shown(&again).ends_with(&format!("{sum} as they were\n")),
            "{}",
            said(&again)
        );
    }
    assert_eq!(users(), 150);
}

#[test]
fn a_dry_run_of_any_size_and_a_fault_in_the_last_entry_write_nothing() {
    let service = Service::new();
    let file = service.folder.path().join("state.toml");
    fs::write(service.folder.path().join("pipe"), PASSWORD).unwrap();
    let state = many_users();
    service.json(&["user", "add", "first@example.com", "--no-password", "--json"]);
    let exported = || shown(&service.run(&["export"]));
    let before = exported();
    fs::write(&file, &state).unwrap();
    let planned = service.run(&["apply", "-f", "state.toml", "--dry-run"]);
    let sum = "151 added, 0 changed, 0 removed, 0 as they were\n";
    assert!(shown(&planned).ends_with(sum), "{}", said(&planned));
    assert_eq!(exported(), before);
    let faulty = format!(
        "{state}[[user]]\nemail = \"no address\"\n[[client]]\nclient_id = \"web\"\nproviders = [\"corq\"]\n\
         redirect_uris = [\"https://a.example/\"]\n"
    );
    fs::write(&file, faulty).unwrap();
    let refused = service.run(&["apply", "-f", "state.toml"]);
    assert_eq!(refused.status.code(), Some(1));
    for fault in ["client web: there is no provider corq", "user no address: "] {
        assert!(said(&refused).contains(fault), "{}", said(&refused));
    }
    assert_eq!(exported(), before);
}

/// From the command line to the token endpoint, and through a file.
#[test]
fn what_a_refresh_brings_is_the_operators_choice() {
    let service = Service::new();
    let run = |line: &str| service.run(&line.split(' ').collect::<Vec<_>>());
    let add = "client add kiosk --grant anonymous --grant refresh_token --refresh-policy reuse --id-token-on-refresh off --json";
    let kiosk = service.json(&add.split(' ').collect::<Vec<_>>());
    assert_eq!(kiosk["refresh_policy"], "reuse");
    assert_eq!(kiosk["id_token_on_refresh"], false);
    let secret = kiosk["client_secret"].as_str().unwrap();
    let basic = format!("Basic {}", STANDARD.encode(format!("kiosk:{secret}")));
    let running = service.serve();
    let token = |form: &[(&str, &str)]| {
        let headers = [("Authorization", basic.as_str())];
        let reply = running.post_form("/oauth2/token", &headers, form).unwrap();
        reply.json()["refresh_token"].as_str().unwrap().to_owned()
    };
    let refresh = |held: &str| token(&[("grant_type", "refresh_token"), ("refresh_token", held)]);
    let first = token(&[("grant_type", "urn:service:oauth2:grant-type:anonymous")]);
    for _ in 0..2 {
        assert_eq!(refresh(&first), first);
    }
    let exported = shown(&run("export"));
    for line in ["refresh_policy = \"reuse\"", "id_token_on_refresh = false"] {
        assert!(exported.contains(line), "{exported}");
    }

    let update = "client update kiosk --refresh-policy rotate --id-token-on-refresh on";
    assert!(run(update).status.success());
    let second = refresh(&first);
    assert_ne!(second, first);
    let changed = shown(&run("export"));
    assert!(
        !changed.contains("refresh_policy") && !changed.contains("on_refresh"),
        "{changed}"
    );
    fs::write(service.folder.path().join("state.toml"), exported).unwrap();
    assert!(run("apply -f state.toml").status.success());
    assert_eq!(refresh(&second), second);

    let public = run("client add app --public --redirect-uri https://app.example/cb --refresh-policy reuse");
    assert!(
        said(&public).contains("the refresh policy reuse is for clients that authenticate"),
        "{}",
        said(&public)
    );
}

#[test]
fn the_marker_scope_is_the_operators_choice_and_is_exported() {
    let service = Service::new();
    let run = |line: &str| {
        let output = service.run(&line.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{line}: {}", said(&output));
        shown(&output)
    };
    run("client add web --redirect-uri https://app.example/cb --scope-marker off");
    let is_off = |text: &str| {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>() == ["scope_marker", "off"];
        text.lines().any(words)
    };
    assert!(is_off(&run("client show web")));
    let exported = run("export");
    assert!(exported.contains("scope_marker = false"), "{exported}");
    assert!(!is_off(&run("client update web --scope-marker on")));
    assert!(!run("export").contains("scope_marker"));
    fs::write(service.folder.path().join("state.toml"), exported).unwrap();
    run("apply -f state.toml");
    assert!(is_off(&run("client show web")));
}
