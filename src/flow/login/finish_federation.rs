//! A user comes back from a provider: OpenID Connect Core 3.1.2.5 to 3.1.3.8.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use url::Url;
use uuid::Uuid;

use super::anonymous_upgrade::become_account;
use super::begin_federation::{FederationProblem, KeptSignIn};
use super::destination::{BrowserRedirect, Destination};
use super::federated_user::{ProviderAccount, UserMatch};
use super::given_consent::may_send_errors;
use super::record_sign_in::record_sign_in;
use super::redeem_upstream_code::redeem;
use super::session::AuthenticationEvent;
use super::start_session::{Identified, Identify, SessionStart, start_session};
use super::transaction::{BrowserLogin, LoginContext, LoginTransactionError};
use super::{federated_user, sealed, transaction};
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::authorization::{Callback, ProviderResponse, direct_provider};
use crate::federation::id_token::{self, IdTokenUse, TokenProblem, VerifiedIdToken};
use crate::federation::metadata::Metadata;
use crate::federation::profile::Profile;
use crate::federation::upstreams::UpstreamTokens;
use crate::flow::browser::Browser;
use crate::flow::{Core, Failure, FlowError, upstream_token};
use crate::identity::{AuthenticationMethod, SecondFactor, UpstreamToken, User};
use crate::oauth::access_token::hour_of;
use crate::oauth::authorize::RefusedRequest;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::login::{ResolvedPurpose, UpstreamSignIn};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::secret::{Secret, UpstreamState};
use crate::store::engine::Snapshot;
use crate::store::tables::{USED_ASSERTIONS, USERS_BY_IDENTITY};

/// The result of a provider's answer.
#[derive(Debug)]
pub enum CallbackResult {
    /// The user is signed in, or the client gets a refusal.
    Redirect(BrowserRedirect),
    /// The user is not signed in and may try again on the sign-in page of this sealed transaction.
    TryAgain(String, FederationProblem),
}

/// The login transaction that the `state` of a provider's answer names. `None` if it is malformed. Nothing of it is
/// verified yet.
pub fn transaction_of(state: &str) -> Option<Uuid> {
    let state = Secret::<UpstreamState>::parse(state).ok()?;
    Uuid::from_slice(state.locator()).ok()
}

/// A provider's answer, and what the browser has kept of the transaction that its `state` names.
pub struct ProviderAnswer<'a> {
    /// The provider whose callback address was called.
    pub provider: &'a str,
    pub callback: Callback,
    /// What the browser has kept.
    pub kept: Option<KeptSignIn>,
}

/// Takes a provider's answer. It is accepted once, in the browser that was sent there, and for the last question. If
/// the answer comes again, the sign-in continues.
///
/// `admit_document` is called before the
/// metadata document of the client is fetched, and `admit_answer` before the provider is asked. The use of the answer is
/// stored once its user has authenticated. An answer that signed nobody in may be sent again: the provider redeems its
/// code only once (RFC 6749 section 4.1.2).
pub async fn finish_federation(
    core: &Core,
    browser: &Browser,
    answer: ProviderAnswer<'_>,
    admit_document: impl FnOnce(&Url) -> Result<(), Failure>,
    admit_answer: impl FnOnce() -> Result<(), Failure>,
    now: Timestamp,
) -> Result<CallbackResult, FlowError<LoginTransactionError>> {
    let ProviderAnswer {
        provider,
        callback,
        kept,
    } = answer;
    let state =
        Secret::<UpstreamState>::parse(&callback.state).map_err(|_| LoginTransactionError::Expired)?;
    let kept = kept.ok_or(LoginTransactionError::OtherBrowser)?;
    let login = transaction::load_login(core, browser, &kept.transaction, None, admit_document, now).await?;
    let context = UpstreamSignIn::sealing_context(login.transaction.id);
    let question: Option<UpstreamSignIn> = sealed::open(core, &context, &kept.question);
    let is_answered =
        |question: &UpstreamSignIn| question.provider == provider && question.state == state.digest();
    let Some(question) = question.filter(is_answered) else {
        return Err(LoginTransactionError::Expired.into());
    };
    let Some(_pending) = core.pending_answers.begin(&question) else {
        return Ok(CallbackResult::Redirect(continue_sign_in(&login)));
    };
    if is_used(core, &login, &question).await? {
        return Ok(CallbackResult::Redirect(continue_sign_in(&login)));
    }
    let offered = core.catalog().offered_for(&login.purpose);
    let was_asked = |offered: &&Arc<Provider>| offered.id == provider && offered.issuer == question.issuer;
    let Some(provider) = offered.iter().find(was_asked) else {
        return Ok(CallbackResult::TryAgain(
            login.sealed,
            FederationProblem::NotOffered,
        ));
    };
    admit_answer()?;
    let check = CallbackCheck {
        core,
        provider,
        question: &question,
        max_age: login.purpose.max_age(),
        now,
    };
    match check.verify_callback(callback).await {
        Ok(verified) => sign_in_user(core, browser, login, provider, &question, verified, now).await,
        Err(FederationProblem::Cancelled) if is_only_way(&login.purpose, &offered) => {
            let refusal = Refusal::new(
                ErrorCode::AccessDenied,
                "the user did not sign in at the provider",
            );
            refuse(core, login, FederationProblem::Cancelled, refusal, now).await
        }
        Err(FederationProblem::Undated) => {
            let refusal = Refusal::new(
                ErrorCode::UnmetAuthenticationRequirements,
                "the provider does not say when the user signed in there",
            );
            refuse(core, login, FederationProblem::Undated, refusal, now).await
        }
        Err(problem) => Ok(CallbackResult::TryAgain(login.sealed, problem)),
    }
}

