//! What a refresh costs several nodes and the PostgreSQL server that they share, and what moving the data takes.

use std::cell::RefCell;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::load::{Measured, run};
use crate::postgres::{Cluster, Database};
use crate::report::verdict;
use crate::server::{Server, memory_of, processor_seconds};
use crate::yardstick::Yardstick;
use crate::{Bench, Options, RefreshKind};

/// What was answered is on the disk of the server.
const SETTINGS: &[&str] = &[
    "fsync=on",
    "max_locks_per_transaction=256",
    "shared_buffers=256MB",
];
/// At the most nodes, a refresh may cost so many times what it costs at one.
const GOAL: f64 = 1.25;
/// How often each number of nodes is measured, in turn: a noisy minute disturbs all of them.
const ROUNDS: usize = 3;

/// Moves a service with users into PostgreSQL, and prints the processor time of a refresh at one node and more.
pub(crate) fn report(options: &Options, most: usize) {
    let mut bench = Bench::start(options, *options.users.last().unwrap());
    let cluster = Cluster::start_with(SETTINGS);
    if let Some(core) = options.core() {
        pin(cluster.id(), core);
    }
    let database = cluster.database("bench");
    move_to(&mut bench.server, &database);
    let mut nodes: Vec<_> = (0..most).map(|_| node(&bench, &database)).collect();
    let measured: usize = (1..=most).sum();
    let families = bench.tokens.len() / (ROUNDS * measured * options.connections);
    println!("\n{HEAD}\n{}", "-".repeat(HEAD.len()));
    let mut totals = vec![Vec::new(); most];
    for _ in 0..ROUNDS {
        for count in 1..=most {
            let running = &mut nodes[..count];
            for node in running.iter_mut() {
                node.start();
            }
            let cost = measure(&mut bench, running, cluster.id(), families);
            println!("{}", cost.line(count));
            totals[count - 1].push(cost.total());
            for node in running {
                node.close();
            }
        }
    }
    let medians: Vec<_> = totals.into_iter().map(median).collect();
    let times = medians[most - 1] / medians[0];
    println!(
        "\nmedian of the totals: {:.1} us at one node, {:.1} us at {most}, {times:.2} times (goal {GOAL}): {}",
        medians[0],
        medians[most - 1],
        verdict(times <= GOAL)
    );
    move_back(&bench.server, options);
}

const HEAD: &str =
    "nodes | refreshes/s | p50 ms | p99 ms | round trips | nodes us | PostgreSQL us | total us | ES256 us";

/// What nodes and the PostgreSQL server have used since their starts. Processor time is in seconds.
#[derive(Clone, Copy, Debug)]
struct Reading {
    nodes_cpu: f64,
    postgres_cpu: f64,
    round_trips: f64,
}

/// The processor time of a refresh, in microseconds.
struct Cost {
    nodes: f64,
    postgres: f64,
    /// How often a refresh has waited for the database.
    round_trips: f64,
    refreshes: Measured,
}

impl Cost {
    fn total(&self) -> f64 {
        self.nodes + self.postgres
    }

    fn line(&self, count: usize) -> String {
        format!(
            "{count:>5} | {:>11.0} | {:>6.1} | {:>6.1} | {:>11.2} | {:>8.1} | {:>13.1} | {:>8.1} | {:>8.1}",
            self.refreshes.per_second(),
            self.refreshes.percentile(50),
            self.refreshes.percentile(99),
            self.round_trips,
            self.nodes,
            self.postgres,
            self.total(),
            self.refreshes.signature
        )
    }
}

/// Stops the service and restores its backup into the database.
fn move_to(server: &mut Server, database: &Database) {
    let backup = server.file("file.backup");
    let backup = backup.to_str().unwrap();
    server.close();
    timed("backup of the file", server, &["backup", backup]);
    fs::rename(server.seen("idsvc.redb"), server.file("moved.redb")).unwrap();
    server.set("IDSVC_STORE_URL", &database.url());
    timed("restore into PostgreSQL", server, &["restore", backup]);
}

