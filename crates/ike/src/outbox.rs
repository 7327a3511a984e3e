//! Datagrams that wait for `poll_transmit`. Owns their order and the marker before them; must never change what is in them.

use dormouse_sansio::{Carrier, Class, Path, Transmit};

use crate::shared::Shared;

/// The non-ESP marker (RFC 3948 section 2.2).
const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// A datagram waiting for `poll_transmit`.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) path: Path,
    pub(crate) class: Class,
    pub(crate) datagram: Vec<u8>,
    /// A one-byte NAT keepalive: no marker goes before it.
    pub(crate) keepalive: bool,
}

impl Shared {
    /// Queues an answer that belongs to no SA.
    pub(crate) fn send_stateless(&mut self, path: Path, class: Class, datagram: Vec<u8>) {
        self.stats.sent(datagram.len());
        self.out.push_back(Queued { path, class, datagram, keepalive: false });
    }

    /// The next datagram, appended to `out` complete with the non-ESP marker where the path needs one.
    pub(crate) fn next_datagram(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let queued = self.out.pop_front()?;
        // "IKE messages sent on port 4500 MUST begin with the prefix of four zeros" (RFC 7296 section 2)
        if queued.path.carrier == Carrier::NatT && !queued.keepalive {
            out.extend_from_slice(&NON_ESP_MARKER);
        }
        out.extend_from_slice(&queued.datagram);
        Some(Transmit { path: queued.path, class: queued.class, segment: None })
    }
}
