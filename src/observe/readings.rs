//! The metrics that are read when a collector asks for them.

use std::path::Path;

use super::event_files::{EventKind, extent};
use super::process;
use crate::clock::Timestamp;

/// The current values of other parts of the service. A metric whose value is `None` is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readings {
    /// Commits of the store.
    pub store_commits: u64,
    /// Writes in those commits.
    pub store_writes: u64,
    /// Commits that failed.
    pub store_failures: u64,
    /// The largest number of writes in one commit.
    pub store_largest_batch: u64,
    /// Writes in the queue.
    pub store_queue: u64,
    /// Whether writes can be expected to succeed.
    pub store_is_writable: bool,
    /// Passwords that wait to be checked or hashed.
    pub password_queue: u64,
    /// Passwords that are being checked or hashed.
    pub password_running: u64,
    /// Whether `/readyz` answers 200.
    pub is_ready: bool,
    /// The end of the validity of the certificate in use, in seconds since the epoch; zero without a certificate.
    pub certificate_not_after: u64,
    /// Open connections to the service.
    pub connections: u64,
    /// The most connections that may be open.
    pub connections_max: u64,
    /// Connections that were closed because too many were open.
    pub connections_refused: u64,
    /// The free bytes of the disk with the data.
    pub disk_free: Option<u64>,
    /// The size of that disk in bytes.
    pub disk_size: Option<u64>,
    /// The bytes of the disk that the database takes.
    pub database_bytes: Option<u64>,
    /// The bytes of all rows.
    pub database_live_bytes: u64,
    /// The bytes that the file of the database can take without growing.
    pub database_unused_bytes: Option<u64>,
    /// How often a backup is made, in seconds; `None` if none is scheduled.
    pub backup_interval: Option<u64>,
    /// When the newest scheduled backup was made, in seconds since the epoch.
    pub newest_backup: Option<u64>,
    /// The bytes of the event files.
    pub event_log_bytes: Option<u64>,
    /// The time of the oldest security event, in seconds since the epoch.
    pub oldest_event: Option<u64>,
    /// The time of the oldest routine event, in seconds since the epoch.
    pub oldest_routine_event: Option<u64>,
    /// The memory of the process in bytes.
    pub resident_bytes: Option<u64>,
    /// The open file descriptors of the process.
    pub open_fds: Option<u64>,
    /// The most file descriptors that it may have.
    pub max_fds: Option<u64>,
    /// When the service was started, in seconds since the epoch.
    pub started_at: u64,
}

impl Readings {
    /// Adds the memory and the open files of this process.
    #[must_use]
    pub fn with_process(self) -> Self {
        Self {
            resident_bytes: process::resident_bytes(),
            open_fds: process::open_fds(),
            max_fds: process::max_fds(),
            ..self
        }
    }

    /// Adds the size of the event files in this data directory, and the times of the oldest events.
    #[must_use]
    pub fn with_events_in(self, data_dir: &Path) -> Self {
        let [security, routine] = EventKind::ALL.map(|kind| extent(data_dir, kind).ok());
        Self {
            event_log_bytes: security.zip(routine).map(|(one, other)| one.bytes + other.bytes),
            oldest_event: security.and_then(|extent| extent.oldest).map(Timestamp::seconds),
            oldest_routine_event: routine.and_then(|extent| extent.oldest).map(Timestamp::seconds),
            ..self
        }
    }
}

/// How a metric may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows while the process runs. Its name gets the ending `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// The name of a metric, its kind, its help text and its value.
pub type Reading = (&'static str, Kind, &'static str, fn(&Readings) -> Option<u64>);

