//! Runs `idsvc serve`: it listens, answers, does background work and stops.

pub mod acme_task;
pub mod background_tasks;
pub mod backup_schedule;
mod census;
pub mod clock_guard;
pub mod dev;
pub mod listen;
pub mod logout_sender;
mod mail_drawing;
pub mod mail_sender;
mod node_digests;
pub mod open;
pub mod open_files;
pub mod return_memory;
pub mod run;
pub mod shutdown;

use std::fmt;

/// Why the service does not start.
#[derive(Debug)]
pub struct StartError {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl StartError {
    /// An error without a hint.
    #[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
    pub fn new(message: impl ToString) -> Self {
        Self {
            message: message.to_string(),
            hint: None,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
