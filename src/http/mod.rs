//! From a request to an answer: route, limits, endpoint, headers.
//!
//! [`respond`] is the one function that sees every request. Endpoints are for programs, screens are for
//! people; neither decides anything that the standards decide.

pub mod client_address;
pub mod context;
pub mod cookie;
pub mod endpoint;
pub mod error;
pub mod headers;
pub mod metrics;
pub mod preview;
pub mod request;
pub mod response;
pub mod screen;

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::header::{ACCESS_CONTROL_REQUEST_METHOD, CONNECTION, HeaderValue, ORIGIN};
use ::http::{Method, Request, StatusCode, Version};
use bytes::Bytes;
use hyper::body::Body;

use self::context::{RefusalLog, RequestContext};
use self::headers::AllowedOrigin;
use self::request::{BodyError, MOST_UNREAD, discard_unread, keep_unread, names_its_host, read_body};
use self::response::{Answer, empty};
use crate::app::{App, RequestPermit};
use crate::net::{Peer, REQUEST_TIMEOUT};
use crate::oauth::error::printable;
use crate::route::{Cors, Route, strip_issuer_path};

/// The greatest body that is read.
pub const MAX_BODY: usize = 64 * 1024;
/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);
/// The most fields of a header that is taken, and what HTTP/1 connections are cut at, too. HTTP/2 counts their bytes
/// alone, of which an empty one has few; in memory it takes several times as many.
const MOST_FIELDS: usize = 100;

/// Answers one request. Whether it is taken at all is settled before this returns, and one that is not keeps nothing
/// of its header: what a peer sends faster than it is answered would otherwise lie in memory until its turn.
pub fn respond<B>(
    app: Arc<App>,
    request: Request<B>,
    peer: Peer,
) -> Pin<Box<dyn Future<Output = Answer> + Send>>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    let begun = Instant::now();
    let (parts, body) = request.into_parts();
    let route = strip_issuer_path(&app.issuer_path, parts.uri.path()).and_then(Route::recognise);
    let version = parts.version;
    let context = RequestContext::new(app, parts, peer);
    let place = match admit(&context) {
        Ok(place) => place,
        Err(mut refusal) => {
            if !body.is_end_stream() {
                leave(body, version, &context, &mut refusal);
            }
            return Box::pin(ready(finish(&context, route.as_ref(), peer, begun, *refusal)));
        }
    };
    Box::pin(async move {
        let (context, answer) = answer(context, route.as_ref(), body, version).await;
        let answer = finish(&context, route.as_ref(), peer, begun, answer);
        drop(place);
        answer
    })
}

/// A place for the request, unless its header is not taken or there are too many requests under way.
fn admit(context: &RequestContext) -> Result<RequestPermit, Box<Answer>> {
    if context.headers().len() > MOST_FIELDS {
        return Err(Box::new(empty(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)));
    }
    let place = context.app.permit_for_request(context.client_address());
    place.ok_or_else(|| Box::new(error::busy(context)))
}

/// The answer to a request that is taken, when its body is here if it is to have one.
async fn answer<B>(
    mut context: RequestContext,
    route: Option<&Route>,
    mut body: B,
    version: Version,
) -> (RequestContext, Answer)
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    let mut is_read = body.is_end_stream();
    let mut answer = match route {
        _ if !names_its_host(version, context.headers()) => empty(StatusCode::BAD_REQUEST),
        None => context.not_found(),
        Some(route) if is_preflight(&context) && route.cors() != Cors::None => preflight(&context, route),
        Some(route) if !route.methods().contains(context.method()) => {
            headers::method_not_allowed(route.methods())
        }
        Some(route) if context.method() != Method::POST => dispatch(&context, route).await,
        Some(route) => match context
            .app
            .permit_for_body(announced(&body), context.client_address())
        {
            None => error::busy(&context),
            Some(_room) => {
                let read = read_body(&mut body, MAX_BODY, BODY_TIME).await;
                context.read_at = Instant::now();
                match read {
                    Ok(whole) => {
                        is_read = true;
                        context.body = whole;
                        dispatch(&context, route).await
                    }
                    Err(BodyError::TooLarge) => error::too_large(&context),
                    Err(BodyError::TimedOut) => empty(StatusCode::REQUEST_TIMEOUT),
                    Err(BodyError::Broken) => empty(StatusCode::BAD_REQUEST),
                }
            }
        },
    };
    if !is_read {
        leave(body, version, &context, &mut answer);
    }
    (context, answer)
}

