//! Datagrams that wait for `poll_transmit`. Owns their order and the marker before them; must never change what is in them.

use std::collections::VecDeque;

use dormouse_sansio::{Carrier, Class, Path, Transmit};

/// The non-ESP marker (RFC 3948 section 2.2).
const NON_ESP_MARKER: [u8; 4] = [0; 4];

#[derive(Debug)]
struct Queued {
    path: Path,
    class: Class,
    datagram: Vec<u8>,
    /// A one-byte NAT keepalive: no marker goes before it.
    keepalive: bool,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Outbox(VecDeque<Queued>);

impl Outbox {
    pub(crate) fn push(&mut self, path: Path, class: Class, datagram: Vec<u8>) {
        self.0.push_back(Queued { path, class, datagram, keepalive: false });
    }

    /// "The sender MUST use a one-octet-long payload with the value 0xFF." (RFC 3948 section 2.3)
    pub(crate) fn push_keepalive(&mut self, path: Path) {
        self.0.push_back(Queued { path, class: Class::Upkeep, datagram: vec![0xff], keepalive: true });
    }

    /// The next datagram, appended to `out` complete with the non-ESP marker where the path needs one.
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let queued = self.0.pop_front()?;
        // "IKE messages sent on port 4500 MUST begin with the prefix of four zeros" (RFC 7296 section 2)
        if queued.path.carrier == Carrier::NatT && !queued.keepalive {
            out.extend_from_slice(&NON_ESP_MARKER);
        }
        out.extend_from_slice(&queued.datagram);
        Some(Transmit { path: queued.path, class: queued.class, segment: None, fragmentable: true })
    }
}
