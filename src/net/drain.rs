//! Graceful shutdown: each connection finishes its requests within a bounded time.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

/// Starts the shutdown. Dropping it has the same effect.
#[derive(Debug)]
pub struct Drain(watch::Sender<bool>);

/// Notices the shutdown. Each connection has one.
#[derive(Clone, Debug)]
pub struct Draining(watch::Receiver<bool>);

/// A connected pair of both.
pub fn channel() -> (Drain, Draining) {
    let (sender, receiver) = watch::channel(false);
    (Drain(sender), Draining(receiver))
}

impl Drain {
    /// Tells every connection to finish.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }
}

impl Draining {
    /// Waits until [`Drain::begin`] has been called.
    pub async fn begun(&mut self) {
        // An error means that the other end was dropped.
        let _ = self.0.wait_for(|begun| *begun).await;
    }

    /// Waits until the shutdown began and `grace` has passed since.
    pub async fn begun_since(&mut self, grace: Duration) {
        self.begun().await;
        tokio::time::sleep(grace).await;
    }

    /// Whether the shutdown has begun.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

/// Waits for the connections to end, and cuts the remaining ones after `timeout`. Returns how many were cut.
pub async fn finish(mut connections: JoinSet<()>, timeout: Duration) -> usize {
    let ended = async { while connections.join_next().await.is_some() {} };
    let all_ended = tokio::time::timeout(timeout, ended).await.is_ok();
    let cut = if all_ended { 0 } else { connections.len() };
    if cut > 0 {
        tracing::warn!(
            connections = cut,
            "connections cut, the time to finish them is over"
        );
    }
    connections.shutdown().await;
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_never_ends_is_cut() {
        let mut connections = JoinSet::new();
        connections.spawn(std::future::pending());
        connections.spawn(std::future::ready(()));
        assert_eq!(finish(connections, Duration::from_millis(20)).await, 1);
    }

    #[tokio::test]
    async fn who_listens_late_hears_it_still() {
        let (drain, mut draining) = channel();
        assert!(!draining.has_begun());
        drain.begin();
        assert!(draining.has_begun());
        draining.begun().await;
        let (drain, mut draining) = channel();
        drop(drain);
        assert!(draining.has_begun());
        draining.begun().await;
    }
}
