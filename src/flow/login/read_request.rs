//! Reads an authorization request from its parameters, or from its request object: RFC 9101.

use url::Url;
use zeroize::Zeroizing;

use super::authorize::parse_request;
use crate::clock::Timestamp;
use crate::flow::authenticate_client::keys_of;
use crate::flow::{Answer, Core, Failure};
use crate::oauth::authorize::{AuthorizationRequest, ResponseTarget, UntrustedRedirect, response_target};
use crate::oauth::client::Client;
use crate::oauth::error::Refusal;
use crate::oauth::parameters::Parameters;
use crate::oauth::profile::ANSWER_NOT_SIGNED;
use crate::oauth::request_object::{NOT_SIGNED, RequestObject};

/// Where the response is sent, and what the client asks for or why that is refused.
pub(super) type ReadRequest = (ResponseTarget, Answer<ReadAuthorization>);

/// A valid request, and what came with it.
pub(super) struct ReadAuthorization {
    /// The request.
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
) -> Result<Result<ReadRequest, UntrustedRedirect>, Failure> {
    let Some(object) = parameters.get("request") else {
        let target = or_refuse!(response_target(parameters, client));
        let request = if client.require_signed_request_object {
            Err(NOT_SIGNED)
        } else if !client.accepts_answer(&target) {
            Err(ANSWER_NOT_SIGNED)
        } else {
            parse_request(core, parameters, client, target.clone())
        };
        return Ok(Ok((target, request)));
    };
    let object = match check_form(parameters) {
        Ok(()) => open(core, object, client, admit, now).await?,
        Err(refusal) => Err(refusal),
    };
    let object = match object {
        Ok(object) => object,
        Err(refusal) if parameters.get("redirect_uri").is_none() => {
            return Ok(Err(UntrustedRedirect::RequestObject(refusal)));
        }
        Err(refusal) => {
            let target = or_refuse!(response_target(parameters, client));
            return Ok(Ok((target, Err(refusal))));
        }
    };
    let target = or_refuse!(response_target(&object.parameters, client));
    let request = match object.check(client, &core.policy.issuer, now) {
        Ok(()) if !client.accepts_answer(&target) => Err(ANSWER_NOT_SIGNED),
        Ok(()) => parse_request(core, &object.parameters, client, target.clone()),
        Err(refusal) => Err(refusal),
    };
    Ok(Ok((target, request)))
}

/// Checks the other parameters of a request that has a request object.
fn check_form(parameters: &Parameters) -> Answer<()> {
    parameters.each_once()?;
    match parameters.get("request_uri") {
        None => Ok(()),
        Some(_) => Err(Refusal::invalid_request(
            "request and request_uri exclude each other (RFC 9101 section 5)",
        )),
    }
}

async fn open(
    core: &Core,
    object: &str,
    client: &Client,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<Answer<RequestObject>, Failure> {
    let keys = or_refuse!(keys_of(core, client, object, admit, now).await?);
    Ok(RequestObject::verify(object, client, &keys))
}
