//! What the service manager is told (sd_notify(3)). Where none listens, nothing is.

use std::time::Duration;

use sd_notify::NotifyState;

/// Messages are taken; or the configuration has been read anew.
pub(super) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Something that takes a while begins.
pub(super) fn status(status: &str) {
    send(&[NotifyState::Status(status)]);
}

/// The configuration is being read anew, until [`ready`]. The time tells this reload from the one before.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now, NotifyState::Status("reading the configuration")]),
        Err(error) => tracing::warn!(%error, "the service manager was not told of the reload: there is no clock"),
    }
}

/// The gateway stops; it needs up to `limit` for what it does next.
pub(super) fn stopping(status: &str, limit: Duration) {
    // sd-notify's own takes 71 minutes at most.
    let extend = format!("EXTEND_TIMEOUT_USEC={}", limit.as_micros());
    send(&[NotifyState::Stopping, NotifyState::Status(status), NotifyState::Custom(&extend)]);
}

/// All parts answer.
pub(super) fn alive() {
    send(&[NotifyState::Watchdog]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
