//! `POST /v4/tokens`: a refresh by an application that has an API key and no client secret.

use super::client::authenticate_within_limits;
use super::{dpop, token};
use crate::flow::authenticate_client::authenticate_api_key;
use crate::http::context::RequestContext;
use crate::http::request::{self, Parameters};
use crate::http::response::HttpResponse;
use crate::oauth::api_key::{self, PresentedApiKey};
use crate::oauth::client::GrantType;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::resource::resources;
use crate::oauth::token::TokenRequest;
use crate::route::Route;

/// Answers a refresh: parses it, finds the client by its API key, then goes on as the token endpoint does.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let grant = GrantType::RefreshToken.as_str();
    let (parameters, presented) = match parse(context) {
        Ok(parsed) => parsed,
        Err(refusal) => return token::refused(context, grant, &refusal),
    };
    let authentication = authenticate_api_key(&context.app.core, &presented, context.now);
    let client = match authenticate_within_limits(context, presented.key.locator(), authentication).await {
        Ok(Ok(client)) => {
            context.record_client_id(&client.client_id);
            client
        }
        Ok(Err(refusal)) => return token::refused(context, grant, &refusal),
        Err(failure) => return token::failed(context, grant, &failure),
    };
    let policy = context.app.core.grant_policy();
    let request = policy
        .check_grant(&client, GrantType::RefreshToken)
        .and_then(|()| {
            let proof = dpop::proof(context, &Route::Refresh, None)?;
            let possession = token::possession(context, &client, proof)?;
            let request = TokenRequest::parse(GrantType::RefreshToken, &parameters)?;
            Ok((request, resources(&parameters)?, possession))
        });
    match request {
        Ok((request, resources, possession)) => {
            token::issue(context, &client, grant, request, resources, possession).await
        }
        Err(refusal) => token::refused(context, grant, &refusal),
    }
}

fn parse(context: &RequestContext) -> Result<(Parameters, PresentedApiKey), Refusal> {
    let parameters = context.form_or_json()?;
    let presented = match request::authorization(context.headers()) {
        Ok(Some((scheme, credentials))) if scheme.eq_ignore_ascii_case("Basic") => {
            api_key::parse(credentials)?
        }
        _ => return Err(api_key::UNKNOWN),
    };
    match parameters.get("grant_type") {
        Some("refresh_token") => Ok((parameters, presented)),
        Some(_) => Err(Refusal::new(
            ErrorCode::UnsupportedGrantType,
            "grant_type must be refresh_token at this endpoint",
        )),
        None => Err(Refusal::invalid_request("grant_type is missing")),
    }
}
