//! Another engine that is made of the same parts as the host: the SAs that a worker was lent, between an interface of its own and a socket for each. Owns their tunnels
//! until they are given back; must never know a session, nor choose what is lent ([`crate::lending`] does). A thread of `dormoused` drives one, and the worlds of `dormouse-sim` do.
//!
//! What it does to a packet is what the host does: [`dormouse_esp::Tunnel::plan`], sealing in place, [`Sad::open`], ECN and MSS. What is not ESP of a loan, come the way that
//! ours goes, is the host's ([`Came::Others`]): messages of IKE, a successor's packets.

use super::path::too_big;
use super::{Host, PathCounters};
use dormouse_esp::{Fit, InstallError, Loan, Outer, Returned, Sad, Usage, clamp_mss, pmtu};
use dormouse_keying::{ChildId, Owner, SaId};
use dormouse_sansio::packet::{Geometry, InnerPacket, Plan, Received, Sealed};
use dormouse_sansio::{Carrier, Entropy, Instant};
use dormouse_standin::Observer;
use dormouse_wire::esp::{NatT, classify_natt};
use dormouse_wire::ip::{self, Ecn};
use std::collections::BTreeMap;
use std::ops::Range;

/// What was dropped, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// As the host counts its own.
    pub path: PathCounters,
    /// ESP by the reason ([`dormouse_esp::Discard::name`]).
    pub esp: BTreeMap<&'static str, u64>,
}

impl Host {
    /// A worker has dropped these.
    pub fn count_dropped(&mut self, dropped: &Dropped) {
        let PathCounters { no_policy, too_big, unsent, unsealed, discards, .. } = dropped.path;
        let counters = &mut self.counters;
        counters.no_policy += no_policy;
        counters.too_big += too_big;
        counters.unsent += unsent;
        counters.unsealed += unsealed;
        counters.discards += discards;
        self.node.count_discards(&dropped.esp);
    }
}

/// What became of a datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Came {
    /// An IP packet is now in this range of it: to the inner side.
    Packet(Range<usize>),
    /// It was a dummy, or was dropped and counted.
    Nothing,
    /// It is none of a loan here, and was not touched.
    Others,
}

/// What a worker knows of a loan beside its tunnel.
#[derive(Debug)]
struct Held {
    /// The largest inner packet, in bytes.
    inner_mtu: usize,
    /// Sees the packets, where the stand-in has to know what its device shows.
    observer: Option<Observer>,
}

/// What comes back of a loan.
#[derive(Debug)]
pub struct Back {
    /// The SA's numbers.
    pub returned: Returned,
    /// What has seen its packets.
    pub observer: Option<Observer>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Worker {
    sad: Sad,
    loans: BTreeMap<ChildId, Held>,
    dropped: Dropped,
}

impl Worker {
    /// It carries this loan from now on, and shows what passes to `observer`.
    ///
    /// # Errors
    /// Why it cannot; it has not touched it then.
    pub fn take(
        &mut self,
        loan: &Loan,
        observer: Option<Observer>,
        entropy: &mut dyn Entropy,
    ) -> Result<(), InstallError> {
        // Loans have nothing in common here.
        let owner = Owner::Ike(SaId::new(loan.child.spi().into()));
        self.sad.insert(loan.tunnel(owner, entropy)?)?;
        self.sad.activate(loan.child);
        self.loans.insert(loan.child, Held { inner_mtu: loan.inner_mtu, observer });
        Ok(())
    }

    /// What it has carried of a loan so far.
    #[must_use]
    pub fn usage(&self, child: ChildId) -> Option<Usage> {
        self.sad.get(child).map(dormouse_esp::Tunnel::usage)
    }

    /// It carries this loan no more.
    pub fn give_back(&mut self, child: ChildId) -> Option<Back> {
        let Held { observer, .. } = self.loans.remove(&child)?;
        self.sad.remove(child).map(|tunnel| Back { returned: tunnel.returned(), observer })
    }

    /// What was dropped since it was asked last.
    pub fn take_dropped(&mut self) -> Dropped {
        std::mem::take(&mut self.dropped)
    }

