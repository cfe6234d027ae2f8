//! How long a refresh takes while a scheduled backup is made.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::load::{Measured, Next, Reply, Script, Span};
use crate::report::{Run, verdict};
use crate::scripts::{self, Refresh};
use crate::{Bench, CLIENT};

/// The time from one refresh of a connection to its next.
const PACE: Duration = Duration::from_millis(40);
/// How many families each connection refreshes in turn.
const FAMILIES: usize = 100;
/// The longest time that a backup may take.
const LONGEST: Duration = Duration::from_mins(10);
/// So much longer may one refresh in a hundred take, at most.
const TIMES: f64 = 2.0;

/// Refreshes at a steady pace, until it is told that the backup is made.
struct Paced {
    refresh: Refresh,
    over: Arc<AtomicBool>,
}

impl Script for Paced {
    fn next(&mut self) -> Option<String> {
        (!self.over.load(Ordering::SeqCst)).then(|| self.refresh.next())?
    }

    fn take(&mut self, reply: &Reply) -> Next {
        self.refresh.take(reply)
    }

    fn pace(&self) -> Option<Duration> {
        Some(PACE)
    }
}

impl Bench<'_> {
    /// Refreshes at a steady pace, with the service at rest and while it makes a scheduled backup.
    pub(crate) fn beside_backup(&mut self, run: &mut Run) {
        if !"refresh beside a backup".contains(&self.options.only) {
            return;
        }
        let quiet = self.paced(Duration::from_secs(self.options.seconds), &Arc::default());
        self.server.close();
        // Without a backup, the service makes one as it starts.
        let folder = self.server.data_dir().join("backups");
        fs::remove_dir_all(&folder).unwrap();
        self.server.start();
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let begun = Instant::now();
        let waiting = std::thread::spawn(move || {
            while begun.elapsed() < LONGEST && !holds_backup(&folder) {
                std::thread::sleep(Duration::from_millis(10));
            }
            told.store(true, Ordering::SeqCst);
        });
        let busy = self.paced(LONGEST, &over);
        waiting.join().unwrap();
        let (before, after) = (quiet.percentile(99), busy.percentile(99));
        run.notes.push(format!(
            "p99 of {:.0} refreshes a second: {before:.1} ms, and {after:.1} ms in the {:.1} s of a scheduled backup, \
             {:.1} times (goal {TIMES}), p50 {:.1} and {:.1} ms, longest {:.0} and {:.0} ms: {}",
            busy.per_second(),
            busy.elapsed.as_secs_f64(),
            after / before,
            quiet.percentile(50),
            busy.percentile(50),
            quiet.percentile(100),
            busy.percentile(100),
            verdict(after < before * TIMES)
        ));
    }

    fn paced(&mut self, longest: Duration, over: &Arc<AtomicBool>) -> Measured {
        let scripts = self.each(|bench, _| {
            let tokens = bench.tokens.drain(..FAMILIES.min(bench.tokens.len())).collect();
            Box::new(Paced {
                refresh: Refresh {
                    target: "/oauth2/token",
                    authorization: scripts::basic(CLIENT, &bench.secret),
                    signer: None,
                    tokens,
                    left: usize::MAX,
                },
                over: Arc::clone(over),
            })
        });
        let span = Span {
            warm_up: Duration::ZERO,
            longest,
            while_all_ask: true,
        };
        self.measure(scripts, Vec::new(), span)
    }
}

fn holds_backup(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .any(|path| path.extension().is_some_and(|ending| ending == "backup"))
}
