//! The login transaction: what the steps of a sign-in share, from the request to its answer.
//!
//! A request either gets its code at once, or becomes a login transaction that the pages continue. Each page ends by
//! taking the next step. The step that answers the request also ends the transaction. For a moment after that, the
//! transaction can be answered once more.
//!
//! The answer to a sign-in sets the cookie of the session. If the session is alive but the browser has no cookie, the
//! answer was lost. Then a new sign-in in the same transaction gets another answer.

use std::sync::Arc;

use uuid::Uuid;

use super::session;
use super::session::LiveSession;
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::{Core, Failure};
use crate::identity::SessionLifetimes;
use crate::oauth::authorize::{AuthorizationResponse, RefusedRequest, ResponseTarget};
use crate::oauth::code::AuthorizationCode;
use crate::oauth::login::{
    CodeGrant, LoginProgress, LoginPurpose, LoginStep, LoginTransaction, ResolvedPurpose, SignedIn,
};
use crate::secret::{AuthorizationCode as CodeSecret, BrowserCookie, Digest, Secret, SessionCookie};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{CLIENTS, CODES, CONSENTS, LOGIN_TRANSACTIONS, SESSIONS};

/// Where the browser goes next.
#[derive(Debug)]
pub enum Destination {
    /// To the client, with the answer.
    Respond(AuthorizationResponse),
    /// To the sign-in page.
    SignIn(Uuid),
    /// To the consent page.
    AskConsent(Uuid),
    /// To the account page.
    Account {
        /// Whether it says that an action was not done: see [`crate::oauth::login::AccountLogin::action_pending`].
        action_pending: bool,
    },
}

/// Where the browser goes next, and the cookies that it gets.
#[derive(Debug)]
pub struct BrowserRedirect {
    /// Where it goes.
    pub destination: Destination,
    /// A new binding, if the browser had none.
    pub binding: Option<Secret<BrowserCookie>>,
    /// A new session cookie, after a sign-in.
    pub session: Option<Secret<SessionCookie>>,
}

impl BrowserRedirect {
    /// A redirect that sets no cookies.
    pub(in crate::flow) fn to(destination: Destination) -> Self {
        Self {
            destination,
            binding: None,
            session: None,
        }
    }
}

/// Why a page cannot continue a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginTransactionError {
    /// It has ended, or is too old.
    #[error("this sign-in has expired; go back to the application and start again")]
    Expired,
    /// It was begun in another browser.
    #[error(
        "this sign-in was begun in another browser, or replaced by one in another tab; go back to the application and start again"
    )]
    OtherBrowser,
}

/// A login transaction, with what its pages need.
pub struct LoginContext {
    /// Its id.
    pub id: Uuid,
    /// What it is for.
    pub purpose: ResolvedPurpose,
    /// What has happened in it.
    pub progress: LoginProgress,
    /// Whether the client was sent a refusal.
    pub is_refused: bool,
    /// The live session of this browser.
    pub session: Option<LiveSession>,
    /// The next step.
    pub step: LoginStep,
    /// Whether a user may sign in in it. If not, only the user who is signed in can continue it.
    pub accepts_authentication: bool,
}

impl LoginContext {
    /// The session in which the sign-in page may offer to continue.
    pub fn offered_session(&self, now: Timestamp) -> Option<&LiveSession> {
        let session = self.session.as_ref();
        session.filter(|live| self.purpose.may_continue_in(&live.session, now))
    }
}

/// Whether a user may sign in in this transaction. They may until it is answered. They may again for a moment, if the
/// session of the first sign-in is alive.
///
/// If that session is alive but the browser has no cookie, the answer was lost, and there is no time limit. If the
/// session is over, a password form that is sent again from the browser's history is refused.
pub(in crate::flow) fn accepts_authentication(
    snapshot: &dyn Snapshot,
    transaction: &LoginTransaction,
    is_signed_in: bool,
    lifetimes: SessionLifetimes,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let Some(settled) = transaction.progress.settled_session else {
        return Ok(transaction.is_in_progress(now));
    };
    let session = SESSIONS.get(snapshot, &settled)?;
    let lives = session.is_some_and(|session| session.is_live(lifetimes, now));
    Ok(lives && (!is_signed_in || transaction.is_in_progress(now)))
}

