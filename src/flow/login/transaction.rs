//! The way from an authorization request to its answer, as far as its steps share it.
//!
//! A request either gets its code at once, or becomes a login transaction that the pages carry on. Each
//! page ends by taking the next step; the step that answers the client also ends the transaction, but for a moment in which
//! it answers once more. The answer to a sign-in brings the session's cookie: where nobody is signed in, and the session
//! lives, it never arrived, and whoever proves anew who they are gets another.

use std::sync::Arc;

use uuid::Uuid;

use super::session;
use super::session::{LiveSession, PresentedSession};
use crate::clock::Timestamp;
use crate::flow::{Answer, Core, Failure};
use crate::identity::{Device, SessionLifetimes};
use crate::oauth::authorize::{
    AuthorizationRequest, AuthorizationResponse, LoginTransaction, Progress, SignedIn, Step, next_step,
};
use crate::oauth::client::Client;
use crate::oauth::code::{Authorization, AuthorizationCode};
use crate::oauth::error::Refusal;
use crate::oauth::policy::Policy;
use crate::secret::{AuthorizationCode as CodeSecret, BrowserCookie, Digest, Secret, SessionCookie};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{CLIENTS, CODES, CONSENTS, LOGIN_TRANSACTIONS, SESSIONS};

/// What a browser carries, the cookies of this service, and what it is.
#[derive(Clone, Debug, Default)]
pub struct Browser {
    /// The session it is signed in to.
    pub session: Option<PresentedSession>,
    /// What binds sign-ins under way to it.
    pub binding: Option<Digest<BrowserCookie>>,
    /// What a session remembers of it.
    pub device: Device,
}

impl Browser {
    /// Reads the cookies' values; what has not the right form counts as missing.
    pub fn of(session: Option<&str>, binding: Option<&str>, device: Device) -> Self {
        Self {
            device,
            session: session.and_then(PresentedSession::parse),
            binding: binding
                .and_then(|text| Secret::<BrowserCookie>::parse(text).ok())
                .map(|secret| secret.digest()),
        }
    }
}

/// Where the browser goes next.
#[derive(Debug)]
pub enum Next {
    /// To the client, with the answer.
    Respond(AuthorizationResponse),
    /// To the sign-in page.
    SignIn(Uuid),
    /// To the consent page.
    AskConsent(Uuid),
    /// To the account page.
    Account {
        /// Whether something was asked for there that was not done: see [`crate::oauth::own_page::request`].
        deed_waits: bool,
    },
}

/// Where the browser goes next, and the cookies it is given on the way.
#[derive(Debug)]
pub struct Onward {
    /// Where.
    pub next: Next,
    /// A new binding, when the browser had none.
    pub binding: Option<Secret<BrowserCookie>>,
    /// A new session cookie, after a sign-in.
    pub session: Option<Secret<SessionCookie>>,
}

impl Onward {
    /// There, with the cookies it has.
    pub(in crate::flow) fn to(next: Next) -> Self {
        Self {
            next,
            binding: None,
            session: None,
        }
    }
}

/// Why a page cannot go on with a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// It is over: used up, or too old.
    #[error("this sign-in has expired; go back to the application and start again")]
    Expired,
    /// It was begun in another browser.
    #[error(
        "this sign-in was begun in another browser, or replaced by one in another tab; go back to the application and start again"
    )]
    OtherBrowser,
}

/// A login transaction with what its pages need to know.
pub struct Underway {
    /// Its id.
    pub id: Uuid,
    /// The transaction.
    pub transaction: LoginTransaction,
    /// The client that asks.
    pub client: Arc<Client>,
    /// Who is signed in in this browser.
    pub session: Option<LiveSession>,
    /// What comes next.
    pub step: Step,
    /// Whether somebody may yet prove in it who they are. Where not, it only goes on for whoever is signed in.
    pub takes_proof: bool,
}

