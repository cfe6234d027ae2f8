//! PostgreSQL servers for tests. A server ends with the test process, also after SIGKILL, and its folder is removed.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair};
use rustix::process::{Pid, Signal, kill_process};

use super::port::free_port;

/// The superuser of every server.
pub(crate) const USER: &str = "idsvc";
/// The password of the superuser over TCP; the unix socket needs none.
pub(crate) const PASSWORD: &str = "password-for-tests";

const FOLDER_PREFIX: &str = "idsvc-postgres-";

/// Settings of a server whose data may be lost.
const FAST: &[&str] = &["fsync=off", "full_page_writes=off"];

/// Runs a program until standard input ends, then ends the program and removes its folder. After a line, the folder
/// stays. If the shell is killed, the parent-death signal ends the program.
const GUARD: &str = r#"
signal=$1 folder=$2
shift 2
setpriv --pdeathsig "$signal" "$@" >>"$folder/log" 2>&1 </dev/null &
echo $!
read -r keep
kill -s "$signal" $!
kill -s CONT $!
wait $!
[ -n "$keep" ] || rm -rf -- "$folder"
"#;

/// The folder of the newest PostgreSQL's programs: `IDSVC_TEST_POSTGRES_BIN`, or Debian's.
pub(crate) fn find_bin() -> Option<PathBuf> {
    if let Some(bin) = std::env::var_os("IDSVC_TEST_POSTGRES_BIN") {
        return Some(bin.into());
    }
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let versions = versions.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let bins = versions.map(|version| {
        let bin = PathBuf::from(format!("/usr/lib/postgresql/{version}/bin"));
        (version, bin)
    });
    let (_, bin) = bins.filter(|(_, bin)| bin.join("postgres").exists()).max()?;
    Some(bin)
}

/// The path of one of PostgreSQL's programs.
pub(crate) fn program(name: &str) -> PathBuf {
    let bin = find_bin();
    let bin = bin.unwrap_or_else(|| panic!("install postgresql (Debian) or set IDSVC_TEST_POSTGRES_BIN"));
    bin.join(name)
}

/// The user and group that run the servers if this process is root, because PostgreSQL refuses root.
fn server_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    ["postgres", "nobody"].iter().find_map(|name| {
        let user = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = user.split(':').skip(2).map(|id| id.parse().unwrap());
        Some((ids.next()?, ids.next()?))
    })
}

/// A command without the variables of this process, which may be PostgreSQL's.
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C")
        .current_dir("/");
    command
}

/// A command of the user that runs the servers.
pub(crate) fn server_command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = command(program);
    if let Some((uid, gid)) = server_user() {
        command.uid(uid).gid(gid);
    }
    command
}

/// A new folder of the user that runs the servers. Folders of test processes that ended are removed.
pub(crate) fn create_folder() -> PathBuf {
    for entry in fs::read_dir("/tmp").unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let process = name
            .strip_prefix(FOLDER_PREFIX)
            .and_then(|rest| rest.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
    let prefix = format!("{FOLDER_PREFIX}{}-", std::process::id());
    // The path of a unix socket has at most 107 bytes, and the user of the servers has to reach it.
    let folder = tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir_in("/tmp")
        .unwrap();
    own(folder.path());
    folder.keep()
}

/// Gives a file or folder to the user that runs the servers.
fn own(path: &Path) {
    if let Some((uid, gid)) = server_user() {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
}

/// Waits until something is so, at most a minute.
pub(crate) fn until(is_so: impl Fn() -> bool, describe: impl Fn() -> String) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_mins(1), "{}", describe());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server program that ends with this process.
pub(crate) struct Daemon {
    guard: Child,
    /// The process of the program.
    pub(crate) id: Pid,
    folder: PathBuf,
}

impl Daemon {
    /// Starts a program, which this signal ends, and which owns this folder.
    pub(crate) fn start(folder: &Path, signal: &str, program: &Path, arguments: &[String]) -> Self {
        let mut guard = server_command("sh")
            .args(["-c", GUARD, "sh", signal])
            .args([folder, program])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // `kill` complains about a program that ended before.
            .stderr(Stdio::null())
            // SIGINT of a terminal is for the tests.
            .process_group(0)
            .spawn()
            .unwrap();
        let mut id = String::new();
        BufReader::new(guard.stdout.take().unwrap())
            .read_line(&mut id)
            .unwrap();
        Self {
            guard,
            id: Pid::from_raw(id.trim().parse().unwrap()).unwrap(),
            folder: folder.to_owned(),
        }
    }

    /// Waits until something is so, and fails if the program ends first.
    pub(crate) fn until(&self, is_so: impl Fn() -> bool) {
        let check = || {
            let is_so = is_so();
            assert!(is_so || is_running(self.id), "{}", self.log());
            is_so
        };
        until(check, || self.log());
    }

    /// Ends the program and keeps its folder.
    fn stop(&mut self) {
        let input = self.guard.stdin.as_mut().unwrap();
        input.write_all(b"keep\n").unwrap();
        self.guard.wait().unwrap();
    }

    /// Sends a signal to the program and its child processes. Returns them.
    fn signal(&self, signal: Signal) -> Vec<Pid> {
        // A program that is stopped starts no further process.
        kill_process(self.id, Signal::STOP).unwrap();
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.id)).unwrap();
        let children = children.split_whitespace();
        let mut processes: Vec<_> = children
            .map(|child| Pid::from_raw(child.parse().unwrap()).unwrap())
            .collect();
        for child in &processes {
            // A child may have ended since.
            let _ = kill_process(*child, signal);
        }
        kill_process(self.id, signal).unwrap();
        processes.push(self.id);
        processes
    }

    /// What the program logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        drop(self.guard.wait());
    }
}