/// What every answer has, whoever made it, and a note that it was given.
fn finish(
    context: &RequestContext,
    route: Option<&Route>,
    peer: Peer,
    begun: Instant,
    mut answer: Answer,
) -> Answer {
    if let Some(route) = route {
        share(context, route, &mut answer);
    }
    headers::secure(
        answer.headers_mut(),
        &context.request_id,
        peer.tls && context.app.has_hsts,
    );
    let label = route.map_or("none", Route::label);
    if begun.elapsed() < REQUEST_TIMEOUT {
        let took = context.read_at.elapsed();
        context
            .app
            .metrics
            .answered(label, answer.status().as_u16(), Some(took));
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

/// Takes leave of a body that was not read to its end. On HTTP/1 there is no further request behind it, and the answer
/// says so (RFC 9112 section 9.6).
fn leave(
    body: impl Body<Data = Bytes> + Send + Unpin + 'static,
    version: Version,
    context: &RequestContext,
    answer: &mut Answer,
) {
    if version < Version::HTTP_2 {
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        discard_unread(body);
    } else if let Some(room) = context.app.permit_for_body(MOST_UNREAD, context.client_address()) {
        keep_unread(body, room);
    }
}

/// The memory that a body may come to need: what it announces, or the most that is read.
fn announced(body: &impl Body) -> usize {
    let exact = body
        .size_hint()
        .exact()
        .and_then(|bytes| usize::try_from(bytes).ok());
    exact.map_or(MAX_BODY, |bytes| bytes.min(MAX_BODY))
}

/// The pages whose work needs much room get it on the heap: every request would otherwise carry it along.
async fn dispatch(context: &RequestContext, route: &Route) -> Answer {
    if context.method() == Method::GET
        && route.is_for_people()
        && let Some(address) = context.address_at_issuer()
    {
        return response::redirect_303(&address);
    }
    match route {
        Route::Authorize => endpoint::authorize::respond(context).await,
        Route::Token => endpoint::token::respond(context).await,
        Route::Refresh => endpoint::refresh::respond(context).await,
        Route::OpenidConfiguration | Route::OauthAuthorizationServer => endpoint::metadata::document(context),
        Route::Jwks => endpoint::metadata::jwks(context),
        Route::UserInfo => endpoint::userinfo::respond(context),
        Route::Introspect => endpoint::introspect::respond(context).await,
        Route::Revoke => endpoint::revoke::respond(context).await,
        Route::EndSession => endpoint::end_session::respond(context).await,
        Route::Login => Box::pin(screen::login::respond(context)).await,
        Route::Consent => Box::pin(screen::consent::respond(context)).await,
        Route::LogoutConfirm => screen::logout::confirm(context).await,
        Route::LoggedOut => screen::logout::logged_out(context),
        Route::Account => screen::account::respond(context).await,
        Route::ChangePassword => response::redirect_303(&context.app.path(&Route::Account)),
        Route::Error => screen::error::respond(context),
        Route::Asset(file) => screen::asset::respond(context, file),
        Route::ThemeFile(file) => screen::asset::of_theme(context, file),
        Route::FederationStart(provider) => Box::pin(screen::federation::start(context, provider)).await,
        Route::FederationCallback(provider) => {
            Box::pin(screen::federation::callback(context, provider)).await
        }
        Route::FederationLogo(provider) => screen::federation::logo(context, provider),
        Route::Healthz => endpoint::health::alive(),
        Route::Readyz => endpoint::health::ready(context),
        Route::Home => screen::home::respond(context),
        Route::DevCallback => screen::home::callback(context).await,
    }
}

/// A browser asks whether a script may send a request (Fetch standard, section 3.3.2).
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
            let known = context.app.core.catalog().allows_origin(origin.to_str().ok()?);
            known.then_some(AllowedOrigin::One(origin))
        }
        Cors::None => None,
    }
}

fn preflight(context: &RequestContext, route: &Route) -> Answer {
    if let Some(origin) = allowed_origin(context, route) {
        return headers::preflight(route.methods(), origin);
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

/// Lets scripts of the right origins read the answer.
fn share(context: &RequestContext, route: &Route, answer: &mut Answer) {
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
