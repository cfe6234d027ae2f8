//! The way from a request to its answer: route, limits, endpoint, headers.
//!
//! Every request goes through [`respond`]. Endpoints are for programs, screens are for people. Protocol decisions are
//! made in [`crate::flow`] and [`crate::oauth`].

pub mod client_address;
pub mod client_certificate;
pub mod context;
pub mod cookie;
mod drawing;
pub mod endpoint;
pub mod error;
mod form_origin;
pub mod headers;
mod language;
pub mod metrics;
pub mod preview;
pub mod redirect;
mod refusal_log;
pub mod request;
pub mod response;
pub mod screen;
mod service_cookies;

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::header::{ACCESS_CONTROL_REQUEST_METHOD, CONNECTION, HeaderValue, ORIGIN};
use ::http::{Method, Request, StatusCode, Version};
use bytes::Bytes;
use hyper::body::Body;

use self::context::RequestContext;
use self::headers::AllowedOrigin;
use self::refusal_log::RefusalLog;
use self::request::{BodyError, MAX_UNREAD, discard_unread, has_valid_host, keep_unread, read_body};
use self::response::{HttpResponse, empty};
use crate::app::{App, RequestPermit};
use crate::identity::one_time_link::MailReason;
use crate::net::{Peer, REQUEST_TIMEOUT};
use crate::oauth::error::printable;
use crate::observe::metrics::RefusalReason;
use crate::route::{Cors, Route, strip_issuer_path};

/// The largest body that is read, in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The most header fields of a request, the same as the limit of HTTP/1 connections. HTTP/2 limits only the bytes of a
/// header. An empty field has few bytes there, but takes several times as many in memory.
const MAX_HEADER_FIELDS: usize = 100;

/// Answers one request. The limits are checked before this returns, and the header of a refused request is freed at once.
/// Otherwise a peer that sends faster than it is answered could fill the memory with headers.
pub fn respond<B>(
    app: Arc<App>,
    request: Request<B>,
    peer: Peer,
) -> Pin<Box<dyn Future<Output = HttpResponse> + Send>>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let route = strip_issuer_path(&app.issuer_path, parts.uri.path()).and_then(Route::recognise);
    let version = parts.version;
    let mut context = RequestContext::new(app, parts, peer);
    let route = route.filter(|route| !context.shown.is_mtls_listener || route.takes_certificates());
    let permit = match check_request_limits(&context) {
        Ok(permit) => permit,
        Err(mut refusal) => {
            if !body.is_end_stream() {
                abandon_body(body, version, &context, &mut refusal);
            }
            return Box::pin(ready(complete_response(
                &context,
                route.as_ref(),
                peer,
                started,
                *refusal,
            )));
        }
    };
    Box::pin(async move {
        let mut answer = handle(&mut context, route.as_ref(), body, version).await;
        context.rename_cookies(&mut answer);
        let answer = complete_response(&context, route.as_ref(), peer, started, answer);
        drop(permit);
        answer
    })
}

/// A permit for the request; an answer if its header has too many fields or too many requests are under way.
fn check_request_limits(context: &RequestContext) -> Result<RequestPermit, Box<HttpResponse>> {
    if context.headers().len() > MAX_HEADER_FIELDS {
        return Err(Box::new(empty(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)));
    }
    let permit = context.app.permit_for_request(context.client_address());
    permit.ok_or_else(|| Box::new(error::busy(context, RefusalReason::Requests)))
}

/// Answers a request within the limits. A POST or PUT is dispatched once its body has been read.
async fn handle<B>(
    context: &mut RequestContext,
    route: Option<&Route>,
    mut body: B,
    version: Version,
) -> HttpResponse
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    let mut is_read = body.is_end_stream();
    let mut answer = match route {
        _ if !has_valid_host(version, context.headers()) => empty(StatusCode::BAD_REQUEST),
        None => context.not_found(),
        Some(route) if !may_answer(context, route) => error::shortage(context, route, RefusalReason::Store),
        Some(route) if is_preflight(context) && route.cors() != Cors::None => {
            let core = &context.app.core;
            core.with_newest_catalog(|| async { preflight(context, route) })
                .await
        }
        Some(route) if !route.methods().contains(context.method()) => {
            headers::method_not_allowed(route.methods())
        }
        Some(route) if ![Method::POST, Method::PUT].contains(context.method()) => {
            dispatch_with_newest_catalog(context, route).await
        }
        Some(route) => match context
            .app
            .permit_for_body(expected_body_len(&body), context.client_address())
        {
            None => error::shortage(context, route, RefusalReason::Bodies),
            Some(_permit) => {
                let read = read_body(&mut body, MAX_BODY, BODY_TIMEOUT).await;
                context.note_arrival();
                match read {
                    // A body may take ten seconds.
                    Ok(_) if !may_answer(context, route) => {
                        is_read = true;
                        error::shortage(context, route, RefusalReason::Store)
                    }
                    Ok(whole) => {
                        is_read = true;
                        context.body = whole;
                        dispatch_with_newest_catalog(context, route).await
                    }
                    Err(BodyError::TooLarge) => error::too_large(context),
                    Err(BodyError::TimedOut) => empty(StatusCode::REQUEST_TIMEOUT),
                    Err(BodyError::Broken) => empty(StatusCode::BAD_REQUEST),
                }
            }
        },
    };
    if !is_read {
        abandon_body(body, version, context, &mut answer);
    }
    answer
}

