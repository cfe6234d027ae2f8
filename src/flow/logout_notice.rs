//! Back-channel logout: the clients that a session has signed in are told of its end (OpenID Connect Back-Channel Logout
//! 1.0).
//!
//! The transaction that redeems a code records the client. The transaction that ends the session queues a notice for each
//! recorded client, and `server/logout_sender` sends it. A session that expires ends without notices.
//!
//! The notices have a queue of their own, and are sent as mails are. The logout token is made for each attempt. A node tells 16
//! clients at once, and each of them one notice at a time. Disabling a user queues notices too, although the sessions work
//! again when the user is enabled.

use std::time::Duration;

use ring::digest::{Context, SHA256};
use url::Url;
use uuid::Uuid;

use super::deliver::{OutboxKey, OutboxUpdate, retry};
use super::outbox::due;
use super::{Core, Failure};
use crate::clock::Timestamp;
use crate::federation::metadata::{http_on_loopback, https};
use crate::federation::upstreams::UpstreamError;
use crate::jose::alg::Algorithm;
use crate::jose::jwt;
use crate::oauth::Client;
use crate::oauth::code::Authorization;
use crate::oauth::openid::logout_token::{LOGOUT_TOKEN_TYP, LogoutTokenClaims};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::records::{LogoutNotice, LogoutStatus, SessionClient};
use crate::store::tables::{CLIENTS, LOGOUT_NOTICES, SESSION_CLIENTS, SESSIONS};

/// The most clients of the sessions of one user. Without a limit, a user who signs in over and over would make every
/// later sign-out slower.
const MAX_PER_USER: usize = 1000;

/// The most attempts at a client that registered itself.
const MOST_ATTEMPTS_AT_HOST: u32 = 5;

/// How long the clients of a session are kept after its end.
const RETENTION: Duration = Duration::from_hours(7 * 24);

/// The key of a client of a session: the user, the session, the client.
pub type SessionClientKey = (Uuid, (Uuid, String));

/// Records that the session of a grant has signed the client's user in, if the client wants to be told of the end.
pub fn record_client(
    tx: &mut dyn Tx,
    client: &Client,
    authorization: &Authorization,
    now: Timestamp,
) -> Result<(), StoreError> {
    let (Some(session), Some(_)) = (authorization.session, &client.backchannel_logout_uri) else {
        return Ok(());
    };
    let key = (authorization.user, (session, client.client_id.clone()));
    let is_same =
        |known: SessionClient| known.logout.is_none() && known.client_incarnation == client.incarnation;
    if SESSION_CLIENTS.get(&*tx, &key)?.is_some_and(is_same) {
        return Ok(());
    }
    make_room(tx, authorization.user)?;
    let row = SessionClient {
        client_incarnation: client.incarnation,
        host: shared_host(client),
        signed_in_at: now,
        logout: None,
    };
    SESSION_CLIENTS.put(tx, &key, &row)
}

/// At the limit, removes the oldest client of a session that has ended, or else the oldest one.
fn make_room(tx: &mut dyn Tx, user: Uuid) -> Result<(), StoreError> {
    let rows = SESSION_CLIENTS.scan_prefix(&*tx, &user, MAX_PER_USER)?;
    if rows.len() < MAX_PER_USER {
        return Ok(());
    }
    let ended = rows.iter().find(|(_, row)| row.logout.is_some());
    if let Some((key, _)) = ended.or(rows.first()) {
        SESSION_CLIENTS.remove(tx, key)?;
    }
    Ok(())
}

/// Queues notices for the clients of a session that ends. After the commit, [`Core::logout_queued`] is to be notified.
pub fn queue_of_session(
    tx: &mut dyn Tx,
    user: Uuid,
    session: Uuid,
    now: Timestamp,
) -> Result<(), StoreError> {
    // No identifier of a client sorts behind this character.
    let last = char::MAX.to_string();
    let keys = (user, (session, String::new()))..=(user, (session, last));
    let rows = SESSION_CLIENTS.scan(&*tx, keys, usize::MAX)?;
    queue(tx, rows, now)
}

/// The same for all sessions of a user but one, also for those that have expired.
pub fn queue_of_user(
    tx: &mut dyn Tx,
    user: Uuid,
    except: Option<Uuid>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut rows = SESSION_CLIENTS.scan_prefix(&*tx, &user, usize::MAX)?;
    rows.retain(|((_, (session, _)), _)| Some(*session) != except);
    queue(tx, rows, now)
}

