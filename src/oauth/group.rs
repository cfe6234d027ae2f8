//! Groups of users: the claim `groups` of RFC 9068 section 2.2.3.1 and RFC 7643 section 4.1.2.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::identity::User;
use crate::oauth::fields::fields;
use crate::oauth::named::NamedRecord;
use crate::text;

fields! {
    /// The settings of a group.
    GroupMetadata;

    /// A change of the settings of a group. A field that is left out keeps its value, and an empty text removes it.
    GroupFields;

    /// A description for operators.
    text: Option<String>;
}

/// A group of users. The records of users have its identifier, so a new group of the same name has no users.
pub type Group = NamedRecord<GroupMetadata>;

/// The groups that exist, by name and by identifier.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    ids: BTreeMap<String, Uuid>,
    /// The identifiers by the form in which names are compared ([`text::caseless`]).
    ids_by_form: BTreeMap<String, Uuid>,
    names: BTreeMap<Uuid, String>,
}

impl Groups {
    /// The groups of these names and identifiers.
    pub fn new(groups: impl IntoIterator<Item = (String, Uuid)>) -> Self {
        let ids: BTreeMap<_, _> = groups.into_iter().collect();
        let names = ids.iter().map(|(name, id)| (*id, name.clone())).collect();
        let ids_by_form = ids.iter().map(|(name, id)| (text::caseless(name), *id)).collect();
        Self {
            ids,
            ids_by_form,
            names,
        }
    }

    /// The identifier of the group with this name. Case and width do not matter, unless two groups differ only in them.
    pub fn id_of(&self, name: &str) -> Option<Uuid> {
        let exact = self.ids.get(name);
        exact
            .or_else(|| self.ids_by_form.get(&text::caseless(name)))
            .copied()
    }

    /// The name under which the group is registered that [`Self::id_of`] finds; the same name if there is none.
    pub fn registered_name(&self, name: String) -> String {
        let registered = self.id_of(&name).and_then(|id| self.names.get(&id));
        registered.cloned().unwrap_or(name)
    }

    /// Whether a group is registered under exactly this name.
    pub fn contains(&self, name: &str) -> bool {
        self.ids.contains_key(name)
    }

    /// The names of the groups that the user is in. Removed groups are left out.
    pub fn of(&self, user: &User) -> BTreeSet<&str> {
        self.names(&user.groups)
    }

    /// The names of these groups. Removed groups are left out.
    pub fn names(&self, groups: &BTreeSet<Uuid>) -> BTreeSet<&str> {
        let names = groups.iter().filter_map(|id| self.names.get(id));
        names.map(String::as_str).collect()
    }

    /// The groups among `names` that the user is in.
    pub fn among<'a>(&self, names: &'a BTreeSet<String>, user: &User) -> BTreeSet<&'a str> {
        let is_in = |name: &&str| self.ids.get(*name).is_some_and(|id| user.groups.contains(id));
        names.iter().map(String::as_str).filter(is_in).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn a_group_is_found_by_every_form_of_its_name() {
        let id = Uuid::from_u128;
        let groups = Groups::new([
            ("Gru\u{308}n".to_owned(), id(1)),
            ("A".to_owned(), id(2)),
            ("a".to_owned(), id(3)),
        ]);
        for name in ["Gru\u{308}n", "gr\u{fc}n", "GR\u{dc}N", "\u{ff27}r\u{fc}n"] {
            assert_eq!(groups.id_of(name), Some(id(1)), "{name}");
        }
        assert_eq!(
            ["A", "a"].map(|name| groups.id_of(name)),
            [Some(id(2)), Some(id(3))]
        );
        assert_eq!(groups.id_of("grun"), None);
        assert_eq!(groups.registered_name("GR\u{dc}N".to_owned()), "Gru\u{308}n");
        assert_eq!(groups.registered_name("grun".to_owned()), "grun");
    }

    #[test]
    fn nobody_is_in_a_group_that_is_added_again_after_its_removal() {
        let id = Uuid::from_u128;
        let mut user = User::anonymous(id(9), "default", Timestamp::from_seconds(0));
        user.groups = [id(1), id(2)].into();
        let before = Groups::new([("b".to_owned(), id(1)), ("a".to_owned(), id(2))]);
        assert!(before.of(&user).into_iter().eq(["a", "b"]));
        let after = Groups::new([("b".to_owned(), id(3)), ("a".to_owned(), id(2))]);
        assert!(after.of(&user).into_iter().eq(["a"]));
        let named = ["a", "b", "c"].map(ToOwned::to_owned).into();
        assert!(before.among(&named, &user).into_iter().eq(["a", "b"]));
        assert!(after.among(&named, &user).into_iter().eq(["a"]));
    }
}
