//! Draws pages by templates of themes without keeping other requests waiting.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// Calls `draw` while the worker's other requests go on with another thread. It begins when there is a permit.
pub(super) fn draw_beside_workers<T>(permits: &Semaphore, draw: impl FnOnce() -> T) -> T {
    let Ok(runtime) = Handle::try_current() else {
        return draw();
    };
    // A runtime with one thread, as in tests, has no other thread to go on with.
    if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
        return draw();
    }
    tokio::task::block_in_place(|| {
        let _permit = runtime.block_on(permits.acquire());
        draw()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::app::MAX_TEMPLATE_PAGES;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[test]
    fn an_honest_request_is_answered_while_slow_pages_are_drawn_and_only_so_many_are() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let permits = Arc::new(Semaphore::new(MAX_TEMPLATE_PAGES));
        let (drawing, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (begun, begins) = mpsc::channel();
        let mut ends = Vec::new();
        let mut slow = Vec::new();
        for _ in 0..4 * MAX_TEMPLATE_PAGES {
            let (end, ended) = mpsc::channel::<()>();
            ends.push(end);
            let (permits, drawing, most, begun) = (
                Arc::clone(&permits),
                Arc::clone(&drawing),
                Arc::clone(&most),
                begun.clone(),
            );
            slow.push(runtime.spawn(async move {
                draw_beside_workers(&permits, || {
                    most.fetch_max(drawing.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    begun.send(()).unwrap();
                    let _ = ended.recv_timeout(TIMEOUT);
                    drawing.fetch_sub(1, Ordering::SeqCst);
                });
            }));
        }
        for _ in 0..MAX_TEMPLATE_PAGES {
            begins.recv_timeout(TIMEOUT).unwrap();
        }
        // The only worker has slow pages to draw. It has to answer this before any of them ends.
        let (answer, answered) = mpsc::channel();
        runtime.spawn(async move { answer.send(()).unwrap() });
        answered.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(drawing.load(Ordering::SeqCst), MAX_TEMPLATE_PAGES);
        drop(ends);
        for page in slow {
            runtime.block_on(page).unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), MAX_TEMPLATE_PAGES);
    }
}
