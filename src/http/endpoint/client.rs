//! What the endpoints share that a client authenticates at.

use crate::flow::authenticate_client::authenticate_client;
use crate::flow::{Answer as Reply, Failure};
use crate::http::call::Call;
use crate::http::request::{self, Parameters};
use crate::oauth::client_auth::{AuthenticatedClient, Credentials};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::route::Route;

/// Reads the form and authenticates the client that sent it, in this order.
pub async fn authenticated_form(call: &Call) -> Result<Reply<(Parameters, AuthenticatedClient)>, Failure> {
    let parameters = match call.form() {
        Ok(parameters) => parameters,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let client = authenticated(call, &parameters).await?;
    Ok(client.map(|client| (parameters, client)))
}

/// Authenticates the client that sent these parameters.
pub async fn authenticated(
    call: &Call,
    parameters: &Parameters,
) -> Result<Reply<AuthenticatedClient>, Failure> {
    let credentials = match credentials(call, parameters) {
        Ok(credentials) => credentials,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let token_endpoint = call.app.url(&Route::Token);
    authenticate_client(&call.app.core, &credentials, &token_endpoint, call.now).await
}

fn credentials(call: &Call, parameters: &Parameters) -> Reply<Credentials> {
    if let Some(name) = parameters.first_repeated() {
        return Err(Refusal::naming(
            ErrorCode::InvalidRequest,
            &format!("parameter {name} was sent more than once"),
        ));
    }
    let basic = request::basic_credentials(call.headers())
        .map_err(|_| Refusal::invalid_client("the Authorization header is malformed"))?;
    Credentials::parse(basic.as_ref(), parameters)
}
