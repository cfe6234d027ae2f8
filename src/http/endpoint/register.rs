//! `POST /oauth2/register` and `GET`, `PUT`, `DELETE /oauth2/register/{client_id}`: RFC 7591, RFC 7592.

use ::http::{Method, StatusCode};
use serde_json::json;

use crate::flow::register_client::{
    self, ACCESS_TOKEN_REFUSED, ClientInformation, INITIAL_TOKEN_REFUSED, change, read, register,
};
use crate::flow::{Answer, Failure};
use crate::http::context::{RequestContext, throttled};
use crate::http::error;
use crate::http::request;
use crate::http::response::{self, HttpResponse};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::registration::{RegistrationMode, document};
use crate::route::Route;
use crate::secret::{InitialAccessToken, Kind, RegistrationAccessToken, Secret};

/// Registers a client. If registration is open, a token is neither required nor read.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let token = match context.app.core.policy.registration.mode {
        RegistrationMode::Off => return context.not_found(),
        RegistrationMode::Open => None,
        RegistrationMode::Token => match presented(context, INITIAL_TOKEN_REFUSED) {
            Ok(token) => Some(token),
            Err(refusal) => return error::refused_bearer(context, refusal.as_ref()),
        },
    };
    let registered = create(context, token.as_ref()).await;
    answer(context, StatusCode::CREATED, registered)
}

/// Reads, changes or removes a registration.
pub async fn manage(context: &RequestContext, client_id: &str) -> HttpResponse {
    if !context.app.accepts_registrations() {
        return context.not_found();
    }
    context.record_client_id(client_id);
    let token = match presented::<RegistrationAccessToken>(context, ACCESS_TOKEN_REFUSED) {
        Ok(token) => token,
        Err(refusal) => return error::refused_bearer(context, refusal.as_ref()),
    };
    let core = &context.app.core;
    if context.method() == Method::GET {
        return answer(context, StatusCode::OK, read(core, client_id, token).await);
    }
    if context.method() == Method::PUT {
        return answer(context, StatusCode::OK, replace(context, client_id, token).await);
    }
    match register_client::remove(core, client_id, &token, context.now).await {
        Ok(Ok(())) => response::no_store(response::empty(StatusCode::NO_CONTENT)),
        Ok(Err(refusal)) => error::refused_bearer(context, Some(&refusal)),
        Err(failure) => error::failed(context, &failure),
    }
}

/// The token in the Bearer scheme (RFC 6750 section 2.1). The error is the refusal of a malformed header or token, and
/// `None` without a token.
fn presented<K: Kind>(context: &RequestContext, malformed: Refusal) -> Result<Secret<K>, Option<Refusal>> {
    match request::bearer_token(context.headers()) {
        Ok(Some(text)) => Secret::parse(text).map_err(|_| Some(malformed)),
        Ok(None) => Err(None),
        Err(_) => Err(Some(Refusal::invalid_request(
            "the Authorization header is malformed",
        ))),
    }
}

async fn create(
    context: &RequestContext,
    token: Option<&Secret<InitialAccessToken>>,
) -> Result<Answer<ClientInformation>, Failure> {
    if let Err(refusal) = require_json(context) {
        return Ok(Err(refusal));
    }
    context.require_disk_for_record()?;
    let (from, now) = (context.client_address(), context.now);
    let attempt = context.app.limits.register_client(from, now).map_err(throttled)?;
    let answer = register(&context.app.core, &context.body, token, from, now).await;
    if !matches!(answer, Ok(Ok(_))) {
        attempt.refund(now);
    }
    answer
}

async fn replace(
    context: &RequestContext,
    client_id: &str,
    token: Secret<RegistrationAccessToken>,
) -> Result<Answer<ClientInformation>, Failure> {
    if let Err(refusal) = require_json(context) {
        return Ok(Err(refusal));
    }
    let (from, now) = (context.client_address(), context.now);
    let attempt = context.app.limits.register_client(from, now).map_err(throttled)?;
    let answer = change(&context.app.core, client_id, token, &context.body, from, now).await;
    if !matches!(answer, Ok(Ok(_))) {
        attempt.refund(now);
    }
    answer
}

fn require_json(context: &RequestContext) -> Answer<()> {
    if context.is_json() {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::InvalidClientMetadata,
        "Content-Type must be application/json",
    ))
}

/// The client information response (RFC 7591 section 3.2.1, RFC 7592 section 3).
fn answer(
    context: &RequestContext,
    status: StatusCode,
    registered: Result<Answer<ClientInformation>, Failure>,
) -> HttpResponse {
    let registered = match registered {
        Ok(Ok(registered)) => registered,
        Ok(Err(refusal)) if refusal.code == ErrorCode::InvalidToken => {
            return error::refused_bearer(context, Some(&refusal));
        }
        Ok(Err(refusal)) => return error::refused(context, &refusal),
        Err(failure) => return error::failed(context, &failure),
    };
    let mut members = document(&registered.client);
    let mut add = |name: &str, value| members.insert(name.to_owned(), value);
    if let Some(secret) = &registered.client_secret {
        add("client_secret", json!(secret.reveal()));
        add("client_secret_expires_at", json!(0));
    }
    let address = Route::ClientConfiguration(registered.client.client_id.clone());
    add("registration_client_uri", json!(context.app.url(&address)));
    add(
        "registration_access_token",
        json!(registered.access_token.reveal()),
    );
    response::no_store(response::json(status, &members))
}
