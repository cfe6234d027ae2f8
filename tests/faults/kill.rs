//! The process is killed at random instants, under load, again and again, sometimes while it starts; or the power
//! fails. What was answered holds; what was consumed, revoked or replaced stays so.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use idsvc::random::Random;

use super::play::Play;
use super::shim::{Fault, Faults, Lost};
use crate::harness::process::Service;
use crate::harness::report::{amount, is_long, report};

/// How many times more the service is killed, under ever longer load, when something was not tried often enough.
const MOST_MORE: u32 = 30;

/// Kills the service this many times, applies `after` to its files, and checks. Returns the result in words.
fn kill_again_and_again(service: &Service, cycles: usize, mut after: impl FnMut()) -> String {
    let mut play = Play::of(service);
    let random = Random::system();
    let millis = || u64::from(random.bytes::<1>()[0]);
    let (mut unborn, mut killed, mut more) = (0, 0, 0);
    let floor = (cycles / 25).max(1);
    while killed < cycles || more < MOST_MORE && !play.lacks(floor).is_empty() {
        more += u32::from(killed >= cycles);
        if millis().is_multiple_of(4) {
            let mut process = service.launch();
            thread::sleep(Duration::from_millis(millis() / 4));
            process.kill();
            after();
            unborn += 1;
        }
        let mut process = service.serve();
        play.check();
        play.act_during(false, || {
            thread::sleep(Duration::from_millis(20 + 2 * millis()) * (1 + more));
            process.signal("KILL");
        });
        process.kill();
        after();
        killed += 1;
    }
    let _running = service.serve();
    play.check();
    let lacks = play.lacks(floor);
    assert!(
        lacks.is_empty(),
        "not {floor} times in {killed} cycles: {lacks:?}"
    );
    let grants = play.grants();
    assert!(grants > 2 * killed, "only {grants} grants in {killed} cycles");
    format!(
        "{killed} times under load and {unborn} while starting, nothing lost and nothing back ({})",
        play.outcome()
    )
}

fn patient() -> Service {
    Service::empty().with("IDSVC_REFRESH_RETRY_WINDOW", "600s")
}

#[test]
fn what_was_answered_survives_a_killed_process_and_nothing_comes_back_to_life() {
    let outcome = kill_again_and_again(&patient(), amount(25, 300), || {});
    report("kill", &outcome);
}

/// A killed process leaves what it wrote to the operating system. Without power only what was synced is sure to be
/// there; of the rest any part may be.
#[test]
fn what_was_answered_survives_a_loss_of_power() {
    let faults = Faults::none();
    let service = faults.over_mains(patient());
    let database = service.data().join("idsvc.redb");
    let random = Random::system();
    let mut sum = Lost::default();
    let outcome = kill_again_and_again(&service, amount(8, 150), || {
        let [chance, lost] = random.bytes();
        let lost = if chance < 64 { u8::MAX } else { lost };
        sum += faults.cut_power(&database, lost, &random);
    });
    // Between a write and its sync there is little time: a few losses of power may all miss it.
    assert!(sum.sectors > 0 || !is_long(), "no write was ever lost");
    let Lost {
        sectors,
        lengths,
        names,
    } = sum;
    let what = format!("{sectors} sectors, {lengths} lengths and {names} new files lost");
    report("loss of power", &format!("{outcome} ({what})"));
}

/// The checks can fail: they detect a disk that loses synced data.
#[test]
fn the_model_notices_a_disk_that_lies() {
    let faults = Faults::none();
    let service = faults.over_mains(Service::empty());
    let mut play = Play::of(&service);
    let mut process = service.serve();
    faults.set(Fault::SyncLies, 1);
    play.act_during(false, || {
        thread::sleep(Duration::from_secs(1));
        process.signal("KILL");
    });
    process.kill();
    let database = service.data().join("idsvc.redb");
    assert!(faults.cut_power(&database, u8::MAX, &Random::system()).sectors > 0);
    faults.set(Fault::SyncLies, 0);
    // Where the disk has forgotten one of two files that belong together, the service itself finds out.
    let Ok(_running) = catch_unwind(AssertUnwindSafe(|| service.serve())) else {
        let said = service.log();
        assert!(said.contains("is damaged"), "{said}");
        return;
    };
    let checked = catch_unwind(AssertUnwindSafe(|| play.check()));
    assert!(checked.is_err(), "nobody noticed");
}
