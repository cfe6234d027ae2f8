//! Says which users share a name.

use uuid::Uuid;

use super::finding::Finding;

/// One finding for each user with a name that another user has in another form.
pub(super) fn examine(conflicts: &[Uuid]) -> Vec<Finding> {
    let finding = |user: &Uuid| {
        let message = "another user has the same name or address in another form of Unicode: each of them signs in only with their own form";
        let remedy = format!(
            "remove one of the two (idsvc user remove UUID), or give one of them another name (idsvc user update {user} --account-id NAME --email ADDRESS). Then set the name of the other user again with the same command"
        );
        Finding::mend("users", user.to_string(), message, remedy)
    };
    conflicts.iter().map(finding).collect()
}
