//! What was seen of the service while the soak went on, and what of it fails the soak.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::visitors::Shared;
use crate::server::Server;

/// How much more memory the last third may take than the middle one.
const MEMORY_FACTOR: f64 = 1.25;
const MEMORY_MIB: f64 = 4.0;
/// How many more files may be open in the last third than in the middle one.
const FILES: usize = 16;

/// What was seen in a third.
#[derive(Default)]
pub(super) struct Third {
    elapsed: Duration,
    done: usize,
    pub(super) put_off: usize,
    latencies: Vec<u32>,
    memory: Vec<f64>,
    files: usize,
    database: u64,
    cpu: f64,
}

/// Looks at the service now and then.
pub(super) struct Sampler {
    thirds: [Third; 3],
    last: Instant,
    cpu: f64,
    counted: (usize, usize),
}

impl Sampler {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            thirds: Default::default(),
            last: Instant::now(),
            cpu: server.cpu(),
            counted: (0, 0),
        }
    }

    /// Adds what can be seen now to that third.
    pub(super) fn look(&mut self, third: usize, server: &Server, shared: &Shared) {
        let third = &mut self.thirds[third];
        let now = Instant::now();
        third.elapsed += now - self.last;
        self.last = now;
        let cpu = server.cpu();
        // A new process begins at nothing.
        third.cpu += if cpu < self.cpu { cpu } else { cpu - self.cpu };
        self.cpu = cpu;
        let counted = (
            shared.done.load(Ordering::SeqCst),
            shared.put_off.load(Ordering::SeqCst),
        );
        third.done += counted.0 - self.counted.0;
        third.put_off += counted.1 - self.counted.1;
        self.counted = counted;
        third.latencies.append(&mut shared.latencies.lock().unwrap());
        third.memory.push(server.memory());
        third.files = third.files.max(server.open_files());
        third.database = fs::metadata(server.seen("idsvc.redb")).unwrap().len();
    }

    /// Prints the table, and what in it is beyond a limit.
    pub(super) fn conclude(mut self) -> (Vec<String>, [Third; 3]) {
        for third in &mut self.thirds {
            third.latencies.sort_unstable();
        }
        println!("{:<34} | {:>10} | {:>10} | {:>10}", "", "first", "middle", "last");
        self.row("requests a second", 0, |third| {
            number(third.done) / third.elapsed.as_secs_f64()
        });
        self.row("put off or lost", 0, |third| number(third.put_off));
        self.row("p50, ms", 2, |third| third.percentile(50));
        self.row("p99, ms", 2, |third| third.percentile(99));
        self.row("processor time, of one core", 2, |third| {
            third.cpu / third.elapsed.as_secs_f64()
        });
        self.row("memory, mean MiB", 1, |third| {
            third.memory.iter().sum::<f64>() / number(third.memory.len())
        });
        self.row("memory, most MiB", 1, Third::most_memory);
        self.row("open files", 0, |third| number(third.files));
        self.row("database at the end, MiB", 1, |third| {
            f64::from(u32::try_from(third.database >> 10).unwrap()) / 1024.0
        });
        let [_, middle, last] = &self.thirds;
        let mut beyond = Vec::new();
        let allowed = middle.most_memory() * MEMORY_FACTOR + MEMORY_MIB;
        if last.most_memory() > allowed {
            beyond.push(format!(
                "memory in the last third: {:.1} MiB, {allowed:.1} are allowed",
                last.most_memory()
            ));
        }
        if last.files > middle.files + FILES {
            beyond.push(format!("{} files are open in the last third", last.files));
        }
        (beyond, self.thirds)
    }

    fn row(&self, name: &str, digits: usize, figure: impl Fn(&Third) -> f64) {
        let [first, middle, last] = [0, 1, 2].map(|at| figure(&self.thirds[at]));
        println!("{name:<34} | {first:>10.digits$} | {middle:>10.digits$} | {last:>10.digits$}");
    }
}

impl Third {
    fn most_memory(&self) -> f64 {
        self.memory.iter().copied().fold(0.0, f64::max)
    }

    /// In milliseconds; of sorted times.
    fn percentile(&self, percent: usize) -> f64 {
        let at = self.latencies.len() * percent / 100;
        self.latencies
            .get(at)
            .map_or(0.0, |micros| f64::from(*micros) / 1e3)
    }
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}
