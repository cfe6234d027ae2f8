//! Gives each attempt at the password or the code of a user its place in a row.
//!
//! The attempts of one user at this node wait in a queue, and one transaction settles all that wait. So they do not
//! compete for the row that has the count, however many come at once. Another node may compete for it, with one
//! transaction at a time. The right password is accepted if its place is within the limit: it cannot overtake wrong ones
//! that were checked before.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::clock::Timestamp;
use crate::password::PasswordHash;
use crate::store::engine::Tx;
use crate::store::records::FailedPasswords;
use crate::store::tables::{FAILED_PASSWORDS, USERS};
use crate::store::{Store, StoreError};

/// What is called when an attempt has its place, or with why it has none.
pub(super) type Settled = Box<dyn FnOnce(Result<Place, StoreError>) + Send>;

/// The place of an attempt in the row of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Whether the right password or code is accepted here.
    pub(super) is_within_limit: bool,
    /// Whether it is the last wrong one that is counted.
    pub(super) reaches_limit: bool,
}

/// What was presented.
#[derive(Clone)]
pub(super) enum Guess {
    /// A password that was checked against this hash.
    Password { is_right: bool, checked: PasswordHash },
    /// A code of the second step.
    Code { is_right: bool },
    /// A password of nobody. It takes as much time as a wrong one.
    Nothing,
}

/// An attempt that was checked.
pub(super) struct Attempt {
    pub(super) guess: Guess,
    pub(super) now: Timestamp,
    pub(super) settled: Settled,
}

/// The attempts that have no place yet, by user.
#[derive(Default)]
pub(super) struct AttemptQueue(Mutex<HashMap<Uuid, UserQueue>>);

/// The attempts of a user for whom a transaction is under way.
#[derive(Default)]
struct UserQueue {
    /// How many attempts are in the transaction.
    under_way: usize,
    waiting: Vec<Attempt>,
}

impl AttemptQueue {
    fn queues(&self) -> MutexGuard<'_, HashMap<Uuid, UserQueue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many attempts of this user have no place yet.
    pub(super) fn unsettled(&self, user: Uuid) -> usize {
        let queues = self.queues();
        let queue = queues.get(&user);
        queue.map_or(0, |queue| queue.under_way + queue.waiting.len())
    }

    /// Settles an attempt after those of the same user that came before it.
    pub(super) fn push(self: &Arc<Self>, store: &Store, user: Uuid, attempt: Attempt) {
        let mut queues = self.queues();
        if let Some(queue) = queues.get_mut(&user) {
            queue.waiting.push(attempt);
            return;
        }
        let queue = UserQueue {
            under_way: 1,
            waiting: Vec::new(),
        };
        queues.insert(user, queue);
        drop(queues);
        self.settle(store, user, vec![attempt]);
    }

    fn settle(self: &Arc<Self>, store: &Store, user: Uuid, batch: Vec<Attempt>) {
        let guesses: Vec<_> = batch.iter().map(|attempt| attempt.guess.clone()).collect();
        let now = batch.iter().map(|attempt| attempt.now).max();
        let work = move |tx: &mut dyn Tx| settle(tx, user, &guesses, now);
        // The batch has to be left if the store takes no transaction.
        let batch = Arc::new(Mutex::new(batch));
        let (queue, next_store, settled) = (Arc::clone(self), store.clone(), Arc::clone(&batch));
        let reply = move |places: Result<Vec<Place>, StoreError>| {
            answer(take(&settled), &places);
            if let Some(next) = queue.next(user) {
                queue.settle(&next_store, user, next);
            }
        };
        // Whether a wrong password was counted may not be told by the time of its answer.
        if let Err(error) = store.enqueue_with_commit("count_attempts", work, reply) {
            let mut refused = take(&batch);
            refused.extend(self.queues().remove(&user).unwrap_or_default().waiting);
            answer(refused, &Err(error));
        }
    }

    /// The attempts that have come since. `None` if there are none, and the user is no longer in the queue.
    fn next(&self, user: Uuid) -> Option<Vec<Attempt>> {
        let mut queues = self.queues();
        let queue = queues.get_mut(&user)?;
        let next = mem::take(&mut queue.waiting);
        queue.under_way = next.len();
        if next.is_empty() {
            queues.remove(&user);
            return None;
        }
        Some(next)
    }
}

