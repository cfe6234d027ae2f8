//! The answers to refusals and failures: the only place that maps them to status codes.

use ::http::StatusCode;
use ::http::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;

use super::context::RequestContext;
use super::cookie::Cookie;
use super::headers;
use super::refusal_log::RefusalLog;
use super::request::Scheme;
use super::response::{self, HttpResponse};
use crate::app::App;
use crate::flow::login::transaction::LoginTransactionError;
use crate::flow::{Failure, FlowError};
use crate::net::{FailedRequest, REQUEST_TIMEOUT};
use crate::oauth::dpop;
use crate::oauth::error::{Cause, ErrorCode, Refusal};
use crate::observe::metrics::RefusalReason;
use crate::pages::ErrorKind;
use crate::route::{Route, strip_issuer_path};
use crate::store::StoreError;

/// Why an endpoint or screen does not return the answer that it was written for.
pub enum HttpError {
    /// Another answer takes its place.
    Answer(Box<HttpResponse>),
    /// The protocol says no.
    Refused(Refusal),
    /// The sign-in that the request belongs to cannot go on.
    Transaction(LoginTransactionError),
    /// The request failed.
    Failed(Failure),
}

impl From<HttpResponse> for HttpError {
    fn from(answer: HttpResponse) -> Self {
        Self::Answer(Box::new(answer))
    }
}

impl From<Refusal> for HttpError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<LoginTransactionError> for HttpError {
    fn from(error: LoginTransactionError) -> Self {
        Self::Transaction(error)
    }
}

impl From<Failure> for HttpError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<StoreError> for HttpError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl<R> From<FlowError<R>> for HttpError
where
    Self: From<R>,
{
    fn from(error: FlowError<R>) -> Self {
        match error {
            FlowError::Refused(reason) => reason.into(),
            FlowError::Failed(failure) => failure.into(),
        }
    }
}

/// The answer to an error: a page if a person waits for it, else JSON.
pub fn answer(context: &RequestContext, route: &Route, error: HttpError) -> HttpResponse {
    let is_page = route.answers_with_pages();
    match error {
        HttpError::Answer(answer) => *answer,
        HttpError::Refused(refusal) if is_page => {
            context.error_page(StatusCode::BAD_REQUEST, ErrorKind::Request, &refusal.description)
        }
        HttpError::Refused(refusal) => refused(context, &refusal),
        HttpError::Transaction(error) => transaction_page(context, error),
        HttpError::Failed(failure) if is_page => failed_page(context, &failure),
        HttpError::Failed(failure) => failed(context, &failure),
    }
}

/// The page that says why a sign-in cannot go on. A browser without any of our cookies may refuse cookies, so its page
/// says that they are needed.
fn transaction_page(context: &RequestContext, error: LoginTransactionError) -> HttpResponse {
    let has_any = Cookie::ALL.iter().any(|cookie| context.cookie(*cookie).is_some());
    let kind = if has_any {
        ErrorKind::Stale
    } else {
        ErrorKind::Cookies
    };
    context.error_page(StatusCode::BAD_REQUEST, kind, &error.to_string())
}

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
        reason: refusal.cause.map(Cause::as_str),
        ..RefusalLog::default()
    });
    // A device polls every few seconds.
    if !matches!(
        refusal.code,
        ErrorCode::AuthorizationPending | ErrorCode::SlowDown
    ) {
        context.log_refusal(refusal.code.as_str(), &refusal.description);
    }
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
    answer_status(code).unwrap_or(StatusCode::BAD_REQUEST)
}

