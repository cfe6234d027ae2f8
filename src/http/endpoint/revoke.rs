//! `POST /oauth2/revoke`: RFC 7009 section 2.

use ::http::StatusCode;

use super::client::authenticated_form;
use crate::flow::token::revoke::revoke;
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::response::{self, Answer};
use crate::oauth::error::Refusal;

/// Revokes a token; one that is worth nothing already is answered alike. Another client's is refused.
pub async fn respond(context: &RequestContext) -> Answer {
    let (parameters, client) = match authenticated_form(context).await {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(refusal)) => return error::refused(context, &refusal),
        Err(failure) => return error::failed(context, &failure),
    };
    let Some(token) = parameters.get("token") else {
        return error::refused(context, &Refusal::invalid_request("token is missing"));
    };
    match revoke(&context.app.core, &client, token, context.now).await {
        Ok(Ok(())) => response::no_store(response::empty(StatusCode::OK)),
        Ok(Err(refusal)) => error::refused(context, &refusal),
        Err(failure) => error::failed(context, &failure),
    }
}
