//! What a theme adds to the texts of one language.

use std::collections::BTreeMap;

use super::locale::Direction;

/// Texts by their names, or words for scopes by theirs.
pub type Words = BTreeMap<String, String>;

/// What a theme adds to one language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Language {
    /// Its name in itself; nothing when the service knows it, or nobody does.
    pub name: Option<String>,
    /// How it is written; nothing when the tag says it.
    pub direction: Option<Direction>,
    /// Texts in the place of the built-in ones.
    pub texts: Words,
    /// Words for scopes.
    pub scopes: Words,
}

impl Language {
    /// Takes what `weaker` says where this says nothing.
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
