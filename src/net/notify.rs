//! Tells the service manager how far the service is (`sd_notify(3)`), when there is one that asked.
//!
//! Without `$NOTIFY_SOCKET` in the environment nothing happens. A message that cannot be delivered is
//! logged and otherwise ignored: the service works without it.

use sd_notify::NotifyState;

/// The service answers requests.
pub fn ready() {
    send(&[NotifyState::Ready]);
}

/// How the service is, in words for `systemctl status`.
pub fn status(text: &str) {
    send(&[NotifyState::Status(text)]);
}

/// The service finishes what it has begun and then ends.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// The service reads its certificates and configuration anew; [`ready`] has to follow.
pub fn reloading() {
    // The service manager asks for the time of the reload in the same message.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot read the monotonic clock for the service manager"),
    }
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot reach the service manager at $NOTIFY_SOCKET");
    }
}
