//! What a command says of itself when nobody reads what it prints, and of words that are no text.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Output, Stdio};

use super::code;
use crate::harness::process::{Service, said};

/// Runs a command whose standard output nobody reads.
fn unread(service: &Service, arguments: &[&str]) -> Output {
    let (reader, mut writer) = std::io::pipe().unwrap();
    drop(reader);
    // A process that another test is about to start may still hold the other end.
    while writer.write(b"\n").is_ok() {
        std::thread::yield_now();
    }
    service
        .command(arguments)
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap()
}

#[test]
fn every_change_is_said_when_nobody_reads_what_came_of_it() {
    let service = Service::with_client();
    let folder = service.folder.path();
    fs::write(folder.join("users.jsonl"), "{\"email\":\"alice@example.com\"}\n").unwrap();
    let elsewhere = folder.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::copy(folder.join("data/master.key"), elsewhere.join("master.key")).unwrap();
    let elsewhere = elsewhere.to_str().unwrap();
    let app = "client add app --public --redirect-uri https://app.example/cb --api-key --json";
    for (line, told) in [
        ("user import users.jsonl --dry-run", None),
        (
            "user import users.jsonl",
            Some("users were imported: 1 added, 0 updated, 0 bad; that could not be shown"),
        ),
        ("user import users.jsonl --existing skip --json", None),
        (
            "backup saved",
            Some("the backup saved was made; that could not be shown"),
        ),
        ("backup --json", Some("was made; that could not be shown")),
        (
            &format!("restore saved --data-dir {elsewhere}"),
            Some("the backup was restored into"),
        ),
        ("theme new acme", Some("acme is made; that could not be shown")),
        (
            "man pages",
            Some("the pages are in pages; that could not be shown"),
        ),
        (
            app,
            Some("client app was added; its API key could not be shown: idsvc client api-key list app names"),
        ),
        (
            &app.replace("--public", "").replace("app ", "shop "),
            Some(
                "its secret and its API key could not be shown: idsvc client rotate-secret shop makes a new one; idsvc client api-key list shop",
            ),
        ),
    ] {
        let output = unread(&service, &line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(
            code(&output),
            Some(i32::from(told.is_some())),
            "{line}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains(told.unwrap_or_default()),
            "{line}: {}",
            said(&output)
        );
    }
}

#[test]
fn what_is_wrong_counts_when_nobody_reads_it() {
    let service = Service::with_client();
    fs::write(service.folder.path().join("bad.jsonl"), "{}\n").unwrap();
    service.json(&["client", "update", "web", "--theme", "gone", "--json"]);
    let sound = unread(&service, &["doctor", "--json", "--theme", "split"]);
    assert_eq!(code(&sound), Some(1), "{}", said(&sound));
    assert!(said(&sound).contains("must be mended"));
    service.json(&["client", "update", "web", "--theme", "", "--json"]);
    assert_eq!(code(&unread(&service, &["doctor"])), Some(0));
    for line in [
        "user import bad.jsonl --json",
        "config check --listen nowhere --json",
    ] {
        let refused = unread(&service, &line.split(' ').collect::<Vec<_>>());
        assert_eq!(code(&refused), Some(1), "{line}: {}", said(&refused));
        assert!(said(&refused).contains("error: "), "{line}");
    }
}

#[test]
fn what_is_no_text_is_refused_and_not_taken_for_something_else() {
    let service = Service::with_client();
    let odd = service.folder.path().join(OsStr::from_bytes(b"d\xe9"));
    let by_flag = service
        .command(&["client", "list", "--data-dir"])
        .arg(&odd)
        .output()
        .unwrap();
    let by_variable = |name: &str| service.command(&["doctor"]).env(name, &odd).output().unwrap();
    for (place, output) in [
        ("--data-dir", by_flag),
        ("IDSVC_DATA_DIR", by_variable("IDSVC_DATA_DIR")),
        ("IDSVC_CONFIG", by_variable("IDSVC_CONFIG")),
    ] {
        assert_eq!(code(&output), Some(1), "{place}");
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(
            told.contains(place) && told.contains("its value is not UTF-8"),
            "{told}"
        );
    }
    assert_eq!(
        fs::read_dir(service.folder.path()).unwrap().count(),
        1,
        "nothing is made"
    );
    let unrelated = service
        .command(&["client", "list"])
        .env("OTHER", &odd)
        .output()
        .unwrap();
    assert_eq!(code(&unrelated), Some(0));
}
