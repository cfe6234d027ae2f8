//! A user has authenticated: the session begins, and the next step of the sign-in is taken.

use std::sync::Arc;

use uuid::Uuid;

use super::anonymous_upgrade;
use super::destination::{BrowserRedirect, Destination};
use super::drawn_code::DrawnCode;
use super::expected_rows::{will_find_session, will_start_session};
use super::federated_user::{self, UserMatch};
use super::lost_factors;
use super::passkey_offer::{self, AuthenticatedSignIn};
use super::pending_sign_in;
use super::pushed_use::is_answered_elsewhere;
use super::remembered_device::RememberedUsers;
use super::second_factor_rule;
use super::session;
use super::session::{AuthenticationEvent, DrawnSession, EndedSessions, LiveSession, NewSession};
use super::step_result::StepResult;
use super::transaction;
use super::transaction::{BrowserLogin, LoginContext, LoginTransactionError};
use crate::clock::Timestamp;
use crate::flow::notice::DrawnNotice;
use crate::flow::one_time_link::request_mail::request_change;
use crate::flow::token::issue::TokenIssuer;
use crate::flow::users::EndedByProof;
use crate::flow::{Core, Failure};
use crate::identity::User;
use crate::oauth::authorize::RefusedRequest;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::LOGIN_RECORDS;

/// The user of a sign-in, and what was written to identify the user.
pub(in crate::flow) struct Identified {
    pub(in crate::flow) user: User,
    /// How the account of a provider was matched with the user.
    pub(in crate::flow) matched: UserMatch,
    pub(in crate::flow) ended: EndedSessions,
    /// What ended because the address of the user was proven.
    pub(in crate::flow) proof: EndedByProof,
    /// The notice of what was added in this sign-in. It is about the session, if that begins.
    pub(in crate::flow) notice: Option<Box<DrawnNotice>>,
    /// The notice of factors that go because the user has waited without them ([`lost_factors`]).
    pub(in crate::flow) removal: Option<Box<DrawnNotice>>,
    /// Whether the user was anonymous until now.
    pub(in crate::flow) was_anonymous: bool,
}

impl From<User> for Identified {
    fn from(user: User) -> Self {
        Self {
            user,
            matched: UserMatch::Unchanged,
            ended: Vec::new(),
            proof: EndedByProof::default(),
            notice: None,
            removal: None,
            was_anonymous: false,
        }
    }
}

/// Identifies the user of a sign-in, in its transaction. It may run twice.
pub(in crate::flow) type Identify = Box<dyn Fn(&mut dyn Tx) -> Result<Option<Identified>, StoreError> + Send>;

/// The result of starting a session.
pub(in crate::flow) enum SessionStart {
    Started(Box<StartedSession>),
    /// No session has started. The browser goes to the page for the second step, to the page for another password, or to
    /// the client with a refusal.
    Redirected {
        /// Where it goes.
        redirect: BrowserRedirect,
        /// The user, if the sign-in goes on: what was written to identify the user is stored.
        user: Option<Uuid>,
    },
    /// There is no such user, or they may not sign in.
    NoUser,
    /// The login transaction has ended, or its client no longer accepts this sign-in.
    TransactionError(LoginTransactionError),
}

pub(in crate::flow) struct StartedSession {
    /// Where the browser goes.
    pub(in crate::flow) redirect: BrowserRedirect,
    /// The session's id.
    pub(in crate::flow) session: Uuid,
    pub(in crate::flow) user: User,
}

/// The result of the transaction.
enum Written {
    Session(Box<WrittenSession>),
    SecondStep(Box<Identified>),
    MustChangePassword(Box<Identified>),
    NoUser,
    Refused(Box<RefusedRequest>),
    Error(LoginTransactionError),
}

impl Written {
    /// What the user has to do before a session starts.
    fn before_session(identified: Identified, is_second_step_required: bool) -> Self {
        let identified = Box::new(identified);
        if is_second_step_required {
            Self::SecondStep(identified)
        } else {
            Self::MustChangePassword(identified)
        }
    }
}

