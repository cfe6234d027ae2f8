//! What goes wrong around the service: the process is killed, the disk fails, the clock jumps, peers flood it.
//!
//! Each test has a short form for every run and a long one, which `tests/long` asks for and sums up.

mod clock;
mod damage;
mod disk;
mod flood;
mod kill;
mod kiosk;
mod play;
mod room;
mod shim;
mod upgrade;

use std::io::Write as _;

use crate::harness::process::{Service, said};

/// Whether the long forms are wanted.
pub(crate) fn is_long() -> bool {
    std::env::var_os("IDSVC_LONG").is_some()
}

/// The first of two amounts, or in a long run the second.
pub(crate) fn amount<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// Says what was found, for whoever reads the test's output and for the summary of a long run.
pub(crate) fn report(name: &str, figures: &str) {
    eprintln!("{name}: {figures}");
    if let Some(path) = std::env::var_os("IDSVC_LONG_REPORT") {
        let mut file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        file.write_all(format!("{name}\t{figures}\n").as_bytes()).unwrap();
    }
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
