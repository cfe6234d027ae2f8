//! A user comes back from a provider: OpenID Connect Core 3.1.2.5 to 3.1.3.8.

use std::sync::Arc;

use uuid::Uuid;
use zeroize::Zeroizing;

use super::begin_federation::FederationProblem;
use super::federated_user;
use super::federated_user::ProviderAccount;
use super::redeem_upstream_code::redeem;
use super::session::AuthenticationEvent;
use super::start_session::{SessionStart, start_session};
use super::transaction;
use super::transaction::{BrowserRedirect, Destination, LoginContext, LoginTransactionError};
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::authorization::{Callback, ProviderResponse, direct_provider};
use crate::federation::id_token::{self, IdTokenUse, VerifiedIdToken};
use crate::federation::metadata::Metadata;
use crate::federation::profile::Profile;
use crate::federation::upstreams::UpstreamTokens;
use crate::flow::browser::Browser;
use crate::flow::{Core, Failure, upstream_token};
use crate::identity::{AuthenticationMethod, UpstreamToken};
use crate::oauth::authorize::RefusedRequest;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::login::{ResolvedPurpose, UpstreamSignIn};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::secret::{Digest, Secret, UpstreamState};
use crate::store::tables::{LOGIN_TRANSACTIONS, USERS_BY_IDENTITY};

/// The result of a provider's answer.
#[derive(Debug)]
pub enum CallbackResult {
    /// The user is signed in, or the client gets a refusal.
    Redirect(BrowserRedirect),
    /// The user is not signed in and may try again on the sign-in page of this transaction.
    TryAgain(Uuid, FederationProblem),
    /// The answer belongs to no sign-in that can be continued.
    TransactionError(LoginTransactionError),
}

/// The `state` of a provider's answer. It is not verified yet.
pub struct PresentedState {
    /// The login transaction that it names.
    pub transaction: Uuid,
    digest: Digest<UpstreamState>,
}

/// Reads a `state`. `None` if it is malformed.
pub fn parse_state(state: &str) -> Option<PresentedState> {
    let state = Secret::<UpstreamState>::parse(state).ok()?;
    Some(PresentedState {
        transaction: Uuid::from_slice(state.locator()).ok()?,
        digest: state.digest(),
    })
}

/// The question that a provider's answer belongs to, taken out of the login transaction.
enum TakenQuestion {
    Asked(UpstreamSignIn),
    AnsweredBefore,
}

/// Takes a provider's answer. It is accepted once, in the browser that was sent there, and for the last question. If
/// the answer comes again, the sign-in continues.
pub async fn finish_federation(
    core: &Core,
    browser: &Browser,
    provider: &str,
    callback: Callback,
    now: Timestamp,
) -> Result<CallbackResult, Failure> {
    let Some(state) = parse_state(&callback.state) else {
        return Ok(CallbackResult::TransactionError(LoginTransactionError::Expired));
    };
    let id = state.transaction;
    let question = match take_question(core, browser, provider, state, now).await? {
        Ok(TakenQuestion::Asked(question)) => question,
        // The browser sent it twice, or this service's own answer was lost.
        Ok(TakenQuestion::AnsweredBefore) => {
            return Ok(CallbackResult::Redirect(BrowserRedirect::to(
                Destination::SignIn(id),
            )));
        }
        Err(error) => return Ok(CallbackResult::TransactionError(error)),
    };
    let login = match transaction::load_login(core, browser, id, now)? {
        Ok(login) => login,
        Err(error) => return Ok(CallbackResult::TransactionError(error)),
    };
    let offered = core.catalog().offered_for(&login.purpose);
    let was_asked = |offered: &&Arc<Provider>| offered.id == provider && offered.issuer == question.issuer;
    let Some(provider) = offered.iter().find(was_asked) else {
        return Ok(CallbackResult::TryAgain(id, FederationProblem::NotOffered));
    };
    let check = CallbackCheck {
        core,
        provider,
        transaction: id,
        question: &question,
        max_age: login.purpose.max_age(),
        now,
    };
    match check.verify_callback(callback).await {
        Ok(verified) => sign_in_user(core, browser, &login, provider, verified, now).await,
        Err(FederationProblem::Cancelled) if is_only_way(&login.purpose, &offered) => {
            cancel(core, &login, now).await
        }
        Err(problem) => Ok(CallbackResult::TryAgain(id, problem)),
    }
}

