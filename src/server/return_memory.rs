//! Gives memory back to the operating system after a load.
//!
//! mimalloc, the allocator, does it only while it is called: at every 10,000th allocation of more than a KiB it collects what
//! the thread has freed, and gives back what was free for a second. A service with few requests would keep for hours what
//! its busiest moment took. So these allocations are made now and then, on each thread that answers requests. They take a
//! millisecond.

use std::hint::black_box;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

const INTERVAL: Duration = Duration::from_secs(10);
const ALLOCATIONS: usize = 10_000;
const BYTES: usize = 4096;

/// Collects every ten seconds what was freed.
pub(super) async fn run() {
    let threads = Handle::current().metrics().num_workers();
    loop {
        tokio::time::sleep(INTERVAL).await;
        // Idle threads take these tasks from the one that starts them.
        let mut tasks = JoinSet::new();
        for _ in 0..threads {
            tasks.spawn(async { collect() });
        }
        tasks.join_all().await;
    }
}

fn collect() {
    for _ in 0..ALLOCATIONS {
        drop(black_box(Vec::<u8>::with_capacity(black_box(BYTES))));
    }
}
