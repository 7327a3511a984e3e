//! Packets that wait to be sent. Owns how a packet is put on its carrier: the checksum, or the marker in UDP; and which packets a relay of
//! ours is to send on.

use std::collections::VecDeque;

use core::net::SocketAddr;

use dormouse_sansio::{Carrier, Class, Path, Transmit};
use dormouse_wire::hip::set_checksum;

use crate::limits::MAX_WAITING_DATA;
use crate::relay::RelayTo;

/// What stands before a HIP packet in UDP (RFC 5770 section 5.1).
pub(crate) const MARKER: [u8; 4] = [0; 4];

#[derive(Debug)]
struct Waiting {
    transmit: Transmit,
    bytes: Vec<u8>,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// HIP for whom it is sent to.
    Hip,
    /// HIP that the relay to which it is sent sends on.
    Relayed(SocketAddr),
    /// ESP of others.
    Esp,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Waiting>,
    /// What is sent to this relay now is for this peer.
    via: Option<RelayTo>,
    data: usize,
}

impl Outbox {
    pub(crate) fn push(&mut self, path: Path, class: Class, packet: &[u8]) {
        let via = self.via.filter(|via| via.server == path.remote && path.carrier == Carrier::HipUdp);
        let what = via.map_or(What::Hip, |via| What::Relayed(via.to));
        let transmit = Transmit { path, class, segment: None, fragmentable: true };
        self.queue.push_back(Waiting { transmit, bytes: packet.to_vec(), what });
    }

    /// ESP of others, as it came. False if there is no room.
    pub(crate) fn pass_on(&mut self, path: Path, datagram: &[u8]) -> bool {
        if self.data >= MAX_WAITING_DATA {
            return false;
        }
        self.data += 1;
        let transmit = Transmit { path, class: Class::Timely, segment: None, fragmentable: false };
        self.queue.push_back(Waiting { transmit, bytes: datagram.to_vec(), what: What::Esp });
        true
    }

    /// What is sent to a relay from now on is for this peer.
    pub(crate) const fn set_via(&mut self, via: Option<RelayTo>) {
        self.via = via;
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether something was pushed for this path since so many waited.
    pub(crate) fn has_since(&self, mark: usize, path: Path) -> bool {
        self.queue.iter().skip(mark).any(|waiting| waiting.transmit.path == path)
    }

    /// What was pushed since so many waited goes before what was pushed since `mark` waited.
    pub(crate) fn advance(&mut self, mark: usize, since: usize) {
        let behind = self.queue.len().saturating_sub(since);
        if let Some(tail) = self.queue.make_contiguous().get_mut(mark..) {
            tail.rotate_right(behind.min(tail.len()));
        }
    }

    /// The next one. `relayed` adds what its relay needs to a packet that it sends on; `None`: it is dropped.
    pub(crate) fn pop(
        &mut self,
        out: &mut Vec<u8>,
        relayed: impl Fn(&[u8], Path, SocketAddr) -> Option<Vec<u8>>,
    ) -> Option<Transmit> {
        loop {
            let Waiting { transmit, mut bytes, what } = self.queue.pop_front()?;
            let path = transmit.path;
            match what {
                What::Hip => {}
                What::Relayed(to) => match relayed(&bytes, path, to) {
                    Some(packet) => bytes = packet,
                    None => continue,
                },
                What::Esp => {
                    self.data -= 1;
                    out.extend(bytes);
                    return Some(transmit);
                }
            }
            match path.carrier {
                Carrier::HipUdp => {
                    set_checksum(&mut bytes, None);
                    out.extend(MARKER);
                }
                _ => set_checksum(&mut bytes, Some((path.local.ip(), path.remote.ip()))),
            }
            out.extend(bytes);
            return Some(transmit);
        }
    }
}