/// Finds a transaction for a page of this browser.
pub fn load_login(
    core: &Core,
    browser: &Browser,
    id: Uuid,
    now: Timestamp,
) -> Result<Result<LoginContext, LoginTransactionError>, Failure> {
    let catalog = core.catalog();
    let lifetimes = core.policy.lifetimes.session;
    Ok(core.store.read(|snapshot| {
        let transaction = or_refuse!(open_transaction(snapshot, id, browser, now)?);
        let session = session::find(snapshot, browser.session.as_ref(), lifetimes, now)?;
        let accepts_authentication =
            accepts_authentication(snapshot, &transaction, session.is_some(), lifetimes, now)?;
        let can_continue = session.is_some() && transaction.is_in_progress(now);
        if !accepts_authentication && !can_continue {
            return Ok(Err(LoginTransactionError::Expired));
        }
        let LoginTransaction {
            purpose,
            progress,
            refused,
            ..
        } = transaction;
        let client = purpose.client_id().and_then(|id| catalog.client(id)).cloned();
        let Some(purpose) = purpose.resolve(client) else {
            return Ok(Err(LoginTransactionError::Expired));
        };
        let is_refused = refused.is_some();
        let step = match refused {
            Some(refused) => LoginStep::Refuse(Box::new(refused)),
            None => next_step(snapshot, &purpose, session.as_ref(), progress, now)?,
        };
        if !accepts_authentication && matches!(step, LoginStep::SignIn) {
            return Ok(Err(LoginTransactionError::Expired));
        }
        Ok(Ok(LoginContext {
            id,
            purpose,
            progress,
            is_refused,
            session,
            step,
            accepts_authentication,
        }))
    })?)
}

/// A new login transaction, bound to the browser. Also returns the binding cookie if the browser has none yet.
pub(in crate::flow) fn new_transaction(
    core: &Core,
    purpose: LoginPurpose,
    browser: &Browser,
    now: Timestamp,
) -> (LoginTransaction, Option<Secret<BrowserCookie>>) {
    let (digest, binding) = if let Some(digest) = browser.binding {
        (digest, None)
    } else {
        let binding = Secret::generate(&[], &core.random);
        (binding.digest(), Some(binding))
    };
    let transaction = LoginTransaction {
        browser: digest,
        purpose,
        expires_at: now + core.policy.lifetimes.login_transaction,
        progress: LoginProgress::default(),
        answered_at: None,
        refused: None,
        upstream: None,
    };
    (transaction, binding)
}

/// The transaction with this id, if it may be continued in this browser now.
pub(in crate::flow) fn open_transaction(
    snapshot: &dyn Snapshot,
    id: Uuid,
    browser: &Browser,
    now: Timestamp,
) -> Result<Result<LoginTransaction, LoginTransactionError>, StoreError> {
    let transaction = LOGIN_TRANSACTIONS.get(snapshot, &id)?;
    let is_open =
        |transaction: &LoginTransaction| transaction.is_open(now) && !Timestamp::of_id(id).is_ahead_of(now);
    let Some(transaction) = transaction.filter(is_open) else {
        return Ok(Err(LoginTransactionError::Expired));
    };
    if browser.binding != Some(transaction.browser) {
        return Ok(Err(LoginTransactionError::OtherBrowser));
    }
    Ok(Ok(transaction))
}

