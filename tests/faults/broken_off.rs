//! Commands about many users that are broken off: the service is killed or its disk fails, or the command is killed.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use super::kiosk::until_ready;
use super::lists::{fill, import_lines};
use super::shim::{EIO, Fault, Faults};
use crate::harness::process::{Running, Service, said, shown};

const USERS: usize = 20_000;
/// Their list is longer than the buffers of the sockets and the pipe, and the service finishes it within the time that it
/// has after SIGTERM.
const LISTED: usize = 5_000;

/// A command that runs, and the first line that it printed.
fn begin(service: &Service, arguments: &[&str]) -> (Child, BufReader<impl Read + use<>>) {
    let mut command = service.command(arguments);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    (child, out)
}

/// Reads the rest of what a command prints. Returns its exit code, and what it printed and said.
fn end(child: Child, mut out: impl Read) -> (Option<i32>, String, String) {
    let mut printed = String::new();
    out.read_to_string(&mut printed).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), printed, said(&output))
}

#[test]
fn a_list_whose_service_is_killed_fails_and_has_no_end() {
    let service = Service::with_client();
    fill(&service, LISTED);
    for (arguments, last) in [
        (&["user", "list", "--json"][..], "]\n"),
        (&["export", "--json"], "}\n"),
        (&["export"], "# The export ends here.\n"),
    ] {
        for is_killed in [true, false] {
            let mut running = service.serve();
            let (child, out) = begin(&service, arguments);
            // The list is not over.
            if is_killed {
                running.kill();
            } else {
                running.signal("TERM");
            }
            let (code, printed, said) = end(child, out);
            assert_eq!(code, Some(i32::from(is_killed)), "{arguments:?}: {said}");
            assert_eq!(
                said.contains("was broken off"),
                is_killed,
                "{arguments:?}: {said}"
            );
            assert_eq!(printed.ends_with(last), !is_killed, "{arguments:?}");
            running.wait();
        }
    }
}

/// Waits until the service has some users, and then breaks off what adds others.
fn break_off(way: &str, running: &mut Running<'_>, service: &Service, child: &mut Child, faults: &Faults) {
    running.until(|_| service.json(&["user", "list", "--limit", "1", "--json"]) != serde_json::json!([]));
    match way {
        "the service is killed" => running.kill(),
        "the disk fails" => faults.set(Fault::Sync, EIO),
        _ => child.kill().unwrap(),
    }
}

#[test]
fn what_is_broken_off_is_finished_by_the_same_command() {
    let mut state =
        "[[client]]\nclient_id = \"web\"\npublic = true\nredirect_uris = [\"https://a.example/\"]\n"
            .to_owned();
    for number in 0..USERS {
        write!(
            state,
            "[[user]]\nemail = \"user{number}@example.com\"\nclaims = {{ name = \"User {number}\" }}\n"
        )
        .unwrap();
    }
    for arguments in [
        &["apply", "-f", "state.toml"][..],
        &["user", "import", "users.jsonl"],
    ] {
        for way in ["the service is killed", "the disk fails", "the command is killed"] {
            let faults = Faults::none();
            let service = faults.over(Service::empty());
            fs::write(service.folder.path().join("state.toml"), &state).unwrap();
            import_lines(0..USERS, &service.folder.path().join("users.jsonl"));
            let mut running = service.serve();
            let mut command = service.command(arguments);
            let errors = fs::File::create(service.folder.path().join("errors")).unwrap();
            let mut child = command.stdout(Stdio::null()).stderr(errors).spawn().unwrap();
            break_off(way, &mut running, &service, &mut child, &faults);
            let status = child.wait().unwrap();
            let said = fs::read_to_string(service.folder.path().join("errors")).unwrap();
            if way == "the command is killed" {
                assert!(!status.success());
            } else {
                assert_eq!(status.code(), Some(1), "{way}: {said}");
                assert!(said.contains("only a part of the file was "), "{way}: {said}");
                assert!(said.contains("run the same command again"), "{way}: {said}");
            }
            faults.set(Fault::Sync, 0);
            if way == "the service is killed" {
                running = service.serve();
            }
            until_ready(&running);
            let count = || {
                service
                    .json(&["user", "list", "--json"])
                    .as_array()
                    .unwrap()
                    .len()
            };
            let before = count();
            assert!(
                (1..USERS).contains(&before),
                "{arguments:?}, {way}: {before} users"
            );
            let again = service.run(arguments);
            assert!(again.status.success(), "{}", self::said(&again));
            let sum = |kept: usize| {
                let added = USERS - kept;
                if arguments[0] == "apply" {
                    format!("{added} added, 0 changed, 0 removed, {} as they were\n", kept + 1)
                } else {
                    format!("added      {added}\nupdated    0\nunchanged  {kept}\nbad        0\n")
                }
            };
            let printed = shown(&again);
            // What the killed command had sent last may have been stored after the count.
            let is_finished = (before..USERS).any(|kept| printed.ends_with(&sum(kept)));
            assert!(is_finished, "{arguments:?}, {way}: {before}, then {printed}");
            assert_eq!(count(), USERS);
        }
    }
}
