//! What has happened, told: to the log, to the audit, and to the clients of the control socket. Owns the words of the log; must never act on it.

use crate::daemon::Daemon;
use dormouse_control::EventKind;
use dormouse_node::Change;
use dormouse_node::host::News;

impl Daemon {
    pub(crate) fn tell(&mut self, news: News) {
        match news {
            News::Changed(change) => self.announce(change),
            News::Record(record) => self.helpers.auditor.write(&record),
            News::Sleep(event) => self.sleep_event(event),
            News::Announced { connection, verdict } => tracing::debug!(%connection, ?verdict, "announced"),
            News::Missed { connection, packets } => {
                tracing::info!(%connection, packets, "lost while the radio slept");
            }
            News::Resending { packets } => tracing::debug!(packets, "sent in vain, and sent again"),
        }
    }

    fn announce(&mut self, change: Change) {
        match &change {
            Change::Up { connection, rung, took_ms } => {
                tracing::info!(%connection, rung = rung.name(), took_ms, "up");
            }
            Change::RungFailed { connection, rung, why, .. } => {
                tracing::warn!(%connection, rung = rung.name(), %why, "a rung of the ladder failed");
            }
            Change::Down { connection, why } => tracing::info!(%connection, %why, "down"),
            Change::PeerUp { connection, peer, resumed } => {
                tracing::info!(%connection, %peer, resumed, "a client came")
            }
            Change::PeerDown { connection, peer, why } => {
                tracing::info!(%connection, %peer, %why, "a client went")
            }
            Change::PeerFailed { connection, peer, why, .. } => {
                tracing::warn!(%connection, %peer, %why, "a peer was not reached");
            }
            Change::PeerRefused { from, claimed, why } => {
                tracing::warn!(%from, claimed = claimed.as_deref().unwrap_or("?"), %why, "a client was refused");
            }
        }
        if let Some(hip) = &mut self.hip {
            hip.note(&change);
        }
        self.verbs.announce(change);
    }

    pub(crate) fn warn(&mut self, messages: Vec<String>) {
        for message in messages {
            tracing::warn!("{message}");
            self.verbs.tell(None, EventKind::Warning { message });
        }
    }
}
