//! The real executable in a process of its own, spoken to over loopback without TLS.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use idsvc::clock::Clock;
use idsvc::config::Sources;
use idsvc::config::resolve::resolve_settings;
use idsvc::data_dir::{DataDir, IfMissing};
use idsvc::flow::{Core, rotate_keys};
use idsvc::password::{PasswordParams, PasswordPool, PoolSize};
use idsvc::random::Random;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::port::free_port;
use super::server::{ISSUER, RSA_KEY};
use super::upstream::Upstream;

/// The settings of one service: a data directory and a port of its own.
pub(crate) struct Service {
    pub(crate) folder: TempDir,
    pub(crate) port: u16,
    settings: Vec<(&'static str, String)>,
    wrapper: Vec<String>,
    absent: Vec<&'static str>,
}

/// The whole answer, or none if the connection broke before its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.headers(name).next()
    }

    pub(crate) fn headers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.head.lines().skip(1).filter_map(move |line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The value of a hidden field of the page.
    pub(crate) fn hidden(&self, name: &str) -> String {
        let named = format!("name=\"{name}\"");
        let field = self.body.split("<input").find(|tag| tag.contains(&named));
        let value = field.and_then(|tag| tag.split("value=\"").nth(1));
        let value = value.and_then(|rest| rest.split('"').next());
        value
            .unwrap_or_else(|| panic!("no field {name}: {self:?}"))
            .to_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// The files of a data directory after a first start that settled no issuer. Making an RSA key takes most of the time of such
/// a start.
static DATA: LazyLock<Vec<(OsString, Vec<u8>)>> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data");
    let data = DataDir::open(&path, IfMissing::Create, &Random::system()).unwrap();
    let size = PoolSize {
        threads: 1,
        waiting: 1,
    };
    let core = Core::open(
        data.store,
        Clock::System,
        Random::system(),
        data.sealer,
        resolve_settings(&Sources::default()).unwrap().policy(ISSUER),
        PasswordPool::start(PasswordParams::default(), size).unwrap(),
    )
    .unwrap();
    let keys_are_made = async move {
        rotate_keys::introduce(&core, &RSA_KEY, true).await.unwrap();
        rotate_keys::ensure_keys(&core).await.unwrap();
        core.store.close();
    };
    let made = thread::spawn(|| Runtime::new().unwrap().block_on(keys_are_made));
    made.join().unwrap();
    let files = fs::read_dir(path).unwrap().map(|file| {
        let file = file.unwrap();
        (file.file_name(), fs::read(file.path()).unwrap())
    });
    files.collect()
});

impl Service {
    /// A service that has its keys already.
    pub(crate) fn new() -> Self {
        let service = Self::empty();
        DirBuilder::new().mode(0o700).create(service.data()).unwrap();
        for (name, content) in &*DATA {
            let mut options = fs::File::options();
            options.write(true).create_new(true).mode(0o600);
            let mut file = options.open(service.data().join(name)).unwrap();
            file.write_all(content).unwrap();
        }
        service
    }

    /// A service without a data directory.
    pub(crate) fn empty() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            port: free_port(),
            settings: Vec::new(),
            wrapper: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// A service whose one client is `web`, with a secret and the redirect URI `https://app.example/cb`.
    pub(crate) fn with_client() -> Self {
        let service = Self::new();
        let add = "client add web --redirect-uri https://app.example/cb --pkce optional --json";
        service.json(&add.split(' ').collect::<Vec<_>>());
        service
    }

    /// One that may reach this provider.
    pub(crate) fn reaching(self, upstream: &Upstream) -> Self {
        let terms = upstream.terms();
        let networks: Vec<_> = terms.allow.iter().map(ToString::to_string).collect();
        self.with("IDSVC_OUTBOUND_CA_FILE", terms.ca_file.unwrap().to_str().unwrap())
            .with("IDSVC_OUTBOUND_ALLOW", &networks.join(","))
    }

    /// One with another setting, by the name of its environment variable.
    pub(crate) fn with(mut self, variable: &'static str, value: &str) -> Self {
        self.settings.push((variable, value.to_owned()));
        self
    }

    /// One whose commands are run by another program, which these words begin.
    pub(crate) fn by(mut self, wrapper: &[String]) -> Self {
        wrapper.clone_into(&mut self.wrapper);
        self
    }

    /// One to which nobody says this, by the name of the environment variable.
    pub(crate) fn without(mut self, variable: &'static str) -> Self {
        self.absent.push(variable);
        self
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A command of the executable with this service's settings.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut words = self.wrapper.iter().map(String::as_str).collect::<Vec<_>>();
        words.push(env!("CARGO_BIN_EXE_idsvc"));
        words.extend_from_slice(arguments);
        let mut command = self.surroundings(words[0]);
        command.args(&words[1..]);
        command
    }

    fn surroundings(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("IDSVC_DATA_DIR", self.data())
            .env("IDSVC_BASE_URL", self.issuer())
            .env("IDSVC_LISTEN", format!("127.0.0.1:{}", self.port))
            .env("IDSVC_TLS_MODE", "off")
            .env("IDSVC_LIMITS_EXEMPT", "127.0.0.0/8")
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        for variable in &self.absent {
            command.env_remove(variable);
        }
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that has to succeed and reads what it prints.
    pub(crate) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// `idsvc serve`, handed over one or two sockets under these names as a service manager does it.
    pub(crate) fn command_inheriting(&self, sockets: &[(&str, &TcpListener)]) -> Command {
        let names: Vec<_> = sockets.iter().map(|(name, _)| *name).collect();
        let script = format!(
            "export LISTEN_FDS={} LISTEN_FDNAMES={} LISTEN_PID=$$; exec \"$0\" serve 3<&0 4<&1 </dev/null >/dev/null",
            names.len(),
            names.join(":"),
        );
        let socket = |at: usize| {
            let socket = sockets.get(at).map(|(_, socket)| socket.try_clone().unwrap());
            socket.map_or_else(Stdio::null, |socket| Stdio::from(OwnedFd::from(socket)))
        };
        let mut command = self.surroundings("/bin/sh");
        command
            .args(["-c", &script, env!("CARGO_BIN_EXE_idsvc")])
            .stdin(socket(0))
            .stdout(socket(1));
        command
    }

    /// Starts the service on sockets that outlive it, and waits until it answers.
    pub(crate) fn serve_inheriting(&self, sockets: &[(&str, &TcpListener)]) -> Running<'_> {
        self.begin(&mut self.command_inheriting(sockets)).answering()
    }

