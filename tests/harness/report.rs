//! The long forms of tests, and the summary that `tests/long` prints of them.

use std::io::Write as _;

/// Whether the long forms are wanted.
pub(crate) fn is_long() -> bool {
    std::env::var_os("IDSVC_LONG").is_some()
}

/// The first of two amounts, or in a long run the second.
pub(crate) fn amount<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// Writes a result to the test's output and to the summary of a long run.
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
