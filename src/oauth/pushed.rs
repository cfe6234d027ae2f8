//! Pushed authorization requests: RFC 9126.
//!
//! The service stores nothing of such a request: the `request_uri` contains it, sealed. Only its use is recorded, in the
//! transaction that answers it, so that nobody can fill the store with requests.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::oauth::authorize::AuthorizationRequest;
use crate::oauth::client::Client;

/// The start of each `request_uri` that this service makes (RFC 9126 section 2.2).
pub const URN: &str = "urn:ietf:params:oauth:request_uri:";

/// What a `request_uri` contains.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PushedRequest {
    pub pushed_at: Timestamp,
    /// The request, which the client authenticated.
    pub request: AuthorizationRequest,
}

impl PushedRequest {
    /// The request, if it is one of this client and no older than `lifetime`. It has expired as well if the clock was set
    /// back since.
    pub fn open(self, client: &Client, lifetime: Duration, now: Timestamp) -> Option<AuthorizationRequest> {
        let is_open = now < self.pushed_at + lifetime && !self.pushed_at.is_ahead_of(now);
        let is_open = is_open && self.request.may_be_answered(client);
        is_open.then_some(self.request)
    }
}

/// The answer to a pushed request (RFC 9126 section 2.2).
#[derive(Clone, Debug, Serialize)]
pub struct PushedResponse {
    /// What the client sends in the place of the parameters.
    pub request_uri: String,
    /// For how many seconds a browser may come with it.
    pub expires_in: u64,
}
