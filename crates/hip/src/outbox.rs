//! Packets that wait to be sent. Owns how a packet is put on its carrier: the checksum, or the marker in UDP.

use std::collections::VecDeque;

use dormouse_sansio::{Carrier, Class, Path, Transmit};
use dormouse_wire::hip::set_checksum;

/// What stands before a HIP packet in UDP (RFC 5770 section 5.1).
pub(crate) const MARKER: [u8; 4] = [0; 4];

#[derive(Debug, Default)]
pub(crate) struct Outbox(VecDeque<(Transmit, Vec<u8>)>);

impl Outbox {
    pub(crate) fn push(&mut self, path: Path, class: Class, packet: &[u8]) {
        self.0.push_back((Transmit { path, class, segment: None }, packet.to_vec()));
    }

    pub(crate) fn pop(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (transmit, mut packet) = self.0.pop_front()?;
        let path = transmit.path;
        match path.carrier {
            Carrier::HipUdp => {
                set_checksum(&mut packet, None);
                out.extend(MARKER);
            }
            _ => set_checksum(&mut packet, Some((path.local.ip(), path.remote.ip()))),
        }
        out.extend(packet);
        Some(transmit)
    }
}
