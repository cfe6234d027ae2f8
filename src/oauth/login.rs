//! A sign-in in progress: what it is for, and what its next step is.

mod code_step;
mod demanded_level;

use std::ops::Not;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zeroize::Zeroizing;

use self::code_step::next_step_to_code;
use crate::clock::Timestamp;
use crate::identity::{AuthenticationMethod, Consent, Session, UpstreamToken};
use crate::oauth::anonymous::AnonymousProof;
use crate::oauth::authorize::{AuthorizationRequest, RefusedRequest, ResponseTarget, UseKey};
use crate::oauth::client::{Client, GrantType};
use crate::oauth::code::Authorization;
use crate::oauth::device::UserCode;
use crate::oauth::error::Refusal;
use crate::oauth::pkce::CodeChallenge;
use crate::secret::{BrowserCookie, Digest, UpstreamState};

/// What a sign-in is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginPurpose {
    /// An authorization code for a client.
    Code(Box<AuthorizationRequest>),
    /// The account page, which needs nothing but the session.
    Account(AccountLogin),
    /// The decision about a device.
    Device(DeviceLogin),
}

/// A sign-in to decide about a device (RFC 8628 section 3.3). It begins when a person types the user code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLogin {
    pub client_id: String,
    /// Which client of this identifier it is; see [`Client::incarnation`].
    pub client_incarnation: Uuid,
    /// The id of the device authorization.
    pub authorization: Uuid,
    /// The code that the person typed. None in a sign-in that an earlier release began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_code: Option<UserCode>,
}

/// A sign-in for the account page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountLogin {
    /// The account that is signed in and has to authenticate again. Its identifier is written into the form.
    pub reauthenticate: Option<String>,
    /// Whether the user requested an action that needs a recent sign-in. It was not done. The user is told so before
    /// and after the sign-in.
    pub action_pending: bool,
    /// The path of the page to which the browser comes back; empty in a sign-in that an earlier version began.
    #[serde(default)]
    pub page: String,
}

impl LoginPurpose {
    /// The client that gets the response, if there is one.
    pub fn client_id(&self) -> Option<&str> {
        match self {
            Self::Code(request) => Some(&request.client_id),
            Self::Device(device) => Some(&device.client_id),
            Self::Account(_) => None,
        }
    }

    /// The key under which the answer is recorded, if the request was pushed.
    pub fn use_key(&self) -> Option<UseKey> {
        match self {
            Self::Code(request) => request.use_key,
            Self::Account(_) | Self::Device(_) => None,
        }
    }

    /// The anonymous user whom the sign-in upgrades.
    pub fn anonymous(&self) -> Option<AnonymousProof> {
        match self {
            Self::Code(request) => request.anonymous,
            Self::Account(_) | Self::Device(_) => None,
        }
    }

    /// Adds the current record of the client. `None` if the client may no longer get the response.
    pub fn resolve(self, client: Option<Arc<Client>>) -> Option<ResolvedPurpose> {
        match self {
            Self::Code(request) => {
                let client = client.filter(|client| request.may_be_answered(client))?;
                Some(ResolvedPurpose::Code { request, client })
            }
            Self::Account(account) => Some(ResolvedPurpose::Account(account)),
            Self::Device(device) => {
                let is_served = |client: &Arc<Client>| {
                    let is_same = client.incarnation == device.client_incarnation;
                    client.enabled && is_same && client.may_use(GrantType::DeviceCode)
                };
                let client = client.filter(is_served)?;
                Some(ResolvedPurpose::Device { device, client })
            }
        }
    }
}

/// What a sign-in is for, with the current record of the client. All differences between the purposes are decided here.
#[derive(Clone, Debug)]
pub enum ResolvedPurpose {
    /// An authorization code for a client.
    Code {
        /// What the client asked for.
        request: Box<AuthorizationRequest>,
        client: Arc<Client>,
    },
    /// The account page.
    Account(AccountLogin),
    /// The decision about a device.
    Device {
        device: DeviceLogin,
        /// The client on the device.
        client: Arc<Client>,
    },
}

impl ResolvedPurpose {
    /// The client that the sign-in is for.
    pub fn client(&self) -> Option<&Arc<Client>> {
        match self {
            Self::Code { client, .. } | Self::Device { client, .. } => Some(client),
            Self::Account(_) => None,
        }
    }

    /// The request, if the sign-in is for a code.
    pub fn code_request(&self) -> Option<&AuthorizationRequest> {
        match self {
            Self::Code { request, .. } => Some(request),
            Self::Account(_) | Self::Device { .. } => None,
        }
    }

    /// The `client_id` of audit events. No client can be registered with that of the account page.
    pub fn audit_name(&self) -> &str {
        match self {
            Self::Code { client, .. } | Self::Device { client, .. } => &client.client_id,
            Self::Account(_) => "(account)",
        }
    }

