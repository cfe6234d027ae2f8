//! Gives memory back to the operating system after a load.
//!
//! mimalloc, the allocator, gives memory back when it is called, a second or more after that memory was freed. It collects
//! what a thread has freed at every 10,000th allocation of the thread that takes more than a KiB. A service with few
//! requests would keep for hours what its busiest moment took. So these allocations are made, on each thread that answers
//! requests. Together they take a millisecond.

use std::hint::black_box;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

const INTERVAL: Duration = Duration::from_secs(30);
const ALLOCATIONS: usize = 10_000;
const BYTES: usize = 4096;

/// Collects what was freed every 30 seconds.
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
