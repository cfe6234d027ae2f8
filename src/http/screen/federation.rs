//! `GET /federation/{provider}/start`, `…/callback` and `…/logo`: the way to a provider and back.

use ::http::StatusCode;
use ::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use uuid::Uuid;

use super::onward;
use super::underway::{self, Asked};
use crate::federation::authorization::Callback;
use crate::flow::authorization::Stale;
use crate::flow::begin_federation::{FederationProblem, begin_federation};
use crate::flow::finish_federation::{Return, finish_federation, question_of};
use crate::http::call::Call;
use crate::http::error;
use crate::http::response::{self, Answer};
use crate::page::{Heading, LoginProblem};
use crate::route::Route;

/// Sends the browser to the provider.
pub async fn start(call: &Call, provider: &str) -> Answer {
    let Asked {
        browser, underway, ..
    } = match underway::find(call) {
        Ok(asked) => asked,
        Err(page) => return *page,
    };
    if !underway.takes_proof {
        return underway::over(call, Stale::Expired);
    }
    let id = underway.id;
    if let Err(failure) = call.count_sign_in() {
        return error::failed_page(call, &failure);
    }
    match begin_federation(&call.app.core, &browser, underway, provider, call.now).await {
        Ok(Ok(address)) => response::no_store(response::redirect_303(&address)),
        Ok(Err(problem)) => again(call, id, problem),
        Err(failure) => error::failed_page(call, &failure),
    }
}

/// Takes the browser back from the provider.
pub async fn callback(call: &Call, provider: &str) -> Answer {
    let parameters = match call.page_parameters() {
        Ok(parameters) => parameters,
        Err(page) => return *page,
    };
    let Some(callback) = Callback::parse(&parameters) else {
        let message = "This is not the answer of an identity provider.";
        return call.error_page(StatusCode::BAD_REQUEST, Heading::Request, message);
    };
    if let Some((id, _)) = question_of(&callback.state) {
        underway::dress(call, id);
    }
    match finish_federation(&call.app.core, &call.browser(), provider, callback, call.now).await {
        Ok(Return::Onward(next)) => onward::go(call, next),
        Ok(Return::Again(id, problem)) => again(call, id, problem),
        Ok(Return::Stale(stale)) => underway::over(call, stale),
        Err(failure) => error::failed_page(call, &failure),
    }
}

/// Back to the sign-in page, which says what happened. By a redirect, so that neither the address with the provider's
/// answer stays nor a reload sends it again.
fn again(call: &Call, id: Uuid, problem: FederationProblem) -> Answer {
    let address = onward::address(call, &Route::Login, id);
    response::redirect_303(&format!("{address}&problem={}", name_of(problem)))
}

/// The problem's name in the address of the sign-in page.
const fn name_of(problem: FederationProblem) -> &'static str {
    match problem {
        FederationProblem::NotOffered => "not_offered",
        FederationProblem::Unavailable => "unavailable",
        FederationProblem::Failed => "failed",
        FederationProblem::Cancelled => "cancelled",
        FederationProblem::NotAdmitted => "not_admitted",
    }
}

/// What the sign-in page says about a problem of this name. Anybody can write the name; all that it does is to choose
/// one of these sentences.
pub(super) fn problem_of(name: &str) -> Option<LoginProblem> {
    match name {
        "not_offered" | "failed" => Some(LoginProblem::ProviderFailed),
        "unavailable" => Some(LoginProblem::ProviderUnavailable),
        "cancelled" => Some(LoginProblem::ProviderCancelled),
        "not_admitted" => Some(LoginProblem::NotAdmitted),
        _ => None,
    }
}

/// Sends the picture. It may be a drawing with scripts in it: opened by itself it can do nothing.
pub fn logo(call: &Call, provider: &str) -> Answer {
    let catalog = call.app.core.catalog();
    let logo = catalog
        .provider(provider)
        .and_then(|provider| provider.logo.as_ref());
    let Some((logo, bytes)) = logo.and_then(|logo| Some((logo, STANDARD.decode(&logo.data).ok()?))) else {
        return call.not_found();
    };
    let content_type = match logo.media_type.as_str() {
        "image/png" => "image/png",
        "image/jpeg" => "image/jpeg",
        "image/webp" => "image/webp",
        _ => "image/svg+xml",
    };
    let mut answer = response::with_body(StatusCode::OK, content_type, Bytes::from(bytes));
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox"),
    );
    answer
}
