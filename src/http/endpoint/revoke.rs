//! `POST /oauth2/revoke`: RFC 7009 section 2.

use ::http::StatusCode;
use serde_json::json;

use super::client::authenticate_form;
use crate::flow::token::revoke::revoke;
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::oauth::error::Refusal;
use crate::route::Route;

/// Revokes a token. An invalid token gets the same answer (RFC 7009 section 2.2). The body is an empty object, because
/// some clients parse every answer as JSON. A token of another client is refused.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let (parameters, client) = match authenticate_form(context, &Route::Revoke).await {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(refusal)) => return error::refused(context, &refusal),
        Err(failure) => return error::failed(context, &failure),
    };
    let Some(token) = parameters.get("token") else {
        return error::refused(context, &Refusal::invalid_request("token is missing"));
    };
    match revoke(&context.app.core, &client, token, context.now).await {
        Ok(Ok(())) => response::no_store(response::json(StatusCode::OK, &json!({}))),
        Ok(Err(refusal)) => error::refused(context, &refusal),
        Err(failure) => error::failed(context, &failure),
    }
}
