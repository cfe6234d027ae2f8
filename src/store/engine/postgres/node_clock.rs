//! The time that the nodes and their database share.
//!
//! Each node measures by how much its clock is ahead of the database's, and stores that with its heartbeat. The time is the
//! median of the database's clock and those of all live nodes. So no single clock can be wrong for all, not even the
//! database's. With one node and one database, nothing tells which of two clocks is right, and the node uses its own.

use std::cmp::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::connection::Connection;
use super::errors::CallError;
use super::{Postgres, State, sql};
use crate::store::ClockState;
use crate::store::shared_clock::{LARGEST_DIFFERENCE, REPORTED_DIFFERENCE};

/// How long a measurement may be kept because later ones took longer, and so are less exact.
const MEASUREMENT_LIFETIME: Duration = Duration::from_secs(10);

/// How long the clocks of the other nodes are known after a heartbeat. The other nodes forget this one as soon.
pub(super) const HEARTBEAT_LIFETIME: Duration = Duration::from_secs(5);

/// An answer that took longer tells nothing, as after a pause of this process.
const LONGEST_ANSWER: Duration = Duration::from_secs(2);

/// What this node knows of the clocks.
#[derive(Default)]
pub(super) struct NodeClock {
    /// The name of this node, if it is one: a command is none.
    node: OnceLock<Uuid>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    own: Option<Measurement>,
    heartbeat: Option<Heartbeat>,
    state: Option<ClockState>,
}

/// What the last heartbeat has read.
struct Heartbeat {
    /// The clocks of the other live nodes.
    others: Vec<NodeClockReading>,
    /// Whether this node has lived for a while.
    is_settled: bool,
    read_at: Instant,
}

impl Heartbeat {
    /// The clocks of the other nodes. After a while without a heartbeat it is not known whether the nodes live, and whether
    /// the database is still the one that their clocks were compared with.
    fn others(&self) -> &[NodeClockReading] {
        if self.read_at.elapsed() > HEARTBEAT_LIFETIME {
            return &[];
        }
        &self.others
    }
}

/// The clock of a node.
struct NodeClockReading {
    /// By how many milliseconds it is ahead of the database's.
    ahead: i64,
    /// Whether the node has lived for a while.
    is_settled: bool,
}

/// A comparison of this machine's clock with the database's.
#[derive(Clone, Copy)]
struct Measurement {
    /// By how many milliseconds this machine's clock is ahead.
    ahead: i64,
    /// How long the question took. The result is wrong by half of it at most.
    took: Duration,
    made_at: Instant,
}

impl Measurement {
    /// The more exact one of two measurements, unless the clock was set between them.
    fn better(self, earlier: Option<Self>) -> Self {
        let uncertainty = i64::try_from(self.took.as_millis()).unwrap_or(i64::MAX) / 2;
        let is_usable = |earlier: &Self| {
            let agrees = (earlier.ahead - self.ahead).abs() <= uncertainty;
            let is_recent = earlier.made_at.elapsed() < MEASUREMENT_LIFETIME;
            earlier.took < self.took && (self.took > LONGEST_ANSWER || is_recent && agrees)
        };
        earlier.filter(is_usable).unwrap_or(self)
    }
}

/// An answer of the database to the question what time it is.
pub(super) struct ClockAnswer {
    /// In microseconds since the epoch.
    pub(super) database: i64,
    /// The time of this machine when it was asked, and how long the answer took.
    pub(super) asked_at: Duration,
    pub(super) took: Duration,
}

impl ClockAnswer {
    fn measurement(&self) -> Measurement {
        let middle = (self.asked_at + self.took / 2).as_micros();
        let ahead = i64::try_from(middle).unwrap_or(i64::MAX) - self.database;
        Measurement {
            ahead: ahead / 1000,
            took: self.took,
            made_at: Instant::now(),
        }
    }
}

impl NodeClock {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the clocks are like. `None` before the first comparison.
    pub(super) fn state(&self) -> Option<ClockState> {
        self.known().state
    }

