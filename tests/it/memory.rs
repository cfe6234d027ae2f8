//! A service that is told how much memory it may use: what it says of it, and what happens when a hash needs more.

use std::fmt::Write as _;
use std::fs;

use crate::harness::process::{Service, said, shown};

const TARGET: &str = "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https://app.example/cb";
/// A hash of `password` that takes 64 MiB, by the reference implementation.
const COSTLY: &str = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";

/// A service with one user, whose password hash takes 64 MiB.
fn service() -> Service {
    let service = Service::with_client();
    let line = format!("{{\"email\":\"alice@example.com\",\"password_hash\":\"{COSTLY}\"}}\n");
    fs::write(service.folder.path().join("users.jsonl"), line).unwrap();
    service.json(&["user", "import", "users.jsonl", "--json"]);
    service
}

#[test]
fn a_sign_in_for_which_there_is_no_memory_is_told_to_come_again_and_the_operator_what_to_do() {
    let service = service().with("IDSVC_LIMITS_MEMORY", "64MiB");
    let running = service.serve();
    let log = service.logged("sized for the memory");
    assert!(log.contains("\"mib\":64,\"origin\":\"limits.memory\""), "{log}");
    for _ in 0..3 {
        let (reply, _) = running.type_in(TARGET, "alice@example.com", "password");
        assert_eq!(
            (reply.status, reply.header("retry-after")),
            (503, Some("2")),
            "{reply:?}"
        );
        assert!(
            reply.body.contains("The service is short of memory right now."),
            "{reply:?}"
        );
        assert!(!reply.body.contains("Many people"), "{reply:?}");
    }
    let (reply, _) = running.type_in(TARGET, "bob@example.com", "password");
    assert_eq!(reply.status, 200, "others are checked");
    let log = service.log();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains("no memory for a password hash"))
        .collect();
    assert!(
        lines.len() == 1 && lines[0].contains("\"kib\":65536,\"limit_kib\":32768,\"hashes\":1"),
        "one line a minute: {log}"
    );
    let doctor = service.run(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    let told = shown(&doctor);
    assert!(
        told.contains("no memory for 3 password hashes") && told.contains("raise limits.memory"),
        "{told}"
    );
    drop(running);
    let service = service.with("IDSVC_LIMITS_MEMORY", "256MiB");
    let running = service.serve();
    let (reply, _) = running.type_in(TARGET, "alice@example.com", "password");
    assert_eq!(reply.status, 303, "{reply:?}");
    let told = shown(&service.run(&["doctor"]));
    assert!(!told.contains("password hashes since"), "{told}");
}

#[test]
fn settings_that_do_not_fit_into_the_memory_are_warned_of() {
    let mut told = String::new();
    for (memory, variable, value) in [
        ("64MiB", "IDSVC_LIMITS_CONNECTIONS", "10000"),
        ("64MiB", "IDSVC_PASSWORD_WORKERS", "8"),
        ("1GiB", "IDSVC_LIMITS_CONNECTIONS", "2000"),
    ] {
        let service = Service::new()
            .with("IDSVC_LIMITS_MEMORY", memory)
            .with(variable, value);
        let checked = service.run(&["config", "check"]);
        assert!(checked.status.success());
        let warning = said(&checked);
        let doctor = shown(&service.run(&["doctor"]));
        assert!(
            warning
                .trim()
                .strip_prefix("warning: memory: ")
                .is_none_or(|text| doctor.contains(&text[..20])),
            "{warning} {doctor}"
        );
        writeln!(told, "{warning}").unwrap();
    }
    let [connections, workers, fitting] = told.split("\n\n").collect::<Vec<_>>()[..] else {
        panic!("{told}");
    };
    assert!(
        connections.contains("limits.connections is 10000, and 64 MiB (limits.memory) have room for"),
        "{told}"
    );
    assert!(workers.contains("hashing passwords takes 152 MiB"), "{told}");
    assert_eq!(fitting.trim(), "", "{told}");
}
