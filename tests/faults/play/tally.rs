//! Counts actions and results, so that idle actors and empty checks are noticed.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The actions that are counted when they were answered.
pub(super) const ACTIONS: &[&str] = &[
    "sign-ins",
    "sign-outs by command",
    "codes redeemed",
    "anonymous grants",
    "refreshes",
    "retries",
    "spent codes refused",
    "replays refused",
    "families revoked",
    "access tokens revoked",
    "assertions",
    "used assertions refused",
    "keys rotated",
    "clients added",
    "clients removed",
    "parallel refreshes",
    "successors sorted out",
    "users disabled",
    "users enabled",
    "secrets replaced",
    "API keys made",
    "API keys revoked",
    "races",
    "disabled clients refused",
];

/// The results that are counted when a check confirms them.
pub(super) const PROOFS: &[&str] = &[
    "live families",
    "ended families",
    "revoked access tokens",
    "unspent codes",
    "spent codes",
    "live sessions",
    "ended sessions",
    "used assertions",
    "live machine tokens",
    "clients there",
    "clients gone",
    "published keys",
    "parallel successors",
    "parallel answers lost",
    "disabled users",
    "enabled users",
    "good secrets",
    "replaced secrets",
    "good API keys",
    "revoked API keys",
    "codes won once",
    "pushed requests won once",
    "enabled clients",
    "disabled clients",
];

/// Counts of things with these names.
pub(crate) struct Tally {
    names: &'static [&'static str],
    counts: Vec<AtomicUsize>,
}

impl Tally {
    pub(super) fn of(names: &'static [&'static str]) -> Self {
        Self {
            names,
            counts: names.iter().map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    pub(super) fn count(&self, name: &str) {
        let at = self.names.iter().position(|known| *known == name);
        let at = at.unwrap_or_else(|| panic!("nobody counts {name}"));
        self.counts[at].fetch_add(1, Ordering::Relaxed);
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        self.names.iter().copied().zip(counts)
    }

    /// How often these were counted in all.
    pub(super) fn of_these(&self, names: &[&str]) -> usize {
        self.all()
            .filter(|(name, _)| names.contains(name))
            .map(|(_, count)| count)
            .sum()
    }

    /// The names that were counted less often than this.
    pub(super) fn below(&self, floor: usize) -> Vec<(&'static str, usize)> {
        self.all().filter(|(_, count)| *count < floor).collect()
    }

    pub(super) fn sum(&self) -> usize {
        self.all().map(|(_, count)| count).sum()
    }

    /// All of it in words.
    pub(super) fn shown(&self) -> String {
        let mut shown = String::new();
        for (name, count) in self.all() {
            let comma = if shown.is_empty() { "" } else { ", " };
            write!(shown, "{comma}{count} {name}").unwrap();
        }
        shown
    }
}
