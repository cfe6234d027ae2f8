//! `POST /oauth2/token`: RFC 6749 section 3.2.

use ::http::StatusCode;

use super::client::authenticated;
use crate::flow::create_anonymous_user::create_anonymous_user;
use crate::flow::exchange_assertion::exchange_assertion;
use crate::flow::issue_client_token::issue_client_token;
use crate::flow::redeem_code::redeem_code;
use crate::flow::rotate_refresh_token::rotate_refresh_token;
use crate::flow::{Answer as Reply, Failure};
use crate::http::call::Call;
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::{self, Answer};
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::error::Refusal;
use crate::oauth::scope::Scope;
use crate::oauth::token::{self, TokenRequest, TokenResponse};

/// Answers a token request: parse, authenticate the client, check the grant, then what the grant demands.
pub async fn respond(call: &Call) -> Answer {
    let service_name = &call.app.core.policy.service_name;
    let parameters = match parameters(call, service_name) {
        Ok(parameters) => parameters,
        Err(refusal) => return refused(call, UNKNOWN, &refusal),
    };
    let asked = token::grant_type(&parameters, service_name);
    let grant = asked.as_ref().map_or(UNKNOWN, |grant| grant.as_str());
    let client = match authenticated(call, &parameters).await {
        Ok(Ok(client)) => client,
        Ok(Err(refusal)) => return refused(call, grant, &refusal),
        Err(failure) => return failed(call, grant, &failure),
    };
    let request = asked.and_then(|grant_type| {
        call.app.core.gate().check_grant(&client, grant_type)?;
        TokenRequest::parse(grant_type, &parameters)
    });
    match request {
        Ok(request) => issue(call, &client, grant, request).await,
        Err(refusal) => refused(call, grant, &refusal),
    }
}

/// What requests are counted under whose grant type is none that is known.
const UNKNOWN: &str = "unknown";

/// Says no, and counts it.
pub(super) fn refused(call: &Call, grant: &'static str, refusal: &Refusal) -> Answer {
    call.app.metrics.granted(grant, refusal.code.as_str());
    error::refused(call, refusal)
}

/// Says that it cannot be said, and counts it.
pub(super) fn failed(call: &Call, grant: &'static str, failure: &Failure) -> Answer {
    let outcome = match failure {
        Failure::Throttled { .. } => "throttled",
        failure if error::is_passing(failure) => "busy",
        _ => "failed",
    };
    call.app.metrics.granted(grant, outcome);
    error::failed(call, failure)
}

/// The parameters in the body: a form, or a JSON object for the grants that take one. What is wrong with
/// `grant_type` itself is said of a JSON object as of a form.
fn parameters(call: &Call, service_name: &str) -> Reply<Parameters> {
    if !call.is_json() {
        return call.form();
    }
    let parameters = call.form_or_json()?;
    match token::grant_type(&parameters, service_name) {
        Ok(grant) if !grant.accepts_json() => call.form(),
        _ => Ok(parameters),
    }
}

/// Makes a user for a device. What made none is no part of what the address and the client may have made: devices that
/// came in vain, and come again as they are told, would find no room in it.
async fn anonymous(
    call: &Call,
    client: &AuthenticatedClient,
    scope: Option<Scope>,
) -> Result<Reply<TokenResponse>, Failure> {
    call.find_room()?;
    let (limits, from) = (&call.app.limits, call.client_address());
    let attempt = limits
        .create_anonymous_user(&client.client_id, from, call.now)
        .map_err(error::throttled)?;
    let answer = create_anonymous_user(&call.app.core, client, scope, call.now).await;
    if let Ok(Err(_)) | Err(Failure::Store(_)) = &answer {
        attempt.forgive(call.now);
    }
    answer
}

/// Carries the request out for a client that has proven who it is.
pub(super) async fn issue(
    call: &Call,
    client: &AuthenticatedClient,
    grant: &'static str,
    request: TokenRequest,
) -> Answer {
    let core = &call.app.core;
    let answer = match request {
        TokenRequest::AuthorizationCode(exchange) => redeem_code(core, client, exchange, call.now).await,
        TokenRequest::RefreshToken { token, scope } => {
            rotate_refresh_token(core, client, token, scope, call.now).await
        }
        TokenRequest::ClientCredentials { scope } => {
            issue_client_token(core, client, scope.as_ref(), call.now)
        }
        TokenRequest::JwtBearer { assertion, scope } => {
            exchange_assertion(core, client, assertion, scope, call.now).await
        }
        TokenRequest::Anonymous { scope } => anonymous(call, client, scope).await,
    };
    match answer {
        Ok(Ok(tokens)) => {
            call.app.metrics.granted(grant, "issued");
            response::no_store(response::json(StatusCode::OK, &tokens))
        }
        Ok(Err(refusal)) => refused(call, grant, &refusal),
        Err(failure) => failed(call, grant, &failure),
    }
}