/// Whether a process exists and did not end.
pub(crate) fn is_running(id: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    status
        .rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// A server, its data, and the superuser's connection to it.
pub(crate) struct Cluster {
    server: Daemon,
    folder: PathBuf,
    port: u16,
    settings: Vec<String>,
    admin: Mutex<Option<Psql>>,
}

impl Cluster {
    /// The one server of this process, started at first use.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Starts a server of its own, which ends when it is dropped.
    pub(crate) fn start() -> Self {
        Self::start_with(FAST)
    }

    /// Starts a server of its own with these settings.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        let folder = create_folder();
        initialize(&folder);
        Self::serve(folder, settings)
    }

    /// Starts a server of its own with TLS and a self-signed certificate for `localhost`.
    pub(crate) fn start_with_tls() -> Self {
        let folder = create_folder();
        initialize(&folder);
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        write(&folder.join("data/server.crt"), &certificate.pem());
        write(&folder.join("data/server.key"), &key.serialize_pem());
        Self::serve(folder, &[FAST, &["ssl=on"]].concat())
    }

    /// Starts the server of a folder that contains its data.
    pub(crate) fn serve(folder: PathBuf, settings: &[&str]) -> Self {
        let port = free_port();
        let settings: Vec<_> = settings.iter().map(ToString::to_string).collect();
        Self {
            server: serve(&folder, port, &settings),
            folder,
            port,
            settings,
            admin: Mutex::new(None),
        }
    }

    /// Ends all processes of the server at once (SIGKILL).
    pub(crate) fn kill(&mut self) {
        let status = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        let processes = self.server.signal(Signal::KILL);
        // No server starts while a process holds the shared memory.
        until(
            || !processes.iter().any(|id| is_running(*id)),
            || self.server.log(),
        );
        // The kernel keeps the shared memory of a server that was killed; the file names it by key and id.
        let memory = status.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap();
        command("ipcrm").args(["-m", memory]).status().unwrap();
        self.admin = Mutex::new(None);
    }

    /// Stops all processes of the server (SIGSTOP): connections stay open, and no answer comes.
    pub(crate) fn pause(&self) {
        self.server.signal(Signal::STOP);
    }

    /// Lets a server go on that was paused.
    pub(crate) fn resume(&self) {
        self.server.signal(Signal::CONT);
    }

    /// Ends the server, unless it was killed before, and starts it again on the same port.
    pub(crate) fn restart(&mut self) {
        self.admin = Mutex::new(None);
        self.server.stop();
        self.server = serve(&self.folder, self.port, &self.settings);
    }

    /// Starts the server again, whose commits wait for no standby from now on.
    pub(crate) fn restart_without_standby(&mut self) {
        self.settings
            .retain(|setting| !setting.starts_with("synchronous_standby_names"));
        self.restart();
    }

    /// The port on loopback.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The certificate of a server with TLS, in PEM.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("data/server.crt")
    }

    /// The process of the server.
    pub(crate) fn id(&self) -> Pid {
        self.server.id
    }

    /// The folder of the server's data and log, and of its unix socket.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A new empty database, whose name begins with this.
    pub(crate) fn database(&self, name_hint: &str) -> Database {
        self.create_database(name_hint, "template1")
    }

    /// A new database with everything that this one contains. The template may have no connections.
    pub(crate) fn database_from(&self, template: &Database) -> Database {
        self.create_database(&template.name, &template.name)
    }

    fn create_database(&self, name_hint: &str, template: &str) -> Database {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let name: String = name_hint.chars().take(40).collect();
        let name = format!("{name}_{number}");
        // Copying files takes half the time of logging every page.
        self.sql(&format!(
            "CREATE DATABASE \"{name}\" TEMPLATE \"{template}\" STRATEGY file_copy"
        ));
        Database {
            name,
            folder: self.folder.clone(),
            port: self.port,
        }
    }

    /// Runs a statement in the database `postgres` and returns its rows.
    pub(crate) fn sql(&self, statement: &str) -> String {
        let mut admin = self.admin.lock().unwrap();
        let psql = admin.get_or_insert_with(|| Psql::open(&url(&self.folder, self.port, "postgres")));
        let answer = psql.run(statement);
        // A failure here does not poison the lock for other tests.
        drop(admin);
        answer.unwrap()
    }
}

