//! Another engine beside a machine's process: the kernel, which has what the process has lent it and goes on while that is dead, or workers of the process. Owns
//! what is lent, and which packets come to it instead of the process; the numbers are divided by ESP itself.

use dormouse_keying::ChildId;
use dormouse_node::host::worker::{Back, Came, Worker};
use dormouse_node::host::{InUdp, Lend, Observer, Usage};
use dormouse_sansio::packet::{Plan, Received};
use dormouse_sansio::{Carrier, Instant, Path, Seeded};
use dormouse_wire::esp::{NatT, classify_natt};
use dormouse_wire::ip;
use ipnet::IpNet;
use std::collections::{BTreeMap, VecDeque};

/// Whether a datagram is an ESP packet.
pub(crate) fn is_esp(path: &Path, datagram: &[u8]) -> bool {
    match path.carrier {
        Carrier::RawEsp => true,
        Carrier::NatT | Carrier::HipUdp => matches!(classify_natt(datagram), NatT::Esp(_)),
        Carrier::Ike | Carrier::RawHip => false,
    }
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

/// What became of a packet of the inner side.
#[derive(Debug)]
pub(crate) enum Led {
    /// Its route does not lead here.
    Past,
    /// It waits.
    Waits,
    /// It is sent so; `None`: it is dropped.
    Here(Option<(Path, Vec<u8>)>),
}

/// What waits for an engine that has not begun.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Packets of the inner side.
    pub(crate) inside: VecDeque<Vec<u8>>,
    /// Datagrams.
    pub(crate) outside: VecDeque<(Path, Vec<u8>)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Engine {
    /// What it takes off which sockets.
    pub(crate) udp: InUdp,
    worker: Worker,
    loans: BTreeMap<ChildId, (Path, Vec<IpNet>)>,
    /// It was lent something and has not begun: workers wait for what came before.
    waiting: Option<Waiting>,
    /// Packets that it has carried.
    pub(crate) carried: u64,
}

impl Default for Engine {
    fn default() -> Self {
        let (worker, loans) = (Worker::default(), BTreeMap::new());
        Self { udp: InUdp::Alone, worker, loans, waiting: None, carried: 0 }
    }
}

impl Engine {
    pub(crate) fn lend(&mut self, lend: &Lend, observer: Option<Observer>) {
        let mut entropy = Seeded::new(u64::from(lend.loan.child.spi()));
        self.worker.take(&lend.loan, observer, &mut entropy).expect("what the process had");
        self.loans.insert(lend.loan.child, (lend.loan.path, lend.remote.clone()));
        if self.udp == InUdp::Each {
            self.waiting.get_or_insert_default();
        }
    }

    pub(crate) fn is_beginning(&self) -> bool {
        self.waiting.is_some()
    }

    /// It begins, with this.
    pub(crate) fn begin(&mut self) -> Waiting {
        self.waiting.take().unwrap_or_default()
    }

    pub(crate) fn read(&self, child: ChildId) -> Option<Usage> {
        self.worker.usage(child)
    }

    pub(crate) fn recall(&mut self, child: ChildId) -> Option<Back> {
        self.loans.remove(&child);
        self.worker.give_back(child)
    }

    /// What it has is lost: of the kernel's what an earlier process has left, of workers all.
    pub(crate) fn clear(&mut self) {
        self.loans.clear();
        (self.worker, self.waiting) = (Worker::default(), None);
    }

    /// A packet of the inner side comes.
    pub(crate) fn seal(&mut self, now: Instant, packet: &[u8]) -> Led {
        let Some(flow) = ip::flow(packet) else { return Led::Past };
        if !self.loans.values().any(|(_, remote)| remote.iter().any(|net| net.contains(&flow.dst))) {
            return Led::Past;
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.inside.push_back(packet.to_vec());
            return Led::Waits;
        }
        Led::Here(self.sealed(now, packet))
    }

    /// The same of one that has waited.
    pub(crate) fn sealed(&mut self, now: Instant, packet: &[u8]) -> Option<(Path, Vec<u8>)> {
        let mut packet = packet.to_vec();
        let Plan::Seal(geometry) = self.worker.plan(now, packet.as_mut_slice()) else { return None };
        let mut slot = vec![0; geometry.stride];
        slot.get_mut(geometry.head..geometry.head + packet.len())?.copy_from_slice(&packet);
        let sealed = self.worker.seal(&geometry, &mut slot, &[packet.len()])?;
        self.carried += 1;
        slot.truncate(sealed.len);
        Some((sealed.path, slot))
    }

    /// Whether a datagram does not come to the process: in UDP, none of ESP gets past the kernel, and all that goes the way of a worker's SA comes to that.
    pub(crate) fn takes_from_socket(&self, path: &Path, datagram: &[u8]) -> bool {
        let mut loans = self.loans.values().filter(|(path, _)| path.carrier == Carrier::NatT);
        match self.udp {
            InUdp::No => false,
            InUdp::Alone => path.carrier == Carrier::NatT && is_esp(path, datagram) && loans.next().is_some(),
            InUdp::Each => loans.any(|(of, _)| of == path),
        }
    }

    /// A datagram that has arrived waits for it.
    pub(crate) fn waits(&mut self, path: &Path, datagram: &[u8]) -> bool {
        let takes = self.takes_from_socket(path, datagram);
        let Some(waiting) = self.waiting.as_mut().filter(|_| takes) else { return false };
        waiting.outside.push_back((*path, datagram.to_vec()));
        true
    }

    /// A datagram has arrived.
    pub(crate) fn open(&mut self, now: Instant, path: &Path, datagram: &[u8]) -> Taken {
        let mut datagram = datagram.to_vec();
        // The kernel takes what is of its state, whichever way it comes.
        let spi = datagram.first_chunk().map(|spi| ChildId::new(u32::from_be_bytes(*spi)));
        let of = spi.and_then(|id| self.loans.get(&id)).map(|(of, _)| *of);
        let way = of.filter(|of| of.carrier == path.carrier && self.udp != InUdp::Each).unwrap_or(*path);
        match self.worker.open(now, &Received { path: way, ecn: 0 }, &mut datagram) {
            Came::Packet(range) => {
                self.carried += 1;
                Taken::Packet(datagram.get(range).unwrap_or_default().to_vec())
            }
            Came::Nothing => Taken::Refused,
            Came::Others if self.udp == InUdp::Alone && self.takes_from_socket(path, &datagram) => {
                Taken::Refused
            }
            Came::Others => Taken::No,
        }
    }
}
