//! Counts the signals to stop, and ends the process without waiting for long background work.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// How long the process waits at its end for background work.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs the service to its end. Background work, such as the check of a large backup, may go on for three more
/// seconds. The next backup removes the file of an unfinished one.
pub fn run_to_end<T>(runtime: Runtime, service: impl Future<Output = T>) -> T {
    let ended = runtime.block_on(service);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    ended
}

/// Counts how often the process was told to stop, by SIGTERM or SIGINT.
pub fn stop_requests() -> std::io::Result<watch::Receiver<u32>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (sender, receiver) = watch::channel(0_u32);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            sender.send_modify(|count| *count = count.saturating_add(1));
        }
    });
    Ok(receiver)
}

/// Waits until the process has been told to stop `times` times.
pub async fn stop_requested(mut requests: watch::Receiver<u32>, times: u32) {
    if requests.wait_for(|count| *count >= times).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_process_ends_while_background_work_goes_on() {
        let (release, held) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let (ended, ends) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = Runtime::new().unwrap();
            runtime.spawn_blocking(move || {
                begun.send(()).unwrap();
                held.recv()
            });
            begins.recv().unwrap();
            ended.send(run_to_end(runtime, async { 7 }))
        });
        assert_eq!(ends.recv_timeout(SHUTDOWN_TIMEOUT * 10), Ok(7));
        drop(release);
    }
}
