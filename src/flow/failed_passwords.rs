//! Counts the wrong passwords of each user in a row, in the store.
//!
//! After [`FailedPasswords::LIMIT`] of them, the right password gets the answer of a wrong one, except in a known browser
//! (NIST SP 800-63B-4 section 3.2.2). The right password, a new one or an operator resets the count. It is in the store, so
//! it survives a restart. Wrong passwords in known browsers and on the account page count
//! too: a thief of the browser can type them. So do wrong codes of mails, after which only the link works.
//!
//! Wrong codes of the second step are counted apart from the passwords, with the same limit. The right password does not
//! reset this count, because a person who types codes knows the password already. A sign-in with both steps resets it, and
//! so does an operator. At the limit, only a recovery code counts, because it cannot be guessed.
//!
//! Only names of users with a password are counted. So a request that names nobody writes nothing, and there are as many
//! rows as users at most. A write changes nothing after the limit.
//!
//! The count is read when a password is checked, and is written without being waited for. An attempt misses the failures
//! whose write is under way. Attempts for one name are checked one after the other, and a hash takes longer than a write:
//! that is one failure for each of the user's names. If the disk is slow it is ten, the burst of a name
//! ([`crate::limit`]). Senders that are exempt from the limits are checked in parallel, and may add one for each thread
//! that hashes passwords.

use std::fmt;
use std::sync::{Arc, PoisonError};

use uuid::Uuid;

use super::{Core, Failure};
use crate::clock::Timestamp;
use crate::identity::User;
use crate::limit::password_attempt::{AccountFailures, PasswordAttempt};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::password::PasswordHash;
use crate::store::engine::{Snapshot, Tx};
use crate::store::records::FailedPasswords;
use crate::store::tables::{FAILED_PASSWORDS, USERS};
use crate::store::{Store, StoreError};

/// The row of a user whose password is checked against this hash.
struct StoredFailures {
    store: Store,
    user: Uuid,
    /// `None` if there is nothing to guess. Then nothing is counted.
    checked: Option<PasswordHash>,
    now: Timestamp,
}

/// The same attempt, counted for this user. For an unknown name, the row of the user who was found last is read, so that
/// the answer takes as much time.
pub fn counted(
    core: &Core,
    attempt: &PasswordAttempt,
    user: Option<&User>,
    checked: Option<PasswordHash>,
    now: Timestamp,
) -> PasswordAttempt {
    let last_found = || {
        let last = core.last_found_user.lock();
        *last.unwrap_or_else(PoisonError::into_inner)
    };
    attempt.clone().at_account(Arc::new(StoredFailures {
        store: core.store.clone(),
        user: user.map_or_else(last_found, |user| user.uuid),
        checked,
        now,
    }))
}

impl AccountFailures for StoredFailures {
    fn are_at_limit(&self) -> Option<bool> {
        let read = |snapshot: &dyn Snapshot| FAILED_PASSWORDS.get(snapshot, &self.user);
        let failed = self.store.read_blocking(read).inspect_err(log_failure).ok()?;
        Some(failed.is_some_and(|failed| failed.is_at_limit()))
    }

    fn add(&self) {
        let Some(checked) = self.checked.clone() else {
            return;
        };
        let (user, now) = (self.user, self.now);
        let work = move |tx: &mut dyn Tx| add_checked(tx, user, &checked, now);
        let reply = move |outcome| match outcome {
            Ok(true) => audit::record(&Event::PasswordLimitReached { user }),
            Ok(false) => {}
            Err(error) => log_failure(&error),
        };
        let queued = self.store.enqueue("failed_password", work, reply);
        if let Err(error) = queued {
            log_failure(&error);
        }
    }
}

