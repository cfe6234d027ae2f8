//! Client authentication, as all endpoints for clients do it.

use url::Url;

use crate::flow::FlowError;
use crate::flow::authenticate_client::authenticate_client;
use crate::http::context::{RequestContext, throttled};
use crate::http::request::{self, Parameters};
use crate::oauth::client_auth::{AuthenticatedClient, Credentials};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::route::Route;

/// A form, and the client that sent it.
pub struct ClientForm {
    pub parameters: Parameters,
    pub client: AuthenticatedClient,
}

impl ClientForm {
    /// The token that the request is about.
    pub fn token(&self) -> Result<&str, Refusal> {
        let token = self.parameters.get("token");
        token.ok_or(Refusal::invalid_request("token is missing"))
    }
}

/// Reads the form and authenticates the client that sent it to this endpoint, in this order.
pub async fn authenticate_form(context: &RequestContext, endpoint: &Route) -> Result<ClientForm, FlowError> {
    let parameters = context.form()?;
    let client = authenticate(context, &parameters, endpoint).await?;
    Ok(ClientForm { parameters, client })
}

/// Authenticates the client that sent these parameters. After too many failures its credentials are not checked for a
/// while, not even the right ones. A public client that presents no credentials is exempt: failures of others under its
/// name do not lock it out.
pub async fn authenticate(
    context: &RequestContext,
    parameters: &Parameters,
    endpoint: &Route,
) -> Result<AuthenticatedClient, FlowError> {
    let credentials = credentials(context, parameters)?;
    // OpenID Connect Core section 9 has clients name the token endpoint, and RFC 9126 section 2 accepts it.
    let accepted = match endpoint {
        Route::PushedRequest | Route::Introspect | Route::Revoke => vec![endpoint, &Route::Token],
        endpoint => vec![endpoint],
    };
    let addresses = |endpoint: &&Route| [context.app.url(endpoint), endpoint_url(context, endpoint)];
    let endpoints: Vec<_> = accepted.iter().flat_map(addresses).collect();
    context.record_client_id(&credentials.client_id);
    let name = credentials.client_id.as_bytes();
    let admit = |url: &Url| context.charge_fetch(url);
    let authentication = authenticate_client(&context.app.core, &credentials, &endpoints, admit, context.now);
    let catalog = context.app.core.catalog();
    let client = catalog.client(&credentials.client_id);
    if client.is_some_and(|client| credentials.suffice_unproven(&client)) {
        return authentication.await;
    }
    authenticate_within_limits(context, name, authentication).await
}

/// The address of an endpoint at the listener that the request came to.
pub(super) fn endpoint_url(context: &RequestContext, endpoint: &Route) -> String {
    let policy = &context.app.core.policy;
    let base = policy.mtls.base(&policy.issuer);
    match base.filter(|_| context.shown.is_mtls_listener) {
        Some(base) => endpoint.url(&base),
        None => context.app.url(endpoint),
    }
}

/// Checks credentials under this name, unless too many from this address were wrong.
pub(super) async fn authenticate_within_limits(
    context: &RequestContext,
    name: &[u8],
    authentication: impl Future<Output = Result<AuthenticatedClient, FlowError>>,
) -> Result<AuthenticatedClient, FlowError> {
    let (limits, from) = (&context.app.limits, context.client_address());
    limits
        .may_authenticate(name, from, context.now)
        .map_err(throttled)?;
    let checked = authentication.await;
    if let Err(FlowError::Refused(refusal)) = &checked
        && refusal.code == ErrorCode::InvalidClient
    {
        limits.authentication_failed(name, from, context.now);
    }
    checked
}

fn credentials(context: &RequestContext, parameters: &Parameters) -> Result<Credentials, Refusal> {
    parameters.each_once()?;
    let basic = request::basic_credentials(context.headers())
        .map_err(|_| Refusal::invalid_client("the Authorization header is malformed"))?;
    let basic_credentials = basic.as_ref().map(|basic| &basic.decoded);
    let credentials = Credentials::parse(basic_credentials, parameters, context.shown.certificate.as_ref())?;
    Ok(match basic {
        Some(basic) if basic.secret_as_sent != basic.decoded.password => {
            credentials.or_secret(basic.secret_as_sent.as_bytes())
        }
        _ => credentials,
    })
}