/// Whether whoever proves in a sign-in who they are is signed in by it: until it is answered and for a moment longer, and
/// then only where the answer was lost. Where somebody has proven who they are, a browser in which nobody is signed in has
/// lost the answer while their session lives; else it is over, by signing out or by itself, and a password that is sent
/// again out of the history signs nobody in, whoever has come meanwhile.
pub(in crate::flow) fn takes_proof(
    snapshot: &dyn Snapshot,
    transaction: &LoginTransaction,
    is_signed_in: bool,
    lifetimes: SessionLifetimes,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let Some(settled) = transaction.settled_session else {
        return Ok(transaction.goes_on(now));
    };
    let session = SESSIONS.get(snapshot, &settled)?;
    let lives = session.is_some_and(|session| session.is_live(lifetimes, now));
    Ok(lives && (!is_signed_in || transaction.goes_on(now)))
}

/// Finds a transaction for a page of this browser.
pub fn underway(
    core: &Core,
    browser: &Browser,
    id: Uuid,
    now: Timestamp,
) -> Result<Result<Underway, Stale>, Failure> {
    let catalog = core.catalog();
    let found = core.store.read(|snapshot| {
        let Some(transaction) = LOGIN_TRANSACTIONS.get(snapshot, &id)? else {
            return Ok(None);
        };
        let lifetimes = core.policy.lifetimes.session;
        let session = session::find(snapshot, browser.session.as_ref(), lifetimes, now)?;
        let takes_proof = takes_proof(snapshot, &transaction, session.is_some(), lifetimes, now)?;
        Ok(Some((transaction, session, takes_proof)))
    })?;
    let Some((transaction, session, takes_proof)) = found else {
        return Ok(Err(Stale::Expired));
    };
    if let Err(stale) = check((id, &transaction), browser, now) {
        return Ok(Err(stale));
    }
    let is_carried_on = session.is_some() && transaction.goes_on(now);
    if !takes_proof && !is_carried_on {
        return Ok(Err(Stale::Expired));
    }
    let client = if transaction.request.is_for_own_page() {
        Some(catalog.own_page())
    } else {
        catalog.client(&transaction.request.client_id)
    };
    let Some(client) = client.filter(|client| may_answer(client, &transaction.request)) else {
        return Ok(Err(Stale::Expired));
    };
    let step = match &transaction.refused {
        Some(refusal) => Step::Refuse(refusal.clone()),
        None => core.store.read(|snapshot| {
            step(
                snapshot,
                &transaction.request,
                client,
                session.as_ref(),
                transaction.progress(),
                now,
            )
        })?,
    };
    if !takes_proof && matches!(step, Step::SignIn) {
        return Ok(Err(Stale::Expired));
    }
    Ok(Ok(Underway {
        id,
        client: Arc::clone(client),
        transaction,
        session,
        step,
        takes_proof,
    }))
}

/// A sign-in under way, bound to the browser, and the binding when the browser has none yet.
pub(in crate::flow) fn new_transaction(
    core: &Core,
    request: AuthorizationRequest,
    browser: &Browser,
    now: Timestamp,
) -> (LoginTransaction, Option<Secret<BrowserCookie>>) {
    let (digest, binding) = if let Some(digest) = browser.binding {
        (digest, None)
    } else {
        let binding = Secret::mint(&[], &core.random);
        (binding.digest(), Some(binding))
    };
    let transaction = LoginTransaction {
        browser: digest,
        request,
        expires_at: now + core.policy.lifetimes.login_transaction,
        settled_session: None,
        consented: false,
        answered_at: None,
        refused: None,
        upstream: None,
    };
    (transaction, binding)
}

/// Whether a transaction may be carried on in this browser now.
pub(in crate::flow) fn check(
    (id, transaction): (Uuid, &LoginTransaction),
    browser: &Browser,
    now: Timestamp,
) -> Result<(), Stale> {
    if !transaction.is_open(now) || Timestamp::of_id(id).is_ahead_of(now) {
        return Err(Stale::Expired);
    }
    if browser.binding != Some(transaction.browser) {
        return Err(Stale::OtherBrowser);
    }
    Ok(())
}

/// Whether the answer to a request may still go to its client, which may have changed since. Where by now it has to use
/// PKCE, a code without a challenge would be anybody's.
fn may_answer(client: &Client, request: &AuthorizationRequest) -> bool {
    client.enabled
        && client.return_to(Some(request.reply.return_to.uri())).is_ok()
        && (request.code_challenge.is_some() || !client.requires_pkce())
}

