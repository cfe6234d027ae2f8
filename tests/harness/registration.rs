//! Clients that register themselves.

use idsvc::oauth::registration::{RegistrationMode, RegistrationPolicy};
use serde_json::{Value, json};

use super::relying_party::RelyingParty;
use super::reply::{Reply, text};
use super::server::{ISSUER, Server};
use super::wire::Call;

/// The address of registrations.
pub(crate) const REGISTER: &str = "/oauth2/register";

/// A client that registered itself, and the answer to its registration.
pub(crate) struct Registrant {
    pub(crate) answer: Value,
    pub(crate) party: RelyingParty,
}

impl Registrant {
    pub(crate) fn token(&self) -> &str {
        text(&self.answer["registration_access_token"])
    }

    /// The path of the registration.
    pub(crate) fn path(&self) -> &str {
        let address = text(&self.answer["registration_client_uri"]);
        address.strip_prefix(ISSUER).unwrap()
    }

    /// A request to the registration with its token.
    pub(crate) fn manage(&self, server: &Server, method: &str) -> Call {
        server.call(method, self.path()).bearer(self.token())
    }

    /// A change to these metadata.
    pub(crate) fn change(&self, server: &Server, mut metadata: Value) -> Call {
        metadata["client_id"] = json!(self.party.client_id());
        let call = self.manage(server, "PUT");
        call.body("application/json", metadata.to_string())
    }
}

/// The settings under which anyone may register.
pub(crate) fn open(most_clients: usize) -> RegistrationPolicy {
    RegistrationPolicy {
        mode: RegistrationMode::Open,
        most_clients,
        ..RegistrationPolicy::default()
    }
}

impl Server {
    /// A service at which anyone may register a client.
    pub(crate) async fn open() -> Self {
        Self::start_with(|policy| policy.registration = open(100)).await
    }

    /// A registration of these metadata.
    pub(crate) fn register(&self, metadata: &Value) -> Call {
        let call = self.post(REGISTER);
        call.body("application/json", metadata.to_string())
    }

    /// A client that registered itself with these metadata.
    pub(crate) async fn registrant(&self, metadata: &Value) -> Registrant {
        self.registered(&self.register(metadata).await)
    }

    /// The client that this answer registered.
    pub(crate) fn registered(&self, reply: &Reply) -> Registrant {
        assert_eq!(reply.status, 201, "{}", reply.text());
        let answer = reply.json();
        let secret = answer["client_secret"].as_str().unwrap_or_default();
        let party = self.party(text(&answer["client_id"]), secret);
        Registrant { answer, party }
    }
}
