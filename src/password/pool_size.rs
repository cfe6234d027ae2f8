//! The size of a [`PasswordPool`](super::PasswordPool).

use std::thread;

use super::PasswordParams;

/// How many hashes are computed at once, and how many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// The number of threads. Zero counts as one.
    pub threads: usize,
    /// The length of the queue, without the hashes being computed.
    pub waiting: usize,
}

impl PoolSize {
    /// The default length of the queue.
    pub const WAITING: usize = 128;

    /// A thread for each core, but no more than `memory_budget_kib` allows.
    pub fn fitting(params: PasswordParams, memory_budget_kib: u64) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let fitting =
            usize::try_from(memory_budget_kib / u64::from(params.memory_kib())).unwrap_or(usize::MAX);
        Self {
            threads: cores.min(fitting).max(1),
            waiting: Self::WAITING,
        }
    }
}

impl Default for PoolSize {
    /// A thread for each core.
    fn default() -> Self {
        Self::fitting(PasswordParams::default(), u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_follows_cores_and_memory_and_is_never_zero() {
        let params = PasswordParams::default();
        let cores = thread::available_parallelism().unwrap().get();
        assert_eq!(PoolSize::fitting(params, 0).threads, 1);
        assert_eq!(
            PoolSize::fitting(params, u64::from(params.memory_kib())).threads,
            1
        );
        assert_eq!(
            PoolSize::default(),
            PoolSize {
                threads: cores,
                waiting: PoolSize::WAITING
            }
        );
    }
}