fn queue(
    tx: &mut dyn Tx,
    rows: Vec<(SessionClientKey, SessionClient)>,
    now: Timestamp,
) -> Result<(), StoreError> {
    for (key, mut row) in rows.into_iter().filter(|(_, row)| row.logout.is_none()) {
        row.logout = Some(LogoutStatus {
            ended_at: now,
            told_at: None,
            given_up_at: None,
            last_error: None,
        });
        SESSION_CLIENTS.put(tx, &key, &row)?;
        let (user, (session, client_id)) = key;
        let id = notice_id(session, &client_id, now);
        let notice = LogoutNotice {
            user,
            session,
            client_id,
            client_incarnation: row.client_incarnation,
            host: row.host,
            failed_attempts: 0,
            created_at: now,
        };
        LOGOUT_NOTICES.put(tx, &(due(now), id), &notice)?;
    }
    Ok(())
}

/// The id of a notice. It is derived, because a transaction may run twice.
fn notice_id(session: Uuid, client_id: &str, now: Timestamp) -> Uuid {
    let mut hash = Context::new(&SHA256);
    hash.update(session.as_bytes());
    hash.update(client_id.as_bytes());
    let hash = hash.finish();
    now.id_with(hash.as_ref().first_chunk().unwrap_or(&[0; 10]))
}

/// Removes the clients of all sessions of a user. Their notices are sent nevertheless.
pub fn forget_user(tx: &mut dyn Tx, user: Uuid) -> Result<(), StoreError> {
    for (key, _) in SESSION_CLIENTS.scan_prefix(&*tx, &user, usize::MAX)? {
        SESSION_CLIENTS.remove(tx, &key)?;
    }
    Ok(())
}

/// Whether a client of a session may be removed: the session ended some days ago, or has expired long ago. `longest` is
/// the longest life of a session.
pub fn is_outdated(
    snapshot: &dyn Snapshot,
    (_, (session, _)): &SessionClientKey,
    row: &SessionClient,
    longest: Duration,
    now: Timestamp,
) -> Result<bool, StoreError> {
    Ok(match &row.logout {
        Some(status) => now >= status.ended_at + RETENTION,
        None => now >= row.signed_in_at + longest + RETENTION && !SESSIONS.contains(snapshot, session)?,
    })
}

/// Why a client was not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeFailure {
    /// The client is not to be told any more.
    Unneeded(&'static str),
    /// The client refused the notice. Another attempt cannot succeed.
    Refused(String),
    /// The attempt failed, and another one may succeed.
    Failed(String),
}

impl NoticeFailure {
    /// The reason, in words.
    pub fn reason(&self) -> &str {
        match self {
            Self::Unneeded(reason) => reason,
            Self::Refused(reason) | Self::Failed(reason) => reason,
        }
    }

    /// Whether another attempt may succeed.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

impl From<Failure> for NoticeFailure {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.to_string())
    }
}

