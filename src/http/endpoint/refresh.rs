//! `POST /v4/tokens`: a refresh by an application that has an API key and no client secret.

use super::client::authenticate_within_limits;
use super::{dpop, token};
use crate::flow::FlowError;
use crate::flow::authenticate_client::authenticate_api_key;
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::request;
use crate::http::response::HttpResponse;
use crate::oauth::api_key::{self, PresentedApiKey};
use crate::oauth::client::GrantType;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::token::TokenResponse;
use crate::route::Route;

/// Answers a refresh.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let refreshed = refresh(context).await;
    token::counted(context, GrantType::RefreshToken.as_str(), refreshed)
}

/// Parses the request, finds the client by its API key, then goes on as the token endpoint does.
async fn refresh(context: &RequestContext) -> Result<TokenResponse, FlowError> {
    let parameters = context.form_or_json()?;
    let presented = presented(context)?;
    match parameters.get("grant_type") {
        Some("refresh_token") => {}
        Some(_) => {
            let description = "grant_type must be refresh_token at this endpoint";
            return Err(Refusal::new(ErrorCode::UnsupportedGrantType, description).into());
        }
        None => return Err(Refusal::invalid_request("grant_type is missing").into()),
    }
    let authentication = authenticate_api_key(&context.app.core, &presented, context.now);
    let client = authenticate_within_limits(context, presented.key.locator(), authentication).await?;
    context.record_client_id(&client.client_id);
    let grant = GrantType::RefreshToken;
    context.app.core.grant_policy().check_grant(&client, grant)?;
    let proof = dpop::proof(context, &Route::Refresh, None)?;
    token::issue(context, &client, grant, &parameters, proof).await
}

fn presented(context: &RequestContext) -> Result<PresentedApiKey, Refusal> {
    match request::authorization(context.headers()) {
        Ok(Some(header)) if header.scheme.eq_ignore_ascii_case("Basic") => {
            Ok(api_key::parse(header.credentials)?)
        }
        _ => Err(api_key::UNKNOWN),
    }
}