async fn take_question(
    core: &Core,
    browser: &Browser,
    provider: &str,
    state: PresentedState,
    now: Timestamp,
) -> Result<Result<TakenQuestion, LoginTransactionError>, Failure> {
    let id = state.transaction;
    let (browser, provider) = (browser.clone(), provider.to_owned());
    Ok(core
        .store
        .write("take_upstream_answer", move |tx| {
            let mut transaction = or_refuse!(transaction::open_transaction(&*tx, id, &browser, now)?);
            if transaction.upstream.is_none() {
                return Ok(Ok(TakenQuestion::AnsweredBefore));
            }
            let is_answered = |question: &mut UpstreamSignIn| {
                question.provider == provider && question.state == state.digest
            };
            let Some(question) = transaction.upstream.take_if(is_answered) else {
                return Ok(Err(LoginTransactionError::Expired));
            };
            LOGIN_TRANSACTIONS.put(tx, &id, &transaction)?;
            Ok(Ok(TakenQuestion::Asked(question)))
        })
        .await?)
}

/// Whether a user who cancels at the provider has no other way to sign in.
fn is_only_way(purpose: &ResolvedPurpose, offered: &[Arc<Provider>]) -> bool {
    !purpose.accepts(&AuthenticationMethod::Password)
        && offered.len() == 1
        && direct_provider(purpose, offered).is_some()
}

/// The user cancelled at the only provider: the client gets a refusal.
async fn cancel(core: &Core, login: &LoginContext, now: Timestamp) -> Result<CallbackResult, Failure> {
    let request = match &login.purpose {
        ResolvedPurpose::Code { request, .. } => request,
        ResolvedPurpose::Account(_) => {
            return Ok(CallbackResult::TryAgain(login.id, FederationProblem::Cancelled));
        }
    };
    let refused = RefusedRequest {
        target: request.target.clone(),
        refusal: Refusal::new(
            ErrorCode::AccessDenied,
            "the user did not sign in at the provider",
        ),
    };
    let destination = transaction::refuse(core, login.id, refused, now).await?;
    Ok(CallbackResult::Redirect(BrowserRedirect::to(destination)))
}

/// A provider's answer after all checks.
struct VerifiedIdentity {
    subject: VerifiedIdToken,
    /// Whether the user was asked to authenticate again.
    was_asked_anew: bool,
    profile: Profile,
    token: Option<UpstreamToken>,
}

/// What a provider's answer is checked against.
struct CallbackCheck<'a> {
    core: &'a Core,
    provider: &'a Provider,
    transaction: Uuid,
    question: &'a UpstreamSignIn,
    max_age: Option<u64>,
    now: Timestamp,
}

impl CallbackCheck<'_> {
    /// Redeems the code and checks the tokens that come back. The log says what is wrong. The user only learns that
    /// the sign-in failed.
    async fn verify_callback(&self, callback: Callback) -> Result<VerifiedIdentity, FederationProblem> {
        let Self {
            core,
            provider,
            question,
            now,
            ..
        } = *self;
        let metadata = core.upstreams.metadata(provider, now).await;
        let metadata = metadata.map_err(|_| FederationProblem::Unavailable)?;
        if !callback.is_from(provider, &metadata) {
            return Err(self.fail(&"the answer names another issuer, or none where one was promised"));
        }
        let code = match callback.response {
            ProviderResponse::Code(code) => code,
            ProviderResponse::Denied => return Err(FederationProblem::Cancelled),
            ProviderResponse::Unavailable => return Err(FederationProblem::Unavailable),
            ProviderResponse::Failed(error) => {
                return Err(self.fail(&format!("the provider answers {error}")));
            }
        };
        let context = UpstreamSignIn::context(self.transaction);
        let verifier: Zeroizing<String> = core
            .sealer
            .open_text(&context, &question.sealed_verifier)
            .map_err(|_| self.fail(&"the code verifier does not open under this master key"))?;
        let tokens = redeem(core, provider, &metadata, (&code, &verifier), now)
            .await
            .map_err(|problem| {
                self.fail(&problem);
                FederationProblem::Unavailable
            })?;
        let keys = core.upstreams.keys_of(provider, &tokens.id_token, now).await;
        let keys = keys.map_err(|_| FederationProblem::Unavailable)?;
        let purpose = IdTokenUse::SignIn {
            client_id: provider.client_id.as_deref().unwrap_or_default(),
            nonce: &question.nonce,
            access_token: &tokens.access_token,
            max_age: self.max_age,
            asked_at: question.asked_at,
            proof_asked_at: question.proof_asked_at,
        };
        let subject = id_token::check(&tokens.id_token, provider, &keys, purpose, now)
            .map_err(|problem| self.fail(&problem))?;
        let profile = complete_profile(core, provider, &metadata, &tokens, &subject)
            .await
            .map_err(|problem| self.fail(&problem))?;
        Ok(VerifiedIdentity {
            subject,
            was_asked_anew: question.proof_asked_at.is_some(),
            profile,
            token: upstream_token::seal(core, provider, &tokens, now),
        })
    }

    /// Logs the problem.
    fn fail(&self, problem: &dyn std::fmt::Display) -> FederationProblem {
        tracing::warn!(provider = self.provider.id, %problem, "a sign-in at a provider came to nothing");
        FederationProblem::Failed
    }
}