    /// Starts the service.
    pub(crate) fn launch(&self) -> Running<'_> {
        self.start(&["serve"])
    }

    /// Starts the service and waits until it answers.
    pub(crate) fn serve(&self) -> Running<'_> {
        self.launch().answering()
    }

    /// One request on a connection of its own; nothing unless the whole answer came.
    pub(crate) fn request(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<Reply> {
        request(self.port, method, target, headers, body)
    }

    /// Goes from an authorization request to the sign-in page as a browser would, types, and returns what
    /// the page answers, and the cookie that bound the sign-in.
    pub(crate) fn type_in(&self, target: &str, username: &str, password: &str) -> (Reply, String) {
        self.try_type_in(target, username, password).unwrap()
    }

    /// The same; nothing when an answer does not come. An answer that leads no further is the last.
    pub(crate) fn try_type_in(
        &self,
        target: &str,
        username: &str,
        password: &str,
    ) -> Option<(Reply, String)> {
        let reply = self.request("GET", target, &[], "")?;
        let (Some(cookie), Some(login)) = (reply.header("set-cookie"), reply.header("location")) else {
            return Some((reply, String::new()));
        };
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let page = self.request("GET", login, &[("Cookie", &cookie)], "")?;
        if page.status != 200 {
            return Some((page, cookie));
        }
        let (transaction, csrf) = (page.hidden("transaction"), page.hidden("csrf"));
        let form = [
            ("transaction", transaction.as_str()),
            ("csrf", &csrf),
            ("username", username),
            ("password", password),
        ];
        let answer = self.post_form("/login", &[("Cookie", &cookie)], &form)?;
        Some((answer, cookie))
    }

    pub(crate) fn post_form(
        &self,
        target: &str,
        headers: &[(&str, &str)],
        form: &[(&str, &str)],
    ) -> Option<Reply> {
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let mut headers = headers.to_vec();
        headers.push(("Content-Type", "application/x-www-form-urlencoded"));
        self.request("POST", target, &headers, &body)
    }

    fn begin(&self, command: &mut Command) -> Running<'_> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        self.begin_logging_to(log, command)
    }

    /// Starts the service, with its log going somewhere else than into a file.
    pub(crate) fn begin_logging_to(&self, log: impl Into<Stdio>, command: &mut Command) -> Running<'_> {
        let child = command.stderr(log).spawn().unwrap();
        Running { service: self, child }
    }

    /// Starts the service with these arguments; whether it answers is not known afterwards.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running<'_> {
        self.begin(self.command(arguments).stdout(Stdio::null()))
    }

    /// The log so far. A service that runs or was killed may have more to log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The log, once this is in it.
    pub(crate) fn logged(&self, what: &str) -> String {
        let start = Instant::now();
        loop {
            let log = self.log();
            if log.contains(what) {
                return log;
            }
            assert!(start.elapsed() < Duration::from_mins(1), "{what}: {log}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A service that runs; dropping it kills it.
pub(crate) struct Running<'a> {
    service: &'a Service,
    child: Child,
}

/// A running service is asked like any other.
impl Deref for Running<'_> {
    type Target = Service;

    fn deref(&self) -> &Service {
        self.service
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Running<'_> {
    /// The same once it answers.
    pub(crate) fn answering(mut self) -> Self {
        self.until(|running| {
            let reply = running.request("GET", "/readyz", &[], "");
            reply.is_some_and(|reply| reply.status == 200)
        });
        self
    }

    /// Ends the process at once (SIGKILL).
    pub(crate) fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until something is so; fails when the process ends first.
    pub(crate) fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(
                self.ended().is_none() && start.elapsed() < Duration::from_mins(1),
                "{}",
                self.service.log()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends the process a signal, by its own id.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().unwrap();
        assert!(sent.success(), "{}", self.service.log());
    }

    /// Asks the process to end in order (SIGTERM) and waits until it has.
    pub(crate) fn terminate(&mut self) {
        self.signal("TERM");
        assert!(self.wait().success(), "{}", self.service.log());
    }

    /// How the process ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the process to end by itself.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
}

/// One request on a connection of its own; nothing unless the whole answer came.
pub(crate) fn request(
    port: u16,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Reply> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n");
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    write!(head, "Content-Length: {}\r\n\r\n", body.len()).unwrap();
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let reply = Reply {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    };
    let announced = reply
        .header("content-length")
        .map_or(Some(0), |length| length.parse().ok())?;
    (reply.body.len() == announced).then_some(reply)
}

/// Runs a command with this standard input. One that refuses need not read to the end.
pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Runs a command with a standard output that is closed at once.
pub(crate) fn run_with_closed_output(command: &mut Command) -> Output {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = output.spawn().unwrap();
    drop(child.stdout.take());
    child.wait_with_output().unwrap()
}

/// The standard error of a command.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The standard output of a command.
pub(crate) fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
