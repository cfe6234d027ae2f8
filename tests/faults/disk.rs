//! The disk fails, is full, or takes no writes: 503 with `Retry-After` while it lasts, nothing lost, and all is
//! well again when the disk is.

use std::thread;
use std::time::{Duration, Instant};

use idsvc::random::Random;

use super::kiosk::{Kiosk, is_ready, put_off, until_ready};
use super::play::Play;
use super::refused_in_one_sentence;
use super::shim::{EIO, ENOSPC, EROFS, Fault, Faults};
use crate::harness::metrics::Collector;
use crate::harness::process::{Service, said, shown};
use crate::harness::report::{amount, report};

#[test]
fn an_error_of_the_disk_is_a_503_until_it_is_over_and_nothing_is_lost() {
    let errors: [&[(Fault, i64)]; 6] = [
        &[(Fault::Sync, EIO)],
        &[(Fault::Sync, ENOSPC)],
        &[(Fault::Write, EIO)],
        &[(Fault::Write, ENOSPC), (Fault::Torn, 1)],
        &[(Fault::Write, EROFS)],
        &[(Fault::Write, EROFS), (Fault::Open, EROFS)],
    ];
    let faults = Faults::none();
    let service = faults.over(Service::empty());
    let kiosk = Kiosk::register(&service);
    let running = service.serve();
    let mut kept = Vec::new();
    let revoked = kiosk.enter(&running).unwrap();
    assert_eq!(kiosk.revoke(&running, &revoked).status, 200);
    for error in errors {
        let before = kiosk.tokens(&running);
        let (access, refresh) = (&before["access_token"], before["refresh_token"].as_str().unwrap());
        let failed = faults.failed();
        let lines = service.log().lines().count();
        for (fault, number) in error {
            faults.set(*fault, *number);
        }
        for _ in 0..5 {
            put_off(&kiosk.enter(&running).unwrap_err());
            put_off(&kiosk.refresh(&running, refresh).unwrap_err());
            put_off(&kiosk.revoke(&running, refresh));
            let known = kiosk.introspect(&running, access.as_str().unwrap());
            if known.status == 200 {
                assert_eq!(known.json()["active"], true);
            } else {
                put_off(&known);
            }
        }
        assert!(!is_ready(&running));
        for path in ["/healthz", "/oauth2/jwks", "/.well-known/openid-configuration"] {
            assert_eq!(running.request("GET", path, &[], "").unwrap().status, 200);
        }
        let command = service.run(&["client", "disable", "kiosk"]);
        assert_eq!(command.status.code(), Some(1));
        assert_eq!(said(&command).lines().count(), 1, "{}", said(&command));
        assert!(faults.failed() > failed, "nothing was made to fail");
        for (fault, _) in error {
            faults.set(*fault, 0);
        }
        until_ready(&running);
        let log = service.log();
        let added = log
            .lines()
            .skip(lines)
            .filter(|line| line.contains("ERROR"))
            .count();
        assert!(added <= 3, "an outage fills the log: {log}");
        kept.push(kiosk.refresh(&running, refresh).unwrap());
        kept.push(kiosk.enter(&running).unwrap());
    }
    drop(running);
    let running = service.serve();
    for token in &kept {
        kiosk.refresh(&running, token).unwrap();
    }
    assert_eq!(kiosk.refresh(&running, &revoked).unwrap_err().status, 400);
}

