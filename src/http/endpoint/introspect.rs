//! `POST /oauth2/introspect`: RFC 7662 section 2, RFC 9701.

use ::http::StatusCode;

use super::client::authenticate_form;
use crate::flow::token::introspect::{introspect, sign_introspection};
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::response::{self, HttpResponse};
use crate::oauth::error::Refusal;
use crate::oauth::introspection::SIGNED_MEDIA_TYPE;
use crate::route::Route;

/// Introspects a token for a confidential client. A public client is refused: it has not proven who it is. The response is
/// signed if the client asks for that in `Accept` (RFC 9701 section 4).
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let form = authenticate_form(context, &Route::Introspect).await?;
    let client = &form.client;
    if client.is_public() {
        return Err(Refusal::invalid_client("introspection is for clients that authenticate").into());
    }
    let core = &context.app.core;
    let introspection = introspect(core, client, form.token()?, context.now).await?;
    let answer = if context.accepts(SIGNED_MEDIA_TYPE) {
        let signed = sign_introspection(core, client, &introspection, context.now)?;
        response::with_body(StatusCode::OK, SIGNED_MEDIA_TYPE, signed.into())
    } else {
        response::json(StatusCode::OK, &introspection)
    };
    Ok(response::no_store(answer))
}
