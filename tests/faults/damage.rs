//! Files of the data directory are lost, wrong or damaged: one sentence says so, and nothing is made worse.

use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use idsvc::random::Random;

use super::kiosk::{ANONYMOUS, Kiosk};
use super::refused_in_one_sentence;
use crate::harness::process::{Running, Service, said};
use crate::harness::report::{amount, is_long, report};

const PAGE: usize = 4096;

/// A data directory in which something was promised, and a copy of its two files.
struct Victim {
    service: Service,
    kiosk: Kiosk,
    token: String,
    /// Refresh tokens that are good for nothing: of a grant that was revoked, and one that was replaced.
    ended: [String; 2],
    /// An access token of the grant that was revoked.
    withdrawn: String,
    /// The service's list of clients, with the digests of their secrets.
    clients: Vec<u8>,
    database: Vec<u8>,
    key: Vec<u8>,
}

/// The clients as the service has them, where it can tell.
fn clients(service: &Service) -> Vec<u8> {
    service.run(&["export", "--with-hashes"]).stdout
}

impl Victim {
    fn new() -> Self {
        let service = Service::empty();
        let kiosk = Kiosk::register(&service);
        let mut running = service.serve();
        let token = (0..50)
            .map(|_| kiosk.enter(&running).unwrap())
            .next_back()
            .unwrap();
        let revoked = kiosk.tokens(&running);
        let [revoked, withdrawn] =
            ["refresh_token", "access_token"].map(|name| revoked[name].as_str().unwrap().to_owned());
        assert_eq!(kiosk.revoke(&running, &revoked).status, 200);
        let replaced = kiosk.enter(&running).unwrap();
        let newest = kiosk.refresh(&running, &replaced).unwrap();
        kiosk.refresh(&running, &newest).unwrap();
        let clients = clients(&service);
        assert!(String::from_utf8_lossy(&clients).contains("secret_sha256"));
        running.terminate();
        drop(running);
        let data = service.data();
        let database = fs::read(data.join("idsvc.redb")).unwrap();
        let key = fs::read(data.join("master.key")).unwrap();
        Self {
            service,
            kiosk,
            token,
            ended: [revoked, replaced],
            withdrawn,
            clients,
            database,
            key,
        }
    }

    fn restore(&self) {
        let data = self.service.data();
        fs::write(data.join("idsvc.redb"), &self.database).unwrap();
        fs::write(data.join("master.key"), &self.key).unwrap();
    }
}

/// The two files as they are, if they are.
fn found(data: &Path) -> [Option<Vec<u8>>; 2] {
    ["idsvc.redb", "master.key"].map(|name| fs::read(data.join(name)).ok())
}

#[test]
fn what_is_lost_or_wrong_is_said_in_one_sentence_and_not_touched() {
    type Harm = fn(&Path, &Path);
    let harms: [(Harm, &str); 9] = [
        (|_, key| fs::remove_file(key).unwrap(), "master.key is missing"),
        (
            |_, key| fs::write(key, "00".repeat(32)).unwrap(),
            "is not the key that this database was sealed with",
        ),
        (|_, key| fs::write(key, "lost").unwrap(), "is not a master key"),
        (
            |database, _| fs::remove_file(database).unwrap(),
            "put the database back",
        ),
        (
            |database, _| fs::write(database, "").unwrap(),
            "put the database back",
        ),
        (|database, _| cut(database, 2), "is damaged or not a database"),
        (|database, _| cut(database, 1000), "is damaged or not a database"),
        (
            |database, _| overwrite(database, 0, &[0; PAGE]),
            "is damaged or not a database",
        ),
        (
            |database, _| fs::write(database, "SQLite format 3\0".repeat(4096)).unwrap(),
            "is damaged or not a database",
        ),
    ];
    let victim = Victim::new();
    let service = &victim.service;
    let data = service.data();
    for (harm, about) in harms {
        harm(&data.join("idsvc.redb"), &data.join("master.key"));
        let before = found(&data);
        for words in [&["serve"][..], &["client", "list"], &["backup", "saved"]] {
            refused_in_one_sentence(service, words, about);
        }
        let doctor = service.run(&["doctor"]);
        assert_eq!(doctor.status.code(), Some(1), "{about}: {doctor:?}");
        let after = found(&data);
        assert!(!service.folder.path().join("saved").exists());
        if before[0].as_ref() == Some(&victim.database) {
            // The engine has opened the database; with its own key it serves again.
            assert!(after[1] == before[1], "{about}");
            fs::write(data.join("master.key"), &victim.key).unwrap();
        } else {
            assert!(after == before, "{about}");
            victim.restore();
        }
        let mut running = service.serve();
        let known = victim.kiosk.introspect(&running, &victim.token);
        assert_eq!(known.json()["active"], true, "{about}");
        running.terminate();
        drop(running);
        victim.restore();
    }
}

