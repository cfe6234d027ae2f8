//! Reads an authorization request from its parameters, or from its request object: RFC 9101.

use super::read_hint::read_hint;
use url::Url;
use zeroize::Zeroizing;

use crate::clock::Timestamp;
use crate::flow::authenticate_client::keys_of;
use crate::flow::{Core, Failure, FlowError};
use crate::oauth::anonymous;
use crate::oauth::authorize::{AuthorizationRequest, ResponseTarget, UntrustedRedirect, response_target};
use crate::oauth::client::Client;
use crate::oauth::error::Refusal;
use crate::oauth::parameters::Parameters;
use crate::oauth::profile::ANSWER_NOT_SIGNED;
use crate::oauth::request_object::{NOT_SIGNED, RequestObject};
use crate::oauth::scope::Scope;

/// Where the response is sent, and what the client asks for or why that is refused.
pub(super) type ReadRequest = (ResponseTarget, Result<ReadAuthorization, Refusal>);

/// A valid request, and what came with it.
pub(super) struct ReadAuthorization {
    pub(super) request: AuthorizationRequest,
    /// The refresh token of an anonymous user. Only a pushed request may have it.
    pub(super) anonymous_refresh_token: Option<Zeroizing<String>>,
}

impl ReadAuthorization {
    /// A request without anything else.
    pub(super) fn of(request: AuthorizationRequest) -> Self {
        Self {
            request,
            anonymous_refresh_token: None,
        }
    }
}

/// Reads a request. If it has a request object, only the parameters of the object count (RFC 9101 section 6.3).
///
/// An object that cannot be verified does not say where an error is sent. Then the error goes to the redirect URI beside
/// the object, if there is one. Before the keys of a client that registered itself are fetched, `admit` gets their
/// address, and can refuse the fetch.
pub(super) async fn read_request(
    core: &Core,
    parameters: &Parameters,
    client: &Client,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<ReadRequest, FlowError<UntrustedRedirect>> {
    let Some(object) = parameters.get("request") else {
        let target = response_target(parameters, client)?;
        let request = if client.require_signed_request_object {
            Err(NOT_SIGNED)
        } else if !client.accepts_answer(&target) {
            Err(ANSWER_NOT_SIGNED)
        } else {
            parse_request(core, parameters, client, target.clone())
        };
        return Ok((target, request));
    };
    let object = match open(core, parameters, object, client, admit, now).await {
        Ok(object) => object,
        Err(FlowError::Failed(failure)) => return Err(failure.into()),
        Err(FlowError::Refused(refusal)) if parameters.get("redirect_uri").is_none() => {
            return Err(UntrustedRedirect::Refused(refusal).into());
        }
        Err(FlowError::Refused(refusal)) => {
            let target = response_target(parameters, client)?;
            return Ok((target, Err(refusal)));
        }
    };
    let target = response_target(&object.parameters, client)?;
    let request = match object.check(client, &core.policy.issuer, now) {
        Ok(()) if !client.accepts_answer(&target) => Err(ANSWER_NOT_SIGNED),
        Ok(()) => parse_request(core, &object.parameters, client, target.clone()),
        Err(refusal) => Err(refusal),
    };
    Ok((target, request))
}

/// Validates what a client asks for, with the APIs and scope values as they are now.
fn parse_request(
    core: &Core,
    parameters: &Parameters,
    client: &Client,
    target: ResponseTarget,
) -> Result<ReadAuthorization, Refusal> {
    let catalog = core.catalog();
    let issuer = &core.policy.issuer;
    let read_hint = |token: &str| read_hint(&catalog, issuer, token).map(|hint| hint.sub);
    let (apis, scopes) = (catalog.apis(), catalog.scopes());
    let mut request = AuthorizationRequest::parse(parameters, client, apis, scopes, target, &read_hint)?;
    request.prompt.create &= core.policy.accounts.is_open();
    if let Ok(Some(requested)) = Scope::requested(parameters) {
        core.unknown_scopes.note(&catalog, &client.client_id, &requested);
    }
    Ok(ReadAuthorization {
        request,
        anonymous_refresh_token: parameters
            .get(anonymous::PARAMETER)
            .map(|token| Zeroizing::new(token.to_owned())),
    })
}

/// Checks the other parameters of a request that has a request object.
fn check_form(parameters: &Parameters) -> Result<(), Refusal> {
    parameters.each_once()?;
    match parameters.get("request_uri") {
        None => Ok(()),
        Some(_) => Err(Refusal::invalid_request(
            "request and request_uri exclude each other (RFC 9101 section 5)",
        )),
    }
}

/// Verifies a request object.
async fn open(
    core: &Core,
    parameters: &Parameters,
    object: &str,
    client: &Client,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<RequestObject, FlowError> {
    check_form(parameters)?;
    let keys = keys_of(core, client, object, admit, now).await?;
    Ok(RequestObject::verify(object, client, &keys)?)
}