/// The answers that are being checked now, by the digest of `state`: a user may tap twice.
#[derive(Default)]
pub(in crate::flow) struct PendingAnswers(Mutex<BTreeSet<[u8; 32]>>);

impl PendingAnswers {
    /// Begins to check the answer to this question, until the result is dropped. `None` if it is being checked already.
    fn begin(&self, question: &UpstreamSignIn) -> Option<PendingAnswer<'_>> {
        let state = *question.state.as_bytes();
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.insert(state).then(|| PendingAnswer(self, state))
    }
}

/// An answer that is being checked.
struct PendingAnswer<'a>(&'a PendingAnswers, [u8; 32]);

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        let PendingAnswers(pending) = self.0;
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.remove(&self.1);
    }
}

/// The key under which an answer that was used is stored until its sign-in has expired.
fn use_key(core: &Core, login: &LoginContext, question: &UpstreamSignIn) -> (u32, [u8; 32]) {
    let begun_at = Timestamp::of_id(login.transaction.id);
    let expires_at = begun_at + core.policy.lifetimes.login_transaction;
    (hour_of(expires_at), *question.state.as_bytes())
}

/// Whether the answer to this question has signed a user in. Then the browser sent it twice, or this service's own answer
/// was lost.
async fn is_used(core: &Core, login: &LoginContext, question: &UpstreamSignIn) -> Result<bool, Failure> {
    let key = use_key(core, login, question);
    Ok(core
        .store
        .read(|snapshot| USED_ASSERTIONS.contains(snapshot, &key))
        .await?)
}

fn continue_sign_in(login: &LoginContext) -> BrowserRedirect {
    BrowserRedirect::to(Destination::SignIn(login.sealed.clone()))
}

/// Whether a user who cancels at the provider has no other way to sign in.
fn is_only_way(purpose: &ResolvedPurpose, offered: &[Arc<Provider>]) -> bool {
    !purpose.accepts(&AuthenticationMethod::Password)
        && offered.len() == 1
        && direct_provider(purpose, offered).is_some()
}

/// The client gets a refusal. Without a client, the user may try again, and so if the client may get no errors by redirect.
async fn refuse(
    core: &Core,
    login: LoginContext,
    problem: FederationProblem,
    refusal: Refusal,
    now: Timestamp,
) -> Result<CallbackResult, FlowError<LoginTransactionError>> {
    let (target, client) = match &login.purpose {
        ResolvedPurpose::Code { request, client } => (request.target.clone(), client),
        ResolvedPurpose::Account(_) | ResolvedPurpose::Device { .. } => {
            return Ok(CallbackResult::TryAgain(login.sealed, problem));
        }
    };
    let session = login.session.as_ref();
    let may_send = |snapshot: &dyn Snapshot| may_send_errors(snapshot, client, session);
    if !core.store.read(may_send).await? {
        return Ok(CallbackResult::TryAgain(login.sealed, problem));
    }
    let destination = transaction::refuse(core, &login, RefusedRequest { target, refusal }, now).await?;
    Ok(CallbackResult::Redirect(BrowserRedirect::to(destination)))
}

/// A provider's answer after all checks.
struct VerifiedIdentity {
    subject: VerifiedIdToken,
    /// Whether the user was asked to authenticate again.
    was_asked_anew: bool,
    profile: Profile,
    /// The claims for a new user that the provider sends only once.
    first_claims: BTreeMap<String, Value>,
    token: Option<UpstreamToken>,
}

