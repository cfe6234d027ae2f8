//! A user comes back from a provider: OpenID Connect Core 3.1.2.5 to 3.1.3.8.

use std::sync::Arc;

use uuid::Uuid;
use zeroize::Zeroizing;

use super::begin_federation::FederationProblem;
use super::federated_user;
use super::federated_user::Newcomer;
use super::redeem_upstream_code::redeem;
use super::start_session::{Entrance, start_session};
use super::transaction;
use super::transaction::{Browser, Next, Onward, Stale};
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::authorization::{Callback, Outcome, straight_to};
use crate::federation::id_token::{self, Purpose, Subject};
use crate::federation::metadata::Metadata;
use crate::federation::profile::Profile;
use crate::federation::upstreams::UpstreamTokens;
use crate::flow::{Core, Failure, upstream_token};
use crate::identity::{Factor, UpstreamToken};
use crate::oauth::authorize::{AuthorizationRequest, UpstreamSignIn};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::secret::{Digest, Secret, UpstreamState};
use crate::store::tables::{LOGIN_TRANSACTIONS, USERS_BY_IDENTITY};

/// What comes of a provider's answer.
#[derive(Debug)]
pub enum Return {
    /// The user is signed in, or the client is told no.
    Onward(Onward),
    /// The user is not signed in and may try again on the sign-in page of this transaction.
    Again(Uuid, FederationProblem),
    /// There is no sign-in that this answers.
    Stale(Stale),
}

/// The sign-in that a provider's `state` names, and what tells the question. Nothing is known to be true yet.
pub fn question_of(state: &str) -> Option<(Uuid, Digest<UpstreamState>)> {
    let state = Secret::<UpstreamState>::parse(state).ok()?;
    Some((Uuid::from_slice(state.locator()).ok()?, state.digest()))
}

/// Takes a provider's answer. It counts once, in the browser that was sent there, for the question that was asked last; one that comes
/// again leads back to the sign-in, as far as that has come.
pub async fn finish_federation(
    core: &Core,
    browser: &Browser,
    provider: &str,
    callback: Callback,
    now: Timestamp,
) -> Result<Return, Failure> {
    let Some((id, state)) = question_of(&callback.state) else {
        return Ok(Return::Stale(Stale::Expired));
    };
    let (asked, expected) = (browser.clone(), provider.to_owned());
    let taken = core
        .store
        .write("take_upstream_answer", move |tx| {
            let Some(mut transaction) = LOGIN_TRANSACTIONS.get(&*tx, &id)? else {
                return Ok(Err(Stale::Expired));
            };
            if let Err(stale) = transaction::check((id, &transaction), &asked, now) {
                return Ok(Err(stale));
            }
            if transaction.upstream.is_none() {
                return Ok(Ok(None));
            }
            let fits = |question: &UpstreamSignIn| question.provider == expected && question.state == state;
            let Some(question) = transaction.upstream.take_if(|question| fits(question)) else {
                return Ok(Err(Stale::Expired));
            };
            LOGIN_TRANSACTIONS.put(tx, &id, &transaction)?;
            Ok(Ok(Some(question)))
        })
        .await?;
    let question = match taken {
        Ok(Some(question)) => question,
        // It was answered before: sent twice by a hasty hand, or our own answer was lost. Nothing of it counts; the
        // sign-in goes on from where it stands.
        Ok(None) => return Ok(Return::Onward(Onward::to(Next::SignIn(id)))),
        Err(stale) => return Ok(Return::Stale(stale)),
    };
    let underway = match transaction::underway(core, browser, id, now)? {
        Ok(underway) => underway,
        Err(stale) => return Ok(Return::Stale(stale)),
    };
    let offered = core.catalog().offered_by(&underway.client);
    let request = underway.transaction.request.clone();
    let was_asked = |one: &&Arc<Provider>| one.id == provider && one.issuer == question.issuer;
    let Some(provider) = offered.iter().find(was_asked) else {
        return Ok(Return::Again(id, FederationProblem::NotOffered));
    };
    let witness = match interrogate(core, provider, callback, (id, &question), &request, now).await {
        Ok(witness) => witness,
        Err(FederationProblem::Cancelled) if is_only_way(&request, &underway.client, &offered) => {
            let refusal = Refusal::new(
                ErrorCode::AccessDenied,
                "the user did not sign in at the provider",
            );
            let next = transaction::refuse(core, &underway, refusal, now).await?;
            return Ok(Return::Onward(Onward::to(next)));
        }
        Err(problem) => return Ok(Return::Again(id, problem)),
    };
    admit(core, browser, underway, provider, witness, now).await
}

/// Whether a user who turns round at the provider has nowhere else to go.
fn is_only_way(
    request: &AuthorizationRequest,
    client: &crate::oauth::Client,
    offered: &[Arc<Provider>],
) -> bool {
    !client.password_sign_in && offered.len() == 1 && straight_to(request, client, offered).is_some()
}

/// What a provider has said, checked.
struct Witness {
    subject: Subject,
    /// Whether the user was to prove anew who they are.
    was_asked_anew: bool,
    profile: Profile,
    token: Option<UpstreamToken>,
}

