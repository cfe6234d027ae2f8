//! Times on the command line: so long ago, a day, or a point in time.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::clock::{Clock, Timestamp};
use crate::config::duration::parse_duration;

const DAY: u64 = 24 * 60 * 60;

/// The first second that a text names.
pub(super) fn parse_since(text: &str) -> Result<Timestamp, String> {
    parse(text, Clock::System.now()).map(|(first, _)| first)
}

/// The last second that a text names: of a day, its last one.
pub(super) fn parse_until(text: &str) -> Result<Timestamp, String> {
    parse(text, Clock::System.now()).map(|(_, last)| last)
}

fn parse(text: &str, now: Timestamp) -> Result<(Timestamp, Timestamp), String> {
    if let Some(ago) = parse_duration(text) {
        return Ok((now - ago, now - ago));
    }
    let today = now.seconds() - now.seconds() % DAY;
    let day = match text {
        "today" => Some(today),
        "yesterday" => Some(today.saturating_sub(DAY)),
        // A date in the format of RFC 3339 has ten characters.
        date if date.len() == 10 => second(&format!("{date}T00:00:00Z")),
        _ => None,
    };
    let range = day
        .map(|first| (first, first + (DAY - 1)))
        .or_else(|| second(text).map(|second| (second, second)));
    let (first, last) = range.ok_or(
        "write how long ago, as in 24h or 90d, or a time in UTC: today, yesterday, 2026-11-24 or 2026-11-24T09:30:00Z",
    )?;
    Ok((Timestamp::from_seconds(first), Timestamp::from_seconds(last)))
}

/// The second since the epoch that a time in the format of RFC 3339 is in.
fn second(text: &str) -> Option<u64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(time.unix_timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_so_long_ago_or_a_day_or_a_second() {
        // 2026-11-25T15:50:00Z
        let now = 1_795_621_800;
        let midnight = now - (15 * 60 + 50) * 60;
        for (text, first, last) in [
            ("2h", now - 7200, now - 7200),
            ("today", midnight, midnight + DAY - 1),
            ("yesterday", midnight - DAY, midnight - 1),
            ("2026-11-25", midnight, midnight + DAY - 1),
            ("2026-11-25T15:50:00Z", now, now),
            ("2026-11-25T16:50:00.999+01:00", now, now),
            ("1970-01-01", 0, DAY - 1),
        ] {
            let range = (Timestamp::from_seconds(first), Timestamp::from_seconds(last));
            assert_eq!(parse(text, Timestamp::from_seconds(now)), Ok(range), "{text}");
        }
        for wrong in [
            "",
            "24",
            "tomorrow",
            "2026-11-31",
            "2026-11-2é",
            "1969-12-31",
            "2026-11-25T15:50:00",
        ] {
            assert!(parse(wrong, Timestamp::from_seconds(now)).is_err(), "{wrong}");
        }
    }
}