/// Counts one more, unless the user or the password has gone since it was checked. Returns whether that is the last one
/// that is counted.
fn add_checked(
    tx: &mut dyn Tx,
    user: Uuid,
    checked: &PasswordHash,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let is_current = |user: User| user.password.as_ref() == Some(checked);
    if !USERS.get(&*tx, &user)?.is_some_and(is_current) {
        return Ok(false);
    }
    add(tx, user, now)
}

/// Counts one more. Returns whether that is the last one that is counted.
pub fn add(tx: &mut dyn Tx, user: Uuid, last_failed_at: Timestamp) -> Result<bool, StoreError> {
    let before = FAILED_PASSWORDS.get(&*tx, &user)?;
    if before.is_some_and(|before| before.is_at_limit()) {
        return Ok(false);
    }
    let failed = FailedPasswords {
        count: before.map_or(0, |before| before.count).saturating_add(1),
        second_step: before.map_or(0, |before| before.second_step),
        last_failed_at,
    };
    FAILED_PASSWORDS.put(tx, &user, &failed)?;
    Ok(failed.is_at_limit())
}

/// Counts one more wrong code of the second step. Returns whether that is the last one that is counted.
pub fn add_second_step(tx: &mut dyn Tx, user: Uuid, last_failed_at: Timestamp) -> Result<bool, StoreError> {
    let before = FAILED_PASSWORDS.get(&*tx, &user)?;
    if before.is_some_and(|before| before.is_second_step_at_limit()) {
        return Ok(false);
    }
    let failed = FailedPasswords {
        count: before.map_or(0, |before| before.count),
        second_step: before.map_or(0, |before| before.second_step).saturating_add(1),
        last_failed_at,
    };
    FAILED_PASSWORDS.put(tx, &user, &failed)?;
    Ok(failed.is_second_step_at_limit())
}

/// Counts one more wrong code of the second step, and records the last one that is counted.
pub(super) async fn count_second_step(core: &Core, user: Uuid, now: Timestamp) -> Result<(), Failure> {
    let count = move |tx: &mut dyn Tx| add_second_step(tx, user, now);
    if core.store.write("failed_second_step", count).await? {
        audit::record(&Event::SecondStepLimitReached { user });
    }
    Ok(())
}

/// Whether only a recovery code counts in the second step of this user.
pub fn is_second_step_at_limit(snapshot: &dyn Snapshot, user: Uuid) -> Result<bool, StoreError> {
    let failed = FAILED_PASSWORDS.get(snapshot, &user)?;
    Ok(failed.is_some_and(|failed| failed.is_second_step_at_limit()))
}

/// Forgets the wrong codes after a right one.
pub fn reset_second_step(tx: &mut dyn Tx, user: Uuid) -> Result<(), StoreError> {
    let failed = FAILED_PASSWORDS.get(&*tx, &user)?;
    match failed.filter(|failed| failed.second_step > 0) {
        Some(FailedPasswords { count: 0, .. }) => FAILED_PASSWORDS.remove(tx, &user).map(drop),
        Some(failed) => {
            let reset = FailedPasswords {
                second_step: 0,
                ..failed
            };
            FAILED_PASSWORDS.put(tx, &user, &reset)
        }
        None => Ok(()),
    }
}

/// Forgets the wrong passwords after the right one or a new one. The wrong codes stay counted.
pub fn reset_passwords(tx: &mut dyn Tx, user: Uuid) -> Result<(), StoreError> {
    let failed = FAILED_PASSWORDS.get(&*tx, &user)?;
    match failed.filter(|failed| failed.second_step > 0) {
        Some(failed) => FAILED_PASSWORDS.put(tx, &user, &FailedPasswords { count: 0, ..failed }),
        None => FAILED_PASSWORDS.remove(tx, &user).map(drop),
    }
}

/// The store logs its own outage. Sign-ins go on, and the limits in memory hold.
fn log_failure(error: &StoreError) {
    if !error.is_outage() {
        tracing::error!(%error, "wrong passwords of a user cannot be counted");
    }
}

impl fmt::Debug for StoredFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredFailures")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
