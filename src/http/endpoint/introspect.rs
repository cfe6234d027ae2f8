//! `POST /oauth2/introspect`: RFC 7662 section 2.

use ::http::StatusCode;

use super::client::authenticated_form;
use crate::flow::token::introspect::introspect;
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::response::{self, Answer};
use crate::oauth::error::Refusal;

/// Judges a token for a client that can keep a secret: a public one has proven nothing.
pub async fn respond(context: &RequestContext) -> Answer {
    let (parameters, client) = match authenticated_form(context).await {
        Ok(Ok((_, client))) if client.is_public() => {
            let refusal = Refusal::invalid_client("introspection is for clients that authenticate");
            return error::refused(context, &refusal);
        }
        Ok(Ok(parsed)) => parsed,
        Ok(Err(refusal)) => return error::refused(context, &refusal),
        Err(failure) => return error::failed(context, &failure),
    };
    let Some(token) = parameters.get("token") else {
        return error::refused(context, &Refusal::invalid_request("token is missing"));
    };
    match introspect(&context.app.core, &client, token, context.now) {
        Ok(verdict) => response::no_store(response::json(StatusCode::OK, &verdict)),
        Err(failure) => error::failed(context, &failure),
    }
}