    /// Whether this process is a node.
    pub(super) fn is_node(&self) -> bool {
        self.node.get().is_some()
    }

    /// How many other nodes the last heartbeat has seen.
    pub(super) fn other_nodes(&self) -> usize {
        let known = self.known();
        known
            .heartbeat
            .as_ref()
            .map_or(0, |heartbeat| heartbeat.others().len())
    }

    pub(super) fn announce(&self, node: Uuid) {
        let _ = self.node.set(node);
    }

    /// Whether this node knows the time well enough to answer by it.
    pub(super) fn knows_time(&self) -> bool {
        match self.state() {
            Some(state) => !state.is_node_wrong(),
            None => !self.is_node(),
        }
    }
}

impl State {
    /// Compares the clocks again after an answer of the database.
    pub(super) fn note_clock(&self, answer: &ClockAnswer) {
        let mut known = self.node_clock.known();
        let own = answer.measurement().better(known.own);
        known.own = Some(own);
        self.judge(&mut known);
    }

    /// Stores this node's measurement, and reads those of the others.
    pub(super) async fn beat(&self, connection: &mut Connection, deadline: Instant) -> Result<(), CallError> {
        let node = self
            .node_clock
            .node
            .get()
            .map(Uuid::as_bytes)
            .map(<[u8; 16]>::as_slice);
        let Some(own) = self.node_clock.known().own else {
            return Ok(());
        };
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&node, Type::BYTEA), (&own.ahead, Type::INT8)];
        let rows = connection.call(sql::BEAT, &parameters, deadline).await?;
        let (own_rows, others): (Vec<_>, Vec<_>) = rows
            .iter()
            .partition(|row| row.get::<_, Option<&[u8]>>(0) == node);
        let others = others.into_iter().map(|row| NodeClockReading {
            ahead: row.get(1),
            is_settled: row.get(2),
        });
        let mut known = self.node_clock.known();
        known.heartbeat = Some(Heartbeat {
            others: others.collect(),
            is_settled: own_rows.first().is_some_and(|row| row.get(2)),
            read_at: Instant::now(),
        });
        self.judge(&mut known);
        Ok(())
    }

    fn judge(&self, known: &mut Known) {
        let (Some(own), Some(heartbeat)) = (known.own, &known.heartbeat) else {
            return;
        };
        let own_clock = NodeClockReading {
            ahead: own.ahead,
            is_settled: heartbeat.is_settled,
        };
        let is_node = self.node_clock.is_node();
        let nodes = heartbeat.others().iter().chain(is_node.then_some(&own_clock));
        let before = known.state.unwrap_or_default();
        let state = before.then(own.ahead, shared_time(clocks_that_count(nodes)));
        self.clock.correct(state.correction());
        known.state = Some(state);
        log_change(before, state);
    }
}

/// How far the clocks that tell the time are ahead of the database's, with that one. Nodes that have just started count
/// only while all have: one that starts again and again would count several times.
fn clocks_that_count<'a>(nodes: impl Iterator<Item = &'a NodeClockReading> + Clone) -> Vec<i64> {
    let is_any_settled = nodes.clone().any(|node| node.is_settled);
    let counted = nodes.filter(|node| node.is_settled || !is_any_settled);
    std::iter::once(0).chain(counted.map(|node| node.ahead)).collect()
}

/// The median of the clocks. Each clock is given in milliseconds ahead of the database's. `None` if nothing tells which one
/// is right.
fn shared_time(mut clocks: Vec<i64>) -> Option<i64> {
    clocks.sort_unstable();
    let lower = *clocks.get(clocks.len().checked_sub(1)? / 2)?;
    let upper = *clocks.get(clocks.len() / 2)?;
    if upper - lower <= LARGEST_DIFFERENCE {
        return (clocks.len() > 2).then_some(lower + (upper - lower) / 2);
    }
    let agreeing = |time: i64| {
        let agrees = |clock: &&i64| (**clock - time).abs() <= LARGEST_DIFFERENCE;
        clocks.iter().filter(agrees).count()
    };
    match agreeing(lower).cmp(&agreeing(upper)) {
        Ordering::Less => Some(upper),
        Ordering::Equal => None,
        Ordering::Greater => Some(lower),
    }
}

