//! What the daemon tells systemd (`Type=notify`). Owns nothing; without systemd every call does nothing.

use sd_notify::NotifyState;
use std::time::Duration;

/// Set-up is done.
pub fn ready() {
    send(&[NotifyState::Ready]);
}

/// One line for `systemctl status`.
pub fn status(text: &str) {
    send(&[NotifyState::Status(text)]);
}

/// The configuration is being read again; [`ready`] ends it.
pub fn reloading() {
    // systemd wants the moment along, to tell this reload from an earlier one (`Type=notify-reload`).
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

/// The daemon stops.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// Half the interval in which systemd wants a sign of life, if it wants any (`WatchdogSec=`). The unit that comes with
/// Dormouse does not ask: a sign of life is a wake-up.
#[must_use]
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|d| d / 2)
}

/// A sign of life.
pub fn watchdog() {
    send(&[NotifyState::Watchdog]);
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd does not listen");
    }
}
