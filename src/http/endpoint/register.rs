//! `POST /oauth2/register` and `GET`, `PUT`, `DELETE /oauth2/register/{client_id}`: RFC 7591, RFC 7592.

use ::http::{Method, StatusCode};
use serde_json::json;

use crate::flow::FlowError;
use crate::flow::register_client::{
    self, ACCESS_TOKEN_REFUSED, ClientInformation, INITIAL_TOKEN_REFUSED, change, read, register,
};
use crate::http::context::{RequestContext, throttled};
use crate::http::error::{self, HttpError};
use crate::http::request;
use crate::http::response::{self, HttpResponse};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::registration::{RegistrationMode, document};
use crate::route::Route;
use crate::secret::{InitialAccessToken, Kind, RegistrationAccessToken, Secret};

/// After how many seconds a client may ask again if there is no room for one more.
const FULL_RETRY_SECONDS: u64 = 3600;

/// Registers a client. If registration is open, a token is neither required nor read.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let token = match context.app.core.policy.registration.mode {
        RegistrationMode::Off => return Ok(context.not_found()),
        RegistrationMode::Open => None,
        RegistrationMode::Token => Some(presented(context, INITIAL_TOKEN_REFUSED)?),
    };
    let registered = create(context, token.as_ref()).await;
    answer(context, StatusCode::CREATED, registered)
}

/// Reads, changes or removes a registration.
pub async fn manage(context: &RequestContext, client_id: &str) -> Result<HttpResponse, HttpError> {
    if !context.app.accepts_registrations() {
        return Ok(context.not_found());
    }
    context.record_client_id(client_id);
    let token = presented::<RegistrationAccessToken>(context, ACCESS_TOKEN_REFUSED)?;
    let core = &context.app.core;
    if context.method() == Method::GET {
        return answer(context, StatusCode::OK, read(core, client_id, token).await);
    }
    if context.method() == Method::PUT {
        return answer(context, StatusCode::OK, replace(context, client_id, token).await);
    }
    let removed = register_client::remove(core, client_id, &token, context.now).await;
    removed.map_err(|error| challenged(context, error))?;
    Ok(response::no_store(response::empty(StatusCode::NO_CONTENT)))
}

/// The token in the Bearer scheme (RFC 6750 section 2.1). `malformed` is the refusal of a malformed token.
fn presented<K: Kind>(context: &RequestContext, malformed: Refusal) -> Result<Secret<K>, HttpError> {
    let token = match request::bearer_token(context.headers()) {
        Ok(Some(text)) => Secret::parse(text).map_err(|_| Some(malformed)),
        Ok(None) => Err(None),
        Err(_) => Err(Some(Refusal::invalid_request(
            "the Authorization header is malformed",
        ))),
    };
    token.map_err(|refusal| error::refused_bearer(context, refusal.as_ref()).into())
}

async fn create(
    context: &RequestContext,
    token: Option<&Secret<InitialAccessToken>>,
) -> Result<ClientInformation, FlowError> {
    require_json(context)?;
    context.require_disk_for_record()?;
    let (from, now) = (context.client_address(), context.now);
    let attempt = context.app.limits.register_client(from, now).map_err(throttled)?;
    let registered = register(&context.app.core, &context.body, token, from, now).await;
    registered.inspect_err(|_| attempt.refund(now))
}

async fn replace(
    context: &RequestContext,
    client_id: &str,
    token: Secret<RegistrationAccessToken>,
) -> Result<ClientInformation, FlowError> {
    require_json(context)?;
    let (from, now) = (context.client_address(), context.now);
    let attempt = context.app.limits.register_client(from, now).map_err(throttled)?;
    let registered = change(&context.app.core, client_id, token, &context.body, from, now).await;
    registered.inspect_err(|_| attempt.refund(now))
}

fn require_json(context: &RequestContext) -> Result<(), Refusal> {
    if context.is_json() {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::InvalidClientMetadata,
        "Content-Type must be application/json",
    ))
}

/// A refused token gets a challenge. Room for clients comes when the operator makes some or a user's clients end, not within
/// seconds.
fn challenged(context: &RequestContext, error: FlowError) -> HttpError {
    match error {
        FlowError::Refused(refusal) if refusal.code == ErrorCode::InvalidToken => {
            error::refused_bearer(context, Some(&refusal)).into()
        }
        FlowError::Refused(refusal) if refusal.code == ErrorCode::TemporarilyUnavailable => {
            let mut answer = error::refused(context, &refusal);
            error::set_retry_after(&mut answer, FULL_RETRY_SECONDS);
            answer.into()
        }
        error => error.into(),
    }
}

/// The client information response (RFC 7591 section 3.2.1, RFC 7592 section 3).
fn answer(
    context: &RequestContext,
    status: StatusCode,
    registered: Result<ClientInformation, FlowError>,
) -> Result<HttpResponse, HttpError> {
    let registered = registered.map_err(|error| challenged(context, error))?;
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
    Ok(response::no_store(response::json(status, &members)))
}