/// The files that a killed service leaves beside its database belong to it.
#[test]
fn a_journal_that_is_lost_or_damaged_is_said_in_one_sentence_and_not_passed_over() {
    let service = Service::empty();
    let kiosk = Kiosk::register(&service);
    let mut tokens = Vec::new();
    let mut killed = || {
        let mut running = service.serve();
        tokens.extend((0..20).map(|_| kiosk.enter(&running).unwrap()));
        running.signal("KILL");
        running.kill();
    };
    killed();
    let data = service.data();
    let (database, journal) = (data.join("idsvc.redb"), data.join("idsvc.redb.journal"));
    let kept = fs::read(&journal).unwrap();
    fs::remove_file(&journal).unwrap();
    for words in [&["serve"][..], &["client", "list"], &["backup", "saved"]] {
        refused_in_one_sentence(&service, words, "idsvc.redb.journal is missing");
    }
    fs::write(&journal, kept).unwrap();
    // Seconds after the last write the journal is empty: one that was killed so late is killed again.
    let files = loop {
        let files = [&database, &journal].map(|file| fs::read(file).unwrap());
        overwrite(&journal, 50, &[0; 8]);
        if !service.run(&["client", "list"]).status.success() {
            break files;
        }
        killed();
    };
    refused_in_one_sentence(&service, &["serve"], "idsvc.redb.journal is not what was written");
    fs::write(&database, &files[0]).unwrap();
    fs::write(&journal, &files[1]).unwrap();
    let mut running = service.serve();
    for token in &tokens {
        assert_eq!(kiosk.introspect(&running, token).json()["active"], true);
    }
    running.terminate();
    assert!(
        !journal.exists(),
        "a database that was closed is whole without it"
    );
    for lost in ["idsvc.redb", "master.key"] {
        fs::remove_file(data.join(lost)).unwrap();
    }
    fs::write(&journal, &files[1]).unwrap();
    refused_in_one_sentence(&service, &["serve"], "put the database back");
    assert!(fs::read(&journal).unwrap() == files[1] && !database.exists());
}

fn cut(database: &Path, by: u64) {
    let file = fs::File::options().write(true).open(database).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length / by).unwrap();
}

fn overwrite(database: &Path, at: u64, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(database).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// A page that holds something, chosen at random, gets other bytes, at random.
fn spoil(victim: &Victim, random: &Random) {
    let database = victim.service.data().join("idsvc.redb");
    let below = |bound: usize| usize::try_from(u64::from_be_bytes(random.bytes())).unwrap() % bound;
    loop {
        let page = PAGE * below(victim.database.len() / PAGE);
        if victim.database[page..page + 64].iter().any(|byte| *byte != 0) {
            let whole = random.bytes::<PAGE>();
            let most = if below(2) == 0 { 8 } else { PAGE / 2 };
            let at = u64::try_from(page + below(PAGE / 2)).unwrap();
            return overwrite(&database, at, &whole[..=below(most)]);
        }
    }
}

/// Fails when something that was ended works again, or when what needs no page is not served. Nothing when no answer
/// comes any more.
fn is_honest(victim: &Victim, running: &Running<'_>) -> Option<()> {
    for path in ["/healthz", "/oauth2/jwks", "/.well-known/openid-configuration"] {
        assert_eq!(running.request("GET", path, &[], "")?.status, 200, "{path}");
    }
    for token in &victim.ended {
        let form = [("grant_type", "refresh_token"), ("refresh_token", token)];
        let answer = victim.kiosk.ask(running, "/oauth2/token", &form)?;
        assert!([400, 401, 500, 503].contains(&answer.status), "{answer:?}");
    }
    let form = [("token", victim.withdrawn.as_str())];
    let answer = victim.kiosk.ask(running, "/oauth2/introspect", &form)?;
    match answer.status {
        200 => assert_eq!(answer.json()["active"], false, "a revoked token"),
        status => assert!([401, 500, 503].contains(&status), "{answer:?}"),
    }
    Some(())
}

/// Whether the process ended because the engine panicked while it was cleaning up after a panic. All that panicked in it
/// was the engine, by the lines of its log.
fn by_the_engine(status: ExitStatus, log: &[String]) -> bool {
    const ABORT: i32 = 6;
    let last = log.iter().rfind(|line| !line.is_empty());
    let panics = log.iter().filter_map(|line| line.split_once("panicked at "));
    let places: Vec<_> = panics.map(|(_, place)| place).collect();
    status.signal() == Some(ABORT)
        && last.is_some_and(|line| line == "thread caused non-unwinding panic. aborting.")
        && places.iter().any(|place| is_of_the_engine(place))
        && places
            .iter()
            .all(|place| is_of_the_engine(place) || place.contains("library/core/src/panicking.rs"))
}

fn is_of_the_engine(place: &str) -> bool {
    place.contains("/redb-4.")
}

/// The result of damaged pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The process did not start, and said why.
    Refused,
    /// It answered that it could not.
    Failing,
    /// It ended inside the engine.
    Aborted,
    Unnoticed,
}

