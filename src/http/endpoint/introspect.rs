//! `POST /oauth2/introspect`: RFC 7662 section 2, RFC 9701.

use ::http::StatusCode;

use super::client::authenticate_form;
use crate::flow::token::introspect::{introspect, sign_introspection};
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::oauth::error::Refusal;
use crate::oauth::introspection::SIGNED_MEDIA_TYPE;
use crate::route::Route;

/// Introspects a token for a confidential client. A public client is refused: it has not proven who it is. The response is
/// signed if the client asks for that in `Accept` (RFC 9701 section 4).
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
    let (core, now) = (&context.app.core, context.now);
    let answer = introspect(core, &client, token, now).await.and_then(|verdict| {
        if !context.accepts(SIGNED_MEDIA_TYPE) {
            return Ok(response::json(StatusCode::OK, &verdict));
        }
        let signed = sign_introspection(core, &client, &verdict, now)?;
        Ok(response::with_body(
            StatusCode::OK,
            SIGNED_MEDIA_TYPE,
            signed.into(),
        ))
    });
    match answer {
        Ok(answer) => response::no_store(answer),
        Err(failure) => error::failed(context, &failure),
    }
}
