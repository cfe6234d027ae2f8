//! Threads that compute password hashes, with a fair queue.
//!
//! A hash takes tens of milliseconds and tens of megabytes. On threads of its own it delays no other request. The
//! queue is bounded, so a flood of sign-ins is refused quickly and the heap does not grow.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use futures_channel::oneshot::{self, Receiver, Sender};
use zeroize::Zeroizing;

use super::pool_size::PoolSize;
use super::queue::Queue;
use super::{Memory, ParsedHash, PasswordHash, PasswordParams, SALT_LEN, hash};
use crate::limit::buckets::RetryAfter;
use crate::limit::password_attempt::PasswordAttempt;

/// Why a hash was not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotComputed {
    /// The queue is full, memory is short, or the pool is closing. The response is 503 with `Retry-After`.
    #[error("too many passwords are being checked, try again in a moment")]
    Busy,
    /// While this attempt waited, others failed and reached a limit. The response is 429 with `Retry-After`.
    #[error("too many passwords were wrong, try again in {} s", .0.seconds())]
    Throttled(RetryAfter),
}

/// The result of checking a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordCheck {
    /// Whether the password is correct.
    pub matches: bool,
    /// Whether the password is correct and must be hashed again at the current cost.
    pub rehash_needed: bool,
}

/// The threads that compute password hashes. Dropping the pool ends them after their current hash.
pub struct PasswordPool {
    params: PasswordParams,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    queue: Queue<Box<dyn Job>>,
    closed: bool,
}

trait Job: Send {
    fn is_abandoned(&self) -> bool;
    fn run(self: Box<Self>, memory: &mut Memory);
}

struct Task<T, F> {
    answer: Sender<T>,
    work: F,
}

impl<T: Send, F: FnOnce(&mut Memory, Sender<T>) + Send> Job for Task<T, F> {
    fn is_abandoned(&self) -> bool {
        self.answer.is_canceled()
    }

    fn run(self: Box<Self>, memory: &mut Memory) {
        let Self { answer, work } = *self;
        work(memory, answer);
    }
}

