//! A user has authenticated: the session begins, and the next step of the sign-in is taken.

use std::sync::Arc;

use uuid::Uuid;

use super::anonymous_upgrade;
use super::drawn_code::DrawnCode;
use super::passkey_offer;
use super::push_request::is_answered_elsewhere;
use super::second_factor;
use super::session;
use super::session::{AuthenticationEvent, DrawnSession, EndedSessions, LiveSession, NewSession};
use super::transaction;
use super::transaction::{BrowserRedirect, LoginContext, LoginTransactionError, StepResult};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::{Core, Failure};
use crate::identity::User;
use crate::oauth::authorize::RefusedRequest;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::Tx;

/// The result of starting a session.
pub(in crate::flow) enum SessionStart<S, P> {
    /// It has started.
    Started(S),
    /// No session has started: the user has a second factor, and the browser goes to the page that asks for it.
    SecondStep(P),
    /// There is no such user, or they may not sign in.
    NoUser,
    /// The client is sent this refusal. No session has started.
    Refused(Box<RefusedRequest>),
    /// The login transaction has ended, or its client no longer accepts this sign-in.
    TransactionError(LoginTransactionError),
}

/// A session that has started.
pub(in crate::flow) struct StartedSession<T> {
    /// Where the browser goes.
    pub(in crate::flow) redirect: BrowserRedirect,
    /// The session's id.
    pub(in crate::flow) session: Uuid,
    /// Its user.
    pub(in crate::flow) user: User,
    /// What `identify` returned beside the user.
    pub(in crate::flow) detail: T,
}

/// A session that starts after the second step.
pub(in crate::flow) struct PendingSession<T> {
    /// Where the browser goes.
    pub(in crate::flow) redirect: BrowserRedirect,
    /// The user, as the record is now.
    pub(in crate::flow) user: User,
    /// What `identify` returned beside the user.
    pub(in crate::flow) detail: T,
}

/// The result of the transaction.
struct WrittenSession<T> {
    step: StepResult,
    session: Uuid,
    user: User,
    ended: EndedSessions,
    /// Whether the user was anonymous until now.
    was_anonymous: bool,
    detail: T,
}

/// Runs `identify`, starts a session for the user that it returns and takes the next step, all in one transaction.
/// `identify` may run twice.
///
/// If the user has to answer a second step, what `identify` wrote is stored, and no session starts. Every method of
/// signing in comes here, so none goes around the second step.
pub(in crate::flow) async fn start_session<T, F>(
    core: &Core,
    browser: &Browser,
    login: &LoginContext,
    event: AuthenticationEvent,
    now: Timestamp,
    identify: F,
) -> Result<SessionStart<StartedSession<T>, PendingSession<T>>, Failure>
where
    T: Send + 'static,
    F: Fn(&mut dyn Tx) -> Result<Option<(User, T)>, StoreError> + Send + 'static,
{
    let drawn = DrawnSession::draw(core, browser);
    let session_slot = drawn.slot();
    let code = DrawnCode::draw(core, now);
    let code_slot = code.slot();
    let policy = Arc::clone(&core.policy);
    let browser = browser.clone();
    let transaction = Arc::clone(&login.transaction);
    let client_lookup = login.client_lookup.clone();
    let proven = event.clone();
    let written = core
        .store
        .write("start_session", move |tx| {
            let mut record = transaction::find_record(&*tx, transaction.id)?;
            let lifetimes = policy.lifetimes.session;
            let is_signed_in = session::find(&*tx, browser.session.as_ref(), lifetimes, now)?.is_some();
            if !transaction::accepts_authentication(&*tx, &record, is_signed_in, lifetimes, now)?
                || is_answered_elsewhere(&*tx, &transaction.purpose, &record)?
            {
                return Ok(SessionStart::TransactionError(LoginTransactionError::Expired));
            }
            let purpose = transaction::resolve(&*tx, &transaction.purpose, &client_lookup)?;
            let Some(purpose) = purpose.filter(|purpose| purpose.accepts(&event.factor)) else {
                return Ok(SessionStart::TransactionError(LoginTransactionError::Expired));
            };
            if let Some(refused) = anonymous_upgrade::refusal(&*tx, &purpose, &record, now)? {
                return Ok(SessionStart::Refused(refused));
            }
            let Some((user, detail)) = identify(tx)? else {
                return Ok(SessionStart::NoUser);
            };
            if second_factor::is_required(&*tx, &user, &purpose, &event)? {
                return Ok(SessionStart::SecondStep((user, detail)));
            }
            event.notice.iter().try_for_each(|notice| notice.put(tx))?;
            let previous = session::presented(&*tx, browser.session.as_ref())?;
            let new = NewSession {
                user: user.uuid,
                event: event.clone(),
                device: browser.device.clone(),
            };
            let started = session::start(tx, previous, session_slot, new, lifetimes, now)?;
            let live = LiveSession {
                id: started.id,
                session: started.session,
                user,
            };
            record.reopen();
            let was_anonymous = record.note_account(transaction.purpose.anonymous(), live.user.uuid);
            record.progress = record.progress.settled_in(live.id);
            record.upstream_token.clone_from(&event.upstream_token);
            let step = transaction::next_step(&*tx, &purpose, Some(&live), &record, now)?;
            let offered_to = (&live.user, &step);
            let step = if passkey_offer::comes_before(&*tx, &policy, (&event, is_signed_in), offered_to)? {
                passkey_offer::make(tx, transaction.id, &record)?
            } else {
                let record = (&*transaction, record);
                transaction::take_step(tx, step, record, code_slot, &client_lookup, now)?
            };
            Ok(SessionStart::Started(WrittenSession {
                step,
                session: live.id,
                user: live.user,
                ended: started.ended,
                was_anonymous,
                detail,
            }))
        })
        .await?;
    let written = match written {
        SessionStart::Started(written) => written,
        SessionStart::SecondStep((user, detail)) => {
            let redirect = second_factor::ask(core, login, proven, &user, now)?;
            return Ok(SessionStart::SecondStep(PendingSession {
                redirect,
                user,
                detail,
            }));
        }
        SessionStart::NoUser => return Ok(SessionStart::NoUser),
        SessionStart::Refused(refused) => return Ok(SessionStart::Refused(refused)),
        SessionStart::TransactionError(error) => return Ok(SessionStart::TransactionError(error)),
    };
    login.client_lookup.publish(core)?;
    session::record_ended(core, written.ended, now);
    if written.was_anonymous {
        audit::record(&Event::AnonymousUserUpgraded {
            user: written.user.uuid,
            client_id: login.purpose.audit_name(),
        });
    }
    anonymous_upgrade::record(&written.step);
    let redirect = BrowserRedirect {
        destination: written
            .step
            .destination(login.sealed.clone(), &code, &core.policy.issuer),
        binding: None,
        session: Some(drawn.cookie(written.session)),
    };
    Ok(SessionStart::Started(StartedSession {
        redirect,
        session: written.session,
        user: written.user,
        detail: written.detail,
    }))
}