/// Redeems the code and checks everything that comes back. What is wrong is told to the operator, in the log; the
/// user learns that it did not work.
async fn interrogate(
    core: &Core,
    provider: &Arc<Provider>,
    callback: Callback,
    (id, question): (Uuid, &UpstreamSignIn),
    request: &AuthorizationRequest,
    now: Timestamp,
) -> Result<Witness, FederationProblem> {
    let warn = |problem: &dyn std::fmt::Display| {
        tracing::warn!(provider = provider.id, %problem, "a sign-in at a provider came to nothing");
    };
    let metadata = core.upstreams.metadata(provider, now).await;
    let metadata = metadata.map_err(|_| FederationProblem::Unavailable)?;
    if !callback.is_from(provider, &metadata) {
        warn(&"the answer names another issuer, or none where one was promised");
        return Err(FederationProblem::Failed);
    }
    let code = match callback.outcome {
        Outcome::Code(code) => code,
        Outcome::Denied => return Err(FederationProblem::Cancelled),
        Outcome::Unavailable => return Err(FederationProblem::Unavailable),
        Outcome::Failed(error) => {
            warn(&format!("the provider answers {error}"));
            return Err(FederationProblem::Failed);
        }
    };
    let verifier = open_verifier(core, id, question).ok_or_else(|| {
        warn(&"the code verifier does not open under this master key");
        FederationProblem::Failed
    })?;
    let tokens = redeem(core, provider, &metadata, (&code, &verifier), now)
        .await
        .map_err(|problem| {
            warn(&problem);
            FederationProblem::Unavailable
        })?;
    let keys = core.upstreams.keys_of(provider, &tokens.id_token, now).await;
    let keys = keys.map_err(|_| FederationProblem::Unavailable)?;
    let purpose = Purpose::SignIn {
        client_id: provider.client_id.as_deref().unwrap_or_default(),
        nonce: &question.nonce,
        access_token: &tokens.access_token,
        max_age: request.max_age,
        asked_at: question.asked_at,
        proof_asked_at: question.proof_asked_at,
    };
    let subject = id_token::check(&tokens.id_token, provider, &keys, purpose, now).map_err(|problem| {
        warn(&problem);
        FederationProblem::Failed
    })?;
    let profile = complete(core, provider, &metadata, &tokens, &subject)
        .await
        .map_err(|problem| {
            warn(&problem);
            FederationProblem::Failed
        })?;
    let token = upstream_token::seal(core, provider, &tokens, now);
    Ok(Witness {
        subject,
        was_asked_anew: question.proof_asked_at.is_some(),
        profile,
        token,
    })
}

fn open_verifier(core: &Core, transaction: Uuid, question: &UpstreamSignIn) -> Option<Zeroizing<String>> {
    let context = UpstreamSignIn::context(transaction);
    core.sealer.open_text(&context, &question.sealed_verifier).ok()
}

/// What the ID token says, and where that leaves something out, what the `UserInfo` endpoint adds. Its `sub` has to be
/// the same (OpenID Connect Core 5.3.2).
async fn complete(
    core: &Core,
    provider: &Provider,
    metadata: &Metadata,
    tokens: &UpstreamTokens,
    subject: &Subject,
) -> Result<Profile, String> {
    let profile = Profile::read(&subject.claims, provider);
    let Some(endpoint) = metadata
        .userinfo_endpoint
        .as_ref()
        .filter(|_| !profile.is_complete())
    else {
        return Ok(profile);
    };
    let userinfo = match core.upstreams.userinfo(endpoint, &tokens.access_token).await {
        Ok(userinfo) => userinfo,
        Err(problem) => {
            tracing::warn!(provider = provider.id, %problem, "the userinfo endpoint of a provider does not answer");
            return Ok(profile);
        }
    };
    if userinfo.get("sub").and_then(serde_json::Value::as_str) != Some(&subject.subject) {
        return Err("the userinfo endpoint speaks of another subject than the id token".to_owned());
    }
    Ok(profile.or(Profile::read(&userinfo, provider)))
}

/// Finds or makes the user, starts the session and takes the next step towards the client, in one transaction.
async fn admit(
    core: &Core,
    browser: &Browser,
    underway: transaction::Underway,
    provider: &Arc<Provider>,
    witness: Witness,
    now: Timestamp,
) -> Result<Return, Failure> {
    let id = underway.id;
    let client_id = underway.client.client_id.clone();
    let Witness {
        subject,
        was_asked_anew,
        profile,
        token,
    } = witness;
    let entrance = Entrance {
        factor: Factor::Federated {
            provider: provider.id.clone(),
        },
        auth_time: subject.auth_time.unwrap_or(now),
        is_undated: subject.auth_time.is_none(),
        was_asked_anew,
        upstream_token: token,
    };
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    let (speaker, policy) = (Arc::clone(provider), Arc::clone(&core.policy));
    let identity = (speaker.issuer.clone(), subject.subject.clone());
    let started = start_session(core, browser, id, entrance, now, move |tx| {
        let newcomer = Newcomer {
            provider: &speaker,
            subject: &subject.subject,
            profile: &profile,
            uuid,
            organization: &policy.organization,
        };
        let Some((user, arrival)) = federated_user::find(&*tx, &newcomer, now)? else {
            return Ok(None);
        };
        if !user.enabled {
            return Ok(None);
        }
        federated_user::keep(tx, &user, arrival)?;
        Ok(Some((user, arrival)))
    })
    .await?;
    let (onward, session, user, arrival) = match started {
        Ok(Some(started)) => started,
        Ok(None) => {
            if let Some(from) = browser.device.address {
                let user = core
                    .store
                    .read(|snapshot| USERS_BY_IDENTITY.get(snapshot, &identity))?;
                audit::record(&Event::SignInFailed {
                    user,
                    from,
                    client_id: &client_id,
                });
            }
            return Ok(Return::Again(id, FederationProblem::NotAdmitted));
        }
        Err(stale) => return Ok(Return::Stale(stale)),
    };
    federated_user::record(user, arrival, &provider.id);
    audit::record(&Event::SignedIn {
        user,
        session,
        authority: &provider.id,
        client_id: &client_id,
    });
    Ok(Return::Onward(onward))
}
