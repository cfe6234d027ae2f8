//! The events: how long they are kept, which of them the log has, and what a list of them leaves out.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Output, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idsvc::clock::{Clock, Timestamp};
use serde_json::Value;

use crate::harness::process::{Reply, Running, Service, said, shown};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
const ANONYMOUS: [(&str, &str); 1] = [("grant_type", "urn:service:oauth2:grant-type:anonymous")];

fn now() -> u64 {
    Clock::System.now().seconds()
}

fn path(service: &Service, name: &str) -> PathBuf {
    service.data().join("events").join(name)
}

/// Writes a file with an event of this name so many seconds ago, from the oldest to the newest.
fn write(service: &Service, file: &str, event: &str, ago: impl IntoIterator<Item = u64>) {
    let mut text = String::new();
    for (number, ago) in ago.into_iter().enumerate() {
        let time = now() - ago;
        writeln!(
            text,
            "{{\"time\":{time},\"event\":\"{event}\",\"client_id\":\"old\",\"number\":{number}}}"
        )
        .unwrap();
    }
    fs::write(path(service, file), text).unwrap();
}

/// A service with a client `kiosk`, which may create anonymous users, and the credentials of the client.
fn with_kiosk(service: Service) -> (Service, String) {
    let add = "client add kiosk --grant anonymous --grant refresh_token --json";
    let kiosk = service.json(&add.split(' ').collect::<Vec<_>>());
    let credentials = format!("kiosk:{}", kiosk["client_secret"].as_str().unwrap());
    let basic = format!("Basic {}", STANDARD.encode(credentials));
    (service, basic)
}

fn token(running: &Running<'_>, basic: &str, form: &[(&str, &str)]) -> Reply {
    let headers = [("Authorization", basic)];
    let reply = running.post_form("/oauth2/token", &headers, form).unwrap();
    assert_eq!(reply.status, 200, "{reply:?}");
    reply
}

fn count(output: &Output) -> usize {
    assert!(output.status.success(), "{}", said(output));
    shown(output).lines().count()
}

