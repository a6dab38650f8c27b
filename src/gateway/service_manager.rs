//! Notifies the service manager (sd_notify(3)). Without a service manager, the functions do nothing.

use std::time::Duration;

use sd_notify::NotifyState;

/// Reports that messages are accepted, or that a reload has ended.
pub(super) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports the start of a longer operation.
pub(super) fn status(status: &str) {
    send(&[NotifyState::Status(status)]);
}

/// Reports the start of a reload, which ends with [`ready`]. The time distinguishes this reload from the last one.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now, NotifyState::Status("reading the configuration")]),
        Err(error) => tracing::warn!(
            %error,
            "the service manager was not notified of the reload: the monotonic clock cannot be read"
        ),
    }
}

/// Reports that the gateway is stopping, and that the next step takes up to `limit`.
pub(super) fn stopping(status: &str, limit: Duration) {
    // The function of sd-notify is limited to 71 minutes.
    let extend = format!("EXTEND_TIMEOUT_USEC={}", limit.as_micros());
    send(&[NotifyState::Stopping, NotifyState::Status(status), NotifyState::Custom(&extend)]);
}

/// Resets the watchdog's timer.
pub(super) fn alive() {
    send(&[NotifyState::Watchdog]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}
