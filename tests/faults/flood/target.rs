//! The cost of a service, and a bystander that measures its answers.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::process::Running;
pub(super) use crate::harness::tls::{HTTP_1, HTTP_2, Target, ask, issue, serve, service};

/// How long a bystander waited for answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) count: usize,
    pub(super) median: Duration,
    pub(super) worst: Duration,
}

/// Asks again and again for so long, every fourth time on a new connection. Each question is answered, or this fails.
pub(super) async fn bystander(target: &Target, during: Duration) -> Waits {
    let begun = Instant::now();
    let mut waits = Vec::new();
    let mut kept = target.connect().await.unwrap();
    while begun.elapsed() < during {
        let asked = Instant::now();
        if waits.len().is_multiple_of(4) {
            kept = target.connect().await.unwrap();
        }
        ask(&mut kept).await.unwrap();
        waits.push(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    waits.sort();
    Waits {
        count: waits.len(),
        median: waits[waits.len() / 2],
        worst: *waits.last().unwrap(),
    }
}

/// Fails when others were kept waiting out of all proportion. The attackers share the machine with the service, so
/// the proportion is generous: what it has to catch is a service that stands still.
pub(super) fn still_answers(calm: Waits, disturbed: Waits) {
    let least = Duration::from_millis(25);
    assert!(disturbed.count > 0);
    assert!(
        disturbed.median < calm.median.max(least) * 40,
        "others wait: {calm:?}, then {disturbed:?}"
    );
    assert!(
        disturbed.worst < calm.worst.max(least) * 200,
        "others wait: {calm:?}, then {disturbed:?}"
    );
}

/// A size of the process in KiB: `VmRSS`, or `VmHWM` for the most it ever was.
pub(super) fn memory(running: &Running<'_>, name: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    kib.parse().unwrap()
}

/// Lets a process open that many files, or as many as the machine permits: how many that are.
pub(super) fn allow_files(process: u32, wanted: usize) -> usize {
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let mut numbers = line.split_whitespace().skip(3);
    let mut next = || {
        numbers
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(usize::MAX)
    };
    let (soft, hard): (usize, usize) = (next(), next());
    let wish = |hard: usize| format!("--nofile={wanted}:{hard}");
    if soft < wanted {
        for hard in [hard.max(wanted), hard] {
            let raised = Command::new("prlimit")
                .args(["--pid", &process.to_string(), &wish(hard)])
                .output();
            if raised.is_ok_and(|output| output.status.success()) {
                return wanted;
            }
        }
    }
    soft.min(wanted)
}
