//! The service in a control group that bounds its memory.

use std::thread;
use std::time::Duration;

use super::memory_group::MemoryGroup;
use super::play::Play;
use crate::harness::process::Service;
use crate::harness::report::{amount, report};

#[test]
fn in_64_mib_of_memory_a_mixed_load_is_served_and_survives_a_kill() {
    let group = match MemoryGroup::new(64 << 20) {
        Ok(group) => group,
        Err(reason) => return report("64 MiB of memory", &format!("NOT RUN: {reason}")),
    };
    let service = Service::empty()
        .with("IDSVC_PASSWORD_WORKERS", "1")
        .with("IDSVC_REFRESH_RETRY_WINDOW", "600s")
        .by(&group.wrapper());
    let mut play = Play::of(&service);
    for _ in 0..2 {
        let mut running = service.serve();
        play.check();
        play.act_during(false, || {
            thread::sleep(Duration::from_secs(amount(2, 60)));
            running.signal("KILL");
        });
        running.kill();
    }
    let _running = service.serve();
    play.check();
    assert_eq!(group.kills(), 0, "the memory was not enough");
    let most = group.most().map_or(0, |bytes| bytes >> 20);
    report(
        "64 MiB of memory",
        &format!("{} grants, {most} MiB at most with caches", play.grants()),
    );
}
