//! `POST /oauth2/token`: RFC 6749 section 3.2.

use ::http::StatusCode;

use super::client::authenticated_form;
use crate::flow::gate::check_grant;
use crate::flow::redeem_code::redeem_code;
use crate::flow::rotate_refresh_token::rotate_refresh_token;
use crate::http::call::Call;
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::{self, Answer};
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::token::{self, TokenRequest};

/// Answers a token request: parse, authenticate the client, check the grant, then what the grant demands.
pub async fn respond(call: &Call) -> Answer {
    let parsed = authenticated_form(call).and_then(|(parameters, client)| {
        let grant_type = token::grant_type(&parameters)?;
        check_grant(&client, grant_type)?;
        let request = TokenRequest::parse(grant_type, &parameters)?;
        Ok((parameters, client, request))
    });
    let (parameters, client, request) = match parsed {
        Ok(parsed) => parsed,
        Err(refusal) => return error::refused(call, &refusal),
    };
    issue(call, &client, request, &parameters).await
}

/// Carries the request out for a client that has proven who it is.
pub(super) async fn issue(
    call: &Call,
    client: &AuthenticatedClient,
    request: TokenRequest,
    parameters: &Parameters,
) -> Answer {
    let core = &call.app.core;
    let answer = match request {
        TokenRequest::AuthorizationCode(exchange) => redeem_code(core, client, exchange, call.now).await,
        TokenRequest::RefreshToken { token, scope } => {
            let text = parameters.get("refresh_token").unwrap_or_default();
            rotate_refresh_token(core, client, token, text, scope, call.now).await
        }
    };
    match answer {
        Ok(Ok(tokens)) => response::no_store(response::json(StatusCode::OK, &tokens)),
        Ok(Err(refusal)) => error::refused(call, &refusal),
        Err(failure) => error::failed(call, &failure),
    }
}
