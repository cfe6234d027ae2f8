//! `GET /dev/device`: the example client as a device without a browser. It asks for codes, shows them, and polls each time
//! the page is loaded.

use ::http::StatusCode;
use ::http::header::{HeaderValue, REFRESH};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use super::home::{SCOPE, example_client, show};
use crate::app::DevSite;
use crate::flow::Failure;
use crate::flow::device::authorize::authorize;
use crate::flow::token::device_code::redeem_device_code;
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::oauth::device::{self, DeviceAuthorizationResponse, PresentedDeviceCode};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::redirect_uri::with_query;
use crate::oauth::resource::Resources;
use crate::oauth::token::TokenResponse;
use crate::pages::ErrorKind;
use crate::pages::dev::DevDevice;
use crate::route::Route;

/// What the page shows.
enum Shown {
    Codes(String),
    Pending(String, DeviceAuthorizationResponse),
    Tokens(Box<TokenResponse>),
    Refused(Refusal),
}

/// Asks for codes, or polls with those of `state`.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let Some(dev) = &context.app.dev else {
        return context.not_found();
    };
    let address = |state: &str| with_query(&context.app.path(&Route::DevDevice), &[("state", state)]);
    match step(context, dev).await {
        Ok(Shown::Codes(state)) => response::redirect_303(&address(&state)),
        Ok(Shown::Tokens(tokens)) => show(context, dev, &tokens),
        Ok(Shown::Refused(refusal)) => {
            context.error_page(StatusCode::BAD_REQUEST, ErrorKind::Request, &refusal.description)
        }
        Ok(Shown::Pending(state, codes)) => {
            let page = DevDevice {
                user_code: codes.user_code,
                verification_uri: codes.verification_uri,
                verification_uri_complete: codes.verification_uri_complete,
                again: address(&state),
            };
            let mut answer = context.page(StatusCode::OK, &page, None);
            answer
                .headers_mut()
                .insert(REFRESH, HeaderValue::from(codes.interval));
            answer
        }
        Err(failure) => error::failed_page(context, &failure),
    }
}

async fn step(context: &RequestContext, dev: &DevSite) -> Result<Shown, Failure> {
    let core = &context.app.core;
    let client = match example_client(context, dev).await? {
        Ok(client) => client,
        Err(refusal) => return Ok(Shown::Refused(refusal)),
    };
    let query = context.query().unwrap_or_default();
    let Some(state) = query.get("state") else {
        let asked = (SCOPE.parse().ok(), Resources::new());
        let asked = authorize(core, &client, asked, context.client_address(), context.now).await?;
        return Ok(match asked {
            Ok(codes) => {
                let state = URL_SAFE_NO_PAD.encode(core.random.bytes::<32>());
                remember(dev, state.clone(), &codes);
                Shown::Codes(state)
            }
            Err(refusal) => Shown::Refused(refusal),
        });
    };
    let remembered = dev.recall(state);
    let codes: Option<DeviceAuthorizationResponse> =
        remembered.and_then(|codes| serde_json::from_str(&codes).ok());
    let presented = codes.and_then(|codes| {
        let presented = PresentedDeviceCode::parse(&codes.device_code).ok()?;
        Some((codes, presented))
    });
    let Some((codes, presented)) = presented else {
        return Ok(Shown::Refused(device::UNKNOWN));
    };
    let polled = redeem_device_code(core, &client, presented, Resources::new(), None, context.now).await?;
    Ok(match polled {
        Ok(tokens) => Shown::Tokens(Box::new(tokens)),
        Err(refusal)
            if matches!(
                refusal.code,
                ErrorCode::AuthorizationPending | ErrorCode::SlowDown
            ) =>
        {
            remember(dev, state.to_owned(), &codes);
            Shown::Pending(state.to_owned(), codes)
        }
        Err(refusal) => Shown::Refused(refusal),
    })
}

fn remember(dev: &DevSite, state: String, codes: &DeviceAuthorizationResponse) {
    if let Ok(codes) = serde_json::to_string(codes) {
        dev.remember(state, Zeroizing::new(codes));
    }
}
