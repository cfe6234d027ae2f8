//! The answers to refusals and failures: the only place that maps them to status codes.

use ::http::StatusCode;
use ::http::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;

use super::context::{RefusalLog, RequestContext};
use super::headers;
use super::response::{self, HttpResponse};
use crate::app::App;
use crate::flow::Failure;
use crate::net::{FailedRequest, REQUEST_TIMEOUT};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::pages::Heading;
use crate::route::{Route, strip_issuer_path};
use crate::store::StoreError;

/// The JSON of RFC 6749 section 5.2.
#[derive(Serialize)]
struct Body<'a> {
    error: &'a str,
    error_description: &'a str,
}

/// A refusal as the endpoints for clients send it: 400, or 401 for a client that is not authenticated. If the request had
/// an `Authorization` header of any scheme, the 401 has a challenge (RFC 6749 section 5.2). It names Basic, the only
/// scheme that these endpoints take.
pub fn refused(context: &RequestContext, refusal: &Refusal) -> HttpResponse {
    context.log_detail(RefusalLog {
        reason: refusal.cause,
        ..RefusalLog::default()
    });
    context.log_refusal(refusal.code.as_str(), &refusal.description);
    let status = status_of(refusal.code);
    let mut answer = json_error(status, refusal.code, &refusal.description);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        set_retry_after(&mut answer, RETRY_SECONDS);
    }
    if status == StatusCode::UNAUTHORIZED && context.headers().contains_key(AUTHORIZATION) {
        answer.headers_mut().insert(
            WWW_AUTHENTICATE,
            HeaderValue::from_static("Basic realm=\"idsvc\", charset=\"UTF-8\""),
        );
    }
    answer
}

fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::InvalidClient | ErrorCode::InvalidToken => StatusCode::UNAUTHORIZED,
        ErrorCode::InsufficientScope => StatusCode::FORBIDDEN,
        ErrorCode::ServerError => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorCode::TemporarilyUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::InvalidRequest
        | ErrorCode::InvalidGrant
        | ErrorCode::UnauthorizedClient
        | ErrorCode::UnsupportedGrantType
        | ErrorCode::InvalidScope
        | ErrorCode::AccessDenied
        | ErrorCode::UnsupportedResponseType
        | ErrorCode::LoginRequired
        | ErrorCode::InteractionRequired
        | ErrorCode::ConsentRequired
        | ErrorCode::RequestNotSupported
        | ErrorCode::RequestUriNotSupported
        | ErrorCode::RegistrationNotSupported
        | ErrorCode::UnmetAuthenticationRequirements => StatusCode::BAD_REQUEST,
    }
}

