//! A mixed load for as long as wanted, and what becomes of the service: its memory, files, times and tokens.
//!
//! In the middle the process is killed under load, or its disk is full for a third of the time.

mod samples;
mod visitors;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use self::samples::Sampler;
use self::visitors::{Shared, Target, visit, visitors};
use crate::memory_group::MemoryGroup;
use crate::room::Room;
use crate::server::Server;
use crate::{Bench, Options, scripts};

/// The time from one look to the next, and how many looks lie between two commands of an administrator.
const LOOK: Duration = Duration::from_secs(2);
const LOOKS: usize = 5;
/// Within so long the service has to say that its disk is full, or that it is ready again.
const NOTICE_TIMEOUT: Duration = Duration::from_mins(1);
const SETTLE: Duration = Duration::from_secs(2);
const COMMANDS: &[&[&str]] = &[
    &["user", "list"],
    &["backup", "soak.backup", "--replace"],
    &["client", "list"],
    &["events", "--limit", "100"],
    &["client", "update", "robot", "--name", "Robot"],
];

/// What the service has to do with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// All that the machine has.
    Machine,
    /// A disk of 100 MB, which is full for a third of the time.
    Disk,
    /// A control group with 64 MiB of memory.
    Memory,
}

impl Place {
    pub(crate) fn named(word: &str) -> Option<Self> {
        match word {
            "machine" => Some(Self::Machine),
            "disk" => Some(Self::Disk),
            "memory" => Some(Self::Memory),
            _ => None,
        }
    }

    /// After more than three minutes of new users, a disk of 100 MB has less room than the reserve, and refuses new ones.
    fn minutes(self, wanted: u64) -> u64 {
        if self == Self::Disk { wanted.min(3) } else { wanted }
    }

    fn users(self) -> usize {
        if self == Self::Disk { 10_000 } else { 100_000 }
    }
}

/// Runs the soak and says what is wrong.
pub(crate) fn report(options: &Options, minutes: u64, place: Place) -> ExitCode {
    match soak(options, minutes, place) {
        Ok(faults) => {
            for fault in &faults {
                println!("soak: {fault}");
            }
            println!("soak: {}", if faults.is_empty() { "passed" } else { "FAILED" });
            ExitCode::from(u8::from(!faults.is_empty()))
        }
        Err(reason) => {
            println!("soak: NOT RUN: {reason}");
            ExitCode::SUCCESS
        }
    }
}

/// `Err` is the reason why it could not be run.
fn soak(options: &Options, minutes: u64, place: Place) -> Result<Vec<String>, String> {
    let mut server = Server::with_tls(&options.binary, options.core.clone());
    server.set("IDSVC_LOG_LEVEL", "warn");
    if place == Place::Disk {
        server.set("IDSVC_EVENTS_MAX_MIB", "8");
    }
    let group = match place {
        Place::Memory => Some(MemoryGroup::new(64 << 20)?),
        Place::Machine | Place::Disk => None,
    };
    let mut room = None;
    let mut bench = Bench::prepare(options, server, place.users(), |server| {
        if let Some(group) = &group {
            server.confine(group.wrapper());
        }
        if place == Place::Disk {
            room = move_into_room(server);
        }
    });
    if place == Place::Disk && room.is_none() {
        return Err("file systems cannot be mounted here".to_owned());
    }
    let mut faults = Soak::begin(&mut bench, place.minutes(minutes)).run(&mut bench.server, room.as_ref());
    if let Some(group) = group {
        let most = group.most().map_or(0, |bytes| bytes >> 20);
        println!("memory of the group, caches included: {most} MiB at most of 64");
        if group.kills() > 0 {
            faults.push(format!("killed {} times for want of memory", group.kills()));
        }
        bench.server.stop();
    }
    Ok(faults)
}

/// Puts the data directory onto a disk of its own.
fn move_into_room(server: &mut Server) -> Option<Room> {
    let (data, before) = (server.data_dir(), server.file("before"));
    fs::rename(&data, &before).unwrap();
    let room = Room::mount(&data, "100000000")?;
    copy(&before, &room.inside(&data));
    server.wrap(room.wrapper());
    server.see(room.inside(&data));
    Some(room)
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (name, kind) = (entry.file_name(), entry.file_type().unwrap());
        if kind.is_dir() {
            fs::create_dir(to.join(&name)).unwrap();
            copy(&entry.path(), &to.join(&name));
        } else if kind.is_file() {
            fs::copy(entry.path(), to.join(&name)).unwrap();
        }
    }
}

/// A soak under way.
struct Soak {
    shared: Arc<Shared>,
    target: Target,
    runtime: Runtime,
    visits: Vec<JoinHandle<std::collections::VecDeque<String>>>,
    secret: String,
    length: Duration,
    faults: Vec<String>,
}

impl Soak {
    fn begin(bench: &mut Bench<'_>, minutes: u64) -> Self {
        let shared = Arc::new(Shared::default());
        let target = Target {
            address: bench.server.address,
            tls: bench.server.connector(),
        };
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let visits = visitors(bench, &shared).into_iter().enumerate();
        let visits = visits
            .map(|(number, visitor)| {
                runtime.spawn(visit(target.clone(), number, visitor, Arc::clone(&shared)))
            })
            .collect();
        Self {
            shared,
            target,
            runtime,
            visits,
            secret: bench.secret.clone(),
            length: Duration::from_mins(minutes),
            faults: Vec::new(),
        }
    }

