//! What a node knows of the clocks of the nodes and the database.

use serde::{Deserialize, Serialize};

/// A clock that is further from the time counts as wrong, in milliseconds.
pub(super) const LARGEST_DIFFERENCE: i64 = 10_000;
/// How far a clock may be from the time before that is reported, in milliseconds.
pub(super) const REPORTED_DIFFERENCE: i64 = 5000;

/// How far the clocks are from the time that the nodes and the database share, in milliseconds. If nothing tells what the
/// time is, the database's clock stands in for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockState {
    /// The clock of this machine.
    pub node_ahead: i64,
    /// The clock of the database.
    pub database_ahead: i64,
    /// Whether at least three clocks tell what the time is.
    pub is_decided: bool,
}

impl ClockState {
    /// Whether this machine's clock is so wrong that the node answers nothing by it.
    pub fn is_node_wrong(self) -> bool {
        self.is_decided && self.node_ahead.abs() > LARGEST_DIFFERENCE
    }

    /// Whether the database's clock is as wrong. No node goes by it.
    pub fn is_database_wrong(self) -> bool {
        self.database_ahead.abs() > LARGEST_DIFFERENCE
    }

    /// Whether two clocks differ, and nothing tells which one is right.
    pub fn is_disputed(self) -> bool {
        !self.is_decided && self.node_ahead.abs() > REPORTED_DIFFERENCE
    }
}
