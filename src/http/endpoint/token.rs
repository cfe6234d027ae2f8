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
use crate::flow::{Answer, Failure};
use crate::http::context::{RequestContext, throttled};
use crate::http::error;
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

/// Answers a token request: parses it, authenticates the client, checks the grant, then issues the tokens.
///
/// The proof is checked before the client is authenticated: a client that repeats its request with a nonce may send the
/// same assertion.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let service_name = &context.app.core.policy.service_name;
    let parameters = match parameters(context, service_name) {
        Ok(parameters) => parameters,
        Err(refusal) => return refused(context, UNKNOWN, &refusal),
    };
    let asked = token::grant_type(&parameters, service_name);
    let grant = asked.as_ref().map_or(UNKNOWN, |grant| grant.as_str());
    let proof = match dpop::proof(context, &Route::Token, None) {
        Ok(proof) => proof,
        Err(refusal) => return refused(context, grant, &refusal),
    };
    let client = match authenticate(context, &parameters, &Route::Token).await {
        Ok(Ok(client)) => client,
        Ok(Err(refusal)) => return refused(context, grant, &refusal),
        Err(failure) => return failed(context, grant, &failure),
    };
    let request = asked.and_then(|grant_type| {
        context.app.core.grant_policy().check_grant(&client, grant_type)?;
        let possession = possession(context, &client, proof)?;
        let request = TokenRequest::parse(grant_type, &parameters)?;
        Ok((request, resources(&parameters)?, possession))
    });
    match request {
        Ok((request, resources, possession)) => {
            issue(context, &client, grant, request, resources, possession).await
        }
        Err(refusal) => refused(context, grant, &refusal),
    }
}

/// What a request of this client has shown to hold.
pub(super) fn possession(
    context: &RequestContext,
    client: &AuthenticatedClient,
    proof: Option<DpopProof>,
) -> Answer<Option<Possession>> {
    require_proof(client, proof.as_ref())?;
    let certificate = context.client_certificate().map(|certificate| &**certificate);
    Possession::of_request(client, proof, certificate)
}

/// The label in the metrics for requests with an unknown grant type.
const UNKNOWN: &str = "unknown";

/// Answers with a refusal, and counts it.
pub(super) fn refused(context: &RequestContext, grant: &'static str, refusal: &Refusal) -> HttpResponse {
    context.app.metrics.count_grant(grant, refusal.code.as_str());
    error::refused(context, refusal)
}

/// Answers with a failure, and counts it.
pub(super) fn failed(context: &RequestContext, grant: &'static str, failure: &Failure) -> HttpResponse {
    let outcome = match failure {
        Failure::Throttled { .. } => "throttled",
        failure if error::temporary_reason(failure).is_some() => "busy",
        _ => "failed",
    };
    context.app.metrics.count_grant(grant, outcome);
    error::failed(context, failure)
}

/// The parameters in the body: a form, or a JSON object for grants that accept one. If `grant_type` itself is wrong, a
/// JSON object gets the same error as a form.
fn parameters(context: &RequestContext, service_name: &str) -> Answer<Parameters> {
    if !context.is_json() {
        return context.form();
    }
    let parameters = context.form_or_json()?;
    match token::grant_type(&parameters, service_name) {
        Ok(grant) if !grant.accepts_json() => context.form(),
        _ => Ok(parameters),
    }
}

/// Creates an anonymous user for a device. An attempt that created none is not counted: otherwise devices that retry
/// would use up the limit of the address and the client.
async fn anonymous(
    context: &RequestContext,
    client: &AuthenticatedClient,
    scope: Option<Scope>,
    resources: Resources,
    possession: Option<Possession>,
) -> Result<Answer<TokenResponse>, Failure> {
    context.require_disk_for_record()?;
    let (limits, from) = (&context.app.limits, context.client_address());
    let attempt = limits
        .create_anonymous_user(&client.client_id, from, context.now)
        .map_err(throttled)?;
    let answer = create_anonymous_user(
        &context.app.core,
        client,
        scope,
        resources,
        possession,
        context.now,
    )
    .await;
    if let Ok(Err(_)) | Err(Failure::Store(_)) = &answer {
        attempt.refund(context.now);
    }
    answer
}

/// Issues tokens to an authenticated client.
pub(super) async fn issue(
    context: &RequestContext,
    client: &AuthenticatedClient,
    grant: &'static str,
    request: TokenRequest,
    resources: Resources,
    possession: Option<Possession>,
) -> HttpResponse {
    let core = &context.app.core;
    let answer = match request {
        TokenRequest::AuthorizationCode(exchange) => {
            redeem_code(core, client, exchange, resources, possession, context.now).await
        }
        TokenRequest::RefreshToken { token, scope } => {
            rotate_refresh_token(core, client, token, (scope, resources), possession, context.now).await
        }
        TokenRequest::ClientCredentials { scope } => {
            issue_client_token(core, client, scope.as_ref(), &resources, possession, context.now).await
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
            exchange_assertion(core, client, grant, possession, context.now).await
        }
        TokenRequest::TokenExchange(exchange) => {
            exchange_token(core, client, *exchange, resources, possession, context.now).await
        }
        TokenRequest::DeviceCode(code) => {
            redeem_device_code(core, client, code, resources, possession, context.now).await
        }
        TokenRequest::Anonymous { scope } => anonymous(context, client, scope, resources, possession).await,
    };
    match answer {
        Ok(Ok(tokens)) => {
            context.app.metrics.count_grant(grant, "issued");
            response::no_store(response::json(StatusCode::OK, &tokens))
        }
        Ok(Err(refusal)) => {
            record_refusal(&refusal, &client.client_id);
            refused(context, grant, &refusal)
        }
        Err(failure) => failed(context, grant, &failure),
    }
}
