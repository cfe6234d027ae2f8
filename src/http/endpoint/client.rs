//! What the endpoints share that a client authenticates at.

use crate::flow::authenticate_client::authenticate_client;
use crate::flow::{Answer as Reply, Failure};
use crate::http::context::{RequestContext, throttled};
use crate::http::request::{self, Parameters};
use crate::oauth::client_auth::{AuthenticatedClient, Credentials};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::route::Route;

/// Reads the form and authenticates the client that sent it, in this order.
pub async fn authenticated_form(
    context: &RequestContext,
) -> Result<Reply<(Parameters, AuthenticatedClient)>, Failure> {
    let parameters = match context.form() {
        Ok(parameters) => parameters,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let client = authenticated(context, &parameters).await?;
    Ok(client.map(|client| (parameters, client)))
}

/// Authenticates the client that sent these parameters. Who fails too often is not looked at for a while, with
/// the right credentials neither. A public client that presents nothing guesses nothing: nobody who fails in its name
/// keeps it out.
pub async fn authenticated(
    context: &RequestContext,
    parameters: &Parameters,
) -> Result<Reply<AuthenticatedClient>, Failure> {
    let credentials = match credentials(context, parameters) {
        Ok(credentials) => credentials,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let token_endpoint = context.app.url(&Route::Token);
    context.is_of(&credentials.client_id);
    let name = credentials.client_id.as_bytes();
    let checking = authenticate_client(&context.app.core, &credentials, &token_endpoint, context.now);
    let catalog = context.app.core.catalog();
    let client = catalog.client(&credentials.client_id);
    if client.is_some_and(|client| credentials.suffice_unproven(client)) {
        return checking.await;
    }
    limited(context, name, checking).await
}

/// Checks the credentials of whoever goes by this name, unless too many from there were wrong.
pub(super) async fn limited(
    context: &RequestContext,
    name: &[u8],
    checking: impl Future<Output = Result<Reply<AuthenticatedClient>, Failure>>,
) -> Result<Reply<AuthenticatedClient>, Failure> {
    let (limits, from) = (&context.app.limits, context.client_address());
    limits
        .may_authenticate(name, from, context.now)
        .map_err(throttled)?;
    let checked = checking.await?;
    if checked
        .as_ref()
        .is_err_and(|refusal| refusal.code == ErrorCode::InvalidClient)
    {
        limits.authentication_failed(name, from, context.now);
    }
    Ok(checked)
}

fn credentials(context: &RequestContext, parameters: &Parameters) -> Reply<Credentials> {
    parameters.each_once()?;
    let basic = request::basic_credentials(context.headers())
        .map_err(|_| Refusal::invalid_client("the Authorization header is malformed"))?;
    let credentials = Credentials::parse(basic.as_ref().map(|basic| &basic.decoded), parameters)?;
    Ok(match basic {
        Some(basic) if basic.secret_as_sent != basic.decoded.1 => {
            credentials.or_secret(basic.secret_as_sent.as_bytes())
        }
        _ => credentials,
    })
}
