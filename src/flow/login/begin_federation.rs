//! A user is sent to a provider: OpenID Connect Core 3.1.2.1, RFC 7636 section 4.3.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use super::transaction;
use super::transaction::LoginContext;
use crate::clock::Timestamp;
use crate::federation::authorization::{AuthorizationParameters, address};
use crate::flow::browser::Browser;
use crate::flow::{Core, Failure};
use crate::oauth::login::UpstreamSignIn;
use crate::oauth::pkce::challenge_of;
use crate::secret::{Secret, UpstreamState};
use crate::store::tables::LOGIN_TRANSACTIONS;

/// Why a user cannot sign in at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FederationProblem {
    /// The client does not offer this provider, or the provider is disabled.
    NotOffered,
    /// The provider cannot be reached, or cannot answer at the moment.
    Unavailable,
    /// The provider's answer is not valid, or is an error.
    Failed,
    /// The user cancelled there.
    Cancelled,
    /// The account at the provider is linked to no user, and the provider may not create users.
    NotAdmitted,
}

/// Stores a question to the provider and returns the address that the browser takes it to. The answer to an earlier
/// question of the same sign-in will be refused.
pub async fn begin_federation(
    core: &Core,
    browser: &Browser,
    login: LoginContext,
    provider: &str,
    now: Timestamp,
) -> Result<Result<String, FederationProblem>, Failure> {
    let offered = core.catalog().offered_for(&login.purpose);
    let Some(provider) = offered.into_iter().find(|offered| offered.id == provider) else {
        return Ok(Err(FederationProblem::NotOffered));
    };
    let Ok(metadata) = core.upstreams.metadata(&provider, now).await else {
        return Ok(Err(FederationProblem::Unavailable));
    };
    let LoginContext {
        id, purpose, session, ..
    } = login;
    let state = Secret::<UpstreamState>::generate(id.as_bytes(), &core.random);
    let nonce = URL_SAFE_NO_PAD.encode(core.random.bytes::<32>());
    let verifier = Zeroizing::new(URL_SAFE_NO_PAD.encode(core.random.bytes::<32>()));
    let must_reauthenticate =
        purpose.requires_reauthentication(session.as_ref().map(|live| &live.session), now);
    let context = UpstreamSignIn::context(id);
    let question = UpstreamSignIn {
        provider: provider.id.clone(),
        issuer: provider.issuer.clone(),
        state: state.digest(),
        nonce: nonce.clone(),
        sealed_verifier: core.sealer.seal_text(&context, &verifier, &core.random),
        asked_at: now,
        proof_asked_at: must_reauthenticate.then_some(now),
    };
    let browser = browser.clone();
    let is_stored = core
        .store
        .write("begin_federation", move |tx| {
            let Ok(mut transaction) = transaction::open_transaction(&*tx, id, &browser, now)? else {
                return Ok(false);
            };
            transaction.upstream = Some(question.clone());
            LOGIN_TRANSACTIONS.put(tx, &id, &transaction)?;
            Ok(true)
        })
        .await?;
    if !is_stored {
        return Ok(Err(FederationProblem::NotOffered));
    }
    let question = AuthorizationParameters {
        state: state.reveal(),
        nonce: &nonce,
        code_challenge: &challenge_of(&verifier),
        redirect_uri: &provider.redirect_uri(&core.policy.issuer),
    };
    let request = purpose.code_request().map(|(request, _)| request);
    let address = address(&provider, &metadata, &question, request, must_reauthenticate);
    Ok(Ok(address.into()))
}