/// The status of an answer with this error code. None if the code is meant for the redirect URI only.
pub fn answer_status(code: ErrorCode) -> Option<StatusCode> {
    match code {
        ErrorCode::InvalidClient | ErrorCode::InvalidToken => Some(StatusCode::UNAUTHORIZED),
        ErrorCode::InsufficientScope => Some(StatusCode::FORBIDDEN),
        ErrorCode::ServerError => Some(StatusCode::INTERNAL_SERVER_ERROR),
        ErrorCode::TemporarilyUnavailable => Some(StatusCode::SERVICE_UNAVAILABLE),
        ErrorCode::InvalidRequest
        | ErrorCode::InvalidGrant
        | ErrorCode::UnauthorizedClient
        | ErrorCode::UnsupportedGrantType
        | ErrorCode::InvalidScope
        | ErrorCode::InvalidTarget
        | ErrorCode::InvalidDpopProof
        | ErrorCode::UseDpopNonce
        | ErrorCode::InvalidRequestObject
        | ErrorCode::InvalidRedirectUri
        | ErrorCode::InvalidClientMetadata
        | ErrorCode::AccessDenied
        | ErrorCode::AuthorizationPending
        | ErrorCode::SlowDown
        | ErrorCode::ExpiredToken => Some(StatusCode::BAD_REQUEST),
        ErrorCode::UnsupportedResponseType
        | ErrorCode::LoginRequired
        | ErrorCode::InteractionRequired
        | ErrorCode::ConsentRequired
        | ErrorCode::RequestUriNotSupported
        | ErrorCode::RegistrationNotSupported
        | ErrorCode::UnmetAuthenticationRequirements => None,
    }
}

/// A refusal as a protected resource sends it (RFC 6750 section 3). Without credentials the challenge
/// says nothing but the scheme.
pub fn refused_bearer(context: &RequestContext, refusal: Option<&Refusal>) -> HttpResponse {
    refused_with(context, Scheme::Bearer, refusal)
}

/// A refusal of a resource that takes access tokens in both schemes (RFC 9449 section 7.1). Without a token in the scheme
/// `DPoP`, the answer names both schemes (section 7.2).
pub fn refused_token(context: &RequestContext, scheme: Scheme, refusal: Option<&Refusal>) -> HttpResponse {
    let mut answer = refused_with(context, scheme, refusal);
    if scheme == Scheme::Bearer
        && let Ok(other) = HeaderValue::from_str(&challenge_of(Scheme::Dpop))
    {
        answer.headers_mut().append(WWW_AUTHENTICATE, other);
    }
    answer
}

fn challenge_of(scheme: Scheme) -> String {
    match scheme {
        Scheme::Bearer => "Bearer realm=\"idsvc\"".to_owned(),
        Scheme::Dpop => {
            let (scheme, algs) = (dpop::SCHEME, dpop::algorithms());
            format!("{scheme} realm=\"idsvc\", algs=\"{algs}\"")
        }
    }
}

fn refused_with(context: &RequestContext, scheme: Scheme, refusal: Option<&Refusal>) -> HttpResponse {
    let mut challenge = challenge_of(scheme);
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
            let status = match refusal.code {
                ErrorCode::InvalidDpopProof | ErrorCode::UseDpopNonce => StatusCode::UNAUTHORIZED,
                code => status_of(code),
            };
            json_error(status, refusal.code, description)
        }
    };
    if let Ok(challenge) = HeaderValue::from_str(&challenge) {
        answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    answer
}