#[test]
fn events_of_any_time_are_shown_whole_or_what_is_missing_is_said() {
    let service = Service::with_client();
    write(
        &service,
        "events.1.jsonl",
        "signed_out",
        (60..160).rev().map(|hours| hours * HOUR + 30),
    );
    write(
        &service,
        "events.jsonl",
        "signed_out",
        (0..60).rev().map(|hours| hours * HOUR + 30),
    );
    write(
        &service,
        "tokens.jsonl",
        "tokens_issued",
        (0..70).rev().map(|hours| hours * HOUR + 30),
    );
    let run = |words: &str| {
        let words: Vec<_> = words.split_whitespace().collect();
        service.run(&[&["events"], &words[..]].concat())
    };
    let some = run("");
    assert_eq!(count(&some), 50);
    assert!(
        said(&some).starts_with("left out: 180 earlier events; --since "),
        "{}",
        said(&some)
    );
    let all = run("--limit 230");
    assert_eq!((count(&all), said(&all).as_str()), (230, ""));
    let since = run("--since 100h --event signed_out");
    assert_eq!((count(&since), said(&since).as_str()), (100, ""));
    let limited = run("--since 100h --limit 3 --json");
    assert_eq!(
        serde_json::from_slice::<Vec<Value>>(&limited.stdout)
            .unwrap()
            .len(),
        3
    );
    assert!(
        said(&limited).starts_with("left out: 167 earlier events; leave out --limit"),
        "{}",
        said(&limited)
    );

    let merged: Vec<Value> = serde_json::from_slice(&run("--since 10d --json").stdout).unwrap();
    let times: Vec<u64> = merged
        .iter()
        .map(|event| event["time"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted());
    assert_eq!(times.len(), 230);
    let today = (now() - now() % DAY, "--since today");
    let yesterday = (today.0 - DAY, "--since yesterday --until yesterday");
    for (begin, words) in [today, yesterday] {
        let of_day = times
            .iter()
            .filter(|time| (begin..begin + DAY).contains(*time))
            .count();
        assert_eq!(count(&run(words)), of_day, "{words}");
        let date = &Timestamp::from_seconds(begin).rfc3339()[..10];
        assert_eq!(
            count(&run(&format!("--since {date} --until {date}"))),
            of_day,
            "{date}"
        );
    }
    for mark in ["events.removed", "tokens.removed"] {
        fs::write(path(&service, mark), "").unwrap();
    }
    let oldest = Timestamp::from_seconds(now() - 69 * HOUR - 30).rfc3339();
    let removed = run("--since 75h");
    assert_eq!(count(&removed), 145);
    assert!(said(&removed).starts_with("routine events before ") && said(&removed).lines().count() == 1);
    assert!(said(&removed).contains(&oldest[..14]), "{}", said(&removed));
    assert_eq!(said(&run("--since 75h --event signed_out")), "");
    let removed = run("--since 365d --json");
    let told: Vec<_> = said(&removed).lines().map(|line| line[..8].to_owned()).collect();
    assert_eq!(told, ["security", "routine "], "{}", said(&removed));

    for wrong in [
        "--since 2h --until 3h",
        "--since tomorrow",
        "--until 2026-11-31",
        "--since today --until yesterday",
    ] {
        let misused = run(wrong);
        assert_eq!(misused.status.code(), Some(2), "{wrong}");
        assert!(misused.stdout.is_empty());
    }
    fs::write(path(&service, "events.1.jsonl"), "{\"ti\n\u{1b}[2J\n").unwrap();
    let broken = run("--since 365d --event signed_out");
    assert_eq!(count(&broken), 60);
    assert!(
        said(&broken).contains("left out: 2 lines in ") && !said(&broken).contains('\u{1b}'),
        "{}",
        said(&broken)
    );
}

#[test]
fn events_are_found_by_the_user_and_the_client_that_they_are_about() {
    let (service, basic) = with_kiosk(Service::with_client());
    let alice = service.json(&["user", "add", "alice@example.com", "--no-password", "--json"]);
    let alice = alice["uuid"].as_str().unwrap();
    let mut running = service.serve();
    let target = "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https://app.example/cb";
    running.type_in(target, "alice@example.com", "a wrong password");
    let tokens = token(&running, &basic, &ANONYMOUS).json();
    let refresh = [
        ("grant_type", "refresh_token"),
        ("refresh_token", tokens["refresh_token"].as_str().unwrap()),
    ];
    token(&running, &basic, &refresh);
    running.terminate();
    let names = |flags: &[&str]| -> Vec<String> {
        let events = service.json(&[&["events", "--json"], flags].concat());
        let events = events.as_array().unwrap().iter();
        events
            .map(|event| event["event"].as_str().unwrap().to_owned())
            .collect()
    };
    let of_alice = ["administered", "sign_in_failed"];
    assert_eq!(names(&["--user", "ALICE@example.com"]), of_alice);
    assert_eq!(names(&["--user", alice, "--since", "1h"]), of_alice);
    assert_eq!(names(&["--user", alice, "--client", "web"]), ["sign_in_failed"]);
    assert_eq!(names(&["--client", "web"]), of_alice);
    let mut of_kiosk = names(&["--client", "kiosk"]);
    of_kiosk.sort();
    assert_eq!(
        of_kiosk,
        [
            "administered",
            "anonymous_user_created",
            "tokens_issued",
            "tokens_issued"
        ]
    );
    let nobody = service.run(&["events", "--user", "bob@example.com"]);
    assert_eq!(nobody.status.code(), Some(1), "{}", said(&nobody));
    service.json(&["user", "remove", "alice@example.com", "--yes", "--json"]);
    assert_eq!(names(&["--user", alice]).len(), 3, "she is removed");
}

#[test]
fn the_log_has_routine_events_from_debug_on_and_the_files_have_them_apart() {
    for (level, in_log) in [("info", 0), ("debug", 40)] {
        let (service, basic) = with_kiosk(Service::new().with("IDSVC_LOG_LEVEL", level));
        let mut running = service.serve();
        for _ in 0..20 {
            token(&running, &basic, &ANONYMOUS);
        }
        service.json(&["client", "disable", "kiosk", "--json"]);
        running.terminate();
        let log = service.log();
        let routine = |text: &str| {
            text.matches("\"event\":\"tokens_issued\"").count()
                + text.matches("\"event\":\"anonymous_user_created\"").count()
        };
        assert_eq!(routine(&log), in_log, "{log}");
        assert!(log.contains("\"command\":\"client disable\""), "{log}");
        let read = |name: &str| fs::read_to_string(path(&service, name)).unwrap();
        assert_eq!(
            (routine(&read("tokens.jsonl")), routine(&read("events.jsonl"))),
            (40, 0)
        );
        assert!(!read("tokens.jsonl").contains("administered"));
    }
}

#[test]
fn what_is_too_old_is_removed_at_the_start_and_routine_events_sooner() {
    let settings = Service::with_client().with("IDSVC_EVENTS_KEEP", "30d");
    for (tokens, left) in [("24h", true), ("off", false)] {
        let service = Service::with_client()
            .with("IDSVC_EVENTS_KEEP", "30d")
            .with("IDSVC_EVENTS_TOKENS", tokens);
        write(&service, "events.2.jsonl", "signed_out", [40 * DAY, 31 * DAY]);
        write(&service, "events.1.jsonl", "signed_out", [31 * DAY, 29 * DAY]);
        write(&service, "tokens.2.jsonl", "tokens_issued", [2 * DAY]);
        write(&service, "tokens.1.jsonl", "tokens_issued", [HOUR]);
        let mut running = service.serve();
        running.until(|_| {
            !path(&service, "events.2.jsonl").exists()
                && !path(&service, "tokens.2.jsonl").exists()
                && path(&service, "tokens.1.jsonl").exists() == left
        });
        running.terminate();
        let shown = service.run(&["events", "--since", "365d", "--event", "signed_out"]);
        assert_eq!(count(&shown), 2);
        assert!(
            said(&shown).starts_with("security events before "),
            "{}",
            said(&shown)
        );
    }
    for wrong in ["0s", "59m"] {
        let refused = settings.run(&["config", "check", "--json", "--events-tokens", wrong]);
        assert_ne!(refused.status.code(), Some(0), "{wrong}");
    }
}

#[test]
fn both_kinds_are_followed_with_all_filters() {
    let (service, basic) = with_kiosk(Service::new());
    let running = service.serve();
    let mut follower = service
        .command(&[
            "events", "--follow", "--limit", "0", "--client", "kiosk", "--json",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    // Events before the follower reads the files are not shown.
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut seen: Vec<String> = Vec::new();
            while !["tokens_issued", "administered"]
                .iter()
                .all(|name| seen.iter().any(|seen| seen == name))
            {
                let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
                assert!(
                    event["client_id"] == "kiosk" || event["subject"] == "kiosk",
                    "{event}"
                );
                seen.push(event["event"].as_str().unwrap().to_owned());
            }
            seen
        });
        while !reader.is_finished() {
            token(&running, &basic, &ANONYMOUS);
            service.json(&["client", "update", "kiosk", "--name", "Kiosk", "--json"]);
            service.json(&["client", "update", "kiosk", "--name", "Stand", "--json"]);
        }
        reader.join().unwrap()
    });
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert!(!seen.is_empty());
    let until = service.run(&["events", "--follow", "--until", "0s", "--limit", "1"]);
    // It ends, because no later event is asked for.
    assert!(count(&until) > 0);
}