/// A frozen file system returns no error. `/readyz` and requests that write still report the fault, and the service
/// continues when the file system thaws.
#[test]
fn a_disk_that_does_not_answer_is_said_not_to() {
    let faults = Faults::none();
    let (service, collector) = Collector::of(faults.over(Service::empty()));
    let kiosk = Kiosk::register(&service);
    let running = service.serve();
    let kept = kiosk.enter(&running).unwrap();
    assert!(collector.value("idsvc_disk_free_bytes").is_some());
    faults.set(Fault::Hangs, 1);
    let waiting = std::thread::scope(|scope| {
        let waits = scope.spawn(|| kiosk.enter(&running));
        wait_until(|| !is_ready(&running));
        let status = kiosk.enter(&running).unwrap_err().status;
        assert_eq!(status, 503, "nobody waits for a disk that hangs");
        let asked = Instant::now();
        let readiness = running.request("GET", "/readyz", &[], "").unwrap();
        let doctor = service.run(&["doctor"]);
        for path in ["/healthz", "/oauth2/jwks", "/.well-known/openid-configuration"] {
            assert_eq!(running.request("GET", path, &[], "").unwrap().status, 200);
        }
        for sample in ["idsvc_store_writable", "idsvc_ready"] {
            assert_eq!(collector.value(sample), Some(0), "{sample}");
        }
        assert_eq!(collector.value("idsvc_disk_free_bytes"), None);
        assert!(
            asked.elapsed() < Duration::from_secs(30),
            "they wait for the disk"
        );
        assert_eq!(
            (readiness.status, doctor.status.code()),
            (503, Some(1)),
            "{readiness:?} {doctor:?}"
        );
        for told in [&readiness.body, &shown(&doctor)] {
            assert!(told.contains("the disk does not answer"), "{told}");
        }
        assert!(!waits.is_finished(), "answered before it is on the disk");
        wait_until(|| service.log().contains("the disk does not answer"));
        faults.set(Fault::Hangs, 0);
        waits.join().unwrap()
    });
    until_ready(&running);
    kiosk.refresh(&running, &waiting.unwrap()).unwrap();
    kiosk.refresh(&running, &kept).unwrap();
}

/// During a compaction nothing can be read. A request waits for its end no longer than for a write.
#[test]
fn a_disk_that_hangs_amid_a_compaction_holds_up_nobody_who_does_not_need_it() {
    let faults = Faults::none();
    let service = faults.over(Service::empty());
    let kiosk = Kiosk::register(&service);
    let running = service.serve();
    let kept = kiosk.enter(&running).unwrap();
    // It settles what is in the journal, which the next one need not do first.
    service.json(&["compact", "--json"]);
    faults.set(Fault::Hangs, 1);
    let compacted = thread::scope(|scope| {
        let compacts = scope.spawn(|| service.run(&["compact"]));
        let noticed = comes(|| !is_ready(&running))
            && comes(|| service.log().contains("the database is being compacted"));
        let form = [("token", kept.as_str())];
        let refused: Vec<_> = (0..9)
            .map(|_| kiosk.ask(&running, "/oauth2/introspect", &form))
            .collect();
        let alive = running.request("GET", "/healthz", &[], "");
        let said = running.request("GET", "/readyz", &[], "");
        // The wait for the compaction ends here, also if an assertion below fails.
        faults.set(Fault::Hangs, 0);
        assert!(noticed, "{}", service.log());
        for reply in &refused {
            put_off(reply.as_ref().unwrap());
        }
        assert_eq!(alive.unwrap().status, 200);
        let said = said.unwrap().body;
        assert!(said.contains("is being compacted"), "{said}");
        compacts.join().unwrap()
    });
    assert!(compacted.status.success(), "{}", said(&compacted));
    until_ready(&running);
    kiosk.refresh(&running, &kept).unwrap();
}

fn wait_until(is_so: impl Fn() -> bool) {
    assert!(comes(is_so));
}

