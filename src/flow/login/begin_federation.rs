//! A user is sent to a provider: OpenID Connect Core 3.1.2.1, RFC 7636 section 4.3.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::sealed;
use super::transaction::LoginContext;
use crate::clock::Timestamp;
use crate::federation::authorization::{AuthorizationParameters, address};
use crate::flow::{Core, FlowError};
use crate::oauth::login::UpstreamSignIn;
use crate::oauth::pkce::challenge_of;
use crate::secret::{Secret, UpstreamState};

/// Why a user cannot sign in at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FederationProblem {
    /// The client does not offer this provider, or the provider is disabled.
    NotOffered,
    /// The provider cannot be reached, or cannot answer at the moment.
    Unavailable,
    /// The provider's answer is not valid, or is an error.
    Failed,
    /// The provider does not say when the user authenticated, which the client demands.
    Undated,
    /// The user cancelled there.
    Cancelled,
    /// The account at the provider is linked to no user, and the provider may not create users.
    NotAdmitted,
}

/// What a browser keeps while its user is at a provider.
#[derive(Clone, Debug)]
pub struct KeptSignIn {
    /// The id of the login transaction.
    pub id: Uuid,
    /// The question to the provider ([`UpstreamSignIn`]), sealed.
    pub question: String,
    /// The login transaction, sealed.
    pub transaction: String,
}

#[derive(Debug)]
pub struct ProviderRedirect {
    pub address: String,
    /// What the browser keeps until it comes back.
    pub kept: KeptSignIn,
}

/// Makes a question to the provider. The answer to an earlier question of the same sign-in will be refused, because the
/// browser keeps only the last question.
pub async fn begin_federation(
    core: &Core,
    login: LoginContext,
    provider: &str,
    now: Timestamp,
) -> Result<ProviderRedirect, FlowError<FederationProblem>> {
    let offered = core.catalog().offered_for(&login.purpose);
    let Some(provider) = offered.into_iter().find(|offered| offered.id == provider) else {
        return Err(FederationProblem::NotOffered.into());
    };
    let Ok(metadata) = core.upstreams.metadata(&provider, now).await else {
        return Err(FederationProblem::Unavailable.into());
    };
    let LoginContext { purpose, session, .. } = login;
    let id = login.transaction.id;
    let state = Secret::<UpstreamState>::generate(id.as_bytes(), &core.random);
    let nonce = URL_SAFE_NO_PAD.encode(core.random.bytes::<32>());
    let verifier = Zeroizing::new(URL_SAFE_NO_PAD.encode(core.random.bytes::<32>()));
    let must_reauthenticate =
        purpose.requires_reauthentication(session.as_ref().map(|live| &live.session), now);
    let parameters = AuthorizationParameters {
        state: state.reveal(),
        nonce: &nonce,
        code_challenge: &challenge_of(&verifier),
        redirect_uri: &provider.redirect_uri(&core.policy.issuer),
    };
    let request = purpose.code_request();
    let address = address(&provider, &metadata, &parameters, request, must_reauthenticate);
    let question = UpstreamSignIn {
        provider: provider.id.clone(),
        issuer: provider.issuer.clone(),
        state: state.digest(),
        nonce,
        code_verifier: verifier,
        asked_at: now,
        proof_asked_at: must_reauthenticate.then_some(now),
    };
    Ok(ProviderRedirect {
        address: address.into(),
        kept: KeptSignIn {
            id,
            question: sealed::seal(core, &UpstreamSignIn::sealing_context(id), &question, now)?,
            transaction: login.sealed,
        },
    })
}
