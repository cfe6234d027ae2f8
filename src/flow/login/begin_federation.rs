//! A user is sent to a provider: OpenID Connect Core 3.1.2.1, RFC 7636 section 4.3.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use super::transaction;
use super::transaction::{Browser, Underway};
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::authorization::{Question, address};
use crate::flow::{Core, Failure};
use crate::oauth::authorize::UpstreamSignIn;
use crate::oauth::pkce::challenge_of;
use crate::secret::{Secret, UpstreamState};
use crate::store::tables::LOGIN_TRANSACTIONS;

/// Why nobody can be sent to the provider, or why its word does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FederationProblem {
    /// The client does not offer this provider, or it is out of service.
    NotOffered,
    /// The provider cannot be reached, or cannot answer at the moment.
    Unavailable,
    /// The provider said something that must not be believed, or said that something is wrong.
    Failed,
    /// The user said no there.
    Cancelled,
    /// The provider vouches for somebody who is no user here, and may not bring new ones.
    NotAdmitted,
}

/// The provider, if the client of this sign-in offers it.
pub(in crate::flow) fn offered(core: &Core, underway: &Underway, provider: &str) -> Option<Arc<Provider>> {
    let offered = core.catalog().offered_by(&underway.client);
    offered.into_iter().find(|one| one.id == provider)
}

/// Remembers a question to the provider and says where the browser takes it. An earlier question of the same sign-in
/// is forgotten: its answer will not count.
pub async fn begin_federation(
    core: &Core,
    browser: &Browser,
    underway: Underway,
    provider: &str,
    now: Timestamp,
) -> Result<Result<String, FederationProblem>, Failure> {
    let Some(provider) = offered(core, &underway, provider) else {
        return Ok(Err(FederationProblem::NotOffered));
    };
    let Ok(metadata) = core.upstreams.metadata(&provider, now).await else {
        return Ok(Err(FederationProblem::Unavailable));
    };
    let id = underway.id;
    let state = Secret::<UpstreamState>::mint(id.as_bytes(), &core.random);
    let nonce = URL_SAFE_NO_PAD.encode(core.random.bytes::<32>());
    let verifier = Zeroizing::new(URL_SAFE_NO_PAD.encode(core.random.bytes::<32>()));
    let request = &underway.transaction.request;
    let must_prove = underway.session.as_ref().map_or(request.prompt.login, |live| {
        request.demands_proof(&live.session, now)
    });
    let question = UpstreamSignIn {
        provider: provider.id.clone(),
        issuer: provider.issuer.clone(),
        state: state.digest(),
        nonce: nonce.clone(),
        sealed_verifier: core
            .sealer
            .seal_text(&UpstreamSignIn::context(id), &verifier, &core.random),
        asked_at: now,
        proof_asked_at: must_prove.then_some(now),
    };
    let browser = browser.clone();
    let is_kept = core
        .store
        .write("begin_federation", move |tx| {
            let Some(mut transaction) = LOGIN_TRANSACTIONS.get(&*tx, &id)? else {
                return Ok(false);
            };
            if transaction::check((id, &transaction), &browser, now).is_err() {
                return Ok(false);
            }
            transaction.upstream = Some(question.clone());
            LOGIN_TRANSACTIONS.put(tx, &id, &transaction)?;
            Ok(true)
        })
        .await?;
    if !is_kept {
        return Ok(Err(FederationProblem::NotOffered));
    }
    let question = Question {
        state: state.reveal(),
        nonce: &nonce,
        code_challenge: &challenge_of(&verifier),
        redirect_uri: &provider.redirect_uri(&core.policy.issuer),
    };
    Ok(Ok(address(
        &provider,
        &metadata,
        &question,
        Some(request),
        must_prove,
    )
    .into()))
}
