//! What a signature costs on the service's own core while the service is under load.
//!
//! A core is slower beside a busy neighbour, on a shared machine by as much as half, and from one second to the next. So what a
//! request costs says little alone: it is compared with what the same code of ring cost at the same place in the same seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use idsvc::jose::keyring::SigningKey;
use idsvc::random::Random;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The pause between two looks, and how many signatures each takes: a fiftieth of the core, and most of them with warm caches.
const PAUSE: Duration = Duration::from_millis(100);
const AT_ONCE: u32 = 50;

/// Where to sign.
#[derive(Clone, Copy)]
pub(crate) struct Yardstick {
    /// The number of the service's core; anywhere, where the service itself is bound to none.
    pub(crate) core: Option<usize>,
}

/// A thread that makes signatures until their cost is read.
pub(crate) struct Signing {
    over: Arc<AtomicBool>,
    thread: JoinHandle<f64>,
}

impl Yardstick {
    /// Begins to sign, a little at a time.
    pub(crate) fn start(self) -> Signing {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = thread::spawn(move || {
            if let Some(core) = self.core {
                let mut cores = CpuSet::new();
                cores.set(core);
                sched_setaffinity(None, &cores).unwrap();
            }
            let key = SigningKey::generate_es256(&Random::system()).unwrap();
            let (mut spent, mut made) = (0.0, 0);
            while !ends.load(Ordering::Relaxed) {
                thread::sleep(PAUSE);
                let before = own_time();
                for _ in 0..AT_ONCE {
                    key.sign(b"the signing input of a token").unwrap();
                }
                spent += own_time() - before;
                made += AT_ONCE;
            }
            spent / f64::from(made)
        });
        Signing { over, thread }
    }
}

impl Signing {
    /// Ends it: microseconds of processor time for one.
    pub(crate) fn end(self) -> f64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Microseconds of processor time that this thread has had.
fn own_time() -> f64 {
    let time = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    time.as_secs_f64() * 1e6
}
