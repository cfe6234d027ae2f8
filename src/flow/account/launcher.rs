//! The applications that a user may open from the account page.

use std::sync::Arc;

use crate::flow::Catalog;
use crate::identity::User;
use crate::oauth::Client;

/// The applications that the user may open and that have an address for it, by name.
pub fn applications(catalog: &Catalog, user: &User) -> Vec<Arc<Client>> {
    let is_entry = |client: &&Arc<Client>| has_address(client) && may_open(catalog, client, user);
    let mut entries: Vec<_> = catalog.clients().filter(is_entry).cloned().collect();
    entries.sort_by(|one, other| {
        let names = one.display_name().cmp(other.display_name());
        names.then_with(|| one.client_id.cmp(&other.client_id))
    });
    entries
}

/// Whether there is an application that some users may open.
pub fn has_applications(catalog: &Catalog) -> bool {
    let mut clients = catalog.clients();
    clients.any(|client| has_address(client) && is_offered(client))
}

/// Whether this user may open this application.
pub fn may_open(catalog: &Catalog, client: &Client, user: &User) -> bool {
    is_offered(client) && user.enabled && client.lets_in(user, catalog.groups())
}

/// A client that registered itself is not offered: it chose its own name, and could take that of another application.
fn is_offered(client: &Client) -> bool {
    client.enabled && !client.registered_itself()
}

fn has_address(client: &Client) -> bool {
    client.initiate_login_uri.is_some() || client.home_uri.is_some()
}