    /// What becomes of a packet of the inner side; see [`crate::host::Host::plan`].
    pub fn plan<P: InnerPacket + ?Sized>(&mut self, now: Instant, packet: &mut P) -> Plan {
        let Some(flow) = ip::flow(packet.bytes()) else { return Plan::Drop };
        let Some(id) = self.sad.route(&flow) else {
            self.dropped.path.no_policy += 1;
            return Plan::Drop;
        };
        let Some((tunnel, held)) = self.sad.get(id).zip(self.loans.get_mut(&id)) else { return Plan::Drop };
        if let Some(observer) = &mut held.observer {
            observer.observe_outbound(now, packet.bytes());
        }
        let inner_mtu = held.inner_mtu;
        match tunnel.plan(packet, inner_mtu) {
            Fit::Seal(geometry) => Plan::Seal(geometry),
            Fit::Never => Plan::Drop,
            Fit::TooBig => {
                let mtu = pmtu::advertised(inner_mtu, flow.src);
                let answer = too_big(packet.bytes(), flow.dst, mtu);
                self.dropped.path.too_big += u64::from(answer.is_some());
                answer.map_or(Plan::Drop, Plan::Answer)
            }
        }
    }

    /// Seals packets in place; see [`crate::host::Host::seal`].
    pub fn seal(&mut self, geometry: &Geometry, slots: &mut [u8], sizes: &[usize]) -> Option<Sealed> {
        let tunnel = self.sad.get_mut(ChildId::new(geometry.route))?;
        let path = tunnel.path;
        match tunnel.outbound.seal_batch(slots, geometry.stride, sizes, geometry.next_header) {
            Ok(len) => Some(Sealed { len, path }),
            Err(e) => {
                tracing::debug!(%e, "a batch could not be sealed");
                self.dropped.path.unsealed += 1;
                None
            }
        }
    }

    /// A sealed batch could not be sent, and is lost.
    pub fn not_sent(&mut self) {
        self.dropped.path.unsent += 1;
    }

    /// A datagram came in.
    pub fn open(&mut self, now: Instant, from: &Received, datagram: &mut [u8]) -> Came {
        let is_esp = match from.path.carrier {
            Carrier::RawEsp => true,
            Carrier::NatT => matches!(classify_natt(datagram), NatT::Esp(_)),
            Carrier::Ike | Carrier::RawHip | Carrier::HipUdp => false,
        };
        let id = datagram.first_chunk().map(|spi| ChildId::new(u32::from_be_bytes(*spi)));
        let Some(id) = id.filter(|_| is_esp) else { return Came::Others };
        if self.sad.get(id).is_none_or(|tunnel| tunnel.path != from.path) {
            return Came::Others;
        }
        match self.open_esp(now, from, datagram) {
            Ok(packet) => packet.map_or(Came::Nothing, Came::Packet),
            // Where both engines see all packets, what is not to be accepted here is the host's.
            Err(dormouse_esp::Discard::Replay(_)) if from.path.carrier == Carrier::RawEsp => Came::Others,
            Err(e) => {
                tracing::debug!(path = %from.path, %e, "dropped");
                *self.dropped.esp.entry(e.name()).or_default() += 1;
                self.dropped.path.discards += 1;
                Came::Nothing
            }
        }
    }

    fn open_esp(
        &mut self,
        now: Instant,
        from: &Received,
        datagram: &mut [u8],
    ) -> Result<Option<Range<usize>>, dormouse_esp::Discard> {
        let accepted = self.sad.open(datagram)?;
        let range = accepted.opened.inner.clone();
        if accepted.opened.is_dummy() {
            return Ok(None);
        }
        let tunnel = self.sad.get_mut(accepted.id).zip(datagram.get_mut(range.clone()));
        let Some((tunnel, inner)) = tunnel else { return Ok(None) };
        let outer = Outer {
            source: from.path.remote.ip(),
            destination: from.path.local.ip(),
            ecn: Ecn::from_traffic_class(from.ecn),
        };
        tunnel.rebuild(accepted.opened.next_header, accepted.flow, inner, outer)?;
        if let Some(held) = self.loans.get_mut(&accepted.id) {
            if let Some(observer) = &mut held.observer {
                observer.observe_inbound(now, inner);
            }
            clamp_mss(inner, held.inner_mtu);
        }
        Ok(Some(range))
    }
}