/// The purpose of a sign-in, with the client as it is now. The client may have been disabled, removed or changed
/// since the page was drawn.
pub(in crate::flow) fn resolve(
    snapshot: &dyn Snapshot,
    purpose: &LoginPurpose,
) -> Result<Option<ResolvedPurpose>, StoreError> {
    let client = match purpose.client_id() {
        Some(client_id) => CLIENTS.get(snapshot, client_id)?,
        None => None,
    };
    Ok(purpose.clone().resolve(client.map(Arc::new)))
}

/// Decides the next step, by the user's stored consent.
pub(in crate::flow) fn next_step(
    snapshot: &dyn Snapshot,
    purpose: &ResolvedPurpose,
    session: Option<&LiveSession>,
    progress: LoginProgress,
    now: Timestamp,
) -> Result<LoginStep, StoreError> {
    let consent = match (session, purpose.code_request()) {
        (Some(live), Some((_, client))) => {
            CONSENTS.get(snapshot, &(live.user.uuid, client.client_id.clone()))?
        }
        _ => None,
    };
    let signed_in = session.map(|live| SignedIn {
        id: live.id,
        session: &live.session,
        consent: consent.as_ref(),
    });
    Ok(purpose.next_step(signed_in, progress, now))
}

/// A code drawn before the transaction that may issue it.
pub(in crate::flow) struct DrawnCode {
    id: Uuid,
    secret: Secret<CodeSecret>,
    expires_at: Timestamp,
}

impl DrawnCode {
    pub(in crate::flow) fn draw(core: &Core, now: Timestamp) -> Self {
        let id = core.random.uuid_v7(core.clock.since_epoch());
        Self {
            id,
            secret: Secret::generate(id.as_bytes(), &core.random),
            expires_at: now + core.policy.lifetimes.code,
        }
    }

    pub(in crate::flow) fn slot(&self) -> CodeSlot {
        CodeSlot {
            id: self.id,
            digest: self.secret.digest(),
            expires_at: self.expires_at,
        }
    }
}

/// The part of a [`DrawnCode`] that a transaction needs.
#[derive(Clone, Copy)]
pub(in crate::flow) struct CodeSlot {
    id: Uuid,
    digest: Digest<CodeSecret>,
    expires_at: Timestamp,
}

/// The result of a step, inside the transaction.
pub(in crate::flow) enum StepResult {
    SignIn,
    AskConsent,
    Issued(ResponseTarget),
    Refused(Box<RefusedRequest>),
    OpenAccount { action_pending: bool },
}

impl StepResult {
    /// Where the browser goes.
    pub(in crate::flow) fn destination(self, id: Uuid, code: &DrawnCode, issuer: &str) -> Destination {
        match self {
            Self::SignIn => Destination::SignIn(id),
            Self::AskConsent => Destination::AskConsent(id),
            Self::Issued(target) => Destination::Respond(target.code(code.secret.reveal(), issuer)),
            Self::Refused(refused) => Destination::Respond(refused.response(issuer)),
            Self::OpenAccount { action_pending } => Destination::Account { action_pending },
        }
    }
}

/// Takes a step: issues the code, or records the refusal. After a refusal the client gets no other answer.
pub(in crate::flow) fn take_step(
    tx: &mut dyn Tx,
    step: LoginStep,
    id: Uuid,
    transaction: &mut LoginTransaction,
    slot: CodeSlot,
    now: Timestamp,
) -> Result<StepResult, StoreError> {
    let refused = transaction.refused.clone().map(Box::new);
    let result = match refused.map_or(step, LoginStep::Refuse) {
        LoginStep::SignIn => StepResult::SignIn,
        LoginStep::AskConsent => StepResult::AskConsent,
        LoginStep::OpenAccount { action_pending } => {
            transaction.answered_at.get_or_insert(now);
            StepResult::OpenAccount { action_pending }
        }
        LoginStep::IssueCode(grant) => {
            transaction.answered_at.get_or_insert(now);
            StepResult::Issued(issue(tx, *grant, slot)?)
        }
        LoginStep::Refuse(refused) => StepResult::Refused(Box::new(transaction.refuse(*refused, now))),
    };
    LOGIN_TRANSACTIONS.put(tx, &id, transaction)?;
    Ok(result)
}