    /// Everything to the end: what is wrong.
    fn run(mut self, server: &mut Server, room: Option<&Room>) -> Vec<String> {
        let mut sampler = Sampler::new(server);
        let begun = Instant::now();
        let (mut looks, mut command) = (0, None);
        let mut disturbance = Disturbance::Awaited;
        while begun.elapsed() < self.length {
            thread::sleep(LOOK);
            let passed = begun.elapsed().as_secs_f64() / self.length.as_secs_f64();
            disturbance = match (room, disturbance) {
                (None, Disturbance::Awaited) if passed > 0.5 => self.kill(server),
                (Some(room), Disturbance::Awaited) if passed > 1.0 / 3.0 => self.fill(server, room),
                (Some(_), Disturbance::Full(ballast)) if passed > 2.0 / 3.0 => self.clear(server, &ballast),
                (_, disturbance) => disturbance,
            };
            let third = [passed > 1.0 / 3.0, passed > 2.0 / 3.0];
            let third = third.into_iter().filter(|is_over| *is_over).count();
            sampler.look(third, server, &self.shared);
            looks += 1;
            if matches!(disturbance, Disturbance::Full(_)) {
                continue;
            }
            if looks % LOOKS == 0 {
                self.end(command.take());
                command = Some(server.begin(COMMANDS[looks / LOOKS % COMMANDS.len()]));
            }
        }
        self.end(command);
        self.shared.over.store(true, Ordering::SeqCst);
        let mut left = Vec::new();
        for visit in std::mem::take(&mut self.visits) {
            match self.runtime.block_on(visit) {
                Ok(tokens) => left.extend(tokens),
                Err(error) => self.faults.push(error.to_string()),
            }
        }
        self.check(&left);
        let errors = std::mem::take(&mut *self.shared.errors.lock().unwrap());
        println!("{} unexpected answers", errors.len());
        self.faults.extend(errors.into_iter().take(10));
        let (beyond, [_, middle, _]) = sampler.conclude();
        self.faults.extend(beyond);
        if matches!(disturbance, Disturbance::Awaited | Disturbance::Full(_)) || middle.put_off == 0 {
            self.faults.push("nothing disturbed the service".to_owned());
        }
        self.faults
    }

    /// A command of the administrator has to succeed.
    fn end(&mut self, command: Option<(String, Child)>) {
        if let Some((words, mut child)) = command
            && !child.wait().unwrap().success()
        {
            self.faults.push(format!("idsvc {words} failed"));
        }
    }

    fn disturb(&self, is_disturbed: bool) {
        if !is_disturbed {
            thread::sleep(SETTLE);
        }
        self.shared.is_disturbed.store(is_disturbed, Ordering::SeqCst);
    }

    /// Kills the process under load and starts it again.
    fn kill(&self, server: &mut Server) -> Disturbance {
        self.disturb(true);
        server.stop();
        let started = server.start();
        println!("killed, and ready again within {} ms", started.as_millis());
        self.disturb(false);
        Disturbance::Over
    }

    /// Takes the rest of the disk.
    fn fill(&mut self, server: &Server, room: &Room) -> Disturbance {
        self.disturb(true);
        let path = room.inside(&server.data_dir()).join("ballast");
        let mut ballast = fs::File::create(&path).unwrap();
        while ballast.write_all(&[1; 4096]).is_ok() {}
        self.expect(server, false);
        Disturbance::Full(path)
    }

    /// Gives it back.
    fn clear(&mut self, server: &Server, ballast: &Path) -> Disturbance {
        fs::remove_file(ballast).unwrap();
        self.expect(server, true);
        self.disturb(false);
        Disturbance::Over
    }

    fn expect(&mut self, server: &Server, is_ready: bool) {
        let begun = Instant::now();
        while server.is_ready() != is_ready {
            if begun.elapsed() > NOTICE_TIMEOUT {
                return self
                    .faults
                    .push(format!("ready: {is_ready} is not said in a minute"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        println!(
            "{} after {} ms",
            if is_ready {
                "ready again"
            } else {
                "not ready on a full disk"
            },
            begun.elapsed().as_millis()
        );
    }

    /// Every token that was answered is still good.
    fn check(&mut self, left: &[String]) {
        let kept = std::mem::take(&mut *self.shared.kept.lock().unwrap());
        let authorization = scripts::basic(crate::CLIENT, &self.secret);
        let refresh = left.iter().chain(kept.refresh()).map(|token| {
            let fields = [("grant_type", "refresh_token"), ("refresh_token", token.as_str())];
            let headers = [("Authorization", authorization.as_str())];
            crate::load::form("/oauth2/token", &headers, &fields)
        });
        let access = kept.access.iter();
        let requests: Vec<_> = refresh
            .chain(access.map(|token| scripts::introspection(&self.secret, token)))
            .collect();
        let (target, mut lost) = (self.target.clone(), 0);
        self.runtime.block_on(async {
            let mut connection = None;
            for request in &requests {
                let reply = target.ask(&mut connection, 2_000, request).await;
                let is_good =
                    reply.is_ok_and(|reply| reply.status == 200 && !reply.body.contains("\"active\":false"));
                lost += usize::from(!is_good);
            }
        });
        println!(
            "{} tokens were checked in the end, {lost} of them no longer good",
            requests.len()
        );
        if lost > 0 || requests.is_empty() {
            self.faults
                .push(format!("{lost} tokens of {} are lost", requests.len()));
        }
    }
}

/// What happens to the service in the middle.
enum Disturbance {
    Awaited,
    /// The disk is full by this file.
    Full(PathBuf),
    Over,
}
