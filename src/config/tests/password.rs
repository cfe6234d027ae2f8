use std::fs;

use super::*;
use crate::config::memory_limit::{LimitOrigin, MemoryLimit};
use crate::password::PasswordProblem;

const BASE: &str = "base_url = \"https://id.example.com\"\ntls.mode = \"self-signed\"\n";

#[test]
fn the_passwords_of_a_file_are_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("refused.txt");
    fs::write(&file, "The Acme Way of Things\r\n\nacme anno 1931\n").unwrap();
    let text = format!("{BASE}password.blocklist_file = {:?}\n", file.to_str().unwrap());
    let policy = resolve(&sources_of(&[], &[], &text)).unwrap().policy();
    for refused in ["the acme way of things", "Acme Anno 1931"] {
        let check = policy.password.check(refused, &[]);
        assert_eq!(check, Err(PasswordProblem::Guessable), "{refused}");
    }
    assert_eq!(policy.password.check("acme anno 1932", &[]), Ok(()));
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let folder = tempfile::TempDir::new().unwrap();
    let [absent, binary, long] = ["absent", "binary", "long"].map(|name| folder.path().join(name));
    fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
    fs::File::create(&long).unwrap().set_len((16 << 20) + 1).unwrap();
    for (file, problem) in [
        (absent, "No such file"),
        (binary, "UTF-8"),
        (long, "it has more than 16 MiB"),
    ] {
        let text = format!("{BASE}password.blocklist_file = {:?}\n", file.to_str().unwrap());
        let fault = resolve(&sources_of(&[], &[], &text)).unwrap_err().to_string();
        let named = format!("password.blocklist_file: {}: ", file.display());
        assert!(fault.contains(&named) && fault.contains(problem), "{fault}");
    }
}

/// Each password takes eight bytes of the memory that connections are given.
#[test]
fn the_passwords_of_a_file_are_counted_in_the_memory() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("refused.txt");
    let many: Vec<_> = (0..256 << 10).map(|number| format!("refused {number}")).collect();
    fs::write(&file, many.join("\n")).unwrap();
    let connections = |lines: &str| {
        let sources = Sources {
            memory: Some(MemoryLimit {
                bytes: 64 << 20,
                origin: LimitOrigin::ControlGroup,
            }),
            ..sources_of(&[], &[], &format!("{BASE}{lines}"))
        };
        resolve(&sources).unwrap().memory.connections
    };
    let line = format!("password.blocklist_file = {:?}\n", file.to_str().unwrap());
    let fewer = connections("") - connections(&line);
    assert!((30..33).contains(&fewer), "2 MiB are {fewer} connections");
}
