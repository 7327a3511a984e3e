//! NetFlow and IPFIX inside a capture: datagrams on their way from a router to a collector. Owns which datagrams those are,
//! and tells exporters apart; must never touch other packets.
//!
//! A UDP datagram to one of the collector's ports is an export if its payload begins with a message header that fits its
//! length. Its flows are the record then, and the datagram itself is not counted as traffic of a client. Any other datagram to
//! such a port is a packet like all others.

use std::collections::{BTreeMap, VecDeque};

use super::netflow::{Netflow, is_export};
use super::record::{Damage, Next};
use crate::seen::{Addr, Seen};

/// Exporters told apart; those beyond share one set of templates.
const MAX_EXPORTERS: usize = 4096;
const UDP: u16 = 17;
const UDP_HEADER: usize = 8;

/// What came out of a capture's export datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Exported {
    /// Export datagrams.
    pub datagrams: u64,
    /// Flows in them.
    pub flows: u64,
}

/// The exports of one capture.
#[derive(Default)]
pub struct Exports {
    ports: Vec<u16>,
    netflow: Netflow,
    exporters: BTreeMap<(Addr, u16), u32>,
    pending: VecDeque<Next>,
    counts: Exported,
}

impl Exports {
    /// Exports are looked for on these ports; on none, nowhere.
    #[must_use]
    pub fn on(ports: &[u16]) -> Self {
        Self { ports: ports.to_vec(), ..Self::default() }
    }

    /// What was found so far.
    #[must_use]
    pub const fn counts(&self) -> Exported {
        self.counts
    }

    /// Whether a packet goes to a collector's port.
    #[inline]
    #[must_use]
    pub fn concern(&self, seen: &Seen) -> bool {
        seen.protocol == UDP && self.ports.contains(&seen.dst_port)
    }

    /// What is left of the last datagram.
    #[inline]
    pub fn waiting(&mut self) -> Option<Next> {
        if self.pending.is_empty() { None } else { self.pending.pop_front() }
    }

    /// Takes a datagram apart, if it is an export: `transport` begins with its UDP header, `record` is its number in the capture,
    /// of `length` bytes. Whether it was one.
    #[cold]
    pub fn take(&mut self, seen: &Seen, transport: &[u8], record: u64, length: usize) -> bool {
        let Some(&[_, _, _, _, high, low, ..]) = transport.first_chunk::<UDP_HEADER>() else { return false };
        let Some(claimed) = usize::from(u16::from_be_bytes([high, low])).checked_sub(UDP_HEADER) else {
            return false;
        };
        let payload = transport.get(UDP_HEADER..).unwrap_or_default();
        let payload = payload.get(..claimed).unwrap_or(payload);
        if !is_export(payload, claimed) {
            return false;
        }
        self.counts.datagrams += 1;
        let known = self.exporters.len();
        let number = u32::try_from(known.min(MAX_EXPORTERS)).unwrap_or(u32::MAX);
        let exporter = (seen.src.ip, seen.src_port);
        let number = match self.exporters.get(&exporter) {
            Some(number) => *number,
            None if known >= MAX_EXPORTERS => number,
            None => *self.exporters.entry(exporter).or_insert(number),
        };
        for next in self.netflow.datagram(number, payload) {
            match next {
                Next::Flow(_) => {
                    self.counts.flows += 1;
                    self.pending.push_back(next);
                }
                Next::Damaged(damage) => {
                    let reason = format!("in an export datagram: {}", damage.reason);
                    self.pending.push_back(Next::Damaged(Damage::one(record, length, reason)));
                }
                _ => {}
            }
        }
        true
    }
}
