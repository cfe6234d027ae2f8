//! The log and the audit, and those who read them or take them away.

use std::fs;
use std::io::{self, Read, pipe};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::harness::process::{Service, said, shown};

/// More refused requests than a pipe takes lines of.
const REFUSED: usize = 500;
const STRANGER: &str = "/oauth2/authorize?client_id=nobody";

#[test]
fn who_does_not_read_the_log_holds_up_neither_requests_nor_the_end() {
    let service = Service::new();
    for is_read_later in [true, false] {
        let (mut log, standard_error) = pipe().unwrap();
        let mut command = service.command(&["serve"]);
        let mut running = service
            .begin_logging_to(standard_error, command.stdout(Stdio::null()))
            .answering();
        // It has the other end open, too.
        drop(command);
        for _ in 0..REFUSED {
            let refused = running.request("GET", STRANGER, &[], "");
            assert_eq!(refused.map(|reply| reply.status), Some(400));
        }
        assert_eq!(service.run(&["client", "list"]).status.code(), Some(0));
        if is_read_later {
            let reader = std::thread::spawn(move || {
                let mut text = String::new();
                log.read_to_string(&mut text).map(|_| text)
            });
            running.terminate();
            let text = reader.join().unwrap().unwrap();
            let of = |what: &str| text.lines().position(|line| line.contains(what)).unwrap();
            assert_eq!(text.matches("\"message\":\"refused\"").count(), REFUSED);
            assert!(of("\"ready\"") < of("\"refused\""));
            assert!(of("\"ready\"") + REFUSED < of("\"stopped\""), "{text}");
            assert!(text.lines().all(|line| line.ends_with('}')), "{text}");
        } else {
            running.signal("TERM");
            let told = Instant::now();
            while running.ended().is_none() {
                assert!(
                    told.elapsed() < Duration::from_secs(30),
                    "it waits for the reader"
                );
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(running.wait().success());
        }
    }
}

#[test]
fn why_a_start_failed_is_the_last_that_the_log_says() {
    let service = Service::empty();
    fs::write(
        service.folder.path().join("idsvc.toml"),
        "[acme]\ndomains = [\"id.example.com\"]\n",
    )
    .unwrap();
    let _taken = TcpListener::bind(("127.0.0.1", service.port)).unwrap();
    let refused = service.run(&["serve"]);
    let lines: Vec<String> = said(&refused).lines().map(ToOwned::to_owned).collect();
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("acme.domains has no effect"), "{lines:?}");
    assert!(lines[1].starts_with("error: "), "{lines:?}");
}

/// A way to remove a file.
type Removal = fn(&Path) -> io::Result<()>;

#[test]
fn the_audit_goes_on_in_a_new_file_when_somebody_takes_its_own_away() {
    let service = Service::with_client();
    let mut running = service.serve();
    let file = service.data().join("events/events.jsonl");
    let until_kept = |what: &str| {
        let kept = || shown(&service.run(&["events", "--json"]));
        let begun = Instant::now();
        while !kept().contains(what) {
            assert!(begun.elapsed() < Duration::from_mins(1), "{what}: {}", kept());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let ways: [(&str, Removal); 2] = [
        ("disable", |file| fs::remove_file(file)),
        ("enable", |file| fs::rename(file, file.with_extension("old"))),
    ];
    // The service has begun to write.
    until_kept("backed_up");
    for (verb, take_away) in ways {
        take_away(&file).unwrap();
        service.json(&["client", verb, "web", "--json"]);
        until_kept(&format!("client {verb}"));
    }
    // It may be cut, too.
    fs::write(&file, "").unwrap();
    service.json(&["client", "disable", "web", "--json"]);
    running.terminate();
    assert!(fs::read_to_string(&file).unwrap().starts_with('{'));
    let told = "the file of events was taken away: what happens is in a new one";
    assert_eq!(service.log().matches(told).count(), 2, "{}", service.log());
}

#[test]
fn a_crash_leaves_no_core_in_which_the_keys_could_be_read() {
    let script = "ulimit -c \"$(ulimit -H -c)\" && exec \"$0\" \"$@\"";
    let service = Service::new().by(&["/bin/sh", "-c", script].map(ToOwned::to_owned));
    for signal in ["ABRT", "ILL"] {
        let mut running = service.serve();
        running.signal(signal);
        let ended = running.wait();
        assert!(ended.signal().is_some() && !ended.core_dumped(), "{ended:?}");
    }
}
