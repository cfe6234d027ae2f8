//! The disk is nearly full, or full: readiness and the metrics say so before a write fails, users who sign in go on for as
//! long as there is room, and nothing is lost.

use std::fs;
use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use super::kiosk::{Kiosk, is_ready, put_off, until_ready};
use super::{on_a_small_disk, refused_in_one_sentence};
use crate::harness::metrics::Collector;
use crate::harness::process::{Running, Service, shown};
use crate::harness::report::report;

/// Uses up the free room inside the file.
fn enter_until_put_off(kiosk: &Kiosk, running: &Running<'_>, kept: &mut Vec<String>) {
    let refusal = (0..20_000).find_map(|_| kiosk.enter(running).map(|token| kept.push(token)).err());
    let refusal = refusal.unwrap_or_else(|| panic!("the disk is not full"));
    put_off(&refusal);
    assert!(refusal.body.contains("has no room"), "{refusal:?}");
    assert_eq!(refusal.header("retry-after"), Some("60"));
}

/// On a file system of its own that is really full.
#[test]
fn a_full_disk_puts_writes_off_until_there_is_room_and_readiness_says_so() {
    let Some((service, room)) = on_a_small_disk("full disk") else {
        return;
    };
    let data = service.data();
    let kiosk = Kiosk::register(&service);
    let mut running = service.serve();
    let access = kiosk.tokens(&running)["access_token"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut kept: Vec<String> = (0..20).map(|_| kiosk.enter(&running).unwrap()).collect();
    let ballast = room.inside(&data).join("ballast");
    let fill = || {
        let mut file = fs::File::options()
            .create(true)
            .append(true)
            .open(&ballast)
            .unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    };
    fill();
    let said = running.request("GET", "/readyz", &[], "").unwrap();
    assert_eq!(said.status, 503, "before the first write fails");
    assert!(said.body.contains("the disk is nearly full"), "{said:?}");
    let doctor = service.run(&["doctor"]);
    assert!(shown(&doctor).contains("a write may fail"), "{}", shown(&doctor));
    enter_until_put_off(&kiosk, &running, &mut kept);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        let was_ready = is_ready(&running);
        let entered = kiosk.enter(&running);
        assert!(
            !was_ready || entered.is_ok(),
            "readiness promised what did not hold: {}",
            service.log()
        );
        kept.extend(entered.ok());
        let known = kiosk.introspect(&running, &access);
        assert_eq!(
            known.status,
            200,
            "what writes nothing goes on: {}",
            service.log()
        );
        thread::sleep(Duration::from_millis(50));
    }
    assert!(!is_ready(&running), "{}", service.log());
    let log = service.log();
    let lines = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert!((1..=2).contains(&lines("requests are refused")), "{log}");
    assert_eq!(lines("idsvc::refusal"), 0, "{log}");
    let elsewhere = service.folder.path().join("elsewhere.backup");
    let saved = service.run(&["backup", elsewhere.to_str().unwrap()]);
    assert_eq!(saved.status.code(), Some(0), "{saved:?}");
    running.kill();
    let mut running = service.launch();
    running.until(|running| running.request("GET", "/healthz", &[], "").is_some());
    enter_until_put_off(&kiosk, &running, &mut kept);
    fs::remove_file(&ballast).unwrap();
    until_ready(&running);
    let after: Vec<_> = kept.iter().map(|token| kiosk.refresh(&running, token)).collect();
    assert!(after.iter().all(Result::is_ok), "{after:?}");
    running.kill();
    assert_eq!(room.mount_again("ro"), Some(0));
    for words in [&["serve"][..], &["client", "list"], &["key", "rotate"]] {
        refused_in_one_sentence(&service, words, "make it writable");
    }
    assert_eq!(room.mount_again("rw"), Some(0));
    let running = service.serve();
    for token in after.into_iter().flatten() {
        kiosk.refresh(&running, &token).unwrap();
    }
    report(
        "full disk",
        &format!(
            "{} tokens on a full file system, all good when it had room again",
            kept.len()
        ),
    );
}

/// A disk fills up a mebibyte at a time, under load.
#[test]
fn readiness_ends_before_the_first_write_fails() {
    let Some((service, room)) = on_a_small_disk("readiness") else {
        return;
    };
    let data = service.data();
    let kiosk = Kiosk::register(&service);
    let running = service.serve();
    let mut tokens: Vec<_> = (0..200).map(|_| kiosk.enter(&running).unwrap()).collect();
    let free = || idsvc::data_dir::disk::space(&room.inside(&data)).unwrap().free;
    let mut ballast = fs::File::create(room.inside(&data).join("ballast")).unwrap();
    let mut ended_at = None;
    while ballast.write_all(&vec![1; 1 << 20]).is_ok() {
        let was_ready = is_ready(&running);
        if !was_ready {
            ended_at.get_or_insert(free());
        }
        for token in tokens.iter_mut().take(20) {
            match kiosk.refresh(&running, token) {
                Ok(next) => *token = next,
                Err(reply) => {
                    assert!(!was_ready, "ready with {} free: {reply:?}", free());
                    put_off(&reply);
                }
            }
        }
        tokens.rotate_left(20);
    }
    let ended_at = ended_at.unwrap();
    assert!((24 << 20..32 << 20).contains(&ended_at), "{ended_at}");
}

