//! `POST /oauth2/par`: RFC 9126 section 2.

use ::http::StatusCode;
use url::Url;

use super::client::authenticate_form;
use super::dpop;
use crate::flow::login::push_request::push_request;
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::route::Route;

/// Answers a pushed authorization request with its `request_uri`. A proof of possession binds the code (RFC 9449 section
/// 10.1).
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let proof = match dpop::proof(context, &Route::PushedRequest, None) {
        Ok(proof) => proof,
        Err(refusal) => return error::refused(context, &refusal),
    };
    let (parameters, client) = match authenticate_form(context, &Route::PushedRequest).await {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(refusal)) => return error::refused(context, &refusal),
        Err(failure) => return error::failed(context, &failure),
    };
    let core = &context.app.core;
    let admit = |url: &Url| context.charge_fetch(url);
    let certificate = context.client_certificate().map(|certificate| &**certificate);
    let shown = (proof.as_ref(), certificate);
    match push_request(core, &client, &parameters, shown, admit, context.now).await {
        Ok(Ok(pushed)) => response::no_store(response::json(StatusCode::CREATED, &pushed)),
        Ok(Err(refusal)) => error::refused(context, &refusal),
        Err(failure) => error::failed(context, &failure),
    }
}
