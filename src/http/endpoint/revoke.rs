//! `POST /oauth2/revoke`: RFC 7009 section 2.

use ::http::StatusCode;

use super::client::authenticated_form;
use crate::flow::revoke::revoke;
use crate::http::call::Call;
use crate::http::error;
use crate::http::response::{self, Answer};
use crate::oauth::error::Refusal;

/// Revokes a token; one that is worth nothing already is answered alike. Another client's is refused.
pub async fn respond(call: &Call) -> Answer {
    let (parameters, client) = match authenticated_form(call).await {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(refusal)) => return error::refused(call, &refusal),
        Err(failure) => return error::failed(call, &failure),
    };
    let Some(token) = parameters.get("token") else {
        return error::refused(call, &Refusal::invalid_request("token is missing"));
    };
    match revoke(&call.app.core, &client, token, call.now).await {
        Ok(Ok(())) => response::no_store(response::empty(StatusCode::OK)),
        Ok(Err(refusal)) => error::refused(call, &refusal),
        Err(failure) => error::failed(call, &failure),
    }
}
