//! Commands about all users: they take little memory, in the service and for themselves, and keep nobody waiting.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idsvc::clock::Clock;
use idsvc::data_dir::{DataDir, IfMissing};
use idsvc::identity::User;
use idsvc::random::Random;
use idsvc::store::tables::{USERS, USERS_BY_LOGIN_NAME};

use crate::harness::process::{Running, Service, said, shown};
use crate::harness::report::{amount, report};

const USERS_SHORT: usize = 20_000;
const USERS_LONG: usize = 1_000_000;
/// How much the service may grow, and how much a command may take, in KiB.
const SERVICE_GROWTH: usize = 16 << 10;
const COMMAND_SIZE: usize = 64 << 10;

/// Writes so many users straight into the database of a service that was started once.
pub(super) fn fill(service: &Service, count: usize) {
    let (random, now) = (Random::system(), Clock::System.now());
    let data_dir = service.data();
    let DataDir { store, .. } = DataDir::open(&data_dir, IfMissing::Refuse, &random).unwrap();
    for start in (0..count).step_by(10_000) {
        let users: Vec<_> = (start..count.min(start + 10_000))
            .map(|number| {
                let uuid = random.uuid_v7(Clock::System.since_epoch());
                let mut user = User::local(uuid, &format!("user{number}@example.com"), "default", now);
                let name = format!("User {number}");
                user.claims.insert("name".to_owned(), name.into());
                user
            })
            .collect();
        let written = store.write_blocking("fill", move |tx| {
            users.iter().try_for_each(|user| {
                for name in user.login_names() {
                    USERS_BY_LOGIN_NAME.put(tx, name.as_str(), &user.uuid)?;
                }
                USERS.put(tx, &user.uuid, user)
            })
        });
        written.unwrap();
    }
    store.close();
}

/// A size of a process in KiB; `None` if it has ended.
fn memory(process: u32, name: &str) -> Option<usize> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    kib.parse().ok()
}

/// What a command printed, and the most memory it took, in KiB.
struct Ran {
    lines: usize,
    users: usize,
    bytes: usize,
    last: String,
    most: usize,
    seconds: f64,
}

/// Runs a command that has to succeed, and reads what it prints.
fn run(service: &Service, arguments: &[&str]) -> Ran {
    let mut command = service.command(arguments);
    let errors = File::create(service.folder.path().join("errors")).unwrap();
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
    let id = child.id();
    let is_over = AtomicBool::new(false);
    let (mut ran, most) = thread::scope(|scope| {
        let most = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(memory(id, "VmHWM").unwrap_or_default());
                thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let ran = read(&mut child);
        is_over.store(true, Ordering::Relaxed);
        (ran, most.join().unwrap())
    });
    ran.most = most;
    let status = child.wait().unwrap();
    let said = fs::read_to_string(service.folder.path().join("errors")).unwrap();
    assert!(status.success(), "{arguments:?}: {said}");
    ran.seconds = begun.elapsed().as_secs_f64();
    ran
}

fn read(child: &mut Child) -> Ran {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut ran = Ran {
        lines: 0,
        users: 0,
        bytes: 0,
        last: String::new(),
        most: 0,
        seconds: 0.0,
    };
    let mut line = String::new();
    loop {
        line.clear();
        if out.read_line(&mut line).unwrap() == 0 {
            return ran;
        }
        ran.lines += 1;
        let text = line.trim_start();
        ran.users += usize::from(text.starts_with("[[user]]") || text.starts_with("\"uuid\":"));
        ran.bytes += line.len();
        ran.last.clone_from(&line);
    }
}

/// A device that refreshes its token without a pause.
struct Device<'a> {
    running: &'a Running<'a>,
    basic: String,
    held: String,
}

impl<'a> Device<'a> {
    /// Adds the client of the device. Returns its credentials.
    fn add(service: &Service, id: &str) -> String {
        let add = format!("client add {id} --grant anonymous --grant refresh_token --json");
        let client = service.json(&add.split(' ').collect::<Vec<_>>());
        let secret = client["client_secret"].as_str().unwrap();
        format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")))
    }

    fn begin(running: &'a Running<'a>, basic: &str) -> Self {
        let mut device = Self {
            running,
            basic: basic.to_owned(),
            held: String::new(),
        };
        device.held = device.token(&[("grant_type", "urn:service:oauth2:grant-type:anonymous")]);
        device
    }

    fn token(&self, form: &[(&str, &str)]) -> String {
        let headers = [("Authorization", self.basic.as_str())];
        let reply = self.running.post_form("/oauth2/token", &headers, form).unwrap();
        reply.json()["refresh_token"].as_str().unwrap().to_owned()
    }

    /// Refreshes until it is told to stop. Returns the 99th percentile of the times.
    fn refresh_until(&mut self, is_over: &AtomicBool) -> Duration {
        let mut times = Vec::new();
        while !is_over.load(Ordering::Relaxed) || times.len() < 100 {
            let begun = Instant::now();
            let form = [("grant_type", "refresh_token"), ("refresh_token", &self.held)];
            self.held = self.token(&form);
            times.push(begun.elapsed());
            thread::sleep(Duration::from_millis(1));
        }
        times.sort();
        times[times.len() * 99 / 100]
    }
}

