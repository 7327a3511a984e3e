//! What the daemon tells systemd (`Type=notify`). Owns nothing; without systemd every call does nothing.

use sd_notify::NotifyState;

/// Set-up is done.
pub fn ready() {
    send(&[NotifyState::Ready]);
}

/// One line for `systemctl status`.
pub fn status(text: &str) {
    send(&[NotifyState::Status(text)]);
}

/// The daemon stops.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd does not listen");
    }
}