impl From<UpstreamError> for NoticeFailure {
    /// With the status 400 the client says that it cannot use the token (section 2.8).
    fn from(error: UpstreamError) -> Self {
        match error {
            UpstreamError::Refused { status: 400, .. } => Self::Refused(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// Makes a logout token and posts it to the client (section 2.5), which must still be the same, with its current address.
pub async fn send(core: &Core, notice: &LogoutNotice) -> Result<(), NoticeFailure> {
    // The catalog of this node may be older than the notice.
    let stored = core
        .store
        .read(|snapshot| CLIENTS.get(snapshot, &notice.client_id));
    let client = stored.await.map_err(Failure::from)?;
    let client = client.filter(|client| client.incarnation == notice.client_incarnation);
    let client = client.ok_or(NoticeFailure::Unneeded("the client was removed"))?;
    if !client.enabled {
        return Err(NoticeFailure::Unneeded("the client is disabled"));
    }
    let url = logout_address(&client).ok_or(NoticeFailure::Unneeded(
        "the client has no back-channel logout URI",
    ))?;
    let token = logout_token(core, &client, notice)?;
    Ok(core.upstreams.post_logout_token(&url, &token).await?)
}

/// The address at which the client is told: https, or http on this machine for a confidential client of the operator
/// (section 2.2). A client that registered itself is told at a host of its redirect URIs only: the service must not send
/// requests to hosts that a stranger chose for that.
pub(super) fn logout_address(client: &Client) -> Option<Url> {
    let uri = client.backchannel_logout_uri.as_deref()?;
    let may_be_local = !client.is_public() && !client.registered_itself();
    let address = https(uri).or_else(|| http_on_loopback(uri).filter(|_| may_be_local))?;
    let is_own_host = |uri: &String| Url::parse(uri).is_ok_and(|uri| uri.host() == address.host());
    (!client.registered_itself() || client.redirect_uris.iter().any(is_own_host)).then_some(address)
}

/// The host of a client that registered itself. All clients of one host are told as if they were one.
fn shared_host(client: &Client) -> Option<String> {
    let address = logout_address(client).filter(|_| client.registered_itself())?;
    address.host_str().map(ToOwned::to_owned)
}

fn logout_token(core: &Core, client: &Client, notice: &LogoutNotice) -> Result<String, Failure> {
    let alg = client.allowed_algorithm(client.id_token_signed_response_alg.unwrap_or(Algorithm::Rs256));
    let catalog = core.catalog();
    let key = catalog.keyring().signer(alg);
    let key = key.ok_or(Failure::NoKey(alg.as_str()))?;
    let claims = LogoutTokenClaims::new(
        &core.policy.issuer,
        &client.client_id,
        notice.user,
        notice.session,
        core.random.uuid_v4(),
        core.clock.now(),
    );
    Ok(jwt::sign(key, LOGOUT_TOKEN_TYP, &claims)?)
}

/// Whether no attempt follows a failed one. A host that strangers chose gets few.
fn is_last(notice: &LogoutNotice) -> bool {
    notice.host.is_some() && notice.failed_attempts + 1 >= MOST_ATTEMPTS_AT_HOST
}

/// Stores the result of an attempt: the notice is done with, or is tried again later.
pub async fn settle(
    core: &Core,
    key: OutboxKey,
    notice: LogoutNotice,
    sent: Result<(), NoticeFailure>,
) -> Result<(), StoreError> {
    let now = core.clock.now();
    let later = match &sent {
        Err(failure) if failure.may_pass() && !is_last(&notice) => {
            retry(&core.random, key, &notice, failure.reason().to_owned(), now)
        }
        _ => None,
    };
    let is_done = later.is_none();
    let update = later.unwrap_or(OutboxUpdate::Remove(key));
    let (settled, result) = (notice.clone(), sent.clone());
    let was_there = core
        .store
        .write("settle_logout_notice", move |tx| -> Result<_, StoreError> {
            let was_there = update.apply(tx)?;
            if was_there {
                let at = is_done.then_some(now);
                note_result(tx, &settled, result.as_ref().map_err(NoticeFailure::reason), at)?;
            }
            Ok(was_there)
        })
        .await?;
    let (user, session, client_id) = (notice.user, notice.session, &*notice.client_id);
    match &sent {
        // Another node has taken it over.
        _ if !was_there => {}
        Ok(()) => audit::record(&Event::LogoutNotified {
            user,
            session,
            client_id,
        }),
        Err(NoticeFailure::Unneeded(_)) => {}
        Err(failure) if is_done => audit::record(&Event::LogoutNoticeFailed {
            user,
            session,
            client_id,
            reason: failure.reason(),
        }),
        Err(failure) => {
            let reason = failure.reason();
            tracing::debug!(client_id, reason, "a logout notice waits for another attempt");
        }
    }
    Ok(())
}

/// Notes the result of an attempt at the client of the session. `done_at` is the time if there is no further attempt.
fn note_result(
    tx: &mut dyn Tx,
    notice: &LogoutNotice,
    result: Result<&(), &str>,
    done_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    let key = (notice.user, (notice.session, notice.client_id.clone()));
    let Some(mut row) = SESSION_CLIENTS.get(&*tx, &key)? else {
        return Ok(());
    };
    // The user may have signed in again in the same session since.
    let is_of_notice = |status: &&mut LogoutStatus| status.ended_at == notice.created_at;
    if let Some(status) = row.logout.as_mut().filter(is_of_notice) {
        status.last_error = result.err().map(ToOwned::to_owned);
        if result.is_ok() {
            status.told_at = done_at;
        } else {
            status.given_up_at = done_at;
        }
        SESSION_CLIENTS.put(tx, &key, &row)?;
    }
    Ok(())
}
