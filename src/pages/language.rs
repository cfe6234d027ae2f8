//! How a language is written, and what a theme adds to its texts.

use std::collections::BTreeMap;

/// How a language is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From left to right.
    Ltr,
    /// From right to left.
    Rtl,
}

impl Direction {
    /// The value of HTML's `dir` attribute.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ltr => "ltr",
            Self::Rtl => "rtl",
        }
    }

    /// The direction of a `dir` value.
    pub fn of(word: &str) -> Option<Self> {
        [Self::Ltr, Self::Rtl]
            .into_iter()
            .find(|direction| direction.as_str() == word)
    }

    /// The direction of a language's usual script, by the language tag.
    pub fn of_tag(tag: &str) -> Self {
        const RTL: [&str; 12] = [
            "ar", "ckb", "dv", "fa", "he", "ks", "ps", "sd", "syr", "ug", "ur", "yi",
        ];
        let language = tag.split('-').next().unwrap_or_default();
        if RTL.iter().any(|known| known.eq_ignore_ascii_case(language)) {
            Self::Rtl
        } else {
            Self::Ltr
        }
    }
}

/// Texts by name, or texts for scopes by scope.
pub type Words = BTreeMap<String, String>;

/// The part of a theme for one language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Language {
    /// Its own name for itself; `None` if the theme does not say it.
    pub name: Option<String>,
    /// The writing direction; `None` if the tag decides it.
    pub direction: Option<Direction>,
    /// Texts that replace built-in ones.
    pub texts: Words,
    /// Texts for scopes.
    pub scopes: Words,
}

impl Language {
    /// Fills what is missing here from `weaker`.
    pub fn underlay(&mut self, weaker: &Self) {
        self.direction = self.direction.or(weaker.direction);
        self.name = self.name.take().or_else(|| weaker.name.clone());
        for (mine, theirs) in [
            (&mut self.texts, &weaker.texts),
            (&mut self.scopes, &weaker.scopes),
        ] {
            for (name, value) in theirs {
                mine.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }
}