/// Runs the command while a device refreshes. Asserts on memory, and reports that and the times.
fn check(service: &Service, running: &Running<'_>, basic: &str, arguments: &[&str]) -> Ran {
    let mut device = Device::begin(running, basic);
    let calm = device.refresh_until(&AtomicBool::new(true));
    let before = memory(running.id(), "VmRSS").unwrap();
    fs::write(format!("/proc/{}/clear_refs", running.id()), "5").unwrap();
    let is_over = AtomicBool::new(false);
    let (ran, disturbed) = thread::scope(|scope| {
        let device = scope.spawn(|| device.refresh_until(&is_over));
        let ran = run(service, arguments);
        is_over.store(true, Ordering::Relaxed);
        (ran, device.join().unwrap())
    });
    let grown = memory(running.id(), "VmHWM").unwrap().saturating_sub(before);
    let what = arguments.join(" ");
    report(
        &what,
        &format!(
            "{:.1} s, {} MiB printed; the service, of {} MiB, grows by {grown} KiB; the command takes {} KiB; the p99 of a refresh is {disturbed:.1?} (calm {calm:.1?})",
            ran.seconds,
            ran.bytes >> 20,
            before >> 10,
            ran.most
        ),
    );
    assert!(grown < SERVICE_GROWTH, "{what}: the service grows by {grown} KiB");
    assert!(
        ran.most < COMMAND_SIZE,
        "{what}: the command takes {} KiB",
        ran.most
    );
    assert!(
        disturbed < calm.max(Duration::from_millis(25)) * 20,
        "{what}: {calm:?}, then {disturbed:?}"
    );
    ran
}

#[test]
fn a_list_of_all_users_takes_little_memory_and_keeps_nobody_waiting() {
    let count = amount(USERS_SHORT, USERS_LONG);
    let service = Service::empty();
    let basic = Device::add(&service, "kiosk");
    fill(&service, count);
    let running = service.serve();
    let limit = count.to_string();
    let list = check(&service, &running, &basic, &["user", "list", "--json"]);
    // The device is a user, too.
    assert_eq!((list.users, list.last.as_str()), (count + 1, "]\n"));
    let table = check(&service, &running, &basic, &["user", "list", "--limit", &limit]);
    assert_eq!(table.lines, count + 1);
    let found = check(
        &service,
        &running,
        &basic,
        &["user", "list", "--search", "USER 77"],
    );
    assert!((2..=501).contains(&found.lines), "{}", found.lines);
    let export = check(&service, &running, &basic, &["export"]);
    assert_eq!(
        (export.users, export.last.as_str()),
        (count, "# The export ends here.\n")
    );
    let export = check(&service, &running, &basic, &["export", "--json"]);
    assert_eq!((export.users, export.last.as_str()), (count, "}\n"));
}

/// A process that was stopped, or a pager that nobody scrolls.
#[test]
fn a_reader_that_stops_takes_no_memory_and_stops_nobody() {
    let service = Service::empty();
    let basic = Device::add(&service, "kiosk");
    fill(&service, USERS_SHORT);
    let running = service.serve();
    let mut device = Device::begin(&running, &basic);
    let before = memory(running.id(), "VmRSS").unwrap();
    let readers: Vec<_> = ["{\"user_list\":{}}\n", "{\"export\":false}\n"]
        .into_iter()
        .cycle()
        .take(12)
        .map(|command| {
            let socket = service.data().join("control.sock");
            let mut stream = UnixStream::connect(socket).unwrap();
            stream.write_all(command.as_bytes()).unwrap();
            stream.read_exact(&mut [0]).unwrap();
            stream
        })
        .collect();
    device.refresh_until(&AtomicBool::new(true));
    let list = run(&service, &["user", "list", "--json"]);
    assert_eq!(list.last, "]\n");
    let grown = memory(running.id(), "VmHWM").unwrap().saturating_sub(before);
    report(
        "readers that stop",
        &format!("{} of them, {grown} KiB", readers.len()),
    );
    assert!(grown < SERVICE_GROWTH, "{grown} KiB");
    drop(readers);
    assert!(service.run(&["client", "list"]).status.success());
}

/// Writes the lines of an import that describe the users with these numbers.
pub(super) fn import_lines(numbers: Range<usize>, path: &Path) {
    let mut file = std::io::BufWriter::new(File::create(path).unwrap());
    for number in numbers {
        writeln!(
            file,
            "{{\"email\":\"user{number}@example.com\",\"claims\":{{\"name\":\"User {number}\"}}}}"
        )
        .unwrap();
    }
    file.flush().unwrap();
}

/// Imports users until the service has in memory what one that has worked for a while has: pages of the database, and rows
/// that are not in the database file yet.
fn fill_caches(service: &Service, numbers: Range<usize>) {
    import_lines(numbers, &service.folder.path().join("first.jsonl"));
    let imported = service.run(&["user", "import", "first.jsonl"]);
    assert!(imported.status.success(), "{}", said(&imported));
}

