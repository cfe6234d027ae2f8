//! The release binary in a process of its own, on a core of its own, with a data directory of its own.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// The service and its data.
pub(crate) struct Server {
    binary: PathBuf,
    folder: TempDir,
    core: Option<String>,
    settings: Vec<(&'static str, &'static str)>,
    pub(crate) address: SocketAddr,
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
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self {
            binary: binary.to_owned(),
            folder: TempDir::new().unwrap(),
            core,
            settings: Vec::new(),
            address,
            process: None,
        }
    }

    pub(crate) fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn prepared(&self, mut command: Command, arguments: &[&str]) -> Command {
        command
            .args(arguments)
            .env_clear()
            .env("IDSVC_DATA_DIR", self.folder.path().join("data"))
            .env("IDSVC_BASE_URL", self.issuer())
            .env("IDSVC_LISTEN", self.address.to_string())
            .env("IDSVC_TLS_MODE", "off")
            // A load test is what this limit is there to stop; all others stay.
            .env("IDSVC_LIMITS_ANONYMOUS_PER_ADDRESS", "3600000")
            .env("IDSVC_LIMITS_ANONYMOUS_PER_CLIENT", "3600000")
            .envs(self.settings.iter().copied())
            .current_dir(&self.folder);
        command
    }

    /// Another setting from the next start on, by the name of its environment variable.
    pub(crate) fn set(&mut self, variable: &'static str, value: &'static str) {
        self.settings.push((variable, value));
    }

    /// Starts the service and waits until it answers: how long that took.
    pub(crate) fn start(&mut self) -> Duration {
        let mut program = Command::new(&self.binary);
        if let Some(core) = &self.core {
            program = Command::new("/usr/bin/taskset");
            program.args(["-c", core]).arg(&self.binary);
        }
        let log = fs::File::create(self.file("log")).unwrap();
        let start = Instant::now();
        let process = self
            .prepared(program, &["serve"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        while TcpStream::connect(self.address).is_err() || !self.answers() {
            assert!(
                start.elapsed() < Duration::from_mins(2),
                "{}",
                fs::read_to_string(self.file("log")).unwrap()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        start.elapsed()
    }

    fn answers(&self) -> bool {
        let mut text = String::new();
        TcpStream::connect(self.address).is_ok_and(|mut stream| {
            let request = b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            stream.write_all(request).is_ok()
                && stream.read_to_string(&mut text).is_ok()
                && text.starts_with("HTTP/1.1 200")
        })
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
        let mut command = self.prepared(Command::new(&self.binary), arguments);
        let output = command.arg("--json").output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        serde_json::from_slice(&output.stdout).unwrap()
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
        let status = self.proc_file("status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }
}

/// User and system time out of `/proc/PID/stat`.
pub(crate) fn processor_seconds(stat: &str) -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS_PER_SECOND
}
