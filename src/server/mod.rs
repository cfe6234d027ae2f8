//! What `idsvc serve` does: listen, answer, keep house and stop.

pub mod acme_task;
pub mod background_tasks;
pub mod backup_schedule;
pub mod clock_guard;
pub mod dev;
pub mod listen;
pub mod open_files;