/// A cut or faulty file changes nothing.
fn refuse_faulty(copy: &Service, exported: &str) {
    let text = fs::read_to_string(exported).unwrap();
    let (cut, twice) = (
        text.replace("# The export ends here.\n", ""),
        format!(
            "{text}\n[[user]]\naccount_id = \"USER7@example.com\"\n[[client]]\nclient_id = \"new\"\nredirect_uris = [\"https://a.example/\"]\n"
        ),
    );
    for (text, fault) in [
        (cut, "broken off: its last line is missing"),
        (
            twice,
            "user USER7@example.com: another entry is about the same user",
        ),
        (
            text.replacen("[[user]]\n", "[[user]]\nemial = \"x\"\n", 2),
            "unknown key emial",
        ),
    ] {
        fs::write(exported, text).unwrap();
        let refused = copy.run(&["apply", "-f", exported]);
        assert!(
            !refused.status.success() && said(&refused).contains(fault),
            "{}",
            said(&refused)
        );
    }
    assert!(!copy.run(&["client", "show", "new"]).status.success());
    // Two entries find one user by different names.
    let update = ["user", "update", "user7@example.com", "--json", "--account-id"];
    copy.json(&[&update[..], &["seven"]].concat());
    fs::write(exported, format!("{text}\n[[user]]\naccount_id = \"seven\"\n")).unwrap();
    let refused = copy.run(&["apply", "-f", exported]);
    assert_eq!(refused.status.code(), Some(1));
    let fault = "user seven: several entries are about the same user";
    assert!(said(&refused).contains(fault), "{}", said(&refused));
    copy.json(&[&update[..], &["user7@example.com"]].concat());
}

#[test]
fn what_export_writes_is_applied_at_any_size() {
    let (count, first_count) = (amount(10_000, USERS_LONG), amount(5000, 100_000));
    let (service, copy) = (Service::empty(), Service::new());
    let basic = Device::add(&service, "kiosk");
    let running = service.serve();
    fill_caches(&service, 0..first_count);
    let file = service.folder.path().join("users.jsonl");
    import_lines(first_count..count, &file);
    let import = check(&service, &running, &basic, &["user", "import", "users.jsonl"]);
    assert!(import.lines > 1);
    let exported = service.folder.path().join("state.toml");
    let mut export = service.command(&["export"]);
    let status = export.stdout(File::create(&exported).unwrap()).status().unwrap();
    assert!(status.success());

    let basic = Device::add(&copy, "other");
    let running = copy.serve();
    fill_caches(&copy, count..count + first_count);
    let exported = exported.to_str().unwrap();
    let applied = check(&copy, &running, &basic, &["apply", "-f", exported]);
    assert_eq!(
        applied.last,
        format!("{} added, 0 changed, 0 removed, 0 as they were\n", count + 1)
    );
    let again = check(&copy, &running, &basic, &["apply", "-f", exported]);
    assert_eq!(
        again.last,
        format!("0 added, 0 changed, 0 removed, {} as they were\n", count + 1)
    );
    let same = copy.run(&["apply", "-f", exported, "--json"]);
    assert_eq!(
        shown(&same),
        format!(
            "{{\n  \"dry_run\": false,\n  \"changes\": [],\n  \"unchanged\": {}\n}}\n",
            count + 1
        )
    );

    let pruned = copy.run(&["apply", "-f", exported, "--prune", "--yes"]);
    let removed = format!(
        "0 added, 0 changed, {} removed, {} as they were\n",
        first_count + 1,
        count + 1
    );
    assert!(
        shown(&pruned).starts_with("- client other\n- user "),
        "{}",
        said(&pruned)
    );
    assert!(shown(&pruned).ends_with(&removed), "{}", said(&pruned));
    copy.json(&["user", "add", "extra@example.com", "--no-password", "--json"]);
    let asked = copy.run(&["apply", "-f", exported, "--prune"]);
    assert_eq!(asked.status.code(), Some(2));
    assert!(
        said(&asked).contains("- user extra@example.com"),
        "{}",
        said(&asked)
    );
    let removed = "- user extra@example.com\n0 added, 0 changed, 1 removed";
    for mode in ["--dry-run", "--yes"] {
        let pruned = copy.run(&["apply", "-f", exported, "--prune", mode]);
        assert!(shown(&pruned).starts_with(removed), "{}", shown(&pruned));
        let is_there = copy.run(&["user", "show", "extra@example.com"]).status.success();
        assert_eq!(is_there, mode == "--dry-run");
    }

    refuse_faulty(&copy, exported);
    // All but one go.
    fs::write(
        exported,
        "[[user]]\nemail = \"user7@example.com\"\nclaims = { name = \"User 7\" }\n",
    )
    .unwrap();
    let pruned = copy.run(&["apply", "-f", exported, "--prune", "--yes"]);
    let removed = format!("0 added, 0 changed, {} removed, 1 as they were\n", count - 1);
    assert!(shown(&pruned).ends_with(&removed), "{}", said(&pruned));
}
