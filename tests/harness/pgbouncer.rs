//! pgbouncer in front of a PostgreSQL server: each transaction may use another connection to the server.

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use super::port::free_port;
use super::postgres::{Cluster, Daemon, PASSWORD, USER, create_folder};

/// A pooler of transactions. It ends when it is dropped.
pub(crate) struct PgBouncer {
    _program: Daemon,
    port: u16,
}

impl PgBouncer {
    /// Starts pgbouncer with two connections to each database of this server.
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let program = Path::new("/usr/sbin/pgbouncer");
        assert!(program.exists(), "install pgbouncer (Debian)");
        let folder = create_folder();
        let port = free_port();
        let users = folder.join("users");
        fs::write(&users, format!("\"{USER}\" \"{PASSWORD}\"\n")).unwrap();
        let settings = format!(
            "[databases]\n* = host={server} port={server_port}\n\
             [pgbouncer]\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 300\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nauth_file = {users}\n",
            server = cluster.folder().display(),
            server_port = cluster.port(),
            users = users.display(),
        );
        let file = folder.join("pgbouncer.ini");
        fs::write(&file, settings).unwrap();
        let program = Daemon::start(&folder, "KILL", program, &[file.display().to_string()]);
        program.until(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self {
            _program: program,
            port,
        }
    }

    /// The address for clients, for [`super::postgres::Database::url_at`].
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}