/// The profile in the ID token, completed by the `UserInfo` endpoint. Its `sub` must be the same (OpenID Connect Core
/// 5.3.2).
async fn complete_profile(
    core: &Core,
    provider: &Provider,
    metadata: &Metadata,
    tokens: &UpstreamTokens,
    subject: &VerifiedIdToken,
) -> Result<Profile, String> {
    let profile = Profile::read(&subject.claims, provider);
    let endpoint = match &metadata.userinfo_endpoint {
        Some(endpoint) if !profile.is_complete() => endpoint,
        _ => return Ok(profile),
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

/// Finds or makes the user, starts the session and takes the next step, in one transaction.
async fn sign_in_user(
    core: &Core,
    browser: &Browser,
    login: &LoginContext,
    provider: &Arc<Provider>,
    verified: VerifiedIdentity,
    now: Timestamp,
) -> Result<CallbackResult, Failure> {
    let VerifiedIdentity {
        subject,
        was_asked_anew,
        profile,
        token,
    } = verified;
    let event = AuthenticationEvent {
        factor: AuthenticationMethod::Federated {
            provider: provider.id.clone(),
        },
        auth_time: subject.auth_time.unwrap_or(now),
        is_undated: subject.auth_time.is_none(),
        was_asked_anew,
        upstream_token: token,
    };
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    let (asked, policy) = (Arc::clone(provider), Arc::clone(&core.policy));
    let identity = (provider.issuer.clone(), subject.subject.clone());
    let started = start_session(core, browser, login.id, event, now, move |tx| {
        let account = ProviderAccount {
            provider: &asked,
            subject: &subject.subject,
            profile: &profile,
            uuid,
            organization: &policy.organization,
        };
        let found = federated_user::find(&*tx, &account, now)?;
        let Some((user, matched)) = found.filter(|(user, _)| user.enabled) else {
            return Ok(None);
        };
        federated_user::save(tx, &user, matched)?;
        Ok(Some((user, matched)))
    })
    .await?;
    let client_id = login.purpose.audit_name();
    let started = match started {
        SessionStart::Started(started) => started,
        SessionStart::NoUser => {
            if let Some(from) = browser.device.address {
                let user = core
                    .store
                    .read(|snapshot| USERS_BY_IDENTITY.get(snapshot, &identity))?;
                audit::record(&Event::SignInFailed {
                    user,
                    from,
                    client_id,
                });
            }
            return Ok(CallbackResult::TryAgain(login.id, FederationProblem::NotAdmitted));
        }
        SessionStart::TransactionError(error) => return Ok(CallbackResult::TransactionError(error)),
    };
    let user = started.user.uuid;
    federated_user::record(user, started.detail, &provider.id);
    audit::record(&Event::SignedIn {
        user,
        session: started.session,
        authority: &provider.id,
        client_id,
    });
    Ok(CallbackResult::Redirect(started.redirect))
}