/// A refusal as a protected resource sends it (RFC 6750 section 3). Without credentials the challenge
/// says nothing but the scheme.
pub fn refused_bearer(context: &RequestContext, refusal: Option<&Refusal>) -> HttpResponse {
    let mut challenge = "Bearer realm=\"idsvc\"".to_owned();
    let mut answer = match refusal {
        None => response::no_store(response::empty(StatusCode::UNAUTHORIZED)),
        Some(refusal) => {
            let (code, description) = (refusal.code.as_str(), &refusal.description);
            context.log_refusal(code, description);
            challenge += ", error=\"";
            challenge += code;
            challenge += "\", error_description=\"";
            challenge += description;
            challenge += "\"";
            if refusal.code == ErrorCode::InsufficientScope {
                challenge += ", scope=\"openid\"";
            }
            json_error(status_of(refusal.code), refusal.code, description)
        }
    };
    if let Ok(challenge) = HeaderValue::from_str(&challenge) {
        answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    answer
}

/// A failure as programs see it: 429 over a limit, 503 if a retry helps, otherwise 500 with only the request id.
pub fn failed(context: &RequestContext, failure: &Failure) -> HttpResponse {
    if let Failure::Throttled { seconds } = failure {
        context.log_refusal("throttled", "too many requests");
        let description = "too many requests; wait as Retry-After says";
        let code = ErrorCode::TemporarilyUnavailable;
        let mut answer = json_error(StatusCode::TOO_MANY_REQUESTS, code, description);
        set_retry_after(&mut answer, *seconds);
        return answer;
    }
    if is_temporary(failure) {
        return busy(context);
    }
    log_failure(context, failure);
    let description = format!("request {}", context.request_id);
    json_error(
        StatusCode::INTERNAL_SERVER_ERROR,
        ErrorCode::ServerError,
        &description,
    )
}

/// The answer to a body over the limit (RFC 9110 section 15.5.14).
pub fn too_large(context: &RequestContext) -> HttpResponse {
    let (code, description) = (ErrorCode::InvalidRequest, "the body is larger than 64 KiB");
    context.log_refusal(code.as_str(), description);
    json_error(StatusCode::PAYLOAD_TOO_LARGE, code, description)
}

/// The answer when too many requests are under way: 503 with `Retry-After`.
pub fn busy(context: &RequestContext) -> HttpResponse {
    let (code, description) = (
        ErrorCode::TemporarilyUnavailable,
        "the service is busy; try again",
    );
    context.log_refusal(code.as_str(), description);
    with_retry_after(json_error(StatusCode::SERVICE_UNAVAILABLE, code, description))
}

fn json_error(status: StatusCode, code: ErrorCode, description: &str) -> HttpResponse {
    let body = Body {
        error: code.as_str(),
        error_description: description,
    };
    response::no_store(response::json(status, &body))
}

/// A failure as people see it.
pub fn failed_page(context: &RequestContext, failure: &Failure) -> HttpResponse {
    if let Failure::Throttled { seconds } = failure {
        context.log_refusal("throttled", "too many answers of providers");
        let mut answer = context.unlogged_error_page(StatusCode::TOO_MANY_REQUESTS, Heading::Busy, "");
        set_retry_after(&mut answer, *seconds);
        return answer;
    }
    if is_temporary(failure) {
        let heading = match failure {
            Failure::Store(error) if error.is_outage() => Heading::Server,
            _ => Heading::Busy,
        };
        let message = match failure {
            Failure::Store(_) => "The service cannot do this at this moment. Please try again.",
            _ => "Too many people are signing in at this moment. Please try again.",
        };
        return with_retry_after(context.error_page(StatusCode::SERVICE_UNAVAILABLE, heading, message));
    }
    log_failure(context, failure);
    context.error_page(
        StatusCode::INTERNAL_SERVER_ERROR,
        Heading::Server,
        "Something went wrong on our side.",
    )
}

/// Whether a retry may succeed.
pub fn is_temporary(failure: &Failure) -> bool {
    match failure {
        Failure::Busy | Failure::Store(StoreError::Busy | StoreError::Closed) => true,
        Failure::Store(error) => error.is_outage(),
        Failure::Throttled { .. } | Failure::NoKey(_) | Failure::NoRefreshKey | Failure::Sign(_) => false,
    }
}

fn log_failure(context: &RequestContext, failure: &Failure) {
    tracing::error!(request_id = %context.request_id, error = %failure, "a request failed");
}

fn with_retry_after(mut answer: HttpResponse) -> HttpResponse {
    set_retry_after(&mut answer, RETRY_SECONDS);
    answer
}

/// After how many seconds a busy service may be asked again.
pub const RETRY_SECONDS: u64 = 2;

/// Asks the sender to try again after so many seconds (RFC 9110 section 10.2.3).
pub fn set_retry_after(answer: &mut HttpResponse, seconds: u64) {
    answer
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(seconds));
}

/// The answer to a request whose handler panicked or took too long. It is counted in the metrics here; a later result of
/// the handler is not.
pub fn fallback(app: &App, request: &FailedRequest) -> HttpResponse {
    let (status, tls) = (request.status, request.peer.tls);
    let request_id = app.next_request_id();
    let route = strip_issuer_path(&app.issuer_path, request.uri.path()).and_then(Route::recognise);
    let route = route.as_ref().map_or("none", Route::label);
    tracing::error!(%request_id, route, status = status.as_u16(), "a request panicked or timed out");
    let took = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(REQUEST_TIMEOUT);
    app.metrics.count_request(route, status.as_u16(), took);
    let mut answer = response::no_store(response::empty(status));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        set_retry_after(&mut answer, RETRY_SECONDS);
    }
    headers::secure(answer.headers_mut(), &request_id, tls && app.has_hsts);
    answer
}