/// Whether this node knows what it needs for this route. Without an answer of the database, another node may have disabled
/// a client since this node last read the catalog. With a wrong clock, a code may have expired.
fn may_answer(context: &RequestContext, route: &Route) -> bool {
    let store = &context.app.core.store;
    route.allows_stale_catalog() || store.is_current() && store.knows_time()
}

/// Adds the headers that every answer has, counts the answer and logs it.
fn complete_response(
    context: &RequestContext,
    route: Option<&Route>,
    peer: Peer,
    started: Instant,
    mut answer: HttpResponse,
) -> HttpResponse {
    if let Some(route) = route {
        add_cors_headers(context, route, &mut answer);
        endpoint::dpop::add_nonce(context, route, &mut answer);
    }
    headers::secure(
        answer.headers_mut(),
        &context.request_id,
        peer.tls && context.app.has_hsts,
    );
    if answer.status() == StatusCode::TOO_MANY_REQUESTS {
        context.app.metrics.count_refusal(RefusalReason::RateLimit);
    }
    let label = route.map_or("none", Route::label);
    if started.elapsed() < REQUEST_TIMEOUT {
        let took = context.read_at.elapsed();
        context
            .app
            .metrics
            .count_request(label, answer.status().as_u16(), Some(took));
    }
    tracing::debug!(
        request_id = %context.request_id,
        route = label,
        method = %context.method(),
        status = answer.status().as_u16(),
        client = %context.client_address(),
        "answered"
    );
    answer
}

/// Handles a body that was not read to its end. On HTTP/1 the connection is closed, and the answer says so (RFC 9112
/// section 9.6).
fn abandon_body(
    body: impl Body<Data = Bytes> + Send + Unpin + 'static,
    version: Version,
    context: &RequestContext,
    answer: &mut HttpResponse,
) {
    if version < Version::HTTP_2 {
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        discard_unread(body);
    } else if let Some(permit) = context.app.permit_for_body(MAX_UNREAD, context.client_address()) {
        keep_unread(body, permit);
    }
}

/// The bytes of memory that a body may need: its announced length, at most [`MAX_BODY`].
fn expected_body_len(body: &impl Body) -> usize {
    let announced = body.size_hint().exact().map(usize::try_from);
    announced.map_or(MAX_BODY, |bytes| bytes.unwrap_or(MAX_BODY).min(MAX_BODY))
}

/// Calls the endpoint or screen of a route, and calls it again if another node has changed the catalog.
async fn dispatch_with_newest_catalog(context: &RequestContext, route: &Route) -> HttpResponse {
    let core = &context.app.core;
    core.with_newest_catalog(|| dispatch(context, route)).await
}