/// Writes a file that only the user of the servers may read.
fn write(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    own(path);
}

/// Creates the data of a server.
fn initialize(folder: &Path) {
    let password = folder.join("password");
    write(&password, PASSWORD);
    let output = server_command(program("initdb"))
        .args(["--no-sync", "--no-instructions", "--locale=C", "--encoding=UTF8"])
        .args(["--auth-local=trust", "--auth-host=scram-sha-256"])
        .arg(format!("--username={USER}"))
        .arg(format!("--pwfile={}", password.display()))
        .arg(folder.join("data"))
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
}

/// Starts the server of this folder and waits until it takes connections.
fn serve(folder: &Path, port: u16, settings: &[String]) -> Daemon {
    let data = folder.join("data");
    let mut arguments = vec![
        format!("-D{}", data.display()),
        format!("-k{}", folder.display()),
        format!("-p{port}"),
    ];
    let usual = [
        "listen_addresses=127.0.0.1",
        "max_connections=300",
        "shared_buffers=32MB",
        // Before recovery, syncing the file system is faster than syncing every file.
        "recovery_init_sync_method=syncfs",
        // Files in the folder go with it, unlike those in /dev/shm.
        "dynamic_shared_memory_type=mmap",
    ];
    let settings = settings.iter().map(String::as_str);
    arguments.extend(
        usual
            .into_iter()
            .chain(settings)
            .map(|setting| format!("-c{setting}")),
    );
    let server = Daemon::start(folder, "QUIT", &program("postgres"), &arguments);
    let id = server.id.to_string();
    server.until(|| {
        let status = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        let mut lines = status.lines();
        lines.next() == Some(&id) && lines.next_back().is_some_and(|state| state.trim() == "ready")
    });
    server
}

/// A database of a [`Cluster`]. It stays until the server ends.
pub(crate) struct Database {
    name: String,
    folder: PathBuf,
    port: u16,
}

impl Database {
    /// The address over the unix socket.
    pub(crate) fn url(&self) -> String {
        url(&self.folder, self.port, &self.name)
    }

    /// The address over TCP, with the password.
    pub(crate) fn tcp_url(&self) -> String {
        self.url_at(&format!("127.0.0.1:{}", self.port))
    }

    /// The address over TCP at this host and port, or at several, separated by commas.
    pub(crate) fn url_at(&self, hosts: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@{hosts}/{}", self.name)
    }

    /// Runs a statement and returns its rows: a line each, columns separated by `|`.
    pub(crate) fn sql(&self, statement: &str) -> String {
        Psql::open(&self.url()).run(statement).unwrap()
    }
}

/// The address of a database over the unix socket.
pub(crate) fn url(folder: &Path, port: u16, database: &str) -> String {
    format!(
        "postgres://{USER}@/{database}?host={}&port={port}",
        folder.display()
    )
}

/// A connection that psql holds.
pub(crate) struct Psql {
    program: Child,
    input: Option<ChildStdin>,
    output: BufReader<PipeReader>,
}

impl Psql {
    /// Starts psql; whether it connects is known after the first statement.
    pub(crate) fn open(url: &str) -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut program = command(program("psql"))
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", url])
            .stdin(Stdio::piped())
            .stdout(writer.try_clone().unwrap())
            .stderr(writer)
            .spawn()
            .unwrap();
        let input = program.stdin.take();
        let output = BufReader::new(reader);
        Self {
            program,
            input,
            output,
        }
    }

    /// Runs a statement and returns its rows, or what psql says of a failure.
    pub(crate) fn run(&mut self, statement: &str) -> Result<String, String> {
        const END: &str = "end of the answer\n";
        let input = self.input.as_mut().unwrap();
        // If the connection failed, psql ended, and its output says why.
        drop(write!(input, "{statement};\n\\echo {END}"));
        let mut answer = String::new();
        loop {
            let start = answer.len();
            if self.output.read_line(&mut answer).unwrap() == 0 {
                return Err(answer);
            }
            if answer[start..] == *END {
                answer.truncate(start);
                let is_error = answer.contains("ERROR: ");
                return if is_error {
                    Err(answer)
                } else {
                    Ok(answer.trim_end().to_owned())
                };
            }
        }
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.program.wait());
    }
}
