//! `GET /dev/device`: the example client as a device without a browser. It asks for codes, shows them, and polls each time
//! the page is loaded.

use ::http::StatusCode;
use ::http::header::{HeaderValue, REFRESH};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use super::home::{SCOPE, example_client, show};
use crate::app::DevSite;
use crate::flow::FlowError;
use crate::flow::device::authorize::authorize;
use crate::flow::token::device_code::redeem_device_code;
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::response::{self, HttpResponse};
use crate::oauth::device::{self, DeviceAuthorizationResponse, PresentedDeviceCode};
use crate::oauth::error::ErrorCode;
use crate::oauth::redirect_uri::with_query;
use crate::oauth::resource::Resources;
use crate::pages::dev::DevDevice;
use crate::route::Route;

/// Asks for codes, or polls with those of `state`.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let Some(dev) = &context.app.dev else {
        return Ok(context.not_found());
    };
    let address = |state: &str| with_query(&context.app.path(&Route::DevDevice), &[("state", state)]);
    let core = &context.app.core;
    let client = example_client(context, dev).await?;
    let query = context.query().unwrap_or_default();
    let Some(state) = query.get("state") else {
        let (scope, from) = (SCOPE.parse().ok(), context.client_address());
        let codes = authorize(core, &client, scope, Resources::new(), from, context.now).await?;
        let state = URL_SAFE_NO_PAD.encode(core.random.bytes::<32>());
        let here = address(&state);
        remember(dev, state, &codes);
        return Ok(response::redirect_303(&here));
    };
    let remembered = dev.recall(state);
    let codes: Option<DeviceAuthorizationResponse> =
        remembered.and_then(|codes| serde_json::from_str(&codes).ok());
    let codes = codes.ok_or(device::UNKNOWN)?;
    let presented = PresentedDeviceCode::parse(&codes.device_code).map_err(|_| device::UNKNOWN)?;
    match redeem_device_code(core, &client, presented, Resources::new(), None, context.now).await {
        Ok(tokens) => Ok(show(context, dev, &tokens)),
        Err(FlowError::Refused(refusal))
            if matches!(
                refusal.code,
                ErrorCode::AuthorizationPending | ErrorCode::SlowDown
            ) =>
        {
            remember(dev, state.to_owned(), &codes);
            Ok(draw(context, codes, address(state)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Draws the page, which the browser loads again after the interval.
fn draw(context: &RequestContext, codes: DeviceAuthorizationResponse, again: String) -> HttpResponse {
    let page = DevDevice {
        user_code: codes.user_code,
        verification_uri: codes.verification_uri,
        verification_uri_complete: codes.verification_uri_complete,
        again,
    };
    let mut answer = context.page(StatusCode::OK, &page, None);
    answer
        .headers_mut()
        .insert(REFRESH, HeaderValue::from(codes.interval));
    answer
}

fn remember(dev: &DevSite, state: String, codes: &DeviceAuthorizationResponse) {
    if let Ok(codes) = serde_json::to_string(codes) {
        dev.remember(state, Zeroizing::new(codes));
    }
}
