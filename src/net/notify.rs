//! Tells the service manager the state of the service (`sd_notify(3)`).
//!
//! Without `$NOTIFY_SOCKET` in the environment nothing happens. A message that cannot be delivered is logged and then
//! ignored.

use sd_notify::NotifyState;

/// The service answers requests.
pub fn ready() {
    send(&[NotifyState::Ready]);
}

/// The state of the service, in words for `systemctl status`.
pub fn status(text: &str) {
    send(&[NotifyState::Status(text)]);
}

/// The service finishes its requests and then ends.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// The service reads its certificates and configuration again. [`ready`] must follow.
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