/// Sends the client a refusal, even if the transaction has ended since the page was drawn.
pub(in crate::flow) async fn refuse(
    core: &Core,
    id: Uuid,
    refused: RefusedRequest,
    now: Timestamp,
) -> Result<Destination, Failure> {
    let refused = core
        .store
        .write("refuse_authorization", move |tx| {
            let Some(mut transaction) = LOGIN_TRANSACTIONS.get(&*tx, &id)? else {
                return Ok(refused.clone());
            };
            let refused = transaction.refuse(refused.clone(), now);
            LOGIN_TRANSACTIONS.put(tx, &id, &transaction)?;
            Ok(refused)
        })
        .await?;
    Ok(Destination::Respond(refused.response(&core.policy.issuer)))
}

/// Stores a code. Returns where it is sent.
pub(in crate::flow) fn issue(
    tx: &mut dyn Tx,
    grant: CodeGrant,
    slot: CodeSlot,
) -> Result<ResponseTarget, StoreError> {
    let code = AuthorizationCode {
        digest: slot.digest,
        authorization: grant.authorization,
        return_to: grant.target.return_to.clone(),
        nonce: grant.nonce,
        code_challenge: grant.code_challenge,
        expires_at: slot.expires_at,
        redeemed: None,
    };
    CODES.put(tx, &slot.id, &code)?;
    Ok(grant.target)
}

/// Continues a transaction without new input from the user: goes to the right page, or to the answer if there is
/// nothing left to ask.
pub async fn continue_login(
    core: &Core,
    browser: &Browser,
    login: LoginContext,
    now: Timestamp,
) -> Result<BrowserRedirect, Failure> {
    let (id, progress) = (login.id, login.progress);
    let expected = login.session.map(|live| live.id);
    let destination = advance_login(core, browser, id, expected, now, move |_, _| Ok(progress)).await?;
    Ok(BrowserRedirect::to(
        destination.unwrap_or(Destination::SignIn(id)),
    ))
}

/// Runs `advance` on the transaction, then takes the next step, all in one write.
///
/// `expected` is the session that the page was drawn for. If it is another one now, the user is asked to sign in.
pub(in crate::flow) async fn advance_login<F>(
    core: &Core,
    browser: &Browser,
    id: Uuid,
    expected: Option<Uuid>,
    now: Timestamp,
    advance: F,
) -> Result<Result<Destination, LoginTransactionError>, Failure>
where
    F: Fn(&mut dyn Tx, &LiveSession) -> Result<LoginProgress, StoreError> + Send + 'static,
{
    let code = DrawnCode::draw(core, now);
    let slot = code.slot();
    let lifetimes = core.policy.lifetimes.session;
    let browser = browser.clone();
    let result = core
        .store
        .write("carry_on_authorization", move |tx| {
            let mut transaction = or_refuse!(open_transaction(&*tx, id, &browser, now)?);
            if !transaction.is_in_progress(now) {
                return Ok(Err(LoginTransactionError::Expired));
            }
            let Some(purpose) = resolve(&*tx, &transaction.purpose)? else {
                return Ok(Err(LoginTransactionError::Expired));
            };
            let live = session::find(&*tx, browser.session.as_ref(), lifetimes, now)?
                .filter(|live| expected.is_none_or(|expected| expected == live.id));
            if let Some(live) = &live {
                if transaction.refused.is_none() {
                    transaction.progress = advance(tx, live)?;
                }
                session::touch(tx, live, lifetimes, now)?;
            }
            let step = next_step(&*tx, &purpose, live.as_ref(), transaction.progress, now)?;
            take_step(tx, step, id, &mut transaction, slot, now).map(Ok)
        })
        .await?;
    Ok(result.map(|result| result.destination(id, &code, &core.policy.issuer)))
}
