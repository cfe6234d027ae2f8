//! The names of all users in a file, to find one that occurs twice.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::identity::LoginName;

/// The hashes of the names, 8 bytes each: the names of a million users would take more memory than a command may.
///
/// Two of a million names have the same hash once in millions of files, and nobody can choose names that have: the hash
/// is keyed at random.
#[derive(Default)]
pub(super) struct NameIndex {
    hasher: RandomState,
    hashes: Vec<u64>,
}

impl NameIndex {
    /// Adds the names of one user.
    pub(super) fn add(&mut self, names: &[LoginName]) {
        let start = self.hashes.len();
        for name in names {
            let hash = self.hasher.hash_one(name);
            if !self.hashes.iter().skip(start).any(|known| *known == hash) {
                self.hashes.push(hash);
            }
        }
    }

    /// Prepares the index to be asked, after all names were added.
    pub(super) fn sort(&mut self) {
        self.hashes.sort_unstable();
    }

    /// Whether a name is in more than one entry.
    pub(super) fn has_repeated(&self) -> bool {
        !self.hashes.is_sorted_by(|one, next| one < next)
    }

    /// In how many entries the name is: none, one, or 2 for more.
    pub(super) fn occurrences(&self, name: &LoginName) -> usize {
        let hash = self.hasher.hash_one(name);
        let first = self.hashes.partition_point(|known| *known < hash);
        let found = self.hashes.iter().skip(first).take(2);
        found.filter(|known| **known == hash).count()
    }
}

/// The names by which a line or an entry finds its user, as [`LoginName`]s.
pub(super) fn names_of<'a>(names: impl IntoIterator<Item = Option<&'a str>>) -> Vec<LoginName> {
    names.into_iter().flatten().map(LoginName::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_two_entries_is_found_and_a_name_that_one_entry_has_twice_is_not() {
        let mut index = NameIndex::default();
        for names in [["a@example.com", "A@example.com "], ["b", "c"], ["d", "B"]] {
            index.add(&names_of(names.map(Some)));
        }
        index.sort();
        let counted =
            ["a@example.com", "b", "c", "d", "e"].map(|name| index.occurrences(&LoginName::new(name)));
        assert_eq!(counted, [1, 2, 1, 1, 0]);
    }
}
