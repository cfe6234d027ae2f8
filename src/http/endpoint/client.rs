//! Client authentication, as all endpoints for clients do it.

use url::Url;

use crate::flow::authenticate_client::authenticate_client;
use crate::flow::{Answer, Failure};
use crate::http::context::{RequestContext, throttled};
use crate::http::request::{self, Parameters};
use crate::oauth::client_auth::{AuthenticatedClient, Credentials};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::route::Route;

/// Reads the form and authenticates the client that sent it to this endpoint, in this order.
pub async fn authenticate_form(
    context: &RequestContext,
    endpoint: &Route,
) -> Result<Answer<(Parameters, AuthenticatedClient)>, Failure> {
    let parameters = match context.form() {
        Ok(parameters) => parameters,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let client = authenticate(context, &parameters, endpoint).await?;
    Ok(client.map(|client| (parameters, client)))
}

/// Authenticates the client that sent these parameters. After too many failures its credentials are not checked for a
/// while, not even the right ones. A public client that presents no credentials is exempt: failures of others under its
/// name do not lock it out.
pub async fn authenticate(
    context: &RequestContext,
    parameters: &Parameters,
    endpoint: &Route,
) -> Result<Answer<AuthenticatedClient>, Failure> {
    let credentials = match credentials(context, parameters) {
        Ok(credentials) => credentials,
        Err(refusal) => return Ok(Err(refusal)),
    };
    // RFC 9126 section 2 accepts the token endpoint, too.
    let accepted = match endpoint {
        Route::PushedRequest => vec![endpoint, &Route::Token],
        endpoint => vec![endpoint],
    };
    let addresses = |endpoint: &&Route| [context.app.url(endpoint), context.endpoint_url(endpoint)];
    let endpoints: Vec<_> = accepted.iter().flat_map(addresses).collect();
    context.record_client_id(&credentials.client_id);
    let name = credentials.client_id.as_bytes();
    let admit = |url: &Url| context.charge_fetch(url);
    let authentication = authenticate_client(&context.app.core, &credentials, &endpoints, admit, context.now);
    let catalog = context.app.core.catalog();
    let client = catalog.client(&credentials.client_id);
    if client.is_some_and(|client| credentials.suffice_unproven(client)) {
        return authentication.await;
    }
    authenticate_within_limits(context, name, authentication).await
}

/// Checks credentials under this name, unless too many from this address were wrong.
pub(super) async fn authenticate_within_limits(
    context: &RequestContext,
    name: &[u8],
    authentication: impl Future<Output = Result<Answer<AuthenticatedClient>, Failure>>,
) -> Result<Answer<AuthenticatedClient>, Failure> {
    let (limits, from) = (&context.app.limits, context.client_address());
    limits
        .may_authenticate(name, from, context.now)
        .map_err(throttled)?;
    let checked = authentication.await?;
    if checked
        .as_ref()
        .is_err_and(|refusal| refusal.code == ErrorCode::InvalidClient)
    {
        limits.authentication_failed(name, from, context.now);
    }
    Ok(checked)
}

fn credentials(context: &RequestContext, parameters: &Parameters) -> Answer<Credentials> {
    parameters.each_once()?;
    let basic = request::basic_credentials(context.headers())
        .map_err(|_| Refusal::invalid_client("the Authorization header is malformed"))?;
    let basic_credentials = basic.as_ref().map(|basic| &basic.decoded);
    let credentials = Credentials::parse(basic_credentials, parameters, context.client_certificate())?;
    Ok(match basic {
        Some(basic) if basic.secret_as_sent != basic.decoded.password => {
            credentials.or_secret(basic.secret_as_sent.as_bytes())
        }
        _ => credentials,
    })
}
