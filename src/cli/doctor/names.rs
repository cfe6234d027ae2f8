//! Says which users share a name.

use uuid::Uuid;

use super::finding::Finding;

/// One finding for each user whose name is another user's too, in another form.
pub(super) fn examine(conflicts: &[Uuid]) -> Vec<Finding> {
    let finding = |user: &Uuid| {
        let message = "another user has the same name or address, written in another form of Unicode: each of them signs in only as it was written before";
        let remedy = format!(
            "remove one of the two (idsvc user remove UUID), or give one another name (idsvc user update {user} --account-id NAME --email ADDRESS). Then give the other their own name again in the same way"
        );
        Finding::mend("users", user.to_string(), message, remedy)
    };
    conflicts.iter().map(finding).collect()
}
