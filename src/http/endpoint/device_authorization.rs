//! `POST /oauth2/device_authorization`: RFC 8628 section 3.1.

use ::http::StatusCode;

use super::client::{ClientForm, authenticate_form};
use crate::flow::device::authorize::authorize;
use crate::http::context::{RequestContext, throttled};
use crate::http::error::HttpError;
use crate::http::response::{self, HttpResponse};
use crate::oauth::resource::resources;
use crate::oauth::token;
use crate::route::Route;

/// Answers a device with its codes. Anybody can pass for a public client, and each request stores a row. So the address
/// is limited.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let ClientForm { parameters, client } = authenticate_form(context, &Route::DeviceAuthorization).await?;
    context.require_disk_for_record()?;
    let (core, from) = (&context.app.core, context.client_address());
    if client.is_public() {
        let charged = context.app.limits.authorize_device(from, context.now);
        charged.map_err(throttled)?;
    }
    let (scope, resources) = (token::scope(&parameters)?, resources(&parameters)?);
    let codes = authorize(core, &client, scope, resources, from, context.now).await?;
    Ok(response::no_store(response::json(StatusCode::OK, &codes)))
}