/// New anonymous users are refused while there is only room for users who sign in and for what expires.
#[test]
fn of_a_disk_that_is_nearly_full_strangers_get_nothing_and_others_what_they_need() {
    let Some((service, room)) = on_a_small_disk("nearly full disk") else {
        return;
    };
    let data = service.data();
    let (service, collector) = Collector::of(service);
    let kiosk = Kiosk::register_as(
        &service,
        "kiosk",
        "--grant anonymous --grant refresh_token --grant authorization_code --redirect-uri https://app.example/cb",
    );
    let running = service.serve();
    let mut refresh = kiosk.enter(&running).unwrap();
    let revoked = kiosk.enter(&running).unwrap();
    let link = "/oauth2/authorize?client_id=kiosk&response_type=code&scope=openid&redirect_uri=https://app.example/cb\
                &code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256";
    let ballast = room.inside(&data).join("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    while idsvc::data_dir::disk::space(&room.inside(&data))
        .unwrap()
        .lacking()
        == 0
    {
        file.write_all(&vec![1; 1 << 20]).unwrap();
    }
    for _ in 0..5 {
        put_off(&kiosk.enter(&running).unwrap_err());
        for path in [link, "/account"] {
            let begun = running.request("GET", path, &[], "").unwrap();
            assert_eq!(begun.status, 303, "it needs no room: {begun:?}");
        }
        refresh = kiosk.refresh(&running, &refresh).unwrap();
    }
    assert_eq!(
        collector.value("idsvc_refusals_total{reason=\"no_room\"}"),
        Some(5)
    );
    assert_eq!(kiosk.revoke(&running, &revoked).status, 200);
    assert!(is_ready(&running), "there is room to go on");
    let doctor = service.run(&["doctor"]);
    assert!(
        shown(&doctor).contains("new anonymous users are answered with 503"),
        "{}",
        shown(&doctor)
    );
    // Not by closing it: a process that another test is starting may hold a copy.
    file.set_len(0).unwrap();
    fs::remove_file(&ballast).unwrap();
    kiosk.enter(&running).unwrap();
}

/// The free room jumps. Readiness follows at once, and the log tells it once a minute.
#[test]
fn a_disk_that_fills_and_empties_again_and_again_is_followed_and_fills_no_log() {
    let Some((service, room)) = on_a_small_disk("free room") else {
        return;
    };
    let data = service.data();
    let kiosk = Kiosk::register(&service);
    let running = service.serve();
    let ballast = room.inside(&data).join("ballast");
    let begun = Instant::now();
    for _ in 0..10 {
        let file = fs::File::create(&ballast).unwrap();
        let free = idsvc::data_dir::disk::space(&room.inside(&data)).unwrap().free;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, free - (20 << 20)).unwrap();
        assert!(!is_ready(&running));
        put_off(&kiosk.enter(&running).unwrap_err());
        thread::sleep(Duration::from_millis(200));
        // Not by closing it: a process that another test is starting may hold a copy.
        file.set_len(0).unwrap();
        fs::remove_file(&ballast).unwrap();
        assert!(is_ready(&running));
        kiosk.enter(&running).unwrap();
    }
    assert!(
        begun.elapsed() < Duration::from_secs(50),
        "it cannot be told from two minutes"
    );
    let log = service.log();
    for line in ["the disk is nearly full:", "requests are refused"] {
        let count = log.lines().filter(|logged| logged.contains(line)).count();
        assert!(count <= 1, "{line} is logged {count} times: {log}");
    }
}

#[test]
fn a_limit_on_the_size_of_files_is_a_503_and_no_end() {
    let service = Service::empty();
    let kiosk = Kiosk::register(&service);
    let mut running = service.serve();
    let limit = |bytes| {
        let id = rustix::process::Pid::from_raw(i32::try_from(running.id()).unwrap());
        let limit = rustix::process::Rlimit {
            current: bytes,
            maximum: None,
        };
        rustix::process::prlimit(id, rustix::process::Resource::Fsize, limit).unwrap();
    };
    let mut kept = vec![kiosk.enter(&running).unwrap()];
    limit(Some(64 << 10));
    enter_until_put_off(&kiosk, &running, &mut kept);
    limit(None);
    assert!(running.ended().is_none(), "{}", service.log());
    until_ready(&running);
    for token in &kept {
        kiosk.refresh(&running, token).unwrap();
    }
    drop(running);
    let script = "ulimit -f 1; exec \"$0\" \"$@\"".to_owned();
    let confined = Service::empty().by(&["sh".to_owned(), "-c".to_owned(), script]);
    refused_in_one_sentence(
        &confined,
        &["user", "add", "alice@example.com", "--no-password"],
        "ulimit -f",
    );
}