fn log_change(before: ClockState, now: ClockState) {
    let exceeds = |millis: i64| millis.abs() > REPORTED_DIFFERENCE;
    if exceeds(now.node_ahead) && !exceeds(before.node_ahead) {
        let (milliseconds, is_decided) = (now.node_ahead, now.is_decided);
        if is_decided {
            tracing::warn!(
                milliseconds,
                "the clock of this machine is ahead of the time of the nodes and the database by so much: set it by NTP"
            );
        } else {
            tracing::warn!(
                milliseconds,
                "the clock of this machine is ahead of the one of the database by so much, and nothing tells which is right: set both by NTP"
            );
        }
    }
    if exceeds(now.database_ahead) && !exceeds(before.database_ahead) {
        tracing::warn!(
            milliseconds = now.database_ahead,
            "the clock of the database is ahead of the time of the nodes by so much: set it by NTP"
        );
    }
}

impl ClockState {
    /// `own` and `time` are how far this machine's clock and the time are ahead of the database's clock.
    fn of(own: i64, time: Option<i64>) -> Self {
        let shared = time.unwrap_or_default();
        Self {
            node_ahead: own - shared,
            database_ahead: -shared,
            is_decided: time.is_some(),
        }
    }

    /// The state after this one. If nothing tells the time any more, a clock that was wrong stays wrong until it agrees
    /// with the database's clock, or with the time that was last told.
    fn then(self, own: i64, time: Option<i64>) -> Self {
        let now = Self::of(own, time);
        let is_still_wrong = self.is_node_wrong() && now.node_ahead.abs() > LARGEST_DIFFERENCE;
        if now.is_decided || !is_still_wrong {
            return now;
        }
        Self::of(own, Some(-self.database_ahead))
    }

    fn correction(self) -> i64 {
        if self.is_decided { -self.node_ahead } else { 0 }
    }
}

impl Postgres {
    pub(in crate::store) fn knows_time(&self) -> bool {
        self.state.node_clock.knows_time()
    }

