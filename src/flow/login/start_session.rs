//! Somebody has proven who they are: the session begins, and the next step towards the client is taken.

use std::sync::Arc;

use uuid::Uuid;

use super::session;
use super::session::{DrawnSession, LiveSession};
use super::transaction;
use super::transaction::{Browser, DrawnCode, Onward, Stale};
use crate::clock::Timestamp;
use crate::flow::{Core, Failure};
use crate::identity::{Factor, UpstreamToken, User};
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::LOGIN_TRANSACTIONS;

/// How somebody came in.
#[derive(Clone, Debug)]
pub(in crate::flow) struct Entrance {
    /// What they proved it by.
    pub(in crate::flow) factor: Factor,
    /// When they did.
    pub(in crate::flow) auth_time: Timestamp,
    /// Whether that is a guess: see [`crate::identity::Session::is_undated`].
    pub(in crate::flow) is_undated: bool,
    /// Whether they were sent to prove it anew: see [`crate::identity::Session::was_asked_anew`].
    pub(in crate::flow) was_asked_anew: bool,
    /// The access token of the provider that vouched for them.
    pub(in crate::flow) upstream_token: Option<UpstreamToken>,
}

impl Entrance {
    /// With a password, now.
    pub(in crate::flow) fn by_password(now: Timestamp) -> Self {
        Self {
            factor: Factor::Password,
            auth_time: now,
            is_undated: false,
            was_asked_anew: false,
            upstream_token: None,
        }
    }
}

/// What has begun: where the browser goes, the session, its user, and what `identify` said besides.
pub(in crate::flow) type Started<T> = (Onward, Uuid, Uuid, T);

/// Runs `identify` and, for the user whom it names, starts the session and takes the next step, all in one transaction.
///
/// `identify` may run twice. Nobody is signed in when it names nobody. A login transaction that has ended meanwhile is
/// [`Stale`], and so is one whose client may no longer be answered, or no longer takes people who come in like this.
pub(in crate::flow) async fn start_session<T, F>(
    core: &Core,
    browser: &Browser,
    id: Uuid,
    entrance: Entrance,
    now: Timestamp,
    identify: F,
) -> Result<Result<Option<Started<T>>, Stale>, Failure>
where
    T: Send + 'static,
    F: Fn(&mut dyn Tx) -> Result<Option<(User, T)>, StoreError> + Send + 'static,
{
    let drawn = DrawnSession::draw(core, browser);
    let slots = drawn.slots();
    let code = DrawnCode::draw(core);
    let slot = code.slot();
    let policy = Arc::clone(&core.policy);
    let own_page = Arc::clone(core.catalog().own_page());
    let browser = browser.clone();
    let outcome = core
        .store
        .write("start_session", move |tx| {
            let Some(mut transaction) = LOGIN_TRANSACTIONS.get(&*tx, &id)? else {
                return Ok(Err(Stale::Expired));
            };
            if let Err(stale) = transaction::check((id, &transaction), &browser, now) {
                return Ok(Err(stale));
            }
            let lifetimes = policy.lifetimes.session;
            let signed_in = session::find(&*tx, browser.session.as_ref(), lifetimes, now)?;
            if !transaction::takes_proof(&*tx, &transaction, signed_in.is_some(), lifetimes, now)? {
                return Ok(Err(Stale::Expired));
            }
            let client = transaction::client_of(&*tx, &transaction.request, &own_page)?;
            let Some(client) = client.filter(|client| client.accepts(&entrance.factor)) else {
                return Ok(Err(Stale::Expired));
            };
            let Some((user, said)) = identify(tx)? else {
                return Ok(Ok(None));
            };
            let uuid = user.uuid;
            let previous = session::presented(&*tx, browser.session.as_ref())?;
            let entered = (entrance.clone(), browser.device.clone());
            let (session_id, session, ended) =
                session::start(tx, previous, slots, uuid, entered, lifetimes, now)?;
            let live = LiveSession {
                id: session_id,
                session,
                user,
            };
            transaction.reopen();
            let progress = transaction.progress().settled_in(session_id);
            transaction.set_progress(progress);
            let step = transaction::step(&*tx, &transaction.request, &client, Some(&live), progress, now)?;
            let taken = transaction::take(tx, step, (id, &mut transaction), slot, &policy, now)?;
            Ok(Ok(Some((
                taken,
                transaction.request,
                session_id,
                (uuid, ended),
                said,
            ))))
        })
        .await?;
    let (taken, request, session, (user, ended), said) = match outcome {
        Ok(Some(outcome)) => outcome,
        Ok(None) => return Ok(Ok(None)),
        Err(stale) => return Ok(Err(stale)),
    };
    session::record_ended(core, ended, now);
    let next = transaction::onward(taken, id, &request, &code, &core.policy.issuer);
    let onward = Onward {
        next,
        binding: None,
        session: Some(drawn.cookie(session)),
    };
    Ok(Ok(Some((onward, session, user, said))))
}
