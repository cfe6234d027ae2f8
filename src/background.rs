//! Runs long work, such as a backup, on threads of the lowest priority, so that requests come first.

use std::io;

use futures_channel::oneshot;
#[cfg(target_os = "linux")]
use rustix::process::setpriority_process;

/// The lowest priority.
#[cfg(target_os = "linux")]
const NICE: i32 = 19;

/// Lowers the priority of this thread, for good. Without the right to do so, it stays as it is. Only on Linux: elsewhere
/// the call is about the whole process (setpriority(2)).
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    let _ = setpriority_process(None, NICE);
}

/// Runs this on a thread of its own. Fails if there is no thread, or if it panics.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    let thread = std::thread::Builder::new().name("background".to_owned());
    thread.spawn(move || {
        lower_priority();
        let _ = sender.send(work());
    })?;
    done.await
        .map_err(|_| io::Error::other("its thread has panicked"))
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use rustix::process::getpriority_process;

    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_work_has_the_lowest_priority_and_others_keep_theirs() {
        let own = getpriority_process(None).unwrap();
        assert_eq!(run(|| getpriority_process(None).unwrap()).await.unwrap(), NICE);
        assert_eq!(getpriority_process(None).unwrap(), own);
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        assert!(run(|| assert!(std::env::args().count() == 0)).await.is_err());
    }
}