/// Whether that is so within a minute.
fn comes(is_so: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(1) {
        if is_so() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// The journal keeps what could not be synced, and is read again: what the store says of a client then goes for it, though
/// the operator was told that the change had failed.
#[test]
fn a_change_that_was_kept_although_it_failed_is_in_force_once_the_disk_is_back() {
    let faults = Faults::none();
    let service = faults.over(Service::empty());
    let kiosk = Kiosk::register(&service);
    let running = service.serve();
    kiosk.enter(&running).unwrap();
    faults.set(Fault::Sync, EIO);
    let command = service.run(&["client", "disable", "kiosk"]);
    assert_eq!(command.status.code(), Some(1), "{}", said(&command));
    faults.set(Fault::Sync, 0);
    until_ready(&running);
    let client = service.json(&["client", "show", "kiosk", "--json"]);
    assert_eq!(client["enabled"], false, "the change was kept");
    assert_eq!(kiosk.enter(&running).unwrap_err().status, 401);
}

/// The journal fails alone, as on a bad sector: the database goes on without it, and nobody notices.
#[test]
fn a_journal_that_fails_alone_is_done_without() {
    let faults = Faults::none();
    let service = faults.over(Service::empty());
    let kiosk = Kiosk::register(&service);
    let mut running = service.serve();
    let mut kept: Vec<_> = (0..5).map(|_| kiosk.enter(&running).unwrap()).collect();
    faults.set(Fault::Journal, EIO);
    for _ in 0..10 {
        kept.push(kiosk.enter(&running).unwrap());
        assert!(is_ready(&running));
    }
    assert!(faults.failed() > 0, "nothing was made to fail");
    running.signal("KILL");
    running.kill();
    drop(running);
    let running = service.serve();
    for token in &kept {
        kiosk.refresh(&running, token).unwrap();
    }
}

/// A disk that fails and recovers all the time, under load, and leaves writes half done.
#[test]
fn a_disk_that_comes_and_goes_loses_nothing_that_was_answered() {
    let faults = Faults::none();
    let service = faults.over(Service::empty().with("IDSVC_REFRESH_RETRY_WINDOW", "600s"));
    let mut play = Play::of(&service);
    let random = Random::system();
    let below = |bound: u64| u64::from_be_bytes(random.bytes()) % bound;
    let (least, most, outages) = (amount(2, 40), 60, 6);
    let mut rounds = 0;
    while rounds < least || rounds < most && !play.lacks(1).is_empty() {
        rounds += 1;
        let running = service.serve();
        play.check();
        play.act_during(true, || {
            for _ in 0..outages {
                thread::sleep(Duration::from_millis(50 + below(200)));
                faults.set(Fault::Torn, i64::try_from(below(2)).unwrap());
                let fault = [Fault::Sync, Fault::Write][usize::try_from(below(2)).unwrap()];
                faults.set(fault, [EIO, ENOSPC][usize::try_from(below(2)).unwrap()]);
                thread::sleep(Duration::from_millis(20 + below(100)));
                faults.set(Fault::Sync, 0);
                faults.set(Fault::Write, 0);
                until_ready(&running);
            }
        });
        until_ready(&running);
        play.check();
    }
    assert!(faults.failed() > 0, "nothing was made to fail");
    let lacks = play.lacks(1);
    assert!(lacks.is_empty(), "never in {rounds} rounds: {lacks:?}");
    let grants = play.grants();
    assert!(grants > rounds, "only {grants} grants in {rounds} rounds");
    report(
        "failing disk",
        &format!(
            "{} outages under load ({} calls failed), nothing lost and nothing back ({})",
            rounds * outages,
            faults.failed(),
            play.outcome()
        ),
    );
}

#[test]
fn a_start_on_a_disk_that_fails_ends_in_one_sentence_and_damages_nothing() {
    let faults = Faults::none();
    let service = faults.over(Service::with_client());
    for (fault, number, about) in [
        (Fault::Open, EROFS, "make it writable"),
        (Fault::Write, EROFS, "make it writable"),
        (Fault::Write, ENOSPC, "free some space"),
        (
            Fault::Sync,
            EIO,
            "idsvc.redb cannot be opened: Input/output error",
        ),
    ] {
        faults.set(fault, number);
        refused_in_one_sentence(&service, &["serve"], about);
        refused_in_one_sentence(&service, &["client", "list"], about);
        faults.set(fault, 0);
    }
    service.serve();
    assert_eq!(
        service.json(&["client", "show", "web", "--json"])["client_id"],
        "web"
    );
}

/// A wrong password is answered without waiting for the disk. While the disk fails, it may not be counted.
#[test]
fn a_wrong_password_is_answered_while_the_disk_fails_and_the_next_are_counted_once_it_is_back() {
    let faults = Faults::none();
    let service = faults
        .over(Service::empty())
        .without("IDSVC_LIMITS_EXEMPT")
        .with("IDSVC_PASSWORD_MEMORY_KIB", "64");
    service.json(&[
        "user",
        "add",
        "alice@example.com",
        "--generate-password",
        "--json",
    ]);
    let running = service.serve();
    let fail = || running.type_in("/account", "alice@example.com", "wrong").0.status;
    let counted = || {
        let shown = service.json(&["user", "show", "alice@example.com", "--json"]);
        shown["failed_passwords"]["count"].as_u64().unwrap_or(0)
    };
    faults.set(Fault::Write, ENOSPC);
    // A write of the service's own may have met the failing disk first. Then the answer is 503.
    assert!(fail() == 200 || !is_ready(&running));
    wait_until(|| !is_ready(&running));
    faults.set(Fault::Write, 0);
    until_ready(&running);
    let before = counted();
    assert!(before <= 1, "one met the failing disk: {before}");
    for _ in 0..5 {
        assert_eq!(fail(), 200);
    }
    wait_until(|| counted() == before + 5);
    let log = service.log();
    let errors = log.lines().filter(|line| line.contains("ERROR")).count();
    assert!(errors <= 3, "an outage fills the log: {log}");
}
