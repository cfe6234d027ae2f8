//! Spans of time, as they are written in the settings.

use std::time::Duration;

/// The longest span of time: a hundred years, so that no date overflows.
pub const LONGEST_DURATION: Duration = Duration::from_hours(24 * 36_525);

/// What [`parse_duration`] accepts, as a regular expression.
pub(super) const PATTERN: &str = r"\s*[0-9]+\s*[smhd]\s*";

/// Parses `24h`, `90d`, `30m` or `60s`. A number without a unit is refused: it would rarely mean seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (digits, unit) =
        text.split_at_checked(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))?;
    let number: u64 = digits.parse().ok()?;
    let seconds = match unit.trim() {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return None,
    };
    number.checked_mul(seconds).map(Duration::from_secs)
}

/// Formats a span of time for [`parse_duration`], in the largest unit without a remainder.
pub fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    let (unit, name) = [(24 * 60 * 60, "d"), (60 * 60, "h"), (60, "m")]
        .into_iter()
        .find(|(unit, _)| seconds != 0 && seconds.is_multiple_of(*unit))
        .unwrap_or((1, "s"));
    format!("{}{name}", seconds / unit)
}