    pub(in crate::store) fn clock_state(&self) -> Option<ClockState> {
        self.state.node_clock.state()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOURS: i64 = 7_200_000;

    fn time(others: &[i64]) -> Option<i64> {
        shared_time([&[0], others].concat())
    }

    #[test]
    fn the_median_of_the_clocks_is_the_time() {
        assert_eq!(time(&[2, 5]), Some(2));
        assert_eq!(time(&[30, 10, 20]), Some(15));
        assert_eq!(time(&[0, HOURS]), Some(0));
        assert_eq!(time(&[-HOURS, 3, 0]), Some(0));
        assert_eq!(time(&[-HOURS, HOURS, 7]), Some(3));
    }

    #[test]
    fn a_database_that_is_wrong_is_outvoted() {
        assert_eq!(time(&[-HOURS; 2]), Some(-HOURS));
        assert_eq!(time(&[-HOURS, -HOURS, -HOURS - 4]), Some(-HOURS));
        let state = ClockState::of(-HOURS, time(&[-HOURS + 3, -HOURS]));
        assert_eq!((state.database_ahead, state.node_ahead), (HOURS - 3, -3));
        assert!(state.is_database_wrong() && !state.is_node_wrong());
        assert_eq!(state.correction(), 3);
    }

    #[test]
    fn of_two_middle_clocks_that_differ_the_one_with_more_company_is_right() {
        assert_eq!(time(&[1, HOURS, 2 * HOURS]), Some(1));
        assert_eq!(time(&[-HOURS, -HOURS + 1, 20_000]), Some(-HOURS + 1));
        assert_eq!(time(&[1, HOURS, HOURS]), None, "two against two");
    }

    #[test]
    fn a_node_that_starts_again_and_again_does_not_outvote_the_others() {
        let clock = |ahead, is_settled| NodeClockReading { ahead, is_settled };
        let restarted = [(); 5].map(|()| clock(HOURS, false));
        let settled = [clock(1, true), clock(2, true)];
        let nodes = settled.iter().chain(&restarted);
        assert_eq!(shared_time(clocks_that_count(nodes)), Some(1));
        // In a cluster of two, it would be the majority.
        let nodes = settled[..1].iter().chain(&restarted);
        assert_eq!(clocks_that_count(nodes.clone()), [0, 1]);
        assert_eq!(shared_time(clocks_that_count(nodes)), None);
        // When all start, all count.
        let started = [clock(1, false), clock(2, false), clock(HOURS, false)];
        assert_eq!(shared_time(clocks_that_count(started.iter())), Some(1));
    }

    #[test]
    fn without_heartbeats_the_clocks_of_the_other_nodes_are_forgotten() {
        let known_after = |seconds: u64| {
            let heartbeat = Heartbeat {
                others: vec![NodeClockReading {
                    ahead: 1,
                    is_settled: true,
                }],
                is_settled: true,
                read_at: Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap(),
            };
            heartbeat.others().len()
        };
        assert_eq!([0, 4, 6, 60].map(known_after), [1, 1, 0, 0]);
    }

    #[test]
    fn of_two_clocks_neither_is_believed() {
        for own in [3, HOURS, -HOURS] {
            assert_eq!(time(&[own]), None);
            let state = ClockState::of(own, None);
            assert!(!state.is_node_wrong() && state.correction() == 0);
        }
        assert_eq!(time(&[]), None);
    }

    #[test]
    fn a_clock_that_was_wrong_stays_wrong_when_nothing_tells_the_time_any_more() {
        let wrong = ClockState::default().then(HOURS, Some(3));
        assert!(wrong.is_node_wrong());
        let later = wrong.then(HOURS + 5, None).then(HOURS + 7, None);
        assert!(later.is_node_wrong());
        assert_eq!(later.correction(), 3 - (HOURS + 7));
        // Another comparison decides, or the clock is set.
        assert!(!later.then(HOURS, Some(HOURS)).is_node_wrong());
        assert!(!later.then(LARGEST_DIFFERENCE, None).is_node_wrong());
        let set = later.then(-20, None);
        assert_eq!((set.is_decided, set.correction()), (false, 0));
        assert!(!set.then(HOURS, None).is_node_wrong());
    }

    #[test]
    fn a_clock_that_was_right_is_believed_when_nothing_tells_the_time_any_more() {
        let outvoted = ClockState::default().then(-HOURS, Some(-HOURS));
        assert!(outvoted.is_database_wrong() && !outvoted.is_node_wrong());
        let alone = outvoted.then(-HOURS, None);
        assert!(!alone.is_node_wrong() && alone.correction() == 0);
        // The database's clock was wrong, and this one is set to the time that the others told.
        let wrong = outvoted.then(HOURS, Some(-HOURS));
        assert!(wrong.then(HOURS, None).is_node_wrong());
        assert!(!wrong.then(-HOURS + 2, None).is_node_wrong());
    }

    #[test]
    fn a_slow_answer_does_not_replace_a_quick_one_unless_the_clock_was_set() {
        let measured = |ahead, took| Measurement {
            ahead,
            took: Duration::from_millis(took),
            made_at: Instant::now(),
        };
        let quick = measured(10, 2);
        assert_eq!(measured(400, 1000).better(Some(quick)).ahead, 10);
        assert_eq!(measured(20_000, 1000).better(Some(quick)).ahead, 20_000);
        assert_eq!(measured(30_000, 60_000).better(Some(quick)).ahead, 10);
        assert_eq!(measured(11, 1).better(Some(quick)).ahead, 11);
        assert_eq!(quick.better(None).ahead, 10);
    }
}
