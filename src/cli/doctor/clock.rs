//! Checks the clock against the times that the database knows.

use std::time::Duration;

use super::finding::Finding;
use crate::cli::output::moment;
use crate::clock::{EARLIEST, Timestamp};
use crate::server::clock_guard::is_far_ahead;
use crate::store::ClockState;

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

/// Reports a clock that differs from the time that several nodes and their database share.
pub(super) fn examine_shared(clocks: ClockState) -> Option<Finding> {
    let off = |millis: i64| {
        let direction = if millis < 0 { "behind" } else { "ahead" };
        format!("{} s {direction}", millis.abs() / 1000)
    };
    if clocks.is_node_wrong() {
        let message = format!(
            "it is {} of the time of the other nodes and the database, so the node answers 503",
            off(clocks.node_ahead)
        );
        return Some(Finding::mend("clock", "system clock", message, "set it by NTP"));
    }
    if clocks.is_database_wrong() {
        let message = format!(
            "it is {} of the time of the nodes, which do not go by it",
            off(clocks.database_ahead)
        );
        return Some(Finding::mend("clock", "database clock", message, "set it by NTP"));
    }
    clocks.is_disputed().then(|| {
        let message = format!(
            "it is {} of the clock of the database, and there is no third clock that tells which is right",
            off(clocks.node_ahead)
        );
        Finding::advice("clock", "system clock", message, "set both by NTP")
    })
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
    fn a_clock_that_differs_from_the_shared_time_is_reported() {
        let level = |node_ahead, database_ahead, is_decided| {
            let clocks = ClockState {
                node_ahead,
                database_ahead,
                is_decided,
            };
            examine_shared(clocks).map(|finding| (finding.level, finding.subject))
        };
        let (system, database) = ("system clock".to_owned(), "database clock".to_owned());
        assert_eq!(level(9000, -9000, true), None);
        assert_eq!(level(-20_000, 0, true), Some((Level::Mend, system.clone())));
        assert_eq!(level(3, 120_000, true), Some((Level::Mend, database)));
        assert_eq!(level(7_200_000, 0, false), Some((Level::Advice, system)));
        assert_eq!(level(4000, 0, false), None);
    }

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
