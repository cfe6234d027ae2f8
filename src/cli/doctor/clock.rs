//! Checks the clock against the times that the database knows.

use std::time::Duration;

use super::finding::Finding;
use crate::cli::output::moment;
use crate::clock::{EARLIEST, Timestamp};
use crate::server::clock_guard::is_far_ahead;

/// How far a time may lie ahead of the clock, which may have been corrected.
pub(super) const TOLERANCE: Duration = Duration::from_mins(5);

/// Checks the clock against the newest record and the watermark. The watermark is the newest time that the database
/// knows, except for the last hour.
pub(super) fn examine(now: Timestamp, newest: Option<Timestamp>, watermark: Option<Timestamp>) -> Finding {
    let latest = newest.map_or(EARLIEST, |newest| newest.max(EARLIEST));
    if now + TOLERANCE < latest {
        let message = format!(
            "it shows {}, but there are records of {}",
            moment(now),
            moment(latest)
        );
        let remedy = "set the clock, and keep it right with NTP: tokens contain its time";
        return Finding::mend("clock", "system clock", message, remedy);
    }
    match watermark.filter(|watermark| is_far_ahead(now, *watermark)) {
        Some(watermark) => Finding::advice(
            "clock",
            "system clock",
            format!(
                "it shows {}, but the newest record from before the last hour is of {}",
                moment(now),
                moment(watermark)
            ),
            "set the clock, unless the service was off for that long. Expired records are kept for an hour after the start",
        ),
        None => Finding::good("clock", "system clock", format!("it shows {}", moment(now))),
    }
}

/// Reports refresh tokens that last longer than new ones.
pub(super) fn examine_outlasting(tokens: usize) -> Option<Finding> {
    if tokens == 0 {
        return None;
    }
    let message = format!(
        "{tokens} of them last longer than new ones. They were issued while the clock was ahead, or before lifetimes.refresh_token was changed"
    );
    let remedy =
        "the next use of each shortens it. idsvc session revoke --user WHO ends those of a user at once";
    Some(Finding::advice("clock", "refresh tokens", message, remedy))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_clock_that_is_far_from_what_the_store_knows_is_reported() {
        let day = Duration::from_hours(24);
        let level = |now, known| examine(now, Some(EARLIEST), known).level;
        assert_eq!(
            level(EARLIEST + day * 900, Some(EARLIEST + day * 899)),
            Level::Good
        );
        assert_eq!(level(EARLIEST + day * 900, None), Level::Good);
        let ahead = examine(EARLIEST + day * 900, Some(EARLIEST), Some(EARLIEST));
        assert_eq!(ahead.level, Level::Advice);
        assert!(
            ahead
                .message
                .contains("the newest record from before the last hour"),
            "{ahead:?}"
        );
        assert_eq!(level(EARLIEST - day, None), Level::Mend);
    }
}