/// What a provider's answer is checked against.
struct CallbackCheck<'a> {
    core: &'a Core,
    provider: &'a Provider,
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
        let first_user = callback.user.filter(|_| provider.posts_answer());
        let first_claims = first_user.map(|user| Profile::name_of_apple_user(&user));
        let code = match callback.response {
            ProviderResponse::Code(code) => code,
            ProviderResponse::Denied => return Err(FederationProblem::Cancelled),
            ProviderResponse::Unavailable => return Err(FederationProblem::Unavailable),
            ProviderResponse::Failed(error) => {
                return Err(self.fail(&format!("the provider answers {error}")));
            }
        };
        let tokens = redeem(core, provider, &metadata, &code, &question.code_verifier, now)
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
        let subject = match id_token::check(&tokens.id_token, provider, &keys, purpose, now) {
            Ok(subject) => subject,
            Err(problem) => {
                let failed = self.fail(&problem);
                let is_undated = problem == TokenProblem::SignInUndated;
                return Err(if is_undated {
                    FederationProblem::Undated
                } else {
                    failed
                });
            }
        };
        let profile = complete_profile(core, provider, &metadata, &tokens, &subject)
            .await
            .map_err(|problem| self.fail(&problem))?;
        Ok(VerifiedIdentity {
            subject,
            was_asked_anew: question.proof_asked_at.is_some(),
            profile,
            first_claims: first_claims.unwrap_or_default(),
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
    if userinfo.get("sub").and_then(Value::as_str) != Some(&subject.subject) {
        return Err("the userinfo endpoint speaks of another subject than the id token".to_owned());
    }
    Ok(profile.or(Profile::read(&userinfo, provider)))
}

/// Adds the claims that the user does not have.
fn with_claims(mut user: User, claims: &BTreeMap<String, Value>) -> User {
    for (name, value) in claims {
        user.claims.entry(name.clone()).or_insert_with(|| value.clone());
    }
    user
}

/// Finds or makes the user, starts the session and takes the next step, in one transaction.
async fn sign_in_user(
    core: &Core,
    browser: &Browser,
    login: LoginContext,
    provider: &Arc<Provider>,
    question: &UpstreamSignIn,
    verified: VerifiedIdentity,
    now: Timestamp,
) -> Result<CallbackResult, FlowError<LoginTransactionError>> {
    let VerifiedIdentity {
        subject,
        was_asked_anew,
        profile,
        first_claims,
        token,
    } = verified;
    let event = AuthenticationEvent {
        factor: AuthenticationMethod::Federated {
            provider: provider.id.clone(),
            incarnation: provider.incarnation,
        },
        second_factor: provider
            .has_two_factors(&subject.claims)
            .then_some(SecondFactor::Provider),
        auth_time: subject.auth_time,
        was_asked_anew,
        upstream_token: token,
        name: None,
        notice: None,
        takes_passkey_offer: false,
    };
    let factor = event.factor.clone();
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    let (asked, policy) = (Arc::clone(provider), Arc::clone(&core.policy));
    let identity = (provider.issuer.clone(), subject.subject.clone());
    let key = use_key(core, &login, question);
    let anonymous = login.transaction.purpose.anonymous();
    let identify: Identify = Box::new(move |tx| {
        if USED_ASSERTIONS.contains(&*tx, &key)? {
            return Ok(None);
        }
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
        let user = match matched {
            UserMatch::Created => become_account(tx, anonymous, with_claims(user, &first_claims), now)?,
            UserMatch::Unchanged | UserMatch::Updated | UserMatch::Linked => Some(user),
        };
        let Some(mut user) = user else {
            return Ok(None);
        };
        let proof = federated_user::prove_address(tx, &mut user, matched, now)?;
        USED_ASSERTIONS.put(tx, &key, &())?;
        federated_user::save(tx, &user, matched)?;
        Ok(Some(Identified {
            matched,
            proof,
            ..user.into()
        }))
    });
    let client_id = login.purpose.audit_name();
    let at = BrowserLogin {
        core,
        browser,
        login: &login,
        now,
    };
    let started = match start_session(at, event, None, identify).await? {
        SessionStart::Started(started) => started,
        SessionStart::NoUser if is_used(core, &login, question).await? => {
            return Ok(CallbackResult::Redirect(continue_sign_in(&login)));
        }
        SessionStart::NoUser => {
            if let Some(from) = browser.device.address {
                let user = core
                    .store
                    .read(|snapshot| USERS_BY_IDENTITY.get(snapshot, &identity))
                    .await?;
                audit::record(&Event::SignInFailed {
                    user,
                    from,
                    client_id,
                });
            }
            return Ok(CallbackResult::TryAgain(
                login.sealed,
                FederationProblem::NotAdmitted,
            ));
        }
        SessionStart::Redirected { redirect, .. } => return Ok(CallbackResult::Redirect(redirect)),
        SessionStart::TransactionError(error) => return Err(error.into()),
    };
    record_sign_in(&started, &factor, client_id);
    Ok(CallbackResult::Redirect(started.redirect))
}
