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
//! Only names of users with a password are counted. So there are as many rows as users at most. A write changes nothing
//! after the limit.
//!
//! Each attempt gets its place in the row when it has been checked, after all that were checked before it at this node
//! ([`super::attempt_queue`]). The right password and the right code are accepted if their place is within the limit.
//!
//! The time of an answer does not tell whether a refused password was right. Every attempt reads the count once it is
//! checked. If several nodes share the store, every password that is not accepted then waits for the transaction that
//! counts. Otherwise no password waits: those that have no place yet count as wrong ones.

use std::fmt;
use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;
use uuid::Uuid;

use super::attempt_queue::{Attempt, AttemptQueue, Guess, Place};
use super::{Core, Failure};
use crate::clock::Timestamp;
use crate::identity::User;
use crate::limit::password_attempt::{AccountFailures, PasswordAttempt};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::password::PasswordHash;
use crate::store::engine::{Snapshot, Tx};
use crate::store::records::FailedPasswords;
use crate::store::tables::FAILED_PASSWORDS;
use crate::store::{Store, StoreError};

/// The row of a user whose password is checked against this hash.
struct StoredFailures {
    store: Store,
    queue: Arc<AttemptQueue>,
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
        queue: Arc::clone(&core.attempts),
        user: user.map_or_else(last_found, |user| user.uuid),
        checked,
        now,
    }))
}

impl AccountFailures for StoredFailures {
    fn settle(&self, is_right: bool, settled: Box<dyn FnOnce(Option<bool>) + Send>) {
        let guess = match &self.checked {
            Some(checked) => Guess::Password {
                is_right,
                checked: checked.clone(),
            },
            None => Guess::Nothing,
        };
        let place = match self.expected_place() {
            Ok(place) => place,
            Err(error) => {
                log_failure(&error);
                return settled(None);
            }
        };
        let is_within_limit = place == ExpectedPlace::WithinLimit;
        if is_right && is_within_limit {
            settled(Some(true));
        } else if self.store.is_shared() {
            self.push(guess, |place| settled(place.map(|place| place.is_within_limit)));
        } else {
            // The write takes no time of the answer. The next attempt for the same name waits until it is queued.
            settled(Some(is_within_limit));
            if self.checked.is_some() && place != ExpectedPlace::BeyondLimit {
                self.push(guess, drop);
            }
        }
    }
}

/// Where an attempt comes in the row, from what is stored and what waits to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedPlace {
    WithinLimit,
    /// It depends on attempts before it that are not settled yet.
    Unknown,
    BeyondLimit,
}

impl StoredFailures {
    fn expected_place(&self) -> Result<ExpectedPlace, StoreError> {
        // What is settled after this is in the row. It may count twice, and is not missed.
        let unsettled = self.queue.unsettled(self.user);
        let read = |snapshot: &dyn Snapshot| FAILED_PASSWORDS.get(snapshot, &self.user);
        let count = self.store.read_blocking(read)?.map_or(0, |failed| failed.count);
        let most = u32::try_from(unsettled).unwrap_or(u32::MAX).saturating_add(count);
        Ok(if most < FailedPasswords::LIMIT {
            ExpectedPlace::WithinLimit
        } else if count < FailedPasswords::LIMIT {
            ExpectedPlace::Unknown
        } else {
            ExpectedPlace::BeyondLimit
        })
    }

    fn push(&self, guess: Guess, settled: impl FnOnce(Option<Place>) + Send + 'static) {
        let user = self.user;
        let attempt = Attempt {
            guess,
            now: self.now,
            settled: Box::new(move |place| {
                let place = place.inspect_err(log_failure).ok();
                if place.is_some_and(|place| place.reaches_limit) {
                    audit::record(&Event::PasswordLimitReached { user });
                }
                settled(place);
            }),
        };
        self.queue.push(&self.store, self.user, attempt);
    }
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

/// Gives a code of the second step its place in the row, and counts a wrong one. Returns whether the place is within the
/// limit. If not, only a recovery code counts.
pub(super) async fn settle_code(
    core: &Core,
    user: Uuid,
    is_right: bool,
    now: Timestamp,
) -> Result<bool, Failure> {
    let (sender, receiver) = oneshot::channel();
    let attempt = Attempt {
        guess: Guess::Code { is_right },
        now,
        settled: Box::new(move |place| drop(sender.send(place))),
    };
    core.attempts.push(&core.store, user, attempt);
    let place = receiver.await.unwrap_or(Err(StoreError::Closed))?;
    if place.reaches_limit {
        audit::record(&Event::SecondStepLimitReached { user });
    }
    Ok(place.is_within_limit)
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

#[cfg(test)]
mod tests;
