//! Faults around the service: the process is killed, the disk fails, the clock jumps, peers flood it, it is restarted
//! under load, and the time of answers reveals secrets.
//!
//! Each test has a short form for every run and a long one, which `tests/long` asks for and sums up.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

mod broken_off;
mod clock;
mod confined;
mod damage;
mod disk;
mod flood;
mod full_disk;
#[expect(
    dead_code,
    unused_imports,
    reason = "two test binaries share the harness, and each uses a part"
)]
#[path = "../harness/mod.rs"]
mod harness;
mod kill;
mod lists;
mod memory_group;
mod no_ipv6;
#[cfg(feature = "postgres")]
mod node_clocks;
#[cfg(feature = "postgres")]
mod nodes;
mod play;
mod restart;
mod retry;
mod room;
mod shim;
mod timing;
mod upgrade;

use crate::harness::kiosk;
use crate::harness::process::{Service, said};
use crate::harness::report::report;

use self::room::Room;

/// A service whose data lies on a disk of 160 MiB; nothing, and a line in the report, where none can be mounted.
pub(crate) fn on_a_small_disk(what: &str) -> Option<(Service, Room)> {
    let service = Service::empty();
    let Some(room) = Room::mount(&service.data(), "160m") else {
        report(what, "NOT RUN: file systems cannot be mounted here");
        return None;
    };
    Some((service.by(&room.wrapper()), room))
}

/// The command is refused with one clear sentence.
pub(crate) fn refused_in_one_sentence(service: &Service, words: &[&str], about: &str) {
    let refused = service.run(words);
    let said = said(&refused);
    assert_eq!(refused.status.code(), Some(1), "{words:?}: {said}");
    assert!(
        said.contains(about) && said.lines().count() == 1,
        "{words:?}: {said}"
    );
}