struct WrittenSession {
    step: StepResult,
    session: Uuid,
    identified: Identified,
    ended: EndedSessions,
}

/// Runs `identify`, starts a session for the user that it returns and takes the next step, all in one transaction.
///
/// If the user has to answer a second step, what `identify` wrote is stored, and no session starts. Every method of
/// signing in comes here, so none goes around the second step. A password that must be changed is changed after it.
/// `expected` is the user, if the caller knows it. The user's rows are then read in the first round.
pub(in crate::flow) async fn start_session(
    at: BrowserLogin<'_>,
    event: AuthenticationEvent,
    expected: Option<Uuid>,
    identify: Identify,
) -> Result<SessionStart, Failure> {
    let (core, browser, login, now) = (at.core, at.browser, at.login, at.now);
    let drawn = DrawnSession::draw(core, browser);
    let session_slot = drawn.slot();
    let code = DrawnCode::draw(core, now);
    let code_slot = code.slot();
    let policy = Arc::clone(&core.policy);
    let issuer = TokenIssuer::new(core);
    let browser = browser.clone();
    let transaction = Arc::clone(&login.transaction);
    let client_lookup = login.client_lookup.clone();
    let proven = event.clone();
    let remembered = RememberedUsers::of(core, &browser, now);
    let written = core
        .store
        .write("start_session", move |tx| -> Result<_, StoreError> {
            let client_id = transaction.purpose.client_id();
            will_find_session(&*tx, browser.session.as_ref(), client_id);
            will_start_session(&*tx, expected, client_id);
            let mut record = transaction::find_record(&*tx, transaction.id)?;
            let lifetimes = policy.lifetimes.session;
            let is_signed_in = session::find(&*tx, browser.session.as_ref(), lifetimes, now)?.is_some();
            if !transaction::accepts_authentication(&*tx, &record, is_signed_in, lifetimes, now)?
                || is_answered_elsewhere(&*tx, &transaction.purpose, &record)?
            {
                return Ok(Written::Error(LoginTransactionError::Expired));
            }
            let purpose = transaction::resolve(&*tx, &transaction.purpose, &client_lookup)?;
            let Some(purpose) = purpose.filter(|purpose| purpose.accepts(&event.factor)) else {
                return Ok(Written::Error(LoginTransactionError::Expired));
            };
            if let Some(refused) = anonymous_upgrade::refusal(&*tx, &purpose, &record, now)? {
                return Ok(Written::Refused(refused));
            }
            let Some(mut identified) = identify(tx)? else {
                return Ok(Written::NoUser);
            };
            identified.was_anonymous =
                record.note_account(transaction.purpose.anonymous(), identified.user.uuid);
            let Identified {
                user, proof, removal, ..
            } = &mut identified;
            let has_sent_notice = lost_factors::settle(tx, user, proof, removal.as_deref(), &event, now)?;
            let (rule, user) = (policy.accounts.second_factor, &identified.user);
            let is_required =
                second_factor_rule::is_required(&*tx, user, &purpose, rule, &remembered, &event)?;
            if is_required || event.must_change_password(user) {
                identified.notice.iter().try_for_each(|notice| notice.put(tx))?;
                if identified.was_anonymous {
                    LOGIN_RECORDS.put(tx, &transaction.id, &record)?;
                }
                return Ok(Written::before_session(identified, is_required));
            }
            let previous = session::presented(&*tx, browser.session.as_ref())?;
            let new = NewSession {
                user: identified.user.uuid,
                event: event.clone(),
                device: browser.device.clone(),
            };
            let started = session::start(tx, previous, session_slot, new, lifetimes, now)?;
            let live = LiveSession {
                id: started.id,
                session: started.session,
                user: identified.user.clone(),
            };
            record.reopen();
            record.progress = record.progress.settled_in(live.id);
            record.upstream_token.clone_from(&event.upstream_token);
            let sign_in = AuthenticatedSignIn {
                purpose: &purpose,
                live: &live,
                event: &event,
                was_signed_in: is_signed_in,
                transaction: &transaction,
                record,
                slot: code_slot,
                client_lookup: &client_lookup,
                issuer: &issuer,
            };
            let step = passkey_offer::or_next_step(tx, &policy, sign_in, now)?;
            let of_device = event.notice.as_ref().filter(|_| !has_sent_notice);
            if let Some(notice) = identified.notice.as_deref().or(of_device) {
                put_notice(tx, notice, live.id, &step, now)?;
            }
            Ok(Written::Session(Box::new(WrittenSession {
                step,
                session: live.id,
                identified,
                ended: started.ended,
            })))
        })
        .await;
    let published = login.client_lookup.publish(core).await;
    let written = written?;
    published?;
    complete(at, written, &proven, drawn, &code).await
}

