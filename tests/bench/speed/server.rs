//! The service in a process of its own, on a core of its own, with a data directory of its own.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tempfile::TempDir;
use tokio_rustls::TlsConnector;

/// The service and its data.
pub(crate) struct Server {
    binary: PathBuf,
    folder: TempDir,
    /// What `serve` is run by, so that it has a core or a bound of memory.
    confined_by: Vec<String>,
    /// What every command is run by, so that it sees the data directory.
    wrapper: Vec<String>,
    settings: Vec<(&'static str, String)>,
    pub(crate) address: SocketAddr,
    /// Where it tells, without TLS, whether it is ready.
    readiness: SocketAddr,
    /// Where this program finds the data directory.
    seen: PathBuf,
    process: Option<Child>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Server {
    /// A new data directory below the system's folder for such things (`$TMPDIR`). `core`: where the process is
    /// to run, if it matters.
    pub(crate) fn new(binary: &Path, core: Option<String>) -> Self {
        let address = free_address();
        let folder = TempDir::new().unwrap();
        let on_core = |core| ["/usr/bin/taskset".to_owned(), "-c".to_owned(), core];
        Self {
            binary: binary.to_owned(),
            seen: folder.path().join("data"),
            folder,
            confined_by: core.into_iter().flat_map(on_core).collect(),
            wrapper: Vec::new(),
            settings: Vec::new(),
            address,
            readiness: address,
            process: None,
        }
    }

    /// The same with TLS and a certificate of its own.
    pub(crate) fn with_tls(binary: &Path, core: Option<String>) -> Self {
        let mut server = Self::new(binary, core);
        server.set("IDSVC_TLS_MODE", "self-signed");
        server.set("IDSVC_BASE_URL", &format!("https://{}", server.address));
        server.serve_metrics();
        server
    }

    /// From the next start on, it serves its metrics, and beside them whether it is ready.
    pub(crate) fn serve_metrics(&mut self) {
        self.readiness = free_address();
        self.set("IDSVC_METRICS_LISTEN", &self.readiness.to_string());
    }

    /// What trusts the certificate of this service and no other.
    pub(crate) fn connector(&self) -> TlsConnector {
        let pem = fs::read(self.seen("certs/self-signed.pem")).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config).into()
    }

    pub(crate) fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The data directory is to be found here from now on.
    pub(crate) fn see(&mut self, data_dir: PathBuf) {
        self.seen = data_dir;
    }

    /// A file of the data directory, as this program finds it.
    pub(crate) fn seen(&self, name: &str) -> PathBuf {
        self.seen.join(name)
    }

    /// From the next start on, these words run `serve`.
    pub(crate) fn confine(&mut self, words: Vec<String>) {
        self.confined_by.splice(0..0, words);
    }

    /// These words run every command.
    pub(crate) fn wrap(&mut self, words: Vec<String>) {
        self.wrapper = words;
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A command of the executable, run by these words too.
    fn prepared(&self, by: &[String], arguments: &[&str]) -> Command {
        let mut words = self
            .wrapper
            .iter()
            .chain(by)
            .map(PathBuf::from)
            .collect::<Vec<_>>();
        words.push(self.binary.clone());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .args(arguments)
            .env_clear()
            .env("IDSVC_DATA_DIR", self.folder.path().join("data"))
            .env("IDSVC_BASE_URL", self.issuer())
            .env("IDSVC_LISTEN", self.address.to_string())
            .env("IDSVC_TLS_MODE", "off")
            // A load test is what this limit is there to stop; all others stay.
            .env("IDSVC_LIMITS_ANONYMOUS_PER_ADDRESS", "3600000")
            .env("IDSVC_LIMITS_ANONYMOUS_PER_CLIENT", "3600000")
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder);
        command
    }

    /// Another setting from the next start on, by the name of its environment variable.
    pub(crate) fn set(&mut self, variable: &'static str, value: &str) {
        self.settings.push((variable, value.to_owned()));
    }

    /// Starts the service and waits until it answers: how long that took.
    pub(crate) fn start(&mut self) -> Duration {
        let log = fs::File::create(self.file("log")).unwrap();
        let start = Instant::now();
        let process = self
            .prepared(&self.confined_by, &["serve"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        while !self.is_ready() {
            assert!(
                start.elapsed() < Duration::from_mins(2),
                "{}",
                fs::read_to_string(self.file("log")).unwrap()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        start.elapsed()
    }

    /// Whether it says that it can do its work.
    pub(crate) fn is_ready(&self) -> bool {
        self.get_from_metrics("/readyz")
            .is_ok_and(|text| text.starts_with("HTTP/1.1 200"))
    }

    /// The value of a metric now.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get_from_metrics("/metrics").unwrap();
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        text.lines().find_map(value).unwrap()
    }

    /// The answer without TLS.
    fn get_from_metrics(&self, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.readiness)?;
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Ends the process as a crash does.
    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
    }

    /// Asks the process to end, and waits for that.
    pub(crate) fn close(&mut self) {
        if let Some(mut process) = self.process.take() {
            kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
            assert!(process.wait().unwrap().success());
        }
    }

    /// Runs a command that has to succeed and reads what it prints.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.prepared(&[], arguments).arg("--json").output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Begins a command: its words, and its process.
    pub(crate) fn begin(&self, arguments: &[&str]) -> (String, Child) {
        let mut command = self.prepared(&[], arguments);
        let child = command.arg("--json").stdout(Stdio::null()).spawn().unwrap();
        (arguments.join(" "), child)
    }

    /// How many files and sockets the process has open.
    pub(crate) fn open_files(&self) -> usize {
        let id = self.process.as_ref().unwrap().id();
        fs::read_dir(format!("/proc/{id}/fd")).unwrap().count()
    }

    fn proc_file(&self, name: &str) -> String {
        let id = self.process.as_ref().unwrap().id();
        fs::read_to_string(format!("/proc/{id}/{name}")).unwrap()
    }

    /// Seconds of processor time that the process has been charged for, user and system.
    pub(crate) fn cpu(&self) -> f64 {
        processor_seconds(&self.proc_file("stat"))
    }

    /// Memory in use, in MiB.
    pub(crate) fn memory(&self) -> f64 {
        self.status("VmRSS:")
    }

    /// The most that it ever had resident, in MiB.
    pub(crate) fn most_memory(&self) -> f64 {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> f64 {
        memory_of(self.process.as_ref().unwrap(), name).unwrap()
    }
}

/// A figure of a process's memory by its name in `/proc/PID/status`, in MiB. None after its end.
pub(crate) fn memory_of(process: &Child, name: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    Some(kib / 1024.0)
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// User and system time out of `/proc/PID/stat`.
pub(crate) fn processor_seconds(stat: &str) -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS_PER_SECOND
}
