//! What the endpoints share that a client authenticates at.

use crate::flow::Answer as Reply;
use crate::flow::authenticate_client::authenticate_client;
use crate::http::call::Call;
use crate::http::request::{self, Parameters};
use crate::oauth::client_auth::{AuthenticatedClient, Credentials};
use crate::oauth::error::{ErrorCode, Refusal};

/// Reads the form and authenticates the client that sent it, in this order.
pub fn authenticated_form(call: &Call) -> Reply<(Parameters, AuthenticatedClient)> {
    let parameters = call.form()?;
    let client = authenticated(call, &parameters)?;
    Ok((parameters, client))
}

/// Authenticates the client that sent these parameters.
pub fn authenticated(call: &Call, parameters: &Parameters) -> Reply<AuthenticatedClient> {
    if let Some(name) = parameters.first_repeated() {
        return Err(Refusal::naming(
            ErrorCode::InvalidRequest,
            &format!("parameter {name} was sent more than once"),
        ));
    }
    let basic = request::basic_credentials(call.headers())
        .map_err(|_| Refusal::invalid_client("the Authorization header is malformed"))?;
    let credentials = Credentials::parse(basic.as_ref(), parameters)?;
    authenticate_client(&call.app.core, &credentials, call.now)
}
