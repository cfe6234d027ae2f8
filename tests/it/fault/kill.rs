//! The process is killed at random instants, under load, again and again, sometimes while it starts. What was
//! answered holds; what was consumed, revoked or replaced stays so.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use idsvc::random::Random;

use super::play::Play;
use super::{amount, report};
use crate::harness::process::Service;

#[test]
fn what_was_answered_survives_a_killed_process_and_nothing_comes_back_to_life() {
    let service = Service::new().with("IDSVC_REFRESH_RETRY_WINDOW", "600s");
    let mut play = Play::prepare(&service);
    let random = Random::system();
    let millis = || u64::from(random.bytes::<1>()[0]);
    let cycles = amount(25, 300);
    let mut unborn = 0;
    for _ in 0..cycles {
        if millis().is_multiple_of(4) {
            let mut process = service.launch();
            thread::sleep(Duration::from_millis(millis() / 4));
            process.kill();
            unborn += 1;
        }
        let mut process = service.serve();
        play.check(&process);
        play.act_during(&process, false, || {
            thread::sleep(Duration::from_millis(20 + 2 * millis()));
            process.signal("KILL");
        });
        process.kill();
    }
    play.check(&service.serve());
    let outcome = play.outcome();
    assert!(
        outcome.answers > 2 * cycles,
        "only {} answers in {cycles} cycles",
        outcome.answers
    );
    assert!(outcome.ended > 0, "nothing was ever revoked");
    report(
        "kill",
        &format!(
            "{cycles} processes killed under load and {unborn} while starting: {} grants answered, {} families ended, nothing lost and nothing back",
            outcome.answers, outcome.ended
        ),
    );
}

/// The checks can fail: a store that forgets what it had answered is found out.
#[test]
fn the_model_notices_a_store_that_forgets() {
    let service = Service::new();
    let mut play = Play::prepare(&service);
    let database = service.folder.path().join("data/idsvc.redb");
    let earlier = fs::read(&database).unwrap();
    let mut process = service.serve();
    play.act_during(&process, false, || {
        thread::sleep(Duration::from_secs(1));
        process.signal("KILL");
    });
    process.kill();
    fs::write(&database, earlier).unwrap();
    let process = service.serve();
    let checked = catch_unwind(AssertUnwindSafe(|| play.check(&process)));
    assert!(checked.is_err(), "nobody noticed");
}