/// Stores the notice about a sign-in. One sign-in brings one mail: that of a factor says where it was added, and its link ends
/// the session too. If a passkey is offered, the mail waits for it.
fn put_notice(
    tx: &mut dyn Tx,
    notice: &DrawnNotice,
    session: Uuid,
    step: &StepResult,
    now: Timestamp,
) -> Result<(), StoreError> {
    let notice = notice.clone().in_session(session);
    match step {
        StepResult::OfferPasskey => notice.put_waiting(tx, session, now),
        _ => notice.put(tx),
    }
}

/// What follows the commit.
async fn complete(
    at: BrowserLogin<'_>,
    written: Written,
    proven: &AuthenticationEvent,
    drawn: DrawnSession,
    code: &DrawnCode,
) -> Result<SessionStart, Failure> {
    let BrowserLogin { core, login, now, .. } = at;
    let written = match written {
        Written::Session(written) => *written,
        Written::SecondStep(identified) => {
            let redirect = pending_sign_in::ask(core, login, proven, &identified.user, now)?;
            let user = Some(record_identified(core, login, *identified, proven, now).uuid);
            return Ok(SessionStart::Redirected { redirect, user });
        }
        Written::MustChangePassword(identified) => {
            let user = record_identified(core, login, *identified, proven, now);
            let redirect = BrowserRedirect::to(Destination::ChoosePassword {
                sealed: login.sealed.clone(),
                link: request_change(core, login, &user, proven.second_factor, now).await?,
            });
            let user = Some(user.uuid);
            return Ok(SessionStart::Redirected { redirect, user });
        }
        Written::NoUser => return Ok(SessionStart::NoUser),
        Written::Refused(refused) => {
            let redirect = BrowserRedirect::refusing(&refused, &core.policy.issuer);
            return Ok(SessionStart::Redirected { redirect, user: None });
        }
        Written::Error(error) => return Ok(SessionStart::TransactionError(error)),
    };
    let user = record_identified(core, login, written.identified, proven, now);
    session::record_ended(core, written.ended, now);
    anonymous_upgrade::record(written.step.linked());
    let redirect = BrowserRedirect {
        destination: written
            .step
            .destination(login.sealed.clone(), code, &core.policy.issuer),
        binding: None,
        session: Some(drawn.cookie(written.session)),
    };
    Ok(SessionStart::Started(Box::new(StartedSession {
        redirect,
        session: written.session,
        user,
    })))
}

/// Records in the audit log how the user was identified, after the commit.
fn record_identified(
    core: &Core,
    login: &LoginContext,
    identified: Identified,
    proven: &AuthenticationEvent,
    now: Timestamp,
) -> User {
    let Identified {
        user,
        matched,
        ended,
        proof,
        was_anonymous,
        ..
    } = identified;
    if was_anonymous {
        audit::record(&Event::AnonymousUserUpgraded {
            user: user.uuid,
            client_id: login.purpose.audit_name(),
        });
    }
    if let Some(provider) = proven.factor.provider() {
        federated_user::record(user.uuid, matched, provider);
    }
    session::record_ended(core, ended, now);
    proof.record(core, user.uuid, now);
    user
}
