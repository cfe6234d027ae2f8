//! What the engine knows about itself and its server: counters, failures, and how new its catalog is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Postgres, State};
use crate::clock::uptime;
use crate::store::failure_log::FailureLog;
use crate::store::{Stats, StoreError};

/// How long the catalog in memory may be used without an answer of the database.
pub(super) const LONGEST_SILENCE: Duration = Duration::from_secs(3);
/// After so long without a commit, a node commits nothing, to see whether it is still at the newest primary.
const LONGEST_IDLENESS: Duration = Duration::from_secs(2);

/// The two kinds of calls. While a standby is away, fetches succeed and commits do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallKind {
    Fetch,
    Commit,
}

/// The outages of one kind of calls.
#[derive(Default)]
struct Outages {
    /// Whether the last call failed.
    fails: AtomicBool,
    /// Whether the log has this outage.
    is_logged: AtomicBool,
    log: FailureLog,
    /// The last failure.
    error: Mutex<Option<StoreError>>,
}

impl Outages {
    fn last_error(&self) -> Option<StoreError> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// When the commit lane asked and was answered, by [`uptime`].
#[derive(Default)]
struct CommitTimes {
    /// When the first commit without an answer was sent. `None` if the last one was answered.
    unanswered_since: Option<Duration>,
    answered_at: Option<Duration>,
}

#[derive(Default)]
pub(super) struct Meters {
    commits: AtomicU64,
    transactions: AtomicU64,
    reruns: AtomicU64,
    failures: AtomicU64,
    largest_batch: AtomicU64,
    fetches: AtomicU64,
    fetch_outages: Outages,
    commit_outages: Outages,
    commit_times: Mutex<CommitTimes>,
    /// The latest time at which the catalog was asked for and found to be the newest, in milliseconds of [`uptime`].
    current_at: AtomicU64,
}

impl Meters {
    /// The meters before the first answer. A failure is not logged yet: the command that opens the store prints it.
    pub(super) fn new() -> Self {
        let meters = Self::default();
        meters.fetch_outages.fails.store(true, Ordering::Relaxed);
        meters
    }

    fn outages(&self, kind: CallKind) -> &Outages {
        match kind {
            CallKind::Fetch => &self.fetch_outages,
            CallKind::Commit => &self.commit_outages,
        }
    }

    /// Whether the last call of this kind failed.
    fn fails(&self, kind: CallKind) -> bool {
        self.outages(kind).fails.load(Ordering::Relaxed)
    }

    /// Whether a commit has failed, or waits, so that only another one shows whether the next will succeed.
    pub(super) fn commits_may_fail(&self) -> bool {
        self.fails(CallKind::Commit) || self.commits_hang()
    }

    fn commits_hang(&self) -> bool {
        let unanswered_since = self.commit_times().unanswered_since;
        unanswered_since.is_some_and(|since| uptime().saturating_sub(since) >= LONGEST_SILENCE)
    }

    /// Whether no commit was answered of late.
    pub(super) fn is_commit_due(&self) -> bool {
        let answered_at = self.commit_times().answered_at;
        answered_at.is_none_or(|at| uptime().saturating_sub(at) >= LONGEST_IDLENESS)
    }

