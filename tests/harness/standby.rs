//! A primary PostgreSQL server with a synchronous standby.

use super::postgres::{Cluster, Database, create_folder, program, server_command, until, url};

/// The settings of both servers: what was answered is on disk.
const DURABLE: &[&str] = &["fsync=on", "synchronous_commit=on"];

/// A primary, whose commits wait for the standby, and the standby.
pub(crate) struct PrimaryAndStandby {
    pub(crate) primary: Cluster,
    pub(crate) standby: Cluster,
}

impl Cluster {
    /// Starts a primary and its standby.
    pub(crate) fn with_standby() -> PrimaryAndStandby {
        let waits = "synchronous_standby_names=FIRST 1 (standby)";
        let primary = Self::start_with(&[DURABLE, &[waits]].concat());
        let folder = create_folder();
        let source = format!(
            "{}&application_name=standby",
            url(primary.folder(), primary.port(), "")
        );
        let output = server_command(program("pg_basebackup"))
            .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"])
            .arg(format!("--dbname={source}"))
            .arg(format!("--pgdata={}", folder.join("data").display()))
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{message}");
        let standby = Self::serve(folder, DURABLE);
        let states = "SELECT application_name, sync_state FROM pg_stat_replication";
        until(|| primary.sql(states) == "standby|sync", || primary.sql(states));
        PrimaryAndStandby { primary, standby }
    }
}

impl PrimaryAndStandby {
    /// The address of a database over TCP at both servers, of which the one that takes writes is meant.
    pub(crate) fn url(&self, database: &Database) -> String {
        let hosts = format!(
            "127.0.0.1:{},127.0.0.1:{}",
            self.primary.port(),
            self.standby.port()
        );
        format!("{}?target_session_attrs=read-write", database.url_at(&hosts))
    }

    /// Makes the standby the primary and waits until it takes writes. Kill or pause the old primary first.
    pub(crate) fn promote_standby(&self) {
        assert_eq!(self.standby.sql("SELECT pg_promote()"), "t");
    }
}
