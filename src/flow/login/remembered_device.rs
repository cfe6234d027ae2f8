//! A browser in which a user answered the second step and asked not to be asked there again.
//!
//! The browser keeps a mark of each such user in one sealed cookie. A mark is bound to the password and the factors that
//! the user had, and to the moment. It is void after any of them changed, and after the user or the operator signed the
//! user out everywhere. It replaces no demand of an application for two factors.

use std::time::Duration;

use ring::digest;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::{Core, factors};
use crate::identity::{Factor, User};
use crate::password::PasswordHash;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::USERS;

/// The most users of one browser: families share it.
const MOST_USERS: usize = 4;
const SEALING_CONTEXT: &str = "remembered_devices";
const ID_LEN: usize = size_of::<Uuid>();
const TIME_LEN: usize = size_of::<u64>();
const DIGEST_LEN: usize = digest::SHA256_OUTPUT_LEN;
/// The bytes of one mark.
const LEN: usize = ID_LEN + TIME_LEN + DIGEST_LEN;

/// The marks of a browser, opened.
#[derive(Clone, Default)]
pub(super) struct RememberedUsers(Vec<[u8; LEN]>);

impl RememberedUsers {
    /// The marks that have not expired. None if the operator does not allow them.
    pub(super) fn of(core: &Core, browser: &Browser, now: Timestamp) -> Self {
        let (Some(lifetime), Some(cookie)) =
            (core.policy.accounts.remember_device, &browser.remembered_users)
        else {
            return Self::default();
        };
        let plain = core.sealer.open_base64(SEALING_CONTEXT, cookie);
        let (marks, _) = plain
            .as_deref()
            .map_or_else(|_| Default::default(), |plain| plain.as_chunks());
        let is_current = |mark: &&[u8; LEN]| {
            let at = time_of(mark);
            now < at + lifetime && !at.is_ahead_of(now)
        };
        Self(
            marks
                .iter()
                .filter(is_current)
                .take(MOST_USERS)
                .copied()
                .collect(),
        )
    }

    /// Whether the user, as the record is now, has asked for it in this browser.
    pub(super) fn includes(&self, snapshot: &dyn Snapshot, user: &User) -> Result<bool, StoreError> {
        let Some(mark) = self.0.iter().find(|mark| mark.starts_with(user.uuid.as_bytes())) else {
            return Ok(false);
        };
        let factors = factors::of_user(snapshot, user.uuid)?;
        Ok(*mark == new_mark(user, &factors, time_of(mark)))
    }
}

fn time_of(mark: &[u8; LEN]) -> Timestamp {
    let seconds = mark.get(ID_LEN..).and_then(<[u8]>::first_chunk);
    Timestamp::from_seconds(seconds.map_or(0, |seconds| u64::from_be_bytes(*seconds)))
}

/// The mark of a user: who, when, and a digest of the password, the factors, and the last time when marks were voided.
fn new_mark(user: &User, factors: &[(Uuid, Factor)], at: Timestamp) -> [u8; LEN] {
    let mut bound = user
        .password
        .as_ref()
        .map(PasswordHash::fingerprint)
        .unwrap_or_default()
        .to_vec();
    for (id, _) in factors {
        bound.extend_from_slice(id.as_bytes());
    }
    let forgotten = user.devices_forgotten_at.map_or(0, Timestamp::seconds);
    bound.extend_from_slice(&forgotten.to_be_bytes());
    let digest = digest::digest(&digest::SHA256, &bound);
    let fields = [
        user.uuid.as_bytes().as_slice(),
        &at.seconds().to_be_bytes(),
        digest.as_ref(),
    ];
    let mut mark = [0; LEN];
    for (to, byte) in mark.iter_mut().zip(fields.concat()) {
        *to = byte;
    }
    mark
}

/// The cookie of a browser in which this user has just answered the second step. The marks of other users stay in it, the
/// latest first. `None` if the operator does not allow it.
pub(super) fn remember(
    core: &Core,
    browser: &Browser,
    user: &User,
    factors: &[(Uuid, Factor)],
    now: Timestamp,
) -> Option<String> {
    core.policy.accounts.remember_device?;
    let RememberedUsers(mut marks) = RememberedUsers::of(core, browser, now);
    marks.retain(|mark| !mark.starts_with(user.uuid.as_bytes()));
    marks.insert(0, new_mark(user, factors, now));
    marks.truncate(MOST_USERS);
    let sealed = core
        .sealer
        .seal_base64(SEALING_CONTEXT, marks.as_flattened(), &core.random);
    Some(sealed)
}

/// Voids the marks of a user in all browsers. A user without a second factor has none.
pub(in crate::flow) fn forget(tx: &mut dyn Tx, user: Uuid, now: Timestamp) -> Result<(), StoreError> {
    if factors::has_second_factor(&*tx, user)?
        && let Some(mut user) = USERS.get(&*tx, &user)?
    {
        // It differs from the value before, also if the clock was set back.
        let next = user.devices_forgotten_at.map(|at| at + Duration::from_secs(1));
        user.devices_forgotten_at = next.max(Some(now));
        USERS.put(tx, &user.uuid, &user)?;
    }
    Ok(())
}
