//! The clocks of the nodes that share a store, and of its database.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Engine, Store, StoreError};
use crate::clock::{self, Clock};

/// A clock that is further from the time counts as wrong, in milliseconds.
pub(super) const LARGEST_DIFFERENCE: i64 = clock::LARGEST_DIFFERENCE.as_secs().cast_signed() * 1000;
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
    /// Whether at least three clocks tell what the time is, or did when they last told that this machine's clock is wrong.
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

impl Store {
    /// The clock for all that is stored. Nodes that share a store share the time.
    pub fn clock(&self) -> Clock {
        match &self.engine {
            Engine::Local(_) => Clock::System,
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => Clock::Shared(postgres.clock()),
        }
    }

    /// Whether the time is known well enough to answer by it: always, unless the store is shared and the clock of this
    /// machine is wrong.
    pub fn knows_time(&self) -> bool {
        match &self.engine {
            Engine::Local(_) => true,
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.knows_time(),
        }
    }

    /// What the nodes know of their clocks and the database's. `None` if the store is not shared.
    pub fn clock_state(&self) -> Option<ClockState> {
        match &self.engine {
            Engine::Local(_) => None,
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.clock_state(),
        }
    }

    /// Makes this process one of the nodes that share the store, so that its clock counts among theirs. Blocks.
    pub fn announce(&self, node: Uuid) -> Result<(), StoreError> {
        match &self.engine {
            Engine::Local(_) => {
                let _ = node;
                Ok(())
            }
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.announce(node),
        }
    }
}