/// All metrics that are read.
pub const READINGS: &[Reading] = &[
    (
        "idsvc_store_commits",
        Kind::Counter,
        "Commits of the store, each of which waited for the disk",
        |now| Some(now.store_commits),
    ),
    (
        "idsvc_store_writes",
        Kind::Counter,
        "Writes that the commits held",
        |now| Some(now.store_writes),
    ),
    (
        "idsvc_store_failures",
        Kind::Counter,
        "Commits that the disk did not take",
        |now| Some(now.store_failures),
    ),
    (
        "idsvc_store_largest_batch",
        Kind::Gauge,
        "The most writes that shared one commit",
        |now| Some(now.store_largest_batch),
    ),
    ("idsvc_store_queue", Kind::Gauge, "Writes that wait", |now| {
        Some(now.store_queue)
    }),
    (
        "idsvc_store_writable",
        Kind::Gauge,
        "Whether writes can be expected to succeed",
        |now| Some(now.store_is_writable.into()),
    ),
    (
        "idsvc_password_queue",
        Kind::Gauge,
        "Passwords that wait to be checked or hashed",
        |now| Some(now.password_queue),
    ),
    (
        "idsvc_password_running",
        Kind::Gauge,
        "Passwords that are being checked or hashed",
        |now| Some(now.password_running),
    ),
    ("idsvc_ready", Kind::Gauge, "Whether /readyz answers 200", |now| {
        Some(now.is_ready.into())
    }),
    (
        "idsvc_certificate_not_after_seconds",
        Kind::Gauge,
        "The last second of the certificate in use, since the epoch; 0 without one",
        |now| Some(now.certificate_not_after),
    ),
    (
        "idsvc_connections",
        Kind::Gauge,
        "Open connections to the service",
        |now| Some(now.connections),
    ),
    (
        "idsvc_connections_max",
        Kind::Gauge,
        "The most connections that may be open",
        |now| Some(now.connections_max),
    ),
    (
        "idsvc_disk_free_bytes",
        Kind::Gauge,
        "Free bytes of the disk with the data",
        |now| now.disk_free,
    ),
    (
        "idsvc_disk_size_bytes",
        Kind::Gauge,
        "The size of the disk with the data",
        |now| now.disk_size,
    ),
    (
        "idsvc_database_bytes",
        Kind::Gauge,
        "Bytes of the disk that the database takes",
        |now| now.database_bytes,
    ),
    (
        "idsvc_database_live_bytes",
        Kind::Gauge,
        "Bytes of all rows",
        |now| Some(now.database_live_bytes),
    ),
    (
        "idsvc_database_unused_bytes",
        Kind::Gauge,
        "Bytes that the file of the database can take without growing, at least",
        |now| now.database_unused_bytes,
    ),
    (
        "idsvc_backup_interval_seconds",
        Kind::Gauge,
        "How often a backup is made",
        |now| now.backup_interval,
    ),
    (
        "idsvc_backup_newest_timestamp_seconds",
        Kind::Gauge,
        "When the newest scheduled backup was made, since the epoch",
        |now| now.newest_backup,
    ),
    (
        "idsvc_event_log_bytes",
        Kind::Gauge,
        "Bytes of the event files",
        |now| now.event_log_bytes,
    ),
    (
        "idsvc_event_log_oldest_timestamp_seconds",
        Kind::Gauge,
        "The time of the oldest security event, since the epoch",
        |now| now.oldest_event,
    ),
    (
        "idsvc_event_log_oldest_routine_timestamp_seconds",
        Kind::Gauge,
        "The time of the oldest routine event, since the epoch",
        |now| now.oldest_routine_event,
    ),
    (
        "process_resident_memory_bytes",
        Kind::Gauge,
        "Memory of the process",
        |now| now.resident_bytes,
    ),
    ("process_open_fds", Kind::Gauge, "Open file descriptors", |now| {
        now.open_fds
    }),
    (
        "process_max_fds",
        Kind::Gauge,
        "The most file descriptors that may be open",
        |now| now.max_fds,
    ),
    (
        "process_start_time_seconds",
        Kind::Gauge,
        "When the service was started, since the epoch",
        |now| Some(now.started_at),
    ),
];