/// The client of a sign-in as the transaction that may answer it finds it: a password and a provider take their time,
/// and meanwhile it may have been disabled, or removed, or the address taken away that the answer would go to.
pub(in crate::flow) fn client_of(
    snapshot: &dyn Snapshot,
    request: &AuthorizationRequest,
    own_page: &Client,
) -> Result<Option<Client>, StoreError> {
    let client = if request.is_for_own_page() {
        Some(own_page.clone())
    } else {
        CLIENTS.get(snapshot, &request.client_id)?
    };
    Ok(client.filter(|client| may_answer(client, request)))
}

/// Decides the next step with what the store knows of the user's consent.
pub(in crate::flow) fn step(
    snapshot: &dyn Snapshot,
    request: &AuthorizationRequest,
    client: &Client,
    session: Option<&LiveSession>,
    progress: Progress,
    now: Timestamp,
) -> Result<Step, StoreError> {
    let consent = match session {
        Some(live) => CONSENTS.get(snapshot, &(live.user.uuid, client.client_id.clone()))?,
        None => None,
    };
    let signed_in = session.map(|live| SignedIn {
        id: live.id,
        session: &live.session,
        consent: consent.as_ref(),
    });
    Ok(next_step(request, client, signed_in, progress, now))
}

/// A code drawn before the transaction that may issue it.
pub(in crate::flow) struct DrawnCode {
    id: Uuid,
    secret: Secret<CodeSecret>,
}

impl DrawnCode {
    pub(in crate::flow) fn draw(core: &Core) -> Self {
        let id = core.random.uuid_v7(core.clock.since_epoch());
        Self {
            id,
            secret: Secret::mint(id.as_bytes(), &core.random),
        }
    }

    pub(in crate::flow) fn slot(&self) -> CodeSlot {
        CodeSlot {
            id: self.id,
            digest: self.secret.digest(),
        }
    }
}

/// What a transaction needs of a drawn code.
#[derive(Clone, Copy)]
pub(in crate::flow) struct CodeSlot {
    id: Uuid,
    digest: Digest<CodeSecret>,
}

/// Where a step led, inside the transaction.
pub(in crate::flow) enum Taken {
    SignIn,
    AskConsent,
    Issued,
    Arrived,
    Refused(Refusal),
}

/// Takes a step: issues the code, or keeps the no. A client that was told no hears nothing else.
pub(in crate::flow) fn take(
    tx: &mut dyn Tx,
    step: Step,
    under: (Uuid, &mut LoginTransaction),
    slot: CodeSlot,
    policy: &Policy,
    now: Timestamp,
) -> Result<Taken, StoreError> {
    let (id, transaction) = under;
    let step = transaction.refused.clone().map_or(step, Step::Refuse);
    let taken = match step {
        Step::SignIn => Taken::SignIn,
        Step::AskConsent => Taken::AskConsent,
        Step::Issue(_) if transaction.request.is_for_own_page() => {
            transaction.answered_at.get_or_insert(now);
            Taken::Arrived
        }
        Step::Issue(authorization) => {
            issue(tx, &transaction.request, authorization, slot, policy, now)?;
            transaction.answered_at.get_or_insert(now);
            Taken::Issued
        }
        Step::Refuse(refusal) => Taken::Refused(transaction.refuse(refusal, now)),
    };
    LOGIN_TRANSACTIONS.put(tx, &id, transaction)?;
    Ok(taken)
}

/// Tells the client no, whatever has happened meanwhile.
pub(in crate::flow) async fn refuse(
    core: &Core,
    underway: &Underway,
    refusal: Refusal,
    now: Timestamp,
) -> Result<Next, Failure> {
    let id = underway.id;
    let refused = core
        .store
        .write("refuse_authorization", move |tx| {
            let Some(mut transaction) = LOGIN_TRANSACTIONS.get(&*tx, &id)? else {
                return Ok(refusal.clone());
            };
            let refused = transaction.refuse(refusal.clone(), now);
            LOGIN_TRANSACTIONS.put(tx, &id, &transaction)?;
            Ok(refused)
        })
        .await?;
    let reply = &underway.transaction.request.reply;
    Ok(Next::Respond(reply.refusal(&refused, &core.policy.issuer)))
}