impl PasswordPool {
    /// Starts the threads. Fails if the system refuses one.
    pub fn start(params: PasswordParams, size: PoolSize) -> io::Result<Self> {
        let threads = size.threads.max(1);
        let limit = size.waiting.saturating_add(threads);
        let state = State {
            queue: Queue::new(limit),
            closed: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let mut pool = Self {
            params,
            shared,
            threads: Vec::new(),
        };
        for number in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let thread = thread::Builder::new()
                .name(format!("password-{number}"))
                .spawn(move || shared.work(params))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// How many jobs are waiting, and how many are running.
    pub fn load(&self) -> (usize, usize) {
        let state = self.shared.lock();
        (state.queue.waiting(), state.queue.running())
    }

    /// The cost of the hashes that this pool makes.
    pub fn params(&self) -> PasswordParams {
        self.params
    }

    /// Checks a password against a user's hash, and charges the attempt if it is wrong. For an unknown user or an
    /// unreadable hash it computes a dummy hash at the current cost, so that the response takes as long, and the
    /// password does not match. If the account is at its limit, a right password counts as a wrong one.
    ///
    /// The failure is stored after the answer, so that it takes no time of it. The next attempt for the same name waits
    /// until it is queued to be stored.
    ///
    /// A job whose future is dropped before it starts is not computed and not charged.
    pub async fn verify(
        &self,
        hash: Option<PasswordHash>,
        password: Zeroizing<String>,
        attempt: PasswordAttempt,
    ) -> Result<PasswordCheck, NotComputed> {
        let params = self.params;
        let charged = attempt.clone();
        let work = move |memory: &mut Memory, answer: Sender<_>| {
            let result = check_within_limits(&charged, hash.as_ref(), &password, params, memory);
            let is_wrong = matches!(result, Ok(check) if !check.matches);
            let _ = answer.send(result);
            if is_wrong {
                charged.store_failure();
            }
        };
        self.submit(&attempt, work)
            .await
            .unwrap_or(Err(NotComputed::Busy))
    }

    /// Hashes a new password. `salt` is fresh and random.
    pub async fn hash(
        &self,
        password: Zeroizing<String>,
        salt: [u8; SALT_LEN],
    ) -> Result<PasswordHash, NotComputed> {
        let params = self.params;
        let work = move |memory: &mut Memory, answer: Sender<_>| {
            let _ = answer.send(hash(params, password.as_bytes(), salt, memory).ok());
        };
        let answer = self.submit(&PasswordAttempt::trusted(), work).await;
        answer.ok().flatten().ok_or(NotComputed::Busy)
    }

    /// Queues a job. If it loses its place, its answer is canceled. Sending the answer fails if the caller has stopped
    /// waiting.
    fn submit<T, F>(&self, attempt: &PasswordAttempt, work: F) -> Receiver<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Memory, Sender<T>) + Send + 'static,
    {
        let (answer, receiver) = oneshot::channel();
        let mut state = self.shared.lock();
        if !state.closed {
            let job: Box<dyn Job> = Box::new(Task { answer, work });
            let refused = state.queue.push(attempt, job, |job| job.is_abandoned());
            drop(state);
            drop(refused);
            self.shared.changed.notify_one();
        }
        receiver
    }
}

/// Checks a password if the limits of the attempt allow it, and charges it in memory if it is wrong.
fn check_within_limits(
    attempt: &PasswordAttempt,
    hash: Option<&PasswordHash>,
    password: &str,
    params: PasswordParams,
    memory: &mut Memory,
) -> Result<PasswordCheck, NotComputed> {
    attempt.may_check().map_err(NotComputed::Throttled)?;
    let may_match = attempt.may_match().ok_or(NotComputed::Busy)?;
    let check = check(hash, password, params, memory).ok_or(NotComputed::Busy)?;
    if check.matches && may_match {
        return Ok(check);
    }
    attempt.count_failure();
    Ok(PasswordCheck {
        matches: false,
        rehash_needed: false,
    })
}

fn check(
    hash: Option<&PasswordHash>,
    password: &str,
    params: PasswordParams,
    memory: &mut Memory,
) -> Option<PasswordCheck> {
    let known = hash.and_then(|hash| ParsedHash::read(hash.as_str()).ok());
    let is_known = known.is_some();
    let parsed = match known {
        Some(parsed) => parsed,
        None => ParsedHash::read(PasswordHash::dummy(params).as_str()).ok()?,
    };
    let matches = parsed.matches(password.as_bytes(), memory).ok()? && is_known;
    let rehash_needed = matches && hash.is_some_and(|hash| hash.needs_rehash(params));
    Some(PasswordCheck {
        matches,
        rehash_needed,
    })
}

impl Drop for PasswordPool {
    fn drop(&mut self) {
        let unanswered = {
            let mut state = self.shared.lock();
            state.closed = true;
            state.queue.drain()
        };
        self.shared.changed.notify_all();
        drop(unanswered);
        for thread in self.threads.drain(..) {
            // A thread catches the panics of its jobs. If it died in another way, there is nothing to do.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for PasswordPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordPool")
            .field("params", &self.params)
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs jobs until the pool closes. The thread lowers its priority, because a hash takes a hundred times as long as
    /// a token request. Only Linux has a niceness for each thread.
    fn work(&self, params: PasswordParams) {
        const NICENESS: i32 = 5;
        if cfg!(target_os = "linux")
            && let Err(error) = rustix::process::nice(NICENESS)
        {
            tracing::warn!(%error, "hashing passwords does not step back behind other work: allow setpriority");
        }
        let mut memory = Memory::default();
        while let Some((subject, job)) = self.next() {
            if catch_unwind(AssertUnwindSafe(|| job.run(&mut memory))).is_err() {
                memory = Memory::default();
            }
            memory.shrink_to(params);
            self.lock().queue.finish(subject);
        }
    }

    /// Waits for a job that was not abandoned. Returns `None` when the pool closes.
    fn next(&self) -> Option<(Option<u64>, Box<dyn Job>)> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            match state.queue.pop() {
                Some((subject, job)) if job.is_abandoned() => state.queue.finish(subject),
                Some(next) => return Some(next),
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn cheap() -> PasswordParams {
        PasswordParams::new(32, 1, 1).unwrap()
    }

    fn pool(threads: usize, waiting: usize) -> PasswordPool {
        PasswordPool::start(cheap(), PoolSize { threads, waiting }).unwrap()
    }

    /// Waits on this thread.
    fn wait<T>(answer: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(answer)
    }

    fn typed(password: &str) -> Zeroizing<String> {
        Zeroizing::new(password.to_owned())
    }

    fn result(matches: bool, rehash_needed: bool) -> PasswordCheck {
        PasswordCheck {
            matches,
            rehash_needed,
        }
    }

    fn submit<T: Send + 'static>(
        pool: &PasswordPool,
        work: impl FnOnce(&mut Memory) -> T + Send + 'static,
    ) -> Receiver<T> {
        let answered = |memory: &mut Memory, answer: Sender<T>| drop(answer.send(work(memory)));
        pool.submit(&PasswordAttempt::trusted(), answered)
    }

    /// Holds one thread of the pool until the returned sender is dropped.
    fn occupy(pool: &PasswordPool) -> mpsc::Sender<()> {
        let (release, held) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        let work = move |_: &mut Memory| {
            started.send(()).unwrap();
            let _ = held.recv();
        };
        std::mem::forget(submit(pool, work));
        running.recv().unwrap();
        release
    }

    #[test]
    fn a_hashed_password_verifies_and_another_does_not() {
        let pool = pool(2, 8);
        let hash = wait(pool.hash(typed("correct horse"), [1; SALT_LEN])).unwrap();
        let right = wait(pool.verify(
            Some(hash.clone()),
            typed("correct horse"),
            PasswordAttempt::trusted(),
        ))
        .unwrap();
        assert_eq!(right, result(true, false));
        let wrong =
            wait(pool.verify(Some(hash), typed("battery staple"), PasswordAttempt::trusted())).unwrap();
        assert_eq!(wrong, result(false, false));
    }

    #[test]
    fn an_unknown_user_costs_a_hash_and_never_matches() {
        let pool = pool(1, 8);
        for password in ["", "unknown account.", "correct horse"] {
            assert!(
                !wait(pool.verify(None, typed(password), PasswordAttempt::trusted()))
                    .unwrap()
                    .matches
            );
        }
        let blocks = wait(submit(&pool, |memory| format!("{memory:?}"))).unwrap();
        assert_eq!(blocks, "Memory(32 KiB)");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_threads_that_hash_step_back_and_the_others_do_not() {
        let niceness = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let mut fields = stat.rsplit(") ").next().unwrap().split(' ');
            fields.nth(16).unwrap().parse::<i32>().unwrap()
        };
        let mine = niceness();
        let theirs = wait(submit(&pool(1, 8), move |_| niceness())).unwrap();
        assert_eq!((theirs, niceness()), ((mine + 5).min(19), mine));
    }

    #[test]
    fn a_hash_of_another_cost_is_to_be_made_again_when_the_password_is_right() {
        let pool = pool(1, 8);
        let other = PasswordParams::new(64, 1, 1).unwrap();
        let old = hash(other, b"correct horse", [1; SALT_LEN], &mut Memory::default()).unwrap();
        let right = wait(pool.verify(
            Some(old.clone()),
            typed("correct horse"),
            PasswordAttempt::trusted(),
        ))
        .unwrap();
        assert_eq!(right, result(true, true));
        let wrong = wait(pool.verify(Some(old), typed("wrong"), PasswordAttempt::trusted())).unwrap();
        assert_eq!(wrong, result(false, false));
    }

    #[test]
    fn a_malformed_hash_matches_nothing() {
        let pool = pool(1, 8);
        let broken: PasswordHash = serde_json::from_str("\"!\"").unwrap();
        assert!(
            !wait(pool.verify(Some(broken), typed("!"), PasswordAttempt::trusted()))
                .unwrap()
                .matches
        );
    }

    #[test]
    fn a_full_queue_is_busy_until_a_place_is_free() {
        let pool = pool(1, 2);
        let release = occupy(&pool);
        let waiting = [submit(&pool, |_| 1), submit(&pool, |_| 2)];
        assert_eq!(
            wait(pool.verify(None, typed("x"), PasswordAttempt::trusted())),
            Err(NotComputed::Busy)
        );
        assert_eq!(wait(pool.hash(typed("x"), [0; SALT_LEN])), Err(NotComputed::Busy));
        drop(release);
        assert_eq!(waiting.map(wait), [Ok(1), Ok(2)]);
        let again = submit(&pool, |_| 3);
        assert_eq!(wait(again), Ok(3));
    }

    #[test]
    fn a_dropped_future_gives_its_place_back_and_is_not_computed() {
        let pool = pool(1, 1);
        let release = occupy(&pool);
        let computed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&computed);
        let dropped = submit(&pool, move |_| count.fetch_add(1, Ordering::SeqCst));
        assert_eq!(wait(submit(&pool, |_| ())), Err(oneshot::Canceled));
        drop(dropped);
        let kept = submit(&pool, |_| "kept");
        drop(release);
        assert_eq!(wait(kept), Ok("kept"));
        assert_eq!(computed.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn an_abandoned_job_is_skipped_when_its_turn_comes() {
        let pool = pool(1, 4);
        let release = occupy(&pool);
        let computed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&computed);
        drop(submit(&pool, move |_| count.fetch_add(1, Ordering::SeqCst)));
        let last = submit(&pool, |_| ());
        drop(release);
        assert_eq!(wait(last), Ok(()));
        assert_eq!(computed.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn verification_is_a_future_of_any_runtime() {
        let pool = pool(1, 4);
        let release = occupy(&pool);
        let mut future = pin!(pool.verify(None, typed("x"), PasswordAttempt::trusted()));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(future.as_mut().poll(&mut context), Poll::Pending);
        drop(release);
        wait(submit(&pool, |_| ())).unwrap();
        assert!(matches!(
            future.poll(&mut context),
            Poll::Ready(Ok(PasswordCheck { matches: false, .. }))
        ));
    }

    #[test]
    fn a_panic_is_one_refusal_and_the_thread_lives_on() {
        let pool = pool(1, 4);
        let failed = submit(&pool, |_| -> u8 { panic!("a fault in one job") });
        assert_eq!(wait(failed), Err(oneshot::Canceled));
        assert!(
            !wait(pool.verify(None, typed("x"), PasswordAttempt::trusted()))
                .unwrap()
                .matches
        );
        assert_eq!(pool.load().0, 0);
    }

    #[test]
    fn closing_answers_waiting_jobs_and_joins_the_threads() {
        let pool = pool(2, 4);
        let releases = [occupy(&pool), occupy(&pool)];
        let waiting = submit(&pool, |_| ());
        let shared = Arc::downgrade(&pool.shared);
        let closing = thread::spawn(move || drop(pool));
        assert_eq!(wait(waiting), Err(oneshot::Canceled));
        drop(releases);
        closing.join().unwrap();
        assert!(shared.upgrade().is_none());
    }
}