    /// Whether a user may sign in by this method.
    pub fn accepts(&self, factor: &AuthenticationMethod) -> bool {
        match self {
            Self::Code { client, .. } | Self::Device { client, .. } => {
                client.accepts(factor) && (factor.is_passkey() || !self.demands_passkey())
            }
            Self::Account(_) => match factor {
                AuthenticationMethod::Password
                | AuthenticationMethod::Email
                | AuthenticationMethod::Passkey { .. }
                | AuthenticationMethod::Federated { .. } => true,
                AuthenticationMethod::Anonymous => false,
            },
        }
    }

    /// Whether a user may sign in with a passkey.
    pub fn accepts_passkeys(&self) -> bool {
        self.accepts(&AuthenticationMethod::Passkey { is_synced: true })
    }

    /// Whether a user may sign in at the provider with this id.
    pub fn accepts_provider(&self, id: &str) -> bool {
        match self {
            Self::Code { client, .. } | Self::Device { client, .. } => {
                client.accepts_provider(id) && !self.demands_passkey()
            }
            Self::Account(_) => true,
        }
    }

    /// Whether the user must authenticate again, even if signed in.
    pub fn requires_reauthentication(&self, session: Option<&Session>, now: Timestamp) -> bool {
        match self {
            Self::Code { request, .. } => session.map_or(request.prompt.login, |session| {
                request.requires_reauthentication(session, now)
            }),
            Self::Account(account) => account.reauthenticate.is_some(),
            Self::Device { client, .. } => session.is_some_and(|session| {
                let age = client.default_max_age;
                age.is_some_and(|age| session.is_older_than(age, now))
            }),
        }
    }

    /// Whether the sign-in page may offer to continue in this session: the user must choose, and this account is allowed.
    pub fn may_continue_in(&self, session: &Session, now: Timestamp) -> bool {
        match self {
            Self::Code { request, client } => {
                request.requires_choice(client)
                    && self.accepts(&session.factor)
                    && request.may_be(session.user)
                    && !request.requires_sign_in(session, now)
            }
            Self::Account(_) | Self::Device { .. } => false,
        }
    }

    /// The greatest age of the sign-in, in seconds.
    pub fn max_age(&self) -> Option<u64> {
        match self {
            Self::Code { request, .. } => request.max_age,
            Self::Device { client, .. } => client.default_max_age,
            Self::Account(_) => None,
        }
    }

    /// The name that the form is prefilled with.
    pub fn login_hint(&self) -> Option<&str> {
        match self {
            Self::Code { request, .. } => request.login_hint.as_deref(),
            Self::Account(account) => account.reauthenticate.as_deref(),
            Self::Device { .. } => None,
        }
    }

    /// The languages that the client requested for the pages.
    pub fn ui_locales(&self) -> Option<&str> {
        match self {
            Self::Code { request, .. } => request.ui_locales.as_deref(),
            Self::Account(_) | Self::Device { .. } => None,
        }
    }

    /// Decides the next step. It is called again after every page.
    pub fn next_step(
        &self,
        signed_in: Option<SignedIn<'_>>,
        progress: LoginProgress,
        now: Timestamp,
    ) -> LoginStep {
        let signed_in = signed_in.filter(|signed_in| self.accepts(&signed_in.session.factor));
        match self {
            Self::Code { request, client } => next_step_to_code(request, client, signed_in, progress, now),
            Self::Account(account) => match signed_in {
                Some(signed_in)
                    if account.reauthenticate.is_none() || progress.is_settled_in(signed_in.id) =>
                {
                    LoginStep::OpenAccount(account.clone())
                }
                Some(_) | None => LoginStep::SignIn,
            },
            Self::Device { client, .. } => match signed_in {
                Some(signed_in)
                    if !progress.is_settled_in(signed_in.id)
                        && self.requires_reauthentication(Some(signed_in.session), now) =>
                {
                    LoginStep::SignIn
                }
                Some(signed_in) if !signed_in.is_let_in => LoginStep::NoAccess,
                Some(signed_in) if signed_in.session.level() >= client.acr => LoginStep::DecideDevice,
                Some(signed_in) if signed_in.has_second_factor => LoginStep::SecondStep,
                Some(_) | None => LoginStep::SignIn,
            },
        }
    }
}

/// A sign-in in progress, bound to the browser in which it began. The browser keeps it, sealed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoginTransaction {
    /// Its time-ordered id, which says when it began.
    pub id: Uuid,
    /// The digest of the cookie of the browser it belongs to.
    pub browser: Digest<BrowserCookie>,
    pub purpose: LoginPurpose,
}

/// What is stored of a sign-in, by the id of its transaction, once a user has authenticated in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginRecord {
    /// What the user has done since the request.
    pub progress: LoginProgress,
    /// When it was first answered since the last sign-in. The user may submit a form twice, and the browser shows the
    /// second response.
    pub answered_at: Option<Timestamp>,
    /// The refusal that was sent to the client. It stays the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// The access token of the provider at which the user signed in for this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_token: Option<UpstreamToken>,
    /// The account that the anonymous user of the request became or was linked to. Another account gets no code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgraded_to: Option<Uuid>,
}

