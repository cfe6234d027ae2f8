//! What one more user, grant, event, connection and password takes: the figures of the guide, Size a machine.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use crate::load::Connection;
use crate::scripts;
use crate::seed::{Kind, fill};
use crate::server::Server;
use crate::{Bench, Costs, Options, pool, register, rsa_key};

/// How many rows of each kind are written.
const ROWS: usize = 100_000;
/// How many connections are opened.
const CONNECTIONS: usize = 1_000;
const MIB: f64 = 1024.0 * 1024.0;

/// Prints what everything takes.
pub(crate) fn measure(options: &Options, costs: &Costs) {
    let begun = Instant::now();
    let of_files = getrlimit(Resource::Nofile);
    let current = of_files.maximum;
    setrlimit(Resource::Nofile, Rlimit { current, ..of_files }).unwrap();
    storage(options);
    let (binary, core) = (&options.binary, &options.core);
    connections("HTTP", Server::new(binary, core.clone()), false);
    connections("TLS", Server::with_tls(binary, core.clone()), true);
    let mut bench = Bench::start(options, ROWS);
    line(
        "memory after a start, with 100,000 users",
        bench.server.memory(),
        "MiB",
    );
    let run = bench.requests(costs);
    line("memory after a minute of load", bench.server.memory(), "MiB");
    println!("\nbytes of one event in events/, and of its line in the log");
    for (event, (kept, logged)) in event_lengths(&bench.server) {
        let logged = logged.map_or_else(|| "none".to_owned(), |bytes| format!("{bytes:.0}"));
        println!("{event:<58} {kept:>10.0} {logged:>10}");
    }
    println!();
    passwords(bench);
    println!("\none core, requests a second");
    for (name, per_second) in run.one_core() {
        line(name, per_second, "a second");
    }
    println!("\nmeasured in {:.0} s", begun.elapsed().as_secs_f64());
}

fn line(what: &str, figure: f64, unit: &str) {
    println!("{what:<58} {figure:>10.1} {unit}");
}

/// How much longer the database gets by so many rows of each kind, and what a backup takes.
fn storage(options: &Options) {
    let mut server = Server::new(&options.binary, options.core.clone());
    server.set("IDSVC_BACKUP_INTERVAL", "off");
    server.start();
    register(&server, &rsa_key());
    server.close();
    let (_, password) = pool(&runtime());
    let mut before = compact(&server).1;
    println!("bytes of the database for one, as written and compacted");
    for kind in [
        Kind::UserWithPassword,
        Kind::Grant,
        Kind::User,
        Kind::Session,
        Kind::AnonymousUser,
    ] {
        fill(&server.data_dir(), kind, ROWS, &password);
        let (written, compacted) = compact(&server);
        let [most, least] = [written, compacted].map(|bytes| (bytes - before) / 1e5);
        println!("{:<58} {most:>10.0} {least:>10.0}", kind.name());
        before = compacted;
        if matches!(kind, Kind::Grant) {
            backup(&mut server);
        }
    }
    println!();
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// The length of the database as it is, and as short as it can be made, in bytes.
fn compact(server: &Server) -> (f64, f64) {
    let compacted = server.json(&["compact"]);
    let bytes = |name: &str| compacted[name].as_f64().unwrap();
    (bytes("bytes_before"), bytes("bytes"))
}

/// What a backup takes while the service runs.
fn backup(server: &mut Server) {
    server.start();
    let (begun, cpu) = (Instant::now(), server.cpu());
    server.json(&["backup", "one.backup"]);
    let (elapsed, cpu) = (begun.elapsed(), server.cpu() - cpu);
    server.close();
    let bytes = fs::metadata(server.file("one.backup")).unwrap().len();
    #[expect(
        clippy::cast_precision_loss,
        reason = "a length in MiB is printed with one digit"
    )]
    let mib = bytes as f64 / MIB;
    let of = "backup of 100,000 users, each with a password and a grant";
    line(of, mib, "MiB");
    line("  seven of them", 7.0 * mib, "MiB");
    line("  thirty of them", 30.0 * mib, "MiB");
    line("  time of one", elapsed.as_secs_f64(), "s");
    line("  processor time of one", cpu, "s");
}

/// What one connection takes that has asked once and now waits.
fn connections(kind: &str, mut server: Server, is_tls: bool) {
    server.set("IDSVC_BACKUP_INTERVAL", "off");
    server.start();
    let tls = is_tls.then(|| server.connector());
    let before = server.memory();
    runtime().block_on(async {
        let mut kept = Vec::new();
        for number in 0..CONNECTIONS {
            let opened = Connection::open(server.address, tls.as_ref(), number).await;
            let mut connection = opened.unwrap();
            connection.ask(&scripts::get("/healthz")).await.unwrap();
            kept.push(connection);
        }
        let grown = server.memory() - before;
        line(
            &format!("memory of an idle connection, {kind}"),
            grown * 1024.0 / 1e3,
            "KiB",
        );
    });
}

/// What one password takes that is being hashed: the difference between one at a time and three.
fn passwords(mut bench: Bench<'_>) {
    let mut most = |workers| {
        bench.server.close();
        bench.server.set("IDSVC_PASSWORD_WORKERS", workers);
        bench.most_in_a_burst()
    };
    let (_, one) = most("1");
    let (_, three) = most("3");
    line("most memory in a burst of sign-ins, one at a time", one, "MiB");
    line("  for each password more at a time", (three - one) / 2.0, "MiB");
}

/// The mean lengths of each kind of event, in `events/` and in the log. The log has no routine events, and none of the
/// start before.
fn event_lengths(server: &Server) -> BTreeMap<String, (f64, Option<f64>)> {
    let mut texts = vec![String::new()];
    for entry in fs::read_dir(server.data_dir().join("events")).unwrap() {
        texts[0].push_str(&fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    texts.push(fs::read_to_string(server.file("log")).unwrap());
    let mut lengths = BTreeMap::<String, [(f64, f64); 2]>::new();
    for (at, text) in texts.iter().enumerate() {
        for line in text.lines() {
            let name = |line: Value| {
                let members = line.get("fields").unwrap_or(&line);
                Some(members.get("event")?.as_str()?.to_owned())
            };
            if let Some(name) = serde_json::from_str(line).ok().and_then(name) {
                let sum = &mut lengths.entry(name).or_default()[at];
                *sum = (sum.0 + length(line), sum.1 + 1.0);
            }
        }
    }
    let mean = |(bytes, lines): (f64, f64)| (lines > 0.0).then(|| bytes / lines);
    let means = lengths
        .into_iter()
        .filter_map(|(name, [kept, logged])| Some((name, (mean(kept)?, mean(logged)))));
    means.collect()
}

/// With its line break.
fn length(line: &str) -> f64 {
    f64::from(u32::try_from(line.len() + 1).unwrap())
}
