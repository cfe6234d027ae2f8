//! `POST /oauth2/introspect`: RFC 7662 section 2.

use ::http::StatusCode;

use super::client::authenticated_form;
use crate::flow::introspect::introspect;
use crate::http::call::Call;
use crate::http::error;
use crate::http::response::{self, Answer};
use crate::oauth::error::Refusal;

/// Judges a token for a client that can keep a secret: a public one has proven nothing.
pub async fn respond(call: &Call) -> Answer {
    let (parameters, client) = match authenticated_form(call).await {
        Ok(Ok((_, client))) if client.is_public() => {
            let refusal = Refusal::invalid_client("introspection is for clients that authenticate");
            return error::refused(call, &refusal);
        }
        Ok(Ok(parsed)) => parsed,
        Ok(Err(refusal)) => return error::refused(call, &refusal),
        Err(failure) => return error::failed(call, &failure),
    };
    let Some(token) = parameters.get("token") else {
        return error::refused(call, &Refusal::invalid_request("token is missing"));
    };
    match introspect(&call.app.core, &client, token, call.now) {
        Ok(verdict) => response::no_store(response::json(StatusCode::OK, &verdict)),
        Err(failure) => error::failed(call, &failure),
    }
}
