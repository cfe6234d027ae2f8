//! The answer to a refresh is lost because the process is killed, and the client asks again.

use std::fs;
use std::path::PathBuf;
use std::thread;

use idsvc::store::engine::redb::journal_of;

use super::kiosk::Kiosk;
use crate::harness::process::Service;

/// How often the journal is compared. A checkpoint in between changes it, and retries do not.
const ATTEMPTS: usize = 5;

fn journal(service: &Service) -> PathBuf {
    journal_of(&service.data().join("idsvc.redb"))
}

#[test]
fn a_retry_after_a_kill_gets_the_same_successor_and_writes_nothing() {
    let service = Service::empty();
    let kiosk = Kiosk::register(&service);
    let mut running = service.serve();
    let (answered, unanswered) = (kiosk.enter(&running).unwrap(), kiosk.enter(&running).unwrap());
    let successor = kiosk.refresh(&running, &answered).unwrap();
    let before = fs::read(journal(&service)).unwrap();
    thread::scope(|scope| {
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", unanswered.as_str()),
        ];
        let (kiosk, process) = (&kiosk, &running);
        scope.spawn(move || drop(kiosk.ask(process, "/oauth2/token", &form)));
        // Once the journal has changed, the rotation may be durable and its answer on the way.
        while fs::read(journal(&service)).unwrap() == before {
            thread::yield_now();
        }
        process.signal("KILL");
    });
    running.kill();

    let running = service.serve();
    assert_eq!(kiosk.refresh(&running, &answered).unwrap(), successor);
    let late = kiosk.refresh(&running, &unanswered).unwrap();
    let is_unchanged = |_| {
        let before = fs::read(journal(&service)).unwrap();
        for _ in 0..8 {
            assert_eq!(kiosk.refresh(&running, &answered).unwrap(), successor);
            assert_eq!(kiosk.refresh(&running, &unanswered).unwrap(), late);
        }
        fs::read(journal(&service)).unwrap() == before
    };
    assert!((0..ATTEMPTS).any(is_unchanged), "a retry is written");
    assert!(
        !service
            .json(&["events", "--event", "refresh_repeated", "--json"])
            .as_array()
            .unwrap()
            .is_empty()
    );
    for (used, newest) in [(answered, successor), (unanswered, late)] {
        kiosk.refresh(&running, &newest).unwrap();
        assert_eq!(kiosk.refresh(&running, &used).unwrap_err().status, 400);
        assert_eq!(kiosk.refresh(&running, &newest).unwrap_err().status, 400);
    }
}
