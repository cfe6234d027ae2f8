//! The texts that a theme adds to one language.

use std::collections::BTreeMap;

use super::locale::Direction;

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