fn take(batch: &Mutex<Vec<Attempt>>) -> Vec<Attempt> {
    mem::take(&mut *batch.lock().unwrap_or_else(PoisonError::into_inner))
}

fn answer(batch: Vec<Attempt>, places: &Result<Vec<Place>, StoreError>) {
    match places {
        Ok(places) => {
            for (attempt, place) in batch.into_iter().zip(places) {
                (attempt.settled)(Ok(*place));
            }
        }
        Err(error) => {
            for attempt in batch {
                (attempt.settled)(Err(error.clone()));
            }
        }
    }
}

/// Gives these attempts their places, and counts the wrong ones. A password that was changed since it was checked is not
/// counted.
fn settle(
    tx: &mut dyn Tx,
    user: Uuid,
    guesses: &[Guess],
    now: Option<Timestamp>,
) -> Result<Vec<Place>, StoreError> {
    let before = FAILED_PASSWORDS.get(&*tx, &user)?;
    let current = USERS.get(&*tx, &user)?.and_then(|user| user.password);
    let (mut passwords, mut codes) = before.map_or((0, 0), |failed| (failed.count, failed.second_step));
    let (had_passwords, had_codes) = (passwords, codes);
    let mut places = Vec::new();
    for guess in guesses {
        let (count, is_counted) = match guess {
            Guess::Password { is_right, checked } => {
                (&mut passwords, !is_right && current.as_ref() == Some(checked))
            }
            Guess::Code { is_right } => (&mut codes, !is_right),
            Guess::Nothing => (&mut passwords, false),
        };
        let is_within_limit = *count < FailedPasswords::LIMIT;
        let is_counted = is_counted && is_within_limit;
        *count += u32::from(is_counted);
        places.push(Place {
            is_within_limit,
            reaches_limit: is_counted && *count == FailedPasswords::LIMIT,
        });
    }
    if (passwords, codes) != (had_passwords, had_codes) {
        let last_failed_at = now.or(before.map(|before| before.last_failed_at));
        let failed = FailedPasswords {
            count: passwords,
            second_step: codes,
            last_failed_at: last_failed_at.unwrap_or(Timestamp::from_seconds(0)),
        };
        FAILED_PASSWORDS.put(tx, &user, &failed)?;
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::core;
    use crate::flow::Core;
    use crate::flow::failed_passwords::settle_code;

    const USER: Uuid = Uuid::from_u128(7);

    /// Codes that come at once, in this order. Whether each has a place within the limit.
    async fn codes(core: &Arc<Core>, rights: &[bool]) -> Vec<bool> {
        let now = core.clock.now();
        let settled = rights.iter().map(|is_right| {
            let (core, is_right) = (Arc::clone(core), *is_right);
            tokio::spawn(async move { settle_code(&core, USER, is_right, now).await.unwrap() })
        });
        let settled: Vec<_> = settled.collect();
        let mut within = Vec::new();
        for code in settled {
            within.push(code.await.unwrap());
        }
        within
    }

    fn count(core: &Core) -> u32 {
        let row = core
            .store
            .read_blocking(|snapshot| FAILED_PASSWORDS.get(snapshot, &USER));
        row.unwrap().map_or(0, |failed| failed.second_step)
    }

    #[tokio::test]
    async fn of_many_codes_at_once_a_right_one_counts_only_before_the_hundredth_wrong_one() {
        let core = Arc::new(core());
        let mut rights = vec![false; 250];
        rights[99] = true;
        rights[101] = true;
        rights[249] = true;
        let within = codes(&core, &rights).await;
        // 99 wrong ones came before the first right one, and 100 before the second.
        assert!(within[..101].iter().all(|is_within| *is_within));
        assert!(!within[101..].iter().any(|is_within| *is_within));
        assert_eq!(count(&core), FailedPasswords::LIMIT);
    }

    #[tokio::test]
    async fn attempts_that_wait_share_a_transaction() {
        let core = Arc::new(core());
        let before = core.store.stats().transactions;
        codes(&core, &[false; 60]).await;
        assert_eq!(count(&core), 60);
        assert!(core.store.stats().transactions - before <= 3);
    }

    #[tokio::test]
    async fn a_store_that_is_closed_settles_nothing_and_keeps_nothing() {
        let core = core();
        core.store.clone().close();
        let settled = settle_code(&core, USER, false, core.clock.now()).await;
        assert!(settled.is_err());
        assert_eq!(core.attempts.unsettled(USER), 0);
    }
}
