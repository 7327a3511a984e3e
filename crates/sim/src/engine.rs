//! Another engine beside a machine's process, as its kernel: it has the SAs that the process lends it, and goes on while that is dead. Owns
//! them, and which packets come to it instead of the process; the numbers are divided by ESP itself.

use dormouse_esp::{Discard, Tunnel};
use dormouse_keying::{ChildId, Owner, SaId};
use dormouse_node::host::{Lend, Returned, Usage};
use dormouse_sansio::{Carrier, Path, Seeded};
use dormouse_wire::esp::{NatT, classify_natt};
use dormouse_wire::ip;
use ipnet::IpNet;
use std::collections::BTreeMap;

/// Whether a datagram is an ESP packet.
pub(crate) fn is_esp(path: &Path, datagram: &[u8]) -> bool {
    match path.carrier {
        Carrier::RawEsp => true,
        Carrier::NatT | Carrier::HipUdp => matches!(classify_natt(datagram), NatT::Esp(_)),
        Carrier::Ike | Carrier::RawHip => false,
    }
}

/// What it has of a loan.
#[derive(Debug)]
struct Lent {
    tunnel: Tunnel,
    remote: Vec<IpNet>,
}

/// What became of a datagram that has arrived.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is none of this engine's.
    No,
    /// It was opened.
    Packet(Vec<u8>),
    /// It was refused.
    Refused,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    loans: BTreeMap<ChildId, Lent>,
    /// Packets that it has carried.
    pub(crate) carried: u64,
}

impl Engine {
    pub(crate) fn lend(&mut self, lend: &Lend) {
        let mut entropy = Seeded::new(u64::from(lend.loan.child.spi()));
        // Whose it is does not matter here.
        let tunnel = lend.loan.tunnel(Owner::Ike(SaId::new(0)), &mut entropy).expect("what the process had");
        let lent = Lent { tunnel, remote: lend.remote.clone() };
        self.loans.insert(lend.loan.child, lent);
    }

    pub(crate) fn read(&self, child: ChildId) -> Option<Usage> {
        self.loans.get(&child).map(|lent| lent.tunnel.usage())
    }

    pub(crate) fn recall(&mut self, child: ChildId) -> Option<Returned> {
        self.loans.remove(&child).map(|lent| lent.tunnel.returned())
    }

    /// What an earlier process has left is removed.
    pub(crate) fn clear(&mut self) {
        self.loans.clear();
    }

    /// A packet of the inner side, if its route leads here.
    pub(crate) fn seal(&mut self, packet: &[u8]) -> Option<Option<(Path, Vec<u8>)>> {
        let flow = ip::flow(packet)?;
        let leads = |lent: &&mut Lent| lent.remote.iter().any(|net| net.contains(&flow.dst));
        let tunnel = &mut self.loans.values_mut().find(leads)?.tunnel;
        if !tunnel.selectors.match_outbound(&flow) {
            return Some(None);
        }
        let head = tunnel.outbound.head_len();
        let mut slot = vec![0; tunnel.outbound.sealed_len(packet.len())];
        slot.get_mut(head..head + packet.len())?.copy_from_slice(packet);
        let next_header = if flow.dst.is_ipv4() { 4 } else { 41 };
        let sealed = tunnel.outbound.seal(&mut slot, packet.len(), next_header).is_ok();
        self.carried += u64::from(sealed);
        Some(sealed.then_some((tunnel.path, slot)))
    }

    /// Whether a datagram does not come to the process: in UDP, none of ESP gets past this engine.
    pub(crate) fn takes_from_socket(&self, path: &Path, datagram: &[u8]) -> bool {
        let steals = |lent: &Lent| lent.tunnel.path.carrier == Carrier::NatT;
        path.carrier == Carrier::NatT && is_esp(path, datagram) && self.loans.values().any(steals)
    }

    /// A datagram has arrived.
    pub(crate) fn open(&mut self, path: &Path, datagram: &[u8]) -> Taken {
        if !is_esp(path, datagram) {
            return Taken::No;
        }
        let spi = datagram.first_chunk().map(|spi| ChildId::new(u32::from_be_bytes(*spi)));
        let lent = spi.and_then(|id| self.loans.get_mut(&id));
        let Some(lent) = lent.filter(|lent| lent.tunnel.path.carrier == path.carrier) else {
            return if self.takes_from_socket(path, datagram) { Taken::Refused } else { Taken::No };
        };
        let mut datagram = datagram.to_vec();
        let opened = match lent.tunnel.inbound.open(&mut datagram) {
            Ok(opened) => opened,
            // The process has a copy.
            Err(Discard::Replay(_)) if path.carrier == Carrier::RawEsp => return Taken::No,
            Err(_) => return Taken::Refused,
        };
        let packet = datagram.get(opened.inner).unwrap_or_default().to_vec();
        match ip::flow(&packet) {
            Some(flow) if lent.tunnel.selectors.match_inbound(&flow) => {
                self.carried += 1;
                Taken::Packet(packet)
            }
            _ => Taken::Refused,
        }
    }
}
