//! Groups of users: the claim `groups` of RFC 9068 section 2.2.3.1 and RFC 7643 section 4.1.2.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::identity::User;
use crate::oauth::fields::fields;
use crate::oauth::named::NamedRecord;

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
    names: BTreeMap<Uuid, String>,
}

impl Groups {
    /// The groups of these names and identifiers.
    pub fn new(groups: impl IntoIterator<Item = (String, Uuid)>) -> Self {
        let ids: BTreeMap<_, _> = groups.into_iter().collect();
        let names = ids.iter().map(|(name, id)| (*id, name.clone())).collect();
        Self { ids, names }
    }

    /// The identifier of the group with this name.
    pub fn id_of(&self, name: &str) -> Option<Uuid> {
        self.ids.get(name).copied()
    }

    /// The names of the groups that the user is in. Removed groups are left out.
    pub fn of(&self, user: &User) -> BTreeSet<&str> {
        let names = user.groups.iter().filter_map(|id| self.names.get(id));
        names.map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn nobody_is_in_a_group_that_is_added_again_after_its_removal() {
        let id = Uuid::from_u128;
        let mut user = User::anonymous(id(9), "default", Timestamp::from_seconds(0));
        user.groups = [id(1), id(2)].into();
        let before = Groups::new([("b".to_owned(), id(1)), ("a".to_owned(), id(2))]);
        assert!(before.of(&user).into_iter().eq(["a", "b"]));
        let after = Groups::new([("b".to_owned(), id(3)), ("a".to_owned(), id(2))]);
        assert!(after.of(&user).into_iter().eq(["a"]));
    }
}
