//! `POST /oauth2/token`: RFC 6749 section 3.2.

use ::http::StatusCode;

use super::client::authenticate;
use super::dpop;
use crate::flow::replay::record_refusal;
use crate::flow::token::anonymous::create_anonymous_user;
use crate::flow::token::authorization_code::redeem_code;
use crate::flow::token::client_credentials::issue_client_token;
use crate::flow::token::device_code::redeem_device_code;
use crate::flow::token::jwt_bearer::{AssertionGrant, exchange_assertion};
use crate::flow::token::refresh_token::rotate_refresh_token;
use crate::flow::token::token_exchange::exchange_token;
use crate::flow::{Failure, FlowError, grant_policy};
use crate::http::context::{RequestContext, throttled};
use crate::http::error::{self, HttpError};
use crate::http::request::Parameters;
use crate::http::response::{self, HttpResponse};
use crate::oauth::client::GrantType;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::confirmation::Possession;
use crate::oauth::dpop::{DpopProof, require_proof};
use crate::oauth::error::Refusal;
use crate::oauth::resource::{Resources, resources};
use crate::oauth::scope::Scope;
use crate::oauth::token::{self, TokenRequest, TokenResponse};
use crate::route::Route;

/// The label in the metrics for requests with an unknown grant type.
const UNKNOWN: &str = "unknown";

/// Answers a token request: parses it, authenticates the client, checks the grant, then issues the tokens.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let service_name = &context.app.core.policy.service_name;
    let parameters = match parameters(context, service_name) {
        Ok(parameters) => parameters,
        Err(refusal) => return counted(context, UNKNOWN, Err(refusal.into())),
    };
    let asked = token::grant_type(&parameters, service_name);
    let grant = asked.as_ref().map_or(UNKNOWN, |grant| grant.as_str());
    let issued = authenticate_and_issue(context, &parameters, asked).await;
    counted(context, grant, issued)
}

/// The parameters in the body: a form, or a JSON object for grants that accept one. If `grant_type` itself is wrong, a
/// JSON object gets the same error as a form.
fn parameters(context: &RequestContext, service_name: &str) -> Result<Parameters, Refusal> {
    if !context.is_json() {
        return context.form();
    }
    let parameters = context.form_or_json()?;
    match token::grant_type(&parameters, service_name) {
        Ok(grant) if !grant.accepts_json() => context.form(),
        _ => Ok(parameters),
    }
}

/// The proof is checked before the client is authenticated: a client that repeats its request with a nonce may send the
/// same assertion.
async fn authenticate_and_issue(
    context: &RequestContext,
    parameters: &Parameters,
    asked: Result<GrantType, Refusal>,
) -> Result<TokenResponse, FlowError> {
    let proof = dpop::proof(context, &Route::Token, None)?;
    let client = authenticate(context, parameters, &Route::Token).await?;
    let grant = asked?;
    context.app.core.grant_policy().check_grant(&client, grant)?;
    issue(context, &client, grant, parameters, proof).await
}

/// The answer to a token request. Counts it.
pub(super) fn counted(
    context: &RequestContext,
    grant: &'static str,
    issued: Result<TokenResponse, FlowError>,
) -> Result<HttpResponse, HttpError> {
    let result = match &issued {
        Ok(_) => "issued",
        Err(FlowError::Refused(refusal)) => refusal.code.as_str(),
        Err(FlowError::Failed(Failure::Throttled { .. })) => "throttled",
        Err(FlowError::Failed(failure)) if error::temporary_reason(failure).is_some() => "busy",
        Err(FlowError::Failed(_)) => "failed",
    };
    context.app.metrics.count_grant(grant, result);
    Ok(response::no_store(response::json(StatusCode::OK, &issued?)))
}

/// Issues tokens to an authenticated client that may use this grant.
pub(super) async fn issue(
    context: &RequestContext,
    client: &AuthenticatedClient,
    grant: GrantType,
    parameters: &Parameters,
    proof: Option<DpopProof>,
) -> Result<TokenResponse, FlowError> {
    require_proof(client, proof.as_ref())?;
    let certificate = context.shown.certificate.as_deref();
    let possession = Possession::of_request(client, proof, certificate)?;
    let request = TokenRequest::parse(grant, parameters)?;
    let resources = resources(parameters)?;
    let (core, now) = (&context.app.core, context.now);
    let issued = match request {
        TokenRequest::AuthorizationCode(exchange) => {
            redeem_code(core, client, exchange, resources, possession, context.arrival).await
        }
        TokenRequest::RefreshToken { token, scope } => {
            rotate_refresh_token(core, client, token, scope, resources, possession, context.arrival).await
        }
        TokenRequest::ClientCredentials { scope } => {
            issue_client_token(core, client, scope.as_ref(), &resources, possession, now).await
        }
        TokenRequest::JwtBearer { assertion, scope } => {
            let grant = AssertionGrant {
                grant_type: GrantType::JwtBearer,
                assertion,
                scope,
                resources,
                actor: None,
                wants_refresh_token: true,
            };
            exchange_assertion(core, client, grant, possession, now).await
        }
        TokenRequest::TokenExchange(exchange) => {
            exchange_token(core, client, *exchange, resources, possession, now).await
        }
        TokenRequest::DeviceCode(code) => {
            redeem_device_code(core, client, code, resources, possession, now).await
        }
        TokenRequest::Anonymous { scope } => anonymous(context, client, scope, resources, possession).await,
    };
    issued.inspect_err(|error| {
        record_refusal(error, &client.client_id);
        if let FlowError::Refused(refusal) = error {
            grant_policy::record_refusal(refusal, &client.client_id);
        }
    })
}

/// Creates an anonymous user for a device. An attempt that created none is not counted: otherwise devices that retry
/// would use up the limit of the address and the client.
async fn anonymous(
    context: &RequestContext,
    client: &AuthenticatedClient,
    scope: Option<Scope>,
    resources: Resources,
    possession: Option<Possession>,
) -> Result<TokenResponse, FlowError> {
    context.require_disk_for_record()?;
    let (core, limits, now) = (&context.app.core, &context.app.limits, context.now);
    let attempt = limits
        .create_anonymous_user(&client.client_id, context.client_address(), now)
        .map_err(throttled)?;
    let created = create_anonymous_user(core, client, scope, resources, possession, now).await;
    if let Err(FlowError::Refused(_) | FlowError::Failed(Failure::Store(_))) = &created {
        attempt.refund(now);
    }
    created
}
