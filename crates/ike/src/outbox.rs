//! Datagrams that wait for `poll_transmit`, and those of an SA that wait until the address that they tell of is on the disk. Owns their
//! order and the marker before them; must never change what is in them.

use std::collections::{BTreeMap, VecDeque};

use dormouse_keying::SaId;
use dormouse_sansio::{Carrier, Class, Path, Transmit};

use crate::config_payload::Lease;
use crate::limits::WAITING_MAX;

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
pub(crate) struct Outbox {
    queue: VecDeque<Queued>,
    /// What SAs say whose clients' addresses are not on the disk yet.
    withheld: BTreeMap<SaId, (Lease, Vec<Queued>)>,
}

impl Outbox {
    /// What belongs to no SA, or to one that waits for no disk.
    pub(crate) fn push(&mut self, path: Path, class: Class, datagram: Vec<u8>) {
        self.queue.push_back(Queued { path, class, datagram, keepalive: false });
    }

    /// What SA `of` says. While it is withheld, what is too much is lost, and repeated by who misses it.
    pub(crate) fn push_of(&mut self, of: SaId, path: Path, class: Class, datagram: Vec<u8>) {
        match self.withheld.get_mut(&of) {
            Some((_, waiting)) if waiting.len() < WAITING_MAX => {
                waiting.push(Queued { path, class, datagram, keepalive: false });
            }
            Some(_) => {}
            None => self.push(path, class, datagram),
        }
    }

    /// From now on what this SA says waits for its client's lease.
    pub(crate) fn withhold(&mut self, of: SaId, lease: Lease) {
        self.withheld.entry(of).or_insert((lease, Vec::new()));
    }

    /// Whether what this SA says waits for its client's lease.
    pub(crate) fn withholds(&self, of: SaId) -> bool {
        self.withheld.contains_key(&of)
    }

    /// What waits for a lease that is on the disk may go. Returns whose it is.
    pub(crate) fn release(&mut self, is_written: impl Fn(&Lease) -> bool) -> Vec<SaId> {
        let mut released = Vec::new();
        self.withheld.retain(|sa, (lease, waiting)| {
            let written = is_written(lease);
            if written {
                self.queue.extend(waiting.drain(..));
                released.push(*sa);
            }
            !written
        });
        released
    }

    /// "The sender MUST use a one-octet-long payload with the value 0xFF." (RFC 3948 section 2.3)
    pub(crate) fn push_keepalive(&mut self, path: Path) {
        self.queue.push_back(Queued { path, class: Class::Upkeep, datagram: vec![0xff], keepalive: true });
    }

    /// The next datagram, appended to `out` complete with the non-ESP marker where the path needs one.
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let queued = self.queue.pop_front()?;
        // "IKE messages sent on port 4500 MUST begin with the prefix of four zeros" (RFC 7296 section 2)
        if queued.path.carrier == Carrier::NatT && !queued.keepalive {
            out.extend_from_slice(&NON_ESP_MARKER);
        }
        out.extend_from_slice(&queued.datagram);
        Some(Transmit { path: queued.path, class: queued.class, segment: None, fragmentable: true })
    }
}
