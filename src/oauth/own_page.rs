//! The account page as a client of its own service: something that a sign-in can be for.
//!
//! It has neither a grant nor a way to authenticate, and no request can name it: the characters of its identifier
//! are not those of registered clients. A sign-in for it ends at the page, in the session, without a code.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::clock::Timestamp;
use crate::oauth::authorize::{AuthorizationRequest, ReplyAddress, ResponseMode};
use crate::oauth::client::{Client, ClientMetadata};
use crate::oauth::openid::claims::ClaimsRequest;
use crate::oauth::openid::prompt::Prompt;
use crate::oauth::redirect_uri::ReturnTo;
use crate::oauth::scope::Scope;

/// What the audit calls the page.
pub const CLIENT_ID: &str = "(account)";

/// The page as a client of this issuer.
pub fn client(issuer: &str) -> Client {
    let beginning = Timestamp::from_seconds(0);
    Client {
        client_id: CLIENT_ID.to_owned(),
        client_uuid: Uuid::nil(),
        own_grant: Uuid::nil(),
        token_endpoint_auth_methods: BTreeSet::new(),
        secrets: Vec::new(),
        api_keys: Vec::new(),
        metadata: ClientMetadata {
            redirect_uris: vec![issuer.to_owned()],
            scope: Scope::empty(),
            default_scope: Scope::empty(),
            ..ClientMetadata::default()
        },
        enabled: true,
        created_at: beginning,
        updated_at: beginning,
    }
}

/// What the page keeps for itself during a sign-in, as clients do in `state`: that something was asked for.
const DEED_WAITS: &str = "deed";

/// A sign-in for the page. With `again` it takes a new proof of who the user is, though a session stands: the
/// name of its user is written into the form. With `deed_waits` something was asked for that takes this sign-in and was
/// not done: people are told so before and after.
pub fn request(issuer: &str, again: Option<&str>, deed_waits: bool) -> AuthorizationRequest {
    AuthorizationRequest {
        client_id: CLIENT_ID.to_owned(),
        reply: ReplyAddress {
            return_to: ReturnTo::own(issuer),
            response_mode: ResponseMode::Query,
            state: deed_waits.then(|| DEED_WAITS.to_owned()),
        },
        scope: Scope::empty(),
        nonce: None,
        code_challenge: None,
        prompt: Prompt {
            login: again.is_some(),
            ..Prompt::default()
        },
        max_age: None,
        login_hint: again.map(ToOwned::to_owned),
        idp_hint: None,
        subject: None,
        other_subjects: BTreeSet::new(),
        claims: ClaimsRequest::default(),
        ui_locales: None,
    }
}

impl AuthorizationRequest {
    /// Whether the sign-in is for the account page, not for a client.
    pub fn is_for_own_page(&self) -> bool {
        self.client_id == CLIENT_ID
    }

    /// Whether something was asked for on the account page that was not done.
    pub fn has_deed_waiting(&self) -> bool {
        self.is_for_own_page() && self.reply.state.as_deref() == Some(DEED_WAITS)
    }
}
