//! Edits of the groups and claims of a user.

use super::UserFields;
use crate::admin::claim;
use crate::identity::User;
use crate::oauth::group::Groups;
use crate::oauth::list_edits::{ListEdits, edit_list};
use crate::oauth::{Fault, FaultCode};

/// The change with all groups and with single claims in the place of its edits.
pub(super) fn apply_edits(
    mut fields: UserFields,
    user: &User,
    groups: &Groups,
    faults: &mut Vec<Fault>,
) -> UserFields {
    let Some(edits) = fields.edits.take() else {
        return fields;
    };
    let ListEdits { add, remove } = *edits;
    let registered = |names: Vec<String>| {
        names
            .into_iter()
            .map(|name| groups.registered_name(name))
            .collect()
    };
    let group_edits = ListEdits {
        add: add.groups.map(registered),
        remove: remove.groups.map(registered),
    };
    if group_edits.is_some() {
        let stored = groups.of(user).into_iter().map(str::to_owned);
        fields.groups = Some(edit_list(stored, group_edits, "groups", faults));
    }
    for (name, value) in remove.claims {
        // A claim that is there changes when it is removed, and stays when it is set to its value.
        let mut probe = user.clone();
        let is_valid = claim::set(&mut probe, &name, &value).is_ok();
        if is_valid && value.is_empty() == (probe == *user) {
            let entry = if value.is_empty() {
                name.clone()
            } else {
                format!("{name}={value}")
            };
            let detail = format!("the user has no claim {entry}");
            faults.push(FaultCode::NotFound.at(["claims"], detail));
        }
        fields.claims.push((name, String::new()));
    }
    fields.claims.extend(add.claims);
    fields
}