/// Starts the service on these files and sends requests. Fails if it hangs, ends in another way, or answers wrongly.
fn outcome(victim: &Victim) -> Outcome {
    let service = &victim.service;
    let lines = service.log().lines().count();
    let log = || {
        service
            .log()
            .lines()
            .skip(lines)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut running = service.launch();
    let begun = Instant::now();
    let ended = loop {
        if let Some(status) = running.ended() {
            break Some(status);
        }
        if running.request("GET", "/healthz", &[], "").is_some() {
            break None;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "{:#?}", log());
        thread::sleep(Duration::from_millis(5));
    };
    if let Some(status) = ended {
        let log = log();
        if by_the_engine(status, &log) {
            return Outcome::Aborted;
        }
        let said = log.iter().filter(|line| line.starts_with("error: ")).count();
        assert_eq!((status.code(), said), (Some(1), 1), "{log:#?}");
        return Outcome::Refused;
    }
    let asked = [
        vec![("grant_type", ANONYMOUS)],
        vec![("grant_type", "refresh_token"), ("refresh_token", &victim.token)],
        vec![("grant_type", ANONYMOUS)],
    ];
    // A row in a damaged page may not be found any more.
    let honest: [&[u16]; 3] = [&[200, 500, 503], &[200, 400, 500, 503], &[200, 500, 503]];
    let statuses: Vec<_> = asked
        .iter()
        .map(|form| victim.kiosk.ask(&running, "/oauth2/token", form))
        .map_while(|answer| answer.map(|reply| reply.status))
        .collect();
    let honest_too = is_honest(victim, &running);
    if statuses.len() < asked.len() || honest_too.is_none() || running.ended().is_some() {
        let (status, log) = (running.wait(), log());
        assert!(by_the_engine(status, &log), "{status}: {log:#?}");
        return Outcome::Aborted;
    }
    // Nor the client's: then nobody is let in by its name.
    let is_client_lost = || clients(service) != victim.clients;
    let mut answers = statuses.iter().zip(honest);
    assert!(
        answers.all(|(status, honest)| honest.contains(status)) || (statuses == [401; 3] && is_client_lost()),
        "{statuses:?}"
    );
    if statuses.iter().any(|status| *status != 200) {
        Outcome::Failing
    } else {
        Outcome::Unnoticed
    }
}

/// With any damaged page, the process either refuses to start, with one sentence, or answers every request.
/// If the damage is in the engine's own tables of free pages, the engine may end the process. That is rare, and nothing
/// hangs.
#[test]
fn a_damaged_page_never_hangs_the_service() {
    let victim = Victim::new();
    let (service, random) = (&victim.service, Random::system());
    let trials = amount(12, 200);
    let mut outcomes = Vec::new();
    let mut next = Vec::new();
    for _ in 0..trials {
        for _ in 0..=random.bytes::<1>()[0] % 8 {
            spoil(&victim, &random);
        }
        outcomes.push(outcome(&victim));
        if outcomes.last() == Some(&Outcome::Aborted) {
            next.push(outcome(&victim));
        }
        victim.restore();
    }
    let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let [refused, failing, aborted] = [Outcome::Refused, Outcome::Failing, Outcome::Aborted].map(count);
    let running = service.serve();
    is_honest(&victim, &running).unwrap();
    victim.kiosk.refresh(&running, &victim.token).unwrap();
    victim.kiosk.enter(&running).unwrap();
    assert!(
        clients(service) == victim.clients,
        "nothing but damage changes them"
    );
    report(
        "damaged pages",
        &format!(
            "{trials} tried: {refused} refused at the start, {failing} answered with errors, {aborted} ended by the engine (at the next start: {next:?}), the rest not noticed"
        ),
    );
    if is_long() {
        assert!(aborted * 20 <= trials, "the engine ends the process too often");
        assert!(refused > 0 && failing > 0, "not all was tried");
    }
}

/// Spoils where its rows are said to be in every page with these bytes in it, which the start does not look at.
fn ruin_pages_with(database: &Path, marker: &str, but_not: &str) {
    let bytes = fs::read(database).unwrap();
    let has = |page: &[u8], text: &str| page.windows(text.len()).any(|part| part == text.as_bytes());
    let pages = (0_u64..).step_by(PAGE).zip(bytes.chunks(PAGE));
    let marked: Vec<_> = pages.filter(|(_, page)| has(page, marker)).collect();
    assert!(!marked.is_empty(), "nobody wrote {marker}");
    for (at, page) in marked {
        assert!(!has(page, but_not), "{but_not} is beside {marker}");
        overwrite(database, at + 4, &[0xff; 32]);
    }
}

/// One page of the users cannot be read any more. Each request for a user on it gets an error; all other requests are served.
#[test]
fn whoever_is_in_a_damaged_page_gets_an_error_and_others_are_served() {
    const TARGET: &str =
        "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https://app.example/cb";
    const PASSWORD: &str = "correct horse battery staple";
    let service = Service::with_client();
    let kiosk = Kiosk::register(&service);
    let file = |name: &str, text: &str| fs::write(service.folder.path().join(name), text).unwrap();
    file("password", PASSWORD);
    let add = |name: &str| {
        let claim = format!("nickname=mark-of-{name}");
        let address = format!("{name}@example.com");
        let password = fs::File::open(service.folder.path().join("password")).unwrap();
        let words = ["user", "add", &address, "--claim", &claim, "--password-stdin"];
        let added = service.command(&words).stdin(password).output().unwrap();
        assert!(added.status.success(), "{}", said(&added));
    };
    // Users lie in the order in which they came.
    add("alice");
    let others = |number| format!("{{\"email\":\"user-{number}@example.com\"}}\n");
    file("users.jsonl", &(0..200).map(others).collect::<String>());
    service.json(&["user", "import", "users.jsonl", "--json"]);
    add("bob");
    let status_of = |running: &Running<'_>, name: &str| {
        let address = format!("{name}@example.com");
        running.type_in(TARGET, &address, PASSWORD).0.status
    };
    let mut running = service.serve();
    let token = kiosk.enter(&running).unwrap();
    let revoked = kiosk.enter(&running).unwrap();
    assert_eq!(kiosk.revoke(&running, &revoked).status, 200);
    assert_eq!(["alice", "bob"].map(|name| status_of(&running, name)), [303; 2]);
    running.terminate();
    drop(running);
    let database = service.data().join("idsvc.redb");
    let whole = fs::read(&database).unwrap();
    ruin_pages_with(&database, "mark-of-alice", "mark-of-bob");
    let mut running = service.serve();
    for _ in 0..3 {
        assert_eq!(status_of(&running, "alice"), 500);
        assert_eq!(status_of(&running, "bob"), 303);
        kiosk.refresh(&running, &token).unwrap();
        kiosk.enter(&running).unwrap();
        assert_eq!(kiosk.refresh(&running, &revoked).unwrap_err().status, 400);
        for path in ["/healthz", "/oauth2/jwks", "/.well-known/openid-configuration"] {
            assert_eq!(running.request("GET", path, &[], "").unwrap().status, 200);
        }
    }
    let shown = |name: &str| service.run(&["user", "show", &format!("{name}@example.com")]);
    let refused = shown("alice");
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(said(&refused).lines().count(), 1, "{}", said(&refused));
    assert!(shown("bob").status.success());
    running.terminate();
    drop(running);
    fs::write(&database, whole).unwrap();
    let running = service.serve();
    assert_eq!(["alice", "bob"].map(|name| status_of(&running, name)), [303; 2]);
}
