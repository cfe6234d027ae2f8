//! The login transaction: what the steps of a sign-in share, from the request to its answer.
//!
//! A request either gets its code at once, or becomes a login transaction that the pages continue. Each page ends by
//! taking the next step. The step that answers the request also ends the transaction. For a moment after that, the
//! transaction can be answered once more.
//!
//! The browser keeps the transaction, sealed, in the addresses and forms of the pages. The store has a [`LoginRecord`] of
//! it once a user has authenticated, so a request without a session writes nothing.
//!
//! The answer to a sign-in sets the cookie of the session. If the session is alive but the browser has no cookie, the
//! answer was lost. Then a new sign-in in the same transaction gets another answer.

use std::sync::Arc;

use url::Url;
use uuid::Uuid;

use super::destination::{BrowserRedirect, Destination};
use super::drawn_code::{CodeSlot, DrawnCode};
use super::expected_rows::will_find_session;
use super::given_consent::given_consent;
use super::pushed_use::{is_answered_elsewhere, record_answer};
use super::second_factor_rule::can_use_two_factors;
use super::session::LiveSession;
use super::step_result::{PlannedStep, StepResult};
use super::{anonymous_upgrade, sealed, session};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::client_lookup::{ClientLookup, find_client};
use crate::flow::token::issue::TokenIssuer;
use crate::flow::users::NameLookup;
use crate::flow::{Core, Failure, FlowError, unless_refused};
use crate::identity::{LoginName, SessionLifetimes, User};
use crate::oauth::authorize::{AuthorizationRequest, RefusedRequest};
use crate::oauth::code::AuthorizationCode;
use crate::oauth::login::{
    CodeGrant, LoginProgress, LoginPurpose, LoginRecord, LoginStep, LoginTransaction, ResolvedPurpose,
    SignedIn,
};
use crate::secret::{BrowserCookie, Secret};
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::LOGIN_RECORDS;
use crate::store::{StoreError, TxError};

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
    pub transaction: Arc<LoginTransaction>,
    pub sealed: String,
    pub purpose: ResolvedPurpose,
    /// Finds its client again, in a later transaction.
    pub client_lookup: ClientLookup,
    /// What has happened in it.
    pub progress: LoginProgress,
    /// Whether the client was sent a refusal.
    pub is_refused: bool,
    /// The live session of this browser.
    pub session: Option<LiveSession>,
    /// The user with the login name that the form has.
    pub user_with_name: Option<User>,
    /// The next step.
    pub step: LoginStep,
    /// Whether a user may sign in in it. If not, only the user who is signed in can continue it.
    pub accepts_authentication: bool,
}

/// A sign-in, and the browser that continues it now.
#[derive(Clone, Copy)]
pub struct BrowserLogin<'a> {
    /// The service.
    pub core: &'a Core,
    pub browser: &'a Browser,
    /// The sign-in, as it was when the request began.
    pub login: &'a LoginContext,
    /// The time of the request.
    pub now: Timestamp,
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
    record: &LoginRecord,
    is_signed_in: bool,
    lifetimes: SessionLifetimes,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let is_in_progress = record.is_in_progress(now);
    let Some(settled) = record.progress.settled_session else {
        return Ok(is_in_progress);
    };
    let session = session::find_unended(snapshot, settled)?;
    let lives = session.is_some_and(|session| session.is_live(lifetimes, now));
    let may_sign_in_again = !is_signed_in && record.refusal.is_none();
    Ok(lives && (may_sign_in_again || is_in_progress))
}