/// Calls the endpoint or screen of a route. Large futures are boxed: otherwise the future of every request would have
/// their size.
async fn dispatch(context: &RequestContext, route: &Route) -> HttpResponse {
    if context.method() == Method::GET
        && route.is_for_people()
        && let Some(address) = context.address_at_issuer()
    {
        return response::redirect_303(&address);
    }
    let answered = match route {
        Route::Authorize => endpoint::authorize::respond(context).await,
        Route::PushedRequest => endpoint::par::respond(context).await,
        Route::DeviceAuthorization => endpoint::device_authorization::respond(context).await,
        Route::Token => endpoint::token::respond(context).await,
        Route::Refresh => endpoint::refresh::respond(context).await,
        Route::OpenidConfiguration | Route::OauthAuthorizationServer => {
            Ok(endpoint::metadata::document(context))
        }
        Route::Jwks => Ok(endpoint::metadata::jwks(context)),
        Route::UserInfo => endpoint::userinfo::respond(context).await,
        Route::Introspect => endpoint::introspect::respond(context).await,
        Route::Revoke => endpoint::revoke::respond(context).await,
        Route::Register => endpoint::register::respond(context).await,
        Route::ClientConfiguration(client_id) => endpoint::register::manage(context, client_id).await,
        Route::EndSession => endpoint::end_session::respond(context).await,
        Route::Login => Box::pin(screen::login::respond(context)).await,
        Route::Recover => Box::pin(screen::request_mail::respond(context, MailReason::Reset)).await,
        Route::SignUp => Box::pin(screen::request_mail::respond(context, MailReason::SignUp)).await,
        Route::SignInByMail => Box::pin(screen::request_mail::respond(context, MailReason::SignIn)).await,
        Route::CheckMail => Box::pin(screen::check_mail::respond(context)).await,
        Route::SecondFactor => Box::pin(screen::second_factor::respond(context)).await,
        Route::PasskeyOffer => Box::pin(screen::passkey_offer::respond(context)).await,
        Route::Link => Box::pin(screen::link::respond(context)).await,
        Route::Consent => Box::pin(screen::consent::respond(context)).await,
        Route::Device => Box::pin(screen::device::respond(context)).await,
        Route::LogoutConfirm => screen::logout::confirm(context).await,
        Route::LoggedOut => Ok(screen::logout::logged_out(context)),
        Route::Account
        | Route::AccountProfile
        | Route::AccountPassword
        | Route::AccountSecurity
        | Route::AccountDevices
        | Route::AccountApplications
        | Route::AccountData => screen::account::respond(context, route).await,
        Route::OpenApplication(client) => screen::open_application::respond(context, client).await,
        Route::ChangePassword => Ok(response::redirect_303(&context.app.path(&Route::AccountPassword))),
        Route::RelatedOrigins => Ok(endpoint::metadata::related_origins(context)),
        Route::Error => Ok(screen::error::respond(context)),
        Route::Asset(file) => Ok(screen::asset::respond(context, file)),
        Route::ThemeFile(file) => Ok(screen::asset::of_theme(context, file)),
        Route::ClientLogo(file) => Ok(screen::asset::of_client(context, file)),
        Route::FederationStart(provider) => Box::pin(screen::federation::start(context, provider)).await,
        Route::FederationCallback(provider) => {
            Box::pin(screen::federation::callback(context, provider)).await
        }
        Route::FederationLogo(provider) => Ok(screen::federation::logo(context, provider)),
        Route::Healthz => Ok(endpoint::health::alive()),
        Route::Readyz => Ok(endpoint::health::readiness(&context.app)),
        Route::Home => Ok(screen::dev::home::respond(context)),
        Route::DevCallback => screen::dev::home::callback(context).await,
        Route::DevDevice => Box::pin(screen::dev::device::respond(context)).await,
        Route::DevMail => Ok(screen::dev::mail::respond(context)),
    };
    answered.unwrap_or_else(|error| error::answer(context, route, error))
}

/// Whether a browser asks if a script may send a request (Fetch standard, section 3.3.2).
fn is_preflight(context: &RequestContext) -> bool {
    context.method() == Method::OPTIONS
        && context.headers().contains_key(ORIGIN)
        && context.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

fn allowed_origin<'a>(context: &'a RequestContext, route: &Route) -> Option<AllowedOrigin<'a>> {
    let origin = context.headers().get(ORIGIN)?;
    match route.cors() {
        Cors::Public => Some(AllowedOrigin::Any),
        Cors::Clients => {
            let is_allowed = context.app.core.catalog().allows_origin(origin.to_str().ok()?);
            is_allowed.then_some(AllowedOrigin::One(origin))
        }
        Cors::None => None,
    }
}

fn preflight(context: &RequestContext, route: &Route) -> HttpResponse {
    if let Some(origin) = allowed_origin(context, route) {
        return headers::preflight(context.headers(), route.methods(), origin);
    }
    let origin = context.headers().get(ORIGIN).map(HeaderValue::as_bytes);
    let origin = String::from_utf8_lossy(origin.unwrap_or_default());
    context.log_detail(RefusalLog {
        origin: Some(printable(&origin, 200)),
        ..RefusalLog::default()
    });
    let status = StatusCode::FORBIDDEN;
    context.log_refusal(status.as_str(), "no client has the origin of this script");
    empty(status)
}

/// Lets scripts of allowed origins read the answer.
fn add_cors_headers(context: &RequestContext, route: &Route, answer: &mut HttpResponse) {
    if route.cors() == Cors::Public {
        headers::allow_origin(answer.headers_mut(), AllowedOrigin::Any);
        return;
    }
    match allowed_origin(context, route) {
        Some(origin) if context.method() != Method::OPTIONS => {
            headers::allow_origin(answer.headers_mut(), origin);
        }
        None if route.cors() == Cors::Clients => headers::vary_by_origin(answer.headers_mut()),
        Some(_) | None => {}
    }
}
