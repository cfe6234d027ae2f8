//! Threads that compute password hashes, with a fair queue.
//!
//! A hash takes tens of milliseconds and tens of megabytes. On threads of its own it delays no other request. The
//! queue is bounded, so a flood of sign-ins is refused quickly and the heap does not grow.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures_channel::oneshot::{self, Receiver, Sender};
use zeroize::Zeroizing;

use super::memory::Shortages;
use super::pool_size::PoolSize;
use super::queue::{Attempt, Queue};
use super::{MAX_MEMORY_KIB, Memory, OutOfMemory, ParsedHash, PasswordHash, PasswordParams, SALT_LEN, hash};
use crate::limit::buckets::RetryAfter;
use crate::limit::password_attempt::PasswordAttempt;
use crate::text;

/// Why a hash was not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotComputed {
    /// The queue is full, or the pool is closing. The response is 503 with `Retry-After`.
    #[error("too many passwords are being checked, try again in a moment")]
    Busy,
    /// There is no memory for the hash. The response is 503 with `Retry-After`.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
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
    shortages: Arc<Shortages>,
    /// How long a thread without work keeps its memory.
    idle_timeout: Duration,
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
    /// How long a thread without work keeps its memory.
    const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

    /// Starts the threads. Fails if the system refuses one.
    pub fn start(params: PasswordParams, size: PoolSize) -> io::Result<Self> {
        Self::start_within(MAX_MEMORY_KIB, params, size)
    }

    /// Starts the threads. A hash that takes more than `limit_kib` KiB is refused; only an imported hash can take more.
    pub fn start_within(limit_kib: u32, params: PasswordParams, size: PoolSize) -> io::Result<Self> {
        Self::launch(limit_kib, params, size, Self::IDLE_TIMEOUT)
    }

    fn launch(
        limit_kib: u32,
        params: PasswordParams,
        size: PoolSize,
        idle_timeout: Duration,
    ) -> io::Result<Self> {
        let threads = size.threads.max(1);
        let limit = size.waiting.saturating_add(threads);
        let state = State {
            queue: Queue::new(limit),
            closed: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            shortages: Arc::default(),
            idle_timeout,
        });
        let mut pool = Self {
            params,
            shared,
            threads: Vec::new(),
        };
        for number in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let memory = Memory::new(limit_kib, Arc::clone(&shared.shortages));
            let thread = thread::Builder::new()
                .name(format!("password-{number}"))
                .spawn(move || shared.work(params, memory))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// How many jobs there are.
    pub fn load(&self) -> PoolLoad {
        let state = self.shared.lock();
        PoolLoad {
            waiting: state.queue.waiting(),
            running: state.queue.running(),
        }
    }

    /// For how many hashes there was no memory.
    pub fn shortages(&self) -> u64 {
        self.shared.shortages.count()
    }

    /// The cost of the hashes that this pool makes.
    pub fn params(&self) -> PasswordParams {
        self.params
    }

    /// Checks a password against a user's hash, and charges the attempt if it is wrong. For an unknown user or an
    /// unreadable hash it computes a dummy hash at the current cost, so that the response takes as long, and the
    /// password does not match. If the account is at its limit, a right password counts as a wrong one.
    ///
    /// The next attempt for the same name waits until a failure is queued to be stored.
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
        let work = move |memory: &mut Memory, answer: Sender<_>| match check_within_limits(
            &charged,
            hash.as_ref(),
            &password,
            params,
            memory,
        ) {
            Ok(check) => settle(&charged, check, answer),
            Err(refused) => drop(answer.send(Err(refused))),
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
            let prepared = text::opaque_string(&password);
            let _ = answer.send(hash(params, prepared.as_bytes(), salt, memory));
        };
        let answer = self.submit(&PasswordAttempt::trusted(), work).await;
        Ok(answer.map_err(|_| NotComputed::Busy)??)
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
    let check = check(hash, password, params, memory)?;
    if !check.matches {
        attempt.count_failure();
    }
    Ok(check)
}

/// Answers once the account has counted the attempt. The right password counts as a wrong one if it is not accepted.
fn settle(
    attempt: &PasswordAttempt,
    check: PasswordCheck,
    answer: Sender<Result<PasswordCheck, NotComputed>>,
) {
    let charged = attempt.clone();
    attempt.settle(check.matches, move |is_accepted| {
        if check.matches && is_accepted == Some(false) {
            charged.count_failure();
        }
        let settled = is_accepted.map(|is_accepted| PasswordCheck {
            matches: check.matches && is_accepted,
            rehash_needed: check.rehash_needed && is_accepted,
        });
        let _ = answer.send(settled.ok_or(NotComputed::Busy));
    });
}

/// Tries the password in its one form, and then as typed: a hash of an earlier release, or of another system, may be
/// one of the bytes as typed. It does the same for an unknown user, and if the first form is right: at its limit, an
/// account has to answer the right password as late as a wrong one.
fn check(
    hash: Option<&PasswordHash>,
    password: &str,
    params: PasswordParams,
    memory: &mut Memory,
) -> Result<PasswordCheck, NotComputed> {
    let prepared = text::opaque_string(password);
    let matches_prepared = matches(hash, &prepared, params, memory)?;
    let matches_as_typed = *prepared != password && matches(hash, password, params, memory)?;
    if matches_prepared {
        return Ok(PasswordCheck {
            matches: true,
            rehash_needed: hash.is_some_and(|hash| hash.needs_rehash(params)),
        });
    }
    Ok(PasswordCheck {
        matches: matches_as_typed,
        rehash_needed: matches_as_typed,
    })
}

fn matches(
    hash: Option<&PasswordHash>,
    password: &str,
    params: PasswordParams,
    memory: &mut Memory,
) -> Result<bool, NotComputed> {
    let known = hash.and_then(|hash| ParsedHash::read(hash.as_str()).ok());
    let is_known = known.is_some();
    let parsed = match known {
        Some(parsed) => parsed,
        None => ParsedHash::read(PasswordHash::dummy(params).as_str()).map_err(|_| NotComputed::Busy)?,
    };
    Ok(parsed.matches(password.as_bytes(), memory)? && is_known)
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

/// The jobs of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLoad {
    /// How many are waiting.
    pub waiting: usize,
    /// How many are running.
    pub running: usize,
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
    fn work(&self, params: PasswordParams, mut memory: Memory) {
        const NICENESS: i32 = 5;
        if cfg!(target_os = "linux")
            && let Err(error) = rustix::process::nice(NICENESS)
        {
            tracing::warn!(%error, "hashing passwords does not step back behind other work: allow setpriority");
        }
        while let Some(Attempt { subject, job }) = self.next(&mut memory) {
            if catch_unwind(AssertUnwindSafe(|| job.run(&mut memory))).is_err() {
                memory.free();
            }
            memory.shrink_to(params);
            self.lock().queue.finish(subject);
        }
    }

    /// Waits for a job that was not abandoned, and frees the memory if none comes for long. Returns `None` when the pool
    /// closes.
    fn next(&self, memory: &mut Memory) -> Option<Attempt<Box<dyn Job>>> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            match state.queue.pop() {
                Some(next) if next.job.is_abandoned() => state.queue.finish(next.subject),
                Some(next) => return Some(next),
                None => {
                    let waited = self.changed.wait_timeout(state, self.idle_timeout);
                    let (locked, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    state = locked;
                    if timeout.timed_out() {
                        memory.free();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
