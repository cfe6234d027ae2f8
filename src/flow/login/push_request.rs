//! A client pushes an authorization request: RFC 9126.
//!
//! The request is sealed into a `request_uri`, and the transaction that answers it records that it was used. If the client
//! signs its requests, [`crate::oauth::request_object`] verifies them, and only what was signed counts.

use std::time::Duration;

use url::Url;

use super::anonymous_upgrade;
use super::read_request::{ReadAuthorization, read_request};
use super::sealed;
use crate::clock::{Arrival, Timestamp};
use crate::flow::{Core, Failure, FlowError, replay};
use crate::oauth::access_token::hour_of;
use crate::oauth::anonymous;
use crate::oauth::authorize::{AuthorizationRequest, UntrustedRedirect, UseKey};
use crate::oauth::client::Client;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::client_certificate::ClientCertificate;
use crate::oauth::confirmation::Possession;
use crate::oauth::dpop::{DpopProof, check_algorithm, pushed_key};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::parameters::Parameters;
use crate::oauth::profile::MAX_PUSHED_AGE;
use crate::oauth::pushed::{PushedRequest, PushedResponse, URN};

const SEALING_CONTEXT: &str = "pushed_request";

/// The longest `request_uri`. The browser brings it in an address, and then the sign-in, which is about as long.
const MAX_URI_BYTES: usize = 6 * 1024;

/// Checks the request as the authorization endpoint does, binds it to the key of a proof, and seals it into a
/// `request_uri`. The use of the proof is recorded if the client authenticated. For a public client it is not recorded,
/// because anyone could fill the store. A repeated request only gets another `request_uri` for the same key. Before the
/// keys of a client that registered itself are fetched, `admit` gets their address, and can refuse the fetch.
///
/// The refresh token of an anonymous user is verified here and changes nothing, unless it is a replay. A person who
/// gives up the sign-in keeps the anonymous user.
pub async fn push_request(
    core: &Core,
    client: &AuthenticatedClient,
    parameters: &Parameters,
    proof: Option<&DpopProof>,
    certificate: Option<&ClientCertificate>,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    arrival: Arrival,
) -> Result<PushedResponse, FlowError> {
    let now = arrival.now();
    if parameters.get("request_uri").is_some() {
        let problem = "request_uri is for the authorization endpoint (RFC 9126 section 2.1)";
        return Err(Refusal::invalid_request(problem).into());
    }
    if parameters.get("request").is_some() && parameters.get(anonymous::PARAMETER).is_some() {
        return Err(anonymous::BESIDE_OBJECT.into());
    }
    let read = match read_request(core, parameters, client, admit, now).await {
        Ok((target, _)) if client.profile.is_some() && !target.return_to.was_explicit() => {
            let problem = "redirect_uri is missing (FAPI 2.0 Security Profile section 5.3.2.2)";
            return Err(Refusal::invalid_request(problem).into());
        }
        Ok((_, read)) => read?,
        Err(FlowError::Failed(failure)) => return Err(failure.into()),
        Err(FlowError::Refused(UntrustedRedirect::Refused(refusal))) => return Err(refusal.into()),
        Err(FlowError::Refused(untrusted)) => {
            return Err(Refusal::naming(ErrorCode::InvalidRequest, &untrusted.to_string()).into());
        }
    };
    let ReadAuthorization {
        mut request,
        anonymous_refresh_token,
    } = read;
    check_algorithm(client, proof)?;
    request.dpop_jkt = pushed_key(request.dpop_jkt, proof)?;
    if let Some(token) = anonymous_refresh_token {
        let shown = Possession::of_request(client, proof.cloned(), certificate)?;
        let verified = anonymous_upgrade::verify(core, client, &token, shown, arrival).await;
        let verified = verified.inspect_err(|error| replay::record_refusal(error, &client.client_id));
        request.anonymous = Some(verified?);
    }
    let lifetime = lifetime(core, client);
    request.use_key = Some(UseKey {
        hour: hour_of(now + lifetime + core.policy.lifetimes.login_transaction),
        random: core.random.bytes(),
    });
    let pushed = PushedRequest {
        pushed_at: now,
        request,
    };
    let request_uri = format!("{URN}{}", sealed::seal(core, SEALING_CONTEXT, &pushed, now)?);
    if request_uri.len() > MAX_URI_BYTES {
        let problem = "the parameters are too long: the request_uri would have more than 6 KiB";
        return Err(Refusal::invalid_request(problem).into());
    }
    if !client.is_public() {
        let replay_key = proof.map(|proof| proof.replay_key);
        let used = replay::use_proof(core, replay_key, now).await;
        used.inspect_err(|error| replay::record_refusal(error, &client.client_id))?;
    }
    Ok(PushedResponse {
        request_uri,
        expires_in: lifetime.as_secs(),
    })
}

/// The request that this client pushed, if it may still be used. `sealed` is its `request_uri` without [`URN`].
pub(super) fn open(
    core: &Core,
    client: &Client,
    sealed: &str,
    now: Timestamp,
) -> Option<AuthorizationRequest> {
    let pushed: PushedRequest = sealed::open(core, SEALING_CONTEXT, sealed)?;
    pushed.open(client, lifetime(core, client), now)
}

/// How long a pushed request of this client lasts.
fn lifetime(core: &Core, client: &Client) -> Duration {
    let configured = core.policy.lifetimes.pushed_request;
    let most = client.profile.map_or(configured, |_| MAX_PUSHED_AGE);
    configured.min(most)
}