/// The parts of an authorization request to a provider that the response must match (OpenID Connect Core 3.1.2.1, RFC
/// 7636). The browser keeps them, sealed.
#[derive(Clone, Serialize, Deserialize)]
pub struct UpstreamSignIn {
    pub provider: String,
    /// Its issuer. While the user signs in there, the operator may replace the provider under this id. The new provider
    /// must not get the code (RFC 9700 section 4.4).
    pub issuer: String,
    /// The digest of `state`.
    pub state: Digest<UpstreamState>,
    /// `nonce`.
    pub nonce: String,
    /// `code_verifier`.
    pub code_verifier: Zeroizing<String>,
    /// When the request was sent.
    pub asked_at: Timestamp,
    /// When the user was asked to authenticate again, if that was required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof_asked_at: Option<Timestamp>,
}

impl UpstreamSignIn {
    /// The context that the question of a login transaction is sealed with.
    pub fn sealing_context(transaction: Uuid) -> String {
        format!("login_transaction/{transaction}/upstream_sign_in")
    }
}

/// What the user has done since the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginProgress {
    /// The session in which the user signed in, chose to continue, or consented.
    pub settled_session: Option<Uuid>,
    /// Whether the user has consented in that session. The consent counts in no other session.
    pub consented: bool,
    /// Whether a passkey was offered after the sign-in that began that session.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub offers_passkey: bool,
}

impl LoginProgress {
    /// Whether the user has settled on this session.
    pub fn is_settled_in(self, session: Uuid) -> bool {
        self.settled_session == Some(session)
    }

    /// The progress once the user has settled on this session.
    #[must_use]
    pub fn settled_in(self, session: Uuid) -> Self {
        let settled_session = Some(session);
        let is_same = self.settled_session == settled_session;
        Self {
            settled_session,
            consented: self.consented && is_same,
            offers_passkey: self.offers_passkey && is_same,
        }
    }
}

impl LoginRecord {
    /// How long an answered sign-in repeats its response.
    const REPEATABLE: Duration = Duration::from_secs(10);

    /// Whether the sign-in continues: until it is answered, and for [`Self::REPEATABLE`] longer.
    pub fn is_in_progress(&self, now: Timestamp) -> bool {
        self.answered_at.is_none_or(|at| now < at + Self::REPEATABLE)
    }

    /// Sets the progress. The provider's token is for the session of its own sign-in.
    pub fn advance(&mut self, progress: LoginProgress) {
        if progress.settled_session != self.progress.settled_session {
            self.upstream_token = None;
        }
        self.progress = progress;
    }

    /// Allows a new response after a new sign-in, unless the client was sent a refusal.
    pub fn reopen(&mut self) {
        if self.refusal.is_none() {
            self.answered_at = None;
        }
    }

    /// Records that the anonymous user became this account. Returns whether that is new.
    pub fn note_account(&mut self, anonymous: Option<AnonymousProof>, account: Uuid) -> bool {
        let became = anonymous.is_some_and(|proof| proof.user == account) && self.upgraded_to.is_none();
        if became {
            self.upgraded_to = Some(account);
        }
        became
    }

    /// Records which account a code is issued to, if the request has an anonymous user.
    pub fn note_code(&mut self, step: &LoginStep) {
        if let LoginStep::IssueCode(grant) = step
            && grant.anonymous.is_some()
        {
            self.upgraded_to = Some(grant.authorization.user);
        }
    }

    /// Records the refusal of the client's request. The first refusal is kept and returned.
    pub fn refuse(&mut self, refusal: Refusal, now: Timestamp) -> Refusal {
        self.reopen();
        self.answered_at.get_or_insert(now);
        self.refusal.get_or_insert(refusal).clone()
    }
}

/// A signed-in user, for the decision about the next step.
#[derive(Clone, Copy, Debug)]
pub struct SignedIn<'a> {
    /// The session's id.
    pub id: Uuid,
    /// The session, which is live.
    pub session: &'a Session,
    /// Whether the user may use the client.
    pub is_let_in: bool,
    /// Whether the user can sign in with two factors. It is only looked up if the session has too low a level.
    pub has_second_factor: bool,
    /// The consent that the user has given the client.
    pub consent: Option<&'a Consent>,
}

/// The contents of a code.
#[derive(Clone, Debug)]
pub struct CodeGrant {
    pub authorization: Authorization,
    /// Where the code is sent.
    pub target: ResponseTarget,
    /// `nonce` of the request.
    pub nonce: Option<String>,
    /// `code_challenge` of the request.
    pub code_challenge: Option<CodeChallenge>,
    /// The anonymous user of the request.
    pub anonymous: Option<AnonymousProof>,
}

/// The next step of a sign-in.
#[derive(Clone, Debug)]
pub enum LoginStep {
    /// The user signs in, or chooses an account.
    SignIn,
    /// The user, who is signed in, answers a second step.
    SecondStep,
    /// The user, who is signed in, may not use the client, and is told so. The client gets no answer: another user may sign
    /// in.
    NoAccess,
    /// The user is asked for consent.
    AskConsent,
    /// The client gets a code.
    IssueCode(Box<CodeGrant>),
    /// The client is sent a refusal.
    Refuse(Box<RefusedRequest>),
    /// The account page opens.
    OpenAccount(AccountLogin),
    /// The user decides about a device.
    DecideDevice,
}
