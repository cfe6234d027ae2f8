//! `POST /oauth2/par`: RFC 9126 section 2.

use ::http::StatusCode;

use super::client::authenticate_form;
use crate::flow::login::push_request::push_request;
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::route::Route;

/// Answers a pushed authorization request with its `request_uri`.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let (parameters, client) = match authenticate_form(context, &Route::PushedRequest).await {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(refusal)) => return error::refused(context, &refusal),
        Err(failure) => return error::failed(context, &failure),
    };
    match push_request(&context.app.core, &client, &parameters, context.now) {
        Ok(Ok(pushed)) => response::no_store(response::json(StatusCode::CREATED, &pushed)),
        Ok(Err(refusal)) => error::refused(context, &refusal),
        Err(failure) => error::failed(context, &failure),
    }
}
