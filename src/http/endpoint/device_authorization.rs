//! `POST /oauth2/device_authorization`: RFC 8628 section 3.1.

use ::http::StatusCode;

use super::client::authenticate_form;
use crate::flow::device::authorize::authorize;
use crate::flow::{Answer, Failure};
use crate::http::context::{RequestContext, throttled};
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::{self, HttpResponse};
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::device::DeviceAuthorizationResponse;
use crate::oauth::resource::{Resources, resources};
use crate::oauth::scope::Scope;
use crate::route::Route;

/// Answers a device with its codes.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let (parameters, client) = match authenticate_form(context, &Route::DeviceAuthorization).await {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(refusal)) => return error::refused(context, &refusal),
        Err(failure) => return error::failed(context, &failure),
    };
    match codes(context, &parameters, &client).await {
        Ok(Ok(codes)) => response::no_store(response::json(StatusCode::OK, &codes)),
        Ok(Err(refusal)) => error::refused(context, &refusal),
        Err(failure) => error::failed(context, &failure),
    }
}

/// Anybody can pass for a public client, and each request stores a row. So the address is limited.
async fn codes(
    context: &RequestContext,
    parameters: &Parameters,
    client: &AuthenticatedClient,
) -> Result<Answer<DeviceAuthorizationResponse>, Failure> {
    context.require_disk_for_record()?;
    let (core, from) = (&context.app.core, context.client_address());
    if client.is_public() {
        let charged = context.app.limits.authorize_device(from, context.now);
        charged.map_err(throttled)?;
    }
    match asked(parameters) {
        Ok(asked) => authorize(core, client, asked, from, context.now).await,
        Err(refusal) => Ok(Err(refusal)),
    }
}

fn asked(parameters: &Parameters) -> Answer<(Option<Scope>, Resources)> {
    Ok((Scope::requested(parameters)?, resources(parameters)?))
}