    fn commit_times(&self) -> MutexGuard<'_, CommitTimes> {
        self.commit_times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Postgres {
    pub(in crate::store) fn stats(&self) -> Stats {
        let meters = &self.state.meters;
        let queued = self.state.fetches.depth() + self.state.commits.depth();
        Stats {
            commits: meters.commits.load(Ordering::Relaxed),
            transactions: meters.transactions.load(Ordering::Relaxed),
            reruns: meters.reruns.load(Ordering::Relaxed),
            failures: meters.failures.load(Ordering::Relaxed),
            largest_batch: meters.largest_batch.load(Ordering::Relaxed),
            queue_depth: u64::try_from(queued).unwrap_or(u64::MAX),
            fetches: meters.fetches.load(Ordering::Relaxed),
        }
    }

    /// Why this node should get no requests, if it should not.
    pub(in crate::store) fn problem(&self) -> Option<String> {
        if let Some(clocks) = self.clock_state().filter(|clocks| clocks.is_node_wrong()) {
            return Some(format!(
                "the clock of this machine and the time of the nodes and the database differ by {} s: set it by NTP",
                clocks.node_ahead.abs() / 1000
            ));
        }
        // Anyone may read this. The log has the cause.
        let fails = [CallKind::Fetch, CallKind::Commit].map(|kind| self.state.meters.fails(kind));
        if self.state.settings.is_disputed() {
            return Some("two servers of the database take writes".to_owned());
        }
        if fails.contains(&true) || !self.is_current() {
            return Some("the database does not answer".to_owned());
        }
        let fault = self.state.faulty_tables.lasting();
        fault.map(|_| "a table of the database cannot be used".to_owned())
    }

    /// [`Self::problem`] with its cause, for the operator.
    pub(in crate::store) fn outage(&self) -> Option<String> {
        let problem = self.problem()?;
        Some(match self.cause() {
            Some(cause) => format!("{problem}: {cause}"),
            None => problem,
        })
    }

    fn cause(&self) -> Option<StoreError> {
        let (meters, settings) = (&self.state.meters, &self.state.settings);
        if settings.awaits_standby() {
            return Some(StoreError::StandbyAwaited);
        }
        let failing = [CallKind::Fetch, CallKind::Commit]
            .into_iter()
            .filter(|kind| meters.fails(*kind));
        let mut causes = failing.filter_map(|kind| meters.outages(kind).last_error());
        causes.next().or_else(|| self.state.faulty_tables.lasting())
    }

    /// Whether the catalog in memory was the newest within the last seconds, and no commit has waited for longer. While
    /// commits hang, this may be an old primary without its standbys. While two servers take writes, one of them is.
    pub(in crate::store) fn is_current(&self) -> bool {
        let meters = &self.state.meters;
        let current_at = Duration::from_millis(meters.current_at.load(Ordering::Relaxed));
        uptime().saturating_sub(current_at) < LONGEST_SILENCE
            && !meters.commits_hang()
            && !self.state.settings.is_disputed()
    }
}

impl State {
    /// Notes that the catalog in memory was the newest when the database was asked, at this [`uptime`].
    pub(super) fn note_current(&self, asked_at: Duration) {
        let asked_at = u64::try_from(asked_at.as_millis()).unwrap_or(u64::MAX);
        self.meters.current_at.fetch_max(asked_at, Ordering::Relaxed);
    }

    /// Notes that a commit is sent, and waits for its answer from now on unless an earlier one does.
    pub(super) fn note_commit_asked(&self) {
        let mut times = self.meters.commit_times();
        times.unanswered_since.get_or_insert_with(uptime);
    }

    /// Notes that the database has answered a commit, if with a refusal.
    pub(super) fn note_commit_answered(&self) {
        *self.meters.commit_times() = CommitTimes {
            unanswered_since: None,
            answered_at: Some(uptime()),
        };
    }

    pub(super) fn note_answer(&self, kind: CallKind) {
        let outages = self.meters.outages(kind);
        if outages.fails.swap(false, Ordering::Relaxed) && outages.is_logged.swap(false, Ordering::Relaxed) {
            tracing::warn!(calls = ?kind, "the database answers again");
        }
    }

    pub(super) fn note_failure(&self, kind: CallKind, error: &StoreError) {
        self.meters.failures.fetch_add(1, Ordering::Relaxed);
        let outages = self.meters.outages(kind);
        let error = match kind {
            CallKind::Commit if self.settings.awaits_standby() => &StoreError::StandbyAwaited,
            CallKind::Commit | CallKind::Fetch => error,
        };
        if error.is_outage() {
            *outages.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        }
        if error.is_outage()
            && !outages.fails.swap(true, Ordering::Relaxed)
            && let Some(left_out) = outages.log.take(error)
        {
            outages.is_logged.store(true, Ordering::Relaxed);
            let left_out = (left_out > 0).then_some(left_out);
            tracing::error!(calls = ?kind, %error, left_out, "the database cannot be used");
        }
    }

    pub(super) fn note_fetch(&self) {
        self.meters.fetches.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_rerun(&self) {
        self.meters.reruns.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_commit(&self, transactions: usize) {
        let size = u64::try_from(transactions).unwrap_or(u64::MAX);
        self.meters.commits.fetch_add(1, Ordering::Relaxed);
        self.meters.transactions.fetch_add(size, Ordering::Relaxed);
        self.meters.largest_batch.fetch_max(size, Ordering::Relaxed);
    }
}
