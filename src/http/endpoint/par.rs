//! `POST /oauth2/par`: RFC 9126 section 2.

use ::http::StatusCode;
use url::Url;

use super::client::{ClientForm, authenticate_form};
use super::dpop;
use crate::flow::login::push_request::push_request;
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::response::{self, HttpResponse};
use crate::route::Route;

/// Answers a pushed authorization request with its `request_uri`. A proof of possession binds the code (RFC 9449 section
/// 10.1).
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let proof = dpop::proof(context, &Route::PushedRequest, None)?;
    let ClientForm { parameters, client } = authenticate_form(context, &Route::PushedRequest).await?;
    let core = &context.app.core;
    let admit = |url: &Url| context.charge_fetch(url);
    let certificate = context.shown.certificate.as_deref();
    let proof = proof.as_ref();
    let arrival = context.arrival;
    let pushed = push_request(core, &client, &parameters, proof, certificate, admit, arrival).await?;
    Ok(response::no_store(response::json(StatusCode::CREATED, &pushed)))
}
