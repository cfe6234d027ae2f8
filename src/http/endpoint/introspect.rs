//! `POST /oauth2/introspect`: RFC 7662 section 2.

use ::http::StatusCode;

use super::client::authenticate_form;
use crate::flow::token::introspect::introspect;
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::oauth::error::Refusal;
use crate::route::Route;

/// Introspects a token for a confidential client. A public client is refused: it has not proven who it is.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let (parameters, client) = match authenticate_form(context, &Route::Introspect).await {
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