/// Writes a code down.
pub(in crate::flow) fn issue(
    tx: &mut dyn Tx,
    request: &AuthorizationRequest,
    authorization: Authorization,
    slot: CodeSlot,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), StoreError> {
    let code = AuthorizationCode {
        digest: slot.digest,
        authorization,
        return_to: request.reply.return_to.clone(),
        nonce: request.nonce.clone(),
        code_challenge: request.code_challenge.clone(),
        expires_at: now + policy.lifetimes.code,
        redeemed: None,
    };
    CODES.put(tx, &slot.id, &code)
}

/// Turns where a step led into where the browser goes.
pub(in crate::flow) fn onward(
    taken: Taken,
    id: Uuid,
    request: &AuthorizationRequest,
    code: &DrawnCode,
    issuer: &str,
) -> Next {
    match taken {
        Taken::SignIn => Next::SignIn(id),
        Taken::AskConsent => Next::AskConsent(id),
        Taken::Arrived => Next::Account {
            deed_waits: request.has_deed_waiting(),
        },
        Taken::Issued => Next::Respond(request.reply.code(code.secret.reveal(), issuer)),
        Taken::Refused(refusal) => Next::Respond(request.reply.refusal(&refusal, issuer)),
    }
}

/// Carries a transaction on without anything new from the user: the way back to the right page, or to
/// the client when all is settled by now.
pub async fn carry_on(
    core: &Core,
    browser: &Browser,
    underway: Underway,
    now: Timestamp,
) -> Result<Onward, Failure> {
    let Underway {
        id,
        transaction,
        session,
        ..
    } = underway;
    settle(
        core,
        browser,
        id,
        now,
        move |_, _| Ok(transaction.progress()),
        session.map(|live| live.id),
    )
    .await
    .map(|answer| match answer {
        Ok(next) => Onward::to(next),
        Err(_) => Onward::to(Next::SignIn(id)),
    })
}

/// Runs `advance` on the transaction, then takes the step that follows, all in one write.
///
/// `expected` is the session that the page was drawn for: with another one the user is asked to sign in.
pub(in crate::flow) async fn settle<F>(
    core: &Core,
    browser: &Browser,
    id: Uuid,
    now: Timestamp,
    advance: F,
    expected: Option<Uuid>,
) -> Result<Answer<Next>, Failure>
where
    F: Fn(&mut dyn Tx, &LiveSession) -> Result<Progress, StoreError> + Send + 'static,
{
    let code = DrawnCode::draw(core);
    let slot = code.slot();
    let policy = Arc::clone(&core.policy);
    let own_page = Arc::clone(core.catalog().own_page());
    let browser = browser.clone();
    let outcome = core
        .store
        .write("carry_on_authorization", move |tx| {
            let Some(mut transaction) = LOGIN_TRANSACTIONS.get(&*tx, &id)? else {
                return Ok(None);
            };
            if check((id, &transaction), &browser, now).is_err() || !transaction.goes_on(now) {
                return Ok(None);
            }
            let Some(client) = client_of(&*tx, &transaction.request, &own_page)? else {
                return Ok(None);
            };
            let live = session::find(&*tx, browser.session.as_ref(), policy.lifetimes.session, now)?
                .filter(|live| expected.is_none_or(|expected| expected == live.id));
            if let Some(live) = &live {
                if transaction.refused.is_none() {
                    transaction.set_progress(advance(tx, live)?);
                }
                session::touch(tx, live, policy.lifetimes.session, now)?;
            }
            let step = step(
                &*tx,
                &transaction.request,
                &client,
                live.as_ref(),
                transaction.progress(),
                now,
            )?;
            let taken = take(tx, step, (id, &mut transaction), slot, &policy, now)?;
            Ok(Some((taken, transaction.request)))
        })
        .await?;
    Ok(match outcome {
        Some((taken, request)) => Ok(onward(taken, id, &request, &code, &core.policy.issuer)),
        None => Err(Refusal::invalid_request("this sign-in has expired")),
    })
}