/// Restores a backup of the database into a new file.
fn move_back(server: &Server, options: &Options) {
    let backup = server.file("database.backup");
    let backup = backup.to_str().unwrap();
    timed(
        "backup of PostgreSQL",
        server,
        &["backup", backup, "--with-master-key"],
    );
    let file = Server::new(&options.binary, None);
    timed("restore into a file", &file, &["restore", backup]);
}

/// Runs a command that has to succeed, and prints its time and its memory.
fn timed(what: &str, server: &Server, words: &[&str]) {
    let begun = Instant::now();
    let (command, mut process) = server.begin(words);
    let mut most = 0.0_f64;
    let status = loop {
        if let Some(status) = process.try_wait().unwrap() {
            break status;
        }
        most = most.max(memory_of(&process, "VmHWM:").unwrap_or_default());
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{command} failed");
    println!(
        "{what}: {:.1} s, at most {most:.0} MiB of memory",
        begun.elapsed().as_secs_f64()
    );
}

/// A node with the master key and the issuer of the service.
fn node(bench: &Bench, database: &Database) -> Server {
    let mut node = Server::new(&bench.options.binary, bench.options.core.clone());
    node.set("IDSVC_STORE_URL", &database.url());
    node.set("IDSVC_BASE_URL", &bench.server.issuer());
    node.serve_metrics();
    DirBuilder::new().mode(0o700).create(node.data_dir()).unwrap();
    fs::copy(bench.server.seen("master.key"), node.seen("master.key")).unwrap();
    node
}

/// Refreshes at all of these nodes, over so many connections to each.
fn measure(bench: &mut Bench, nodes: &[Server], postgres: Pid, families: usize) -> Cost {
    let scripts = nodes
        .iter()
        .flat_map(|_| bench.refreshes_of(families, RefreshKind::Secret, usize::MAX))
        .collect();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
    let readings = RefCell::new(Vec::new());
    let cpu = || {
        let reading = Reading {
            nodes_cpu: nodes.iter().map(Server::cpu).sum(),
            postgres_cpu: seconds_of(postgres),
            round_trips: nodes.iter().map(round_trips_of).sum(),
        };
        readings.borrow_mut().push(reading);
        reading.nodes_cpu + reading.postgres_cpu
    };
    let core = bench.options.core();
    let refreshes = bench.runtime.block_on(run(
        &addresses,
        core.is_some(),
        scripts,
        Vec::new(),
        bench.span(),
        cpu,
        Yardstick { core },
    ));
    let [before, after]: [Reading; 2] = readings.into_inner().try_into().unwrap();
    Cost {
        nodes: refreshes.each(after.nodes_cpu - before.nodes_cpu) * 1e6,
        postgres: refreshes.each(after.postgres_cpu - before.postgres_cpu) * 1e6,
        round_trips: refreshes.each(after.round_trips - before.round_trips),
        refreshes,
    }
}

/// How often the requests of a node have waited for the database: for rows, and for commits.
fn round_trips_of(node: &Server) -> f64 {
    let counters = ["idsvc_store_fetches_total", "idsvc_store_writes_total"];
    counters.iter().map(|counter| node.metric(counter)).sum()
}

/// The server's process and those that it started.
fn processes_of(server: Pid) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children")).unwrap();
    let children = children
        .split_whitespace()
        .map(|id| Pid::from_raw(id.parse().unwrap()).unwrap());
    children.chain([server]).collect()
}

/// Gives the server a core. What it starts later has the same.
fn pin(server: Pid, core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    for process in processes_of(server) {
        sched_setaffinity(Some(process), &cores).unwrap();
    }
}

/// Seconds of processor time of the server's processes. None ends while a load is measured.
fn seconds_of(server: Pid) -> f64 {
    let processes = processes_of(server).into_iter();
    let stats = processes.filter_map(|id| fs::read_to_string(format!("/proc/{id}/stat")).ok());
    stats.map(|stat| processor_seconds(&stat)).sum()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
