//! Where texts have names and numbers.

/// How a text marks the place of a name or a number.
pub const PLACE: &str = "{}";

/// Texts that got their place when themes had been written with them: those of a theme may be without it.
pub const PLACE_OPTIONAL: [&str; 1] = ["problem_too_long"];

/// Texts that have a form for each kind of number, separated by `|`: see [`crate::pages::moment`].
pub const PLURAL: [&str; 5] = [
    "minutes_ago",
    "hours_ago",
    "days_ago",
    "problem_throttled_wait",
    "second_factor_remember",
];
