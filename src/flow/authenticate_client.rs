//! A client proves who it is, at whatever endpoint asks.

use super::{Answer, Core};
use crate::clock::Timestamp;
use crate::oauth::client_auth::{self, AuthenticatedClient, Credentials};

/// Checks credentials against the client they name.
pub fn authenticate_client(
    core: &Core,
    credentials: &Credentials,
    now: Timestamp,
) -> Answer<AuthenticatedClient> {
    client_auth::authenticate(credentials, core.catalog().client(&credentials.client_id), now)
}