/// A failure as programs see it: 429 over a limit, 503 if a retry helps, otherwise 500 with only the request id.
fn failed(context: &RequestContext, failure: &Failure) -> HttpResponse {
    if let Failure::Throttled { seconds } = failure {
        context.log_refusal("throttled", "too many requests");
        let description = "too many requests; wait as Retry-After says";
        let code = ErrorCode::TemporarilyUnavailable;
        let mut answer = json_error(StatusCode::TOO_MANY_REQUESTS, code, description);
        set_retry_after(&mut answer, *seconds);
        return answer;
    }
    if let Some(shortage) = temporary_reason(failure) {
        return busy(context, shortage);
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

/// The answer to a request for which something is lacking: 503 with `Retry-After`.
pub fn busy(context: &RequestContext, shortage: RefusalReason) -> HttpResponse {
    let code = ErrorCode::TemporarilyUnavailable;
    let description = describe(shortage);
    note_refusal(context, shortage);
    let mut answer = json_error(StatusCode::SERVICE_UNAVAILABLE, code, description);
    set_retry_after(&mut answer, retry_seconds(shortage));
    answer
}

/// The same as people see it.
pub fn shortage_page(context: &RequestContext, shortage: RefusalReason) -> HttpResponse {
    let kind = match shortage {
        RefusalReason::Room | RefusalReason::Store | RefusalReason::Memory => ErrorKind::Server,
        _ => ErrorKind::Busy,
    };
    note_refusal(context, shortage);
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let mut answer = context.unlogged_error_page(status, kind, describe(shortage));
    set_retry_after(&mut answer, retry_seconds(shortage));
    answer
}

/// The same as a page or as JSON, as the route and the request ask.
pub fn shortage(context: &RequestContext, route: &Route, shortage: RefusalReason) -> HttpResponse {
    if route.is_for_people() && context.accepts_html() {
        shortage_page(context, shortage)
    } else {
        busy(context, shortage)
    }
}

fn describe(shortage: RefusalReason) -> &'static str {
    match shortage {
        RefusalReason::Room => "the service has no room to store more; try again later",
        RefusalReason::Store => "the service cannot store anything at this moment; try again",
        RefusalReason::Memory => "the service is short of memory; try again",
        _ => "the service is busy; try again",
    }
}

/// In how many seconds a request may succeed. Room comes at the earliest when expired rows are removed, every minute.
fn retry_seconds(shortage: RefusalReason) -> u64 {
    match shortage {
        RefusalReason::Room => 60,
        _ => RETRY_SECONDS,
    }
}

/// Counts a request for which something is lacking, and logs it. What all senders lack is logged once a minute for each
/// reason, since almost every request is refused then.
pub fn note_refusal(context: &RequestContext, shortage: RefusalReason) {
    context.app.metrics.count_refusal(shortage);
    let is_of_one_sender = matches!(
        shortage,
        RefusalReason::Requests | RefusalReason::Bodies | RefusalReason::Passwords
    );
    if is_of_one_sender {
        context.log_refusal(ErrorCode::TemporarilyUnavailable.as_str(), describe(shortage));
        return;
    }
    let reason = shortage.as_str();
    let Some(left_out) = context.app.limits.note_outage(reason, context.now) else {
        return;
    };
    let why = match shortage {
        RefusalReason::Room => NO_ROOM,
        RefusalReason::Store => NO_STORE,
        _ => describe(shortage),
    };
    let left_out = (left_out > 0).then_some(left_out);
    tracing::warn!(reason, left_out, "requests are refused: {why}");
}

const THROTTLED: &str = "too many answers of providers";
const NO_ROOM: &str = "the disk with the data is nearly full or full; idsvc doctor says how much is needed";
const NO_STORE: &str = "the store cannot be used; /readyz says why";

fn json_error(status: StatusCode, code: ErrorCode, description: &str) -> HttpResponse {
    let body = Body {
        error: code.as_str(),
        error_description: description,
    };
    response::no_store(response::json(status, &body))
}

/// A failure as people see it.
fn failed_page(context: &RequestContext, failure: &Failure) -> HttpResponse {
    if let Failure::Throttled { seconds } = failure {
        context.log_refusal("throttled", THROTTLED);
        let mut answer =
            context.unlogged_error_page(StatusCode::TOO_MANY_REQUESTS, ErrorKind::Throttled, THROTTLED);
        set_retry_after(&mut answer, *seconds);
        return answer;
    }
    if let Some(shortage) = temporary_reason(failure) {
        return shortage_page(context, shortage);
    }
    log_failure(context, failure);
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    context.unlogged_error_page(status, ErrorKind::Server, &failure.to_string())
}

/// What is lacking, if a retry may succeed.
pub fn temporary_reason(failure: &Failure) -> Option<RefusalReason> {
    match failure {
        Failure::Busy => Some(RefusalReason::Passwords),
        Failure::OutOfMemory(_) => Some(RefusalReason::Memory),
        Failure::Store(StoreError::Busy | StoreError::Closed) => Some(RefusalReason::Writes),
        Failure::Store(StoreError::NoSpace) => Some(RefusalReason::Room),
        Failure::Store(error) => error.is_outage().then_some(RefusalReason::Store),
        Failure::Throttled { .. } | Failure::NoKey(_) | Failure::NoRefreshKey | Failure::Sign(_) => None,
    }
}

fn log_failure(context: &RequestContext, failure: &Failure) {
    tracing::error!(request_id = %context.request_id, error = %failure, "a request failed");
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
