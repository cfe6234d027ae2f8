//! Says which clients nobody may use.

use super::finding::Finding;

/// One finding for each client for some groups in which there is no user who may sign in.
pub(super) fn examine(clients_without_users: &[String]) -> Vec<Finding> {
    let finding = |client_id: &String| {
        let message = "no user who may sign in is in a group that may use it: nobody gets a token";
        let remedy = format!(
            "add users to its groups with idsvc user update WHO --add-group GROUP, or let another group in with idsvc client update {client_id} --add-allow-group GROUP"
        );
        Finding::advice("client", client_id, message, remedy)
    };
    clients_without_users.iter().map(finding).collect()
}