/// Opens a transaction for a page of this browser. Also reads the user with this `name`. `admit` is called with the address
/// of the client's metadata document before that is fetched.
pub async fn load_login(
    core: &Core,
    browser: &Browser,
    sealed: &str,
    name: Option<&LoginName>,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<LoginContext, FlowError<LoginTransactionError>> {
    let transaction = open_transaction(core, browser, sealed, now)?;
    let (client_lookup, client) = match transaction.purpose.client_id() {
        Some(client_id) => {
            let found = unless_refused(find_client(core, client_id, admit, now).await)?;
            let found = found.ok_or(LoginTransactionError::Expired)?;
            let client = found.client(client_id);
            (found, client)
        }
        None => (ClientLookup::registered(core), None),
    };
    let Some(purpose) = transaction.purpose.clone().resolve(client) else {
        return Err(LoginTransactionError::Expired.into());
    };
    let lifetimes = core.policy.lifetimes.session;
    let issuer = TokenIssuer::new(core);
    let lookup = name.map(|name| NameLookup::new(core, name));
    let read = |snapshot: &dyn Snapshot| -> Result<_, TxError<LoginTransactionError>> {
        let user_with_name = match lookup {
            Some(lookup) => lookup.find(core, snapshot)?,
            None => None,
        };
        will_find_session(
            snapshot,
            browser.session.as_ref(),
            transaction.purpose.client_id(),
        );
        let record = find_record(snapshot, transaction.id)?;
        if is_answered_elsewhere(snapshot, &transaction.purpose, &record)? {
            return Err(LoginTransactionError::Expired.into());
        }
        let session = session::find(snapshot, browser.session.as_ref(), lifetimes, now)?;
        let accepts_authentication =
            accepts_authentication(snapshot, &record, session.is_some(), lifetimes, now)?;
        let can_continue = session.is_some() && record.is_in_progress(now);
        if !accepts_authentication && !can_continue {
            return Err(LoginTransactionError::Expired.into());
        }
        let step = next_step(snapshot, &purpose, session.as_ref(), &record, &issuer, now)?;
        if !accepts_authentication && matches!(step, LoginStep::SignIn | LoginStep::SecondStep) {
            return Err(LoginTransactionError::Expired.into());
        }
        Ok((record, session, user_with_name, step, accepts_authentication))
    };
    let (record, session, user_with_name, step, accepts_authentication) = core.store.read(read).await?;
    Ok(LoginContext {
        transaction: Arc::new(transaction),
        sealed: sealed.to_owned(),
        purpose,
        client_lookup,
        progress: record.progress,
        is_refused: record.refusal.is_some(),
        session,
        user_with_name,
        step,
        accepts_authentication,
    })
}

const SEALING_CONTEXT: &str = "login_transaction";

/// Seals a new transaction, bound to the browser. Also returns the binding cookie if the browser has none yet.
pub(in crate::flow) fn begin_transaction(
    core: &Core,
    purpose: LoginPurpose,
    browser: &Browser,
    now: Timestamp,
) -> Result<(String, Option<Secret<BrowserCookie>>), StoreError> {
    let (digest, binding) = if let Some(digest) = browser.binding {
        (digest, None)
    } else {
        let binding = Secret::generate(&[], &core.random);
        (binding.digest(), Some(binding))
    };
    let transaction = LoginTransaction {
        id: core.random.uuid_v7(core.clock.since_epoch()),
        browser: digest,
        purpose,
    };
    Ok((sealed::seal(core, SEALING_CONTEXT, &transaction, now)?, binding))
}

/// Opens a transaction, if it may be continued in this browser now.
fn open_transaction(
    core: &Core,
    browser: &Browser,
    sealed: &str,
    now: Timestamp,
) -> Result<LoginTransaction, LoginTransactionError> {
    let transaction: Option<LoginTransaction> = sealed::open(core, SEALING_CONTEXT, sealed);
    let lifetime = core.policy.lifetimes.login_transaction;
    let transaction = transaction.filter(|transaction| {
        let begun_at = Timestamp::of_id(transaction.id);
        now < begun_at + lifetime && !begun_at.is_ahead_of(now)
    });
    let transaction = transaction.ok_or(LoginTransactionError::Expired)?;
    if browser.binding != Some(transaction.browser) {
        return Err(LoginTransactionError::OtherBrowser);
    }
    Ok(transaction)
}

/// The authorization request of a sealed sign-in that may be over or belong to another browser. It only serves to show
/// the way back to the application.
pub fn request_of(core: &Core, sealed: &str) -> Option<AuthorizationRequest> {
    let transaction: LoginTransaction = sealed::open(core, SEALING_CONTEXT, sealed)?;
    match transaction.purpose {
        LoginPurpose::Code(request) => Some(*request),
        LoginPurpose::Account(_) | LoginPurpose::Device(_) => None,
    }
}

/// What is stored of a sign-in. Nothing until a user has authenticated in it.
pub(in crate::flow) fn find_record(snapshot: &dyn Snapshot, id: Uuid) -> Result<LoginRecord, StoreError> {
    Ok(LOGIN_RECORDS.get(snapshot, &id)?.unwrap_or_default())
}

/// The purpose of a sign-in, with the client as it is now. The client may have been disabled, removed or changed
/// since the page was drawn.
pub(in crate::flow) fn resolve(
    snapshot: &dyn Snapshot,
    purpose: &LoginPurpose,
    client_lookup: &ClientLookup,
) -> Result<Option<ResolvedPurpose>, StoreError> {
    let client = match purpose.client_id() {
        Some(client_id) => client_lookup.current(snapshot, client_id)?,
        None => None,
    };
    Ok(purpose.clone().resolve(client))
}

/// Decides the next step, by the user's stored consent. After a refusal the client gets no other answer.
pub(in crate::flow) fn next_step(
    snapshot: &dyn Snapshot,
    purpose: &ResolvedPurpose,
    session: Option<&LiveSession>,
    record: &LoginRecord,
    issuer: &TokenIssuer,
    now: Timestamp,
) -> Result<LoginStep, StoreError> {
    if let (Some(refusal), Some(request)) = (&record.refusal, purpose.code_request()) {
        return Ok(LoginStep::Refuse(Box::new(RefusedRequest {
            target: request.target.clone(),
            refusal: refusal.clone(),
        })));
    }
    let consent = match (session, purpose) {
        (Some(live), ResolvedPurpose::Code { client, .. }) => given_consent(snapshot, live, client)?,
        _ => None,
    };
    let lacks_level = |live: &&LiveSession| live.session.level() < purpose.required_level();
    let has_second_factor = match session.filter(lacks_level) {
        Some(live) => can_use_two_factors(snapshot, &live.user, purpose.accepts_passkeys())?,
        None => false,
    };
    let client = purpose.client();
    let signed_in = session.map(|live| SignedIn {
        id: live.id,
        session: &live.session,
        is_let_in: client.is_none_or(|client| issuer.lets_in(client, &live.user)),
        has_second_factor,
        consent: consent.as_ref(),
    });
    let mut step = purpose.next_step(signed_in, record.progress, now);
    if let (LoginStep::IssueCode(grant), Some(live), ResolvedPurpose::Code { client, .. }) =
        (&mut step, session, purpose)
    {
        let token = record.upstream_token.clone();
        grant.authorization.upstream_token = token.filter(|token| token.is_current(now)).map(Box::new);
        if let Err(refusal) = issuer.check_code(client, &live.user, grant, now) {
            step = LoginStep::Refuse(Box::new(RefusedRequest {
                target: grant.target.clone(),
                refusal,
            }));
        }
    }
    anonymous_upgrade::checked(snapshot, purpose, record, step, now)
}

/// Takes a step of a user who is signed in: issues the code, or records the refusal.
pub(in crate::flow) fn take_step(
    tx: &mut dyn Tx,
    step: LoginStep,
    transaction: &LoginTransaction,
    mut record: LoginRecord,
    slot: CodeSlot,
    client_lookup: &ClientLookup,
    now: Timestamp,
) -> Result<StepResult, StoreError> {
    if matches!(step, LoginStep::OpenAccount(_) | LoginStep::IssueCode(_)) {
        record.answered_at.get_or_insert(now);
    }
    record.note_code(&step);
    let result = match PlannedStep::of(step) {
        PlannedStep::IssueCode(grant) => issue(tx, *grant, slot, client_lookup, now)?,
        PlannedStep::Result(StepResult::Refused(mut refused)) => {
            refused.refusal = record.refuse(refused.refusal, now);
            StepResult::Refused(refused)
        }
        PlannedStep::Result(result) => result,
    };
    if record.answered_at.is_some() {
        record_answer(tx, &transaction.purpose)?;
    }
    LOGIN_RECORDS.put(tx, &transaction.id, &record)?;
    Ok(result)
}

/// Sends the client a refusal, even if the transaction has ended since the page was drawn. It is recorded if a user is
/// signed in. Otherwise the browser can continue the sign-in, which is the same as to begin it again.
pub(in crate::flow) async fn refuse(
    core: &Core,
    login: &LoginContext,
    mut refused: RefusedRequest,
    now: Timestamp,
) -> Result<Destination, Failure> {
    if login.session.is_some() {
        let (transaction, refusal) = (Arc::clone(&login.transaction), refused.refusal);
        refused.refusal = core
            .store
            .write("refuse_authorization", move |tx| -> Result<_, StoreError> {
                let mut record = find_record(&*tx, transaction.id)?;
                let refusal = record.refuse(refusal.clone(), now);
                record_answer(tx, &transaction.purpose)?;
                LOGIN_RECORDS.put(tx, &transaction.id, &record)?;
                Ok(refusal)
            })
            .await?;
    }
    Ok(Destination::Respond(refused.response(&core.policy.issuer)))
}

/// Stores a code, and the client unless its record is up to date. Links the anonymous user of the request.
pub(in crate::flow) fn issue(
    tx: &mut dyn Tx,
    grant: CodeGrant,
    slot: CodeSlot,
    client_lookup: &ClientLookup,
    now: Timestamp,
) -> Result<StepResult, StoreError> {
    client_lookup.store(tx, grant.authorization.user, now)?;
    let linked = anonymous_upgrade::link(tx, &grant, now)?;
    let code = AuthorizationCode {
        digest: slot.digest,
        authorization: grant.authorization,
        return_to: grant.target.return_to.clone(),
        nonce: grant.nonce,
        code_challenge: grant.code_challenge,
        expires_at: slot.expires_at,
        redeemed: None,
        anonymous: grant.anonymous.map(|proof| proof.user),
    };
    session::put_code(tx, slot.id, &code)?;
    Ok(StepResult::Issued(grant.target, linked))
}

/// Continues a transaction without new input from the user: goes to the right page, or to the answer if there is
/// nothing left to ask.
pub async fn continue_login(at: BrowserLogin<'_>) -> Result<BrowserRedirect, Failure> {
    let BrowserLogin { core, login, .. } = at;
    let progress = login.progress;
    let destination = match (&login.step, &login.session) {
        (_, Some(_)) => {
            let advanced = advance_login(at, move |_, _| Ok(progress)).await;
            unless_refused(advanced)?.unwrap_or_else(|| Destination::SignIn(login.sealed.clone()))
        }
        (LoginStep::Refuse(refused), None) => Destination::Respond(refused.response(&core.policy.issuer)),
        (_, None) => Destination::SignIn(login.sealed.clone()),
    };
    Ok(BrowserRedirect::to(destination))
}

/// Runs `advance` on the transaction, then takes the next step, all in one write.
///
/// If the browser's session is another one than when the page was drawn, the user is asked to sign in.
pub(in crate::flow) async fn advance_login<F>(
    at: BrowserLogin<'_>,
    advance: F,
) -> Result<Destination, FlowError<LoginTransactionError>>
where
    F: Fn(&mut dyn Tx, &LiveSession) -> Result<LoginProgress, StoreError> + Send + 'static,
{
    let BrowserLogin {
        core,
        browser,
        login,
        now,
    } = at;
    let code = DrawnCode::draw(core, now);
    let slot = code.slot();
    let lifetimes = core.policy.lifetimes.session;
    let presented = browser.session.clone();
    let transaction = Arc::clone(&login.transaction);
    let client_lookup = login.client_lookup.clone();
    let expected = login.session.as_ref().map(|live| live.id);
    let issuer = TokenIssuer::new(core);
    let result = core
        .store
        .write(
            "carry_on_authorization",
            move |tx| -> Result<_, TxError<LoginTransactionError>> {
                will_find_session(&*tx, presented.as_ref(), transaction.purpose.client_id());
                let mut record = find_record(&*tx, transaction.id)?;
                if !record.is_in_progress(now) || is_answered_elsewhere(&*tx, &transaction.purpose, &record)?
                {
                    return Err(LoginTransactionError::Expired.into());
                }
                let Some(purpose) = resolve(&*tx, &transaction.purpose, &client_lookup)? else {
                    return Err(LoginTransactionError::Expired.into());
                };
                let live = session::find(&*tx, presented.as_ref(), lifetimes, now)?;
                let Some(live) = live.filter(|live| Some(live.id) == expected) else {
                    return Ok(StepResult::SignIn);
                };
                if record.refusal.is_none() {
                    let progress = advance(tx, &live)?;
                    record.advance(progress);
                }
                session::touch(tx, &live, lifetimes, now)?;
                let step = next_step(&*tx, &purpose, Some(&live), &record, &issuer, now)?;
                Ok(take_step(
                    tx,
                    step,
                    &transaction,
                    record,
                    slot,
                    &client_lookup,
                    now,
                )?)
            },
        )
        .await;
    let published = login.client_lookup.publish(core).await;
    let result = result?;
    published?;
    anonymous_upgrade::record(result.linked());
    Ok(result.destination(login.sealed.clone(), &code, &core.policy.issuer))
}
