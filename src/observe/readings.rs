//! The metrics that are read when a collector asks for them.

use std::path::Path;

use super::event_files::{EventKind, extent};
use super::process;
use crate::clock::Timestamp;
use crate::described::described;

/// What a collector is told of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The name, without the ending of a sample.
    pub name: &'static str,
    /// How it may change.
    pub kind: Kind,
    pub labels: &'static [&'static str],
    /// The help text.
    pub help: &'static str,
}

described! {
    /// How a metric may change.
    pub enum Kind {
        /// It only grows while the process runs. Its name gets the ending `_total`.
        Counter = "counter",
        /// It goes up and down.
        Gauge = "gauge",
        /// It counts values by size.
        Histogram = "histogram",
        /// Its labels say something, and its value is 1. Its name gets the ending `_info`.
        Info = "info",
    }
}

impl Description {
    /// The name as dashboards and alerts use it.
    pub fn exposed_name(&self) -> String {
        let ending = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        format!("{}{ending}", self.name)
    }
}

/// A metric that is read: its description and its value.
pub type Reading = (Description, fn(&Readings) -> Option<u64>);

/// The value of a reading as a number. A metric without a value is left out.
trait Value {
    fn value(self) -> Option<u64>;
}

impl Value for u64 {
    fn value(self) -> Option<u64> {
        Some(self)
    }
}

impl Value for bool {
    fn value(self) -> Option<u64> {
        Some(self.into())
    }
}

impl Value for Option<u64> {
    fn value(self) -> Option<u64> {
        self
    }
}

/// Declares the readings: first the metrics, whose doc comments are their help texts, then what other metrics need.
macro_rules! readings {
    (
        $($(#[doc = $doc:literal])* $field:ident: $type:ty = $kind:ident $name:literal,)*
        ;
        $($(#[doc = $other_doc:literal])* $other:ident: $other_type:ty,)*
    ) => {
        /// The current values of other parts of the service.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Readings {
            $($(#[doc = $doc])* pub $field: $type,)*
            $($(#[doc = $other_doc])* pub $other: $other_type,)*
        }

        /// All metrics that are read.
        pub const READINGS: &[Reading] = &[$((
            Description {
                name: $name,
                kind: Kind::$kind,
                labels: &[],
                help: concat!($($doc),*).trim_ascii(),
            },
            |now| now.$field.value(),
        ),)*];
    };
}

/// How many users there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserCounts {
    /// Those who may sign in.
    pub enabled: u64,
    pub disabled: u64,
    /// Anonymous users of devices, enabled or not.
    pub anonymous: u64,
}

readings! {
    /// Commits of the store, each of which waited for the disk or the database.
    store_commits: u64 = Counter "idsvc_store_commits",
    /// Writes in the commits. Divided by the commits, they are the size of a batch.
    store_writes: u64 = Counter "idsvc_store_writes",
    /// With store.url: how often a request, or work of the service itself, has waited for rows of the database.
    store_fetches: u64 = Counter "idsvc_store_fetches",
    /// Commits that failed. With store.url: calls to the database that failed.
    store_failures: u64 = Counter "idsvc_store_failures",
    /// The most writes in one commit.
    store_largest_batch: u64 = Gauge "idsvc_store_largest_batch",
    /// Writes that wait.
    store_queue: u64 = Gauge "idsvc_store_queue",
    /// Whether writes can be stored: 0 while the disk or the database fails or does not answer, or while the clock of this machine is too far from that of the others.
    store_is_writable: bool = Gauge "idsvc_store_writable",
    /// Passwords that wait to be checked or hashed.
    password_queue: u64 = Gauge "idsvc_password_queue",
    /// Passwords that are being checked or hashed.
    password_running: u64 = Gauge "idsvc_password_running",
    /// Whether /readyz answers 200.
    is_ready: bool = Gauge "idsvc_ready",
    /// The last second of the certificate in use, since 1970; 0 without one.
    certificate_not_after: u64 = Gauge "idsvc_certificate_not_after_seconds",
    /// Open connections to the service.
    connections: u64 = Gauge "idsvc_connections",
    /// The most connections that may be open.
    connections_max: u64 = Gauge "idsvc_connections_max",
    /// Free bytes of the disk with the data.
    disk_free: Option<u64> = Gauge "idsvc_disk_free_bytes",
    /// The size of the disk with the data.
    disk_size: Option<u64> = Gauge "idsvc_disk_size_bytes",
    /// Bytes of the disk that the database takes.
    database_bytes: Option<u64> = Gauge "idsvc_database_bytes",
    /// Bytes of all rows, counted with each commit.
    database_live_bytes: Option<u64> = Gauge "idsvc_database_live_bytes",
    /// Bytes that the file of the database can take without growing, at least.
    database_unused_bytes: Option<u64> = Gauge "idsvc_database_unused_bytes",
    /// How often a backup is scheduled, in seconds.
    backup_interval: Option<u64> = Gauge "idsvc_backup_interval_seconds",
    /// When the newest scheduled backup was made, in seconds since 1970.
    newest_backup: Option<u64> = Gauge "idsvc_backup_newest_timestamp_seconds",
    /// Bytes of the files in events/.
    event_log_bytes: Option<u64> = Gauge "idsvc_event_log_bytes",
    /// The time of the oldest security event, in seconds since 1970.
    oldest_event: Option<u64> = Gauge "idsvc_event_log_oldest_timestamp_seconds",
    /// The time of the oldest routine event, in seconds since 1970.
    oldest_routine_event: Option<u64> = Gauge "idsvc_event_log_oldest_routine_timestamp_seconds",
    /// Mails that wait to be sent.
    mail_queue: Option<u64> = Gauge "idsvc_mail_queue",
    /// How long the oldest mail has waited, in seconds. 0 if none waits.
    oldest_mail: Option<u64> = Gauge "idsvc_mail_oldest_age_seconds",
    /// Logout notices that wait to be sent to applications.
    logout_queue: Option<u64> = Gauge "idsvc_logout_queue",
    /// How long the oldest logout notice has waited, in seconds. 0 if none waits.
    oldest_logout: Option<u64> = Gauge "idsvc_logout_oldest_age_seconds",
    /// Users who have an authenticator app, counted every ten minutes. One of several nodes has it.
    totp_users: Option<u64> = Gauge "idsvc_users_with_totp",
    /// Users who have a passkey, counted every ten minutes. One of several nodes has it.
    passkey_users: Option<u64> = Gauge "idsvc_users_with_passkey",
    /// Live sessions of browsers, counted every ten minutes. One of several nodes has it.
    sessions: Option<u64> = Gauge "idsvc_sessions",
    /// How much of the room is used up for clients that the operator did not register, in percent: of their number or of their memory.
    registrant_room_used: u64 = Gauge "idsvc_registrant_room_used_percent",
    /// Memory of the process in bytes. Left out without /proc.
    resident_bytes: Option<u64> = Gauge "process_resident_memory_bytes",
    /// Open file descriptors of the process. Left out without /proc.
    open_fds: Option<u64> = Gauge "process_open_fds",
    /// The most file descriptors that the process may have open. Left out without /proc.
    max_fds: Option<u64> = Gauge "process_max_fds",
    /// When the service was started, in seconds since 1970.
    started_at: u64 = Gauge "process_start_time_seconds",
    ;
    /// Users by state, which is a label.
    users: Option<UserCounts>,
    /// Connections that were closed because too many were open. They are among the refusals.
    connections_refused: u64,
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
