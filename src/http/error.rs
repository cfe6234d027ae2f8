//! From refusals and failures to the wire: the one place that knows status codes for them.

use ::http::StatusCode;
use ::http::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;

use super::context::{RefusalLog, RequestContext};
use super::headers;
use super::response::{self, Answer};
use crate::app::App;
use crate::flow::Failure;
use crate::net::{REQUEST_TIMEOUT, Unanswered};
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

/// A refusal as the token endpoint and its neighbours send it: 400, or 401 for a client that did not prove who
/// it is, with a challenge when it tried to by the `Authorization` header (RFC 6749 section 5.2), whatever stood there:
/// Basic is the one scheme that counts here.
pub fn refused(context: &RequestContext, refusal: &Refusal) -> Answer {
    context.log_detail(RefusalLog {
        reason: refusal.cause,
        ..RefusalLog::default()
    });
    context.log_refusal(refusal.code.as_str(), &refusal.description);
    let status = status_of(refusal.code);
    let body = Body {
        error: refusal.code.as_str(),
        error_description: &refusal.description,
    };
    let mut answer = response::no_store(response::json(status, &body));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        ask_to_retry(&mut answer);
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
        | ErrorCode::ConsentRequired
        | ErrorCode::RequestNotSupported
        | ErrorCode::RequestUriNotSupported
        | ErrorCode::RegistrationNotSupported
        | ErrorCode::UnmetAuthenticationRequirements => StatusCode::BAD_REQUEST,
    }
}

/// A refusal as a protected resource sends it (RFC 6750 section 3). Without credentials the challenge
/// says nothing but the scheme.
pub fn refused_bearer(context: &RequestContext, refusal: Option<&Refusal>) -> Answer {
    if let Some(refusal) = refusal {
        context.log_refusal(refusal.code.as_str(), &refusal.description);
    }
    let status = refusal.map_or(StatusCode::UNAUTHORIZED, |refusal| status_of(refusal.code));
    let challenge = match refusal {
        None => "Bearer realm=\"idsvc\"".to_owned(),
        Some(refusal) => {
            let scope = if refusal.code == ErrorCode::InsufficientScope {
                ", scope=\"openid\""
            } else {
                ""
            };
            let code = refusal.code.as_str();
            let description = &refusal.description;
            format!("Bearer realm=\"idsvc\", error=\"{code}\", error_description=\"{description}\"{scope}")
        }
    };
    let mut answer = match refusal {
        None => response::empty(status),
        Some(refusal) => response::json(
            status,
            &Body {
                error: refusal.code.as_str(),
                error_description: &refusal.description,
            },
        ),
    };
    if let Ok(challenge) = HeaderValue::from_str(&challenge) {
        answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response::no_store(answer)
}

/// A failure as programs see it: 429 for whoever asks too often, 503 when trying again helps, 500 with nothing
/// but the request's name.
pub fn failed(context: &RequestContext, failure: &Failure) -> Answer {
    if let Failure::Throttled { seconds } = failure {
        context.log_refusal("throttled", "too many requests");
        let body = Body {
            error: ErrorCode::TemporarilyUnavailable.as_str(),
            error_description: "too many requests; wait as Retry-After says",
        };
        let mut answer = response::no_store(response::json(StatusCode::TOO_MANY_REQUESTS, &body));
        ask_to_wait(&mut answer, *seconds);
        return answer;
    }
    if is_passing(failure) {
        return busy(context);
    }
    report(context, failure);
    let description = format!("request {}", context.request_id);
    let body = Body {
        error: ErrorCode::ServerError.as_str(),
        error_description: &description,
    };
    response::no_store(response::json(StatusCode::INTERNAL_SERVER_ERROR, &body))
}

/// A body of more than is read (RFC 9110 section 15.5.14).
pub fn too_large(context: &RequestContext) -> Answer {
    let (status, description) = (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 64 KiB");
    turned_away(context, status, ErrorCode::InvalidRequest, description)
}

/// Too much at once: 503, and when to try again.
pub fn busy(context: &RequestContext) -> Answer {
    let (status, description) = (StatusCode::SERVICE_UNAVAILABLE, "the service is busy; try again");
    retry_later(turned_away(
        context,
        status,
        ErrorCode::TemporarilyUnavailable,
        description,
    ))
}

/// A refusal that is not about what was asked for.
fn turned_away(context: &RequestContext, status: StatusCode, code: ErrorCode, description: &str) -> Answer {
    context.log_refusal(code.as_str(), description);
    let body = Body {
        error: code.as_str(),
        error_description: description,
    };
    response::no_store(response::json(status, &body))
}

/// A failure as people see it.
pub fn failed_page(context: &RequestContext, failure: &Failure) -> Answer {
    if let Failure::Throttled { seconds } = failure {
        context.log_refusal("throttled", "too many sign-ins begun");
        let mut answer = context.fault_page(StatusCode::TOO_MANY_REQUESTS, Heading::Busy, "");
        ask_to_wait(&mut answer, *seconds);
        return answer;
    }
    if is_passing(failure) {
        let heading = match failure {
            Failure::Store(error) if error.is_outage() => Heading::Server,
            _ => Heading::Busy,
        };
        let message = match failure {
            Failure::Store(_) => "The service cannot do this at this moment. Please try again.",
            _ => "Too many people are signing in at this moment. Please try again.",
        };
        return retry_later(context.error_page(StatusCode::SERVICE_UNAVAILABLE, heading, message));
    }
    report(context, failure);
    context.error_page(
        StatusCode::INTERNAL_SERVER_ERROR,
        Heading::Server,
        "Something went wrong on our side.",
    )
}

/// Whether trying again helps.
pub fn is_passing(failure: &Failure) -> bool {
    match failure {
        Failure::Busy | Failure::Store(StoreError::Busy | StoreError::Closed) => true,
        Failure::Store(error) => error.is_outage(),
        Failure::Throttled { .. } | Failure::NoKey(_) | Failure::Sign(_) => false,
    }
}

fn report(context: &RequestContext, failure: &Failure) {
    tracing::error!(request_id = %context.request_id, error = %failure, "a request failed");
}

fn retry_later(mut answer: Answer) -> Answer {
    ask_to_retry(&mut answer);
    answer
}

/// Asks the sender to try again in two seconds (RFC 9110 section 10.2.3).
pub fn ask_to_retry(answer: &mut Answer) {
    ask_to_wait(answer, 2);
}

/// Asks the sender to try again in so many seconds.
pub fn ask_to_wait(answer: &mut Answer, seconds: u64) {
    answer
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(seconds));
}

/// The answer to a request that came to none of its own: it panicked, or took too long. It is counted here, as it was
/// answered: what comes of it later counts for nothing.
pub fn fallback(app: &App, request: &Unanswered) -> Answer {
    let (status, tls) = (request.status, request.peer.tls);
    let request_id = app.next_request_id();
    let route = strip_issuer_path(&app.issuer_path, request.uri.path()).and_then(Route::recognise);
    let route = route.as_ref().map_or("none", Route::label);
    tracing::error!(%request_id, route, status = status.as_u16(), "answered for a request that came to no answer");
    let took = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(REQUEST_TIMEOUT);
    app.metrics.answered(route, status.as_u16(), took);
    let mut answer = response::no_store(response::empty(status));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        ask_to_retry(&mut answer);
    }
    headers::secure(answer.headers_mut(), &request_id, tls && app.has_hsts);
    answer
}
