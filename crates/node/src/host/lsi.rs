//! Local-scope identifiers: IPv4 addresses by which programs that know IPv4 only reach the peers of HIP. They mean something on this host
//! alone, and never leave it: in the tunnel every packet is between host identity tags.
//!
//! Owns which address means which peer, and which conversations a program of this host holds by them: answers of the peer to those are
//! made IPv4, and so is what this host answers for a peer. A conversation ends when a program here sends IPv6 from the same port, or after
//! its time of silence. What a peer begins is IPv6, but at the ports that the configuration says have programs of IPv4 only. Must never
//! let a packet through to another peer than its address means.

use dormouse_sansio::Instant;
use dormouse_wire::ip::{Flow, Ipv4, Ipv6, flow, protocol, translate};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::time::Duration;

/// Conversations that are remembered; the one that was silent the longest gives way.
const MOST: usize = 16_384;
/// A conversation's time is noted no more often.
const NOTED: Duration = Duration::from_secs(10);

/// A conversation of TCP that is silent for longer is over, as for a NAT: "[...] the value of the "established connection idle-timeout" MUST
/// NOT be less than 2 hours 4 minutes." (RFC 5382 section 5)
const SILENT_TCP: Duration = Duration::from_secs(124 * 60);
/// Any other: "A default value of five minutes or more for the NAT UDP mapping timer is RECOMMENDED." (RFC 4787 section 4.3)
const SILENT: Duration = Duration::from_secs(5 * 60);

/// Protocol and port of programs that know IPv4 only.
pub type Service = (u8, u16);

/// Who is meant by which address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lsis {
    ours: Option<Ipv4Addr>,
    /// The peer's, and ours towards it.
    tags_of: BTreeMap<Ipv4Addr, (Ipv6Addr, Ipv6Addr)>,
    lsi_of: BTreeMap<Ipv6Addr, Ipv4Addr>,
    services: BTreeSet<Service>,
}

impl Lsis {
    /// This host's own, those of its peers with their tags and with this host's tag towards each, and what is served in IPv4 alone.
    #[must_use]
    pub fn new(
        ours: Ipv4Addr,
        peers: impl IntoIterator<Item = (Ipv4Addr, (Ipv6Addr, Ipv6Addr))>,
        services: BTreeSet<Service>,
    ) -> Self {
        let tags_of: BTreeMap<_, _> = peers.into_iter().collect();
        let lsi_of = tags_of.iter().map(|(lsi, (peer, _))| (*peer, *lsi)).collect();
        Self { ours: Some(ours), tags_of, lsi_of, services }
    }
}

/// A conversation as this host sees it: protocol, its port here, the peer, the port there. An echo has its identifier, and 0.
type Conversation = (u8, u16, Ipv6Addr, u16);

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Translator {
    lsis: Lsis,
    /// When each was last noted.
    held: BTreeMap<Conversation, Instant>,
    by_time: BTreeSet<(Instant, Conversation)>,
}

impl Translator {
    pub(super) fn set(&mut self, lsis: Lsis) {
        self.lsis = lsis;
    }

    /// Whether a packet is for a peer by its local-scope identifier.
    pub(super) fn is_for(&self, destination: IpAddr) -> bool {
        matches!(destination, IpAddr::V4(lsi) if self.lsis.tags_of.contains_key(&lsi))
    }

    /// A packet of a program, as it goes into the tunnel; `None` if it cannot.
    pub(super) fn outbound(&mut self, now: Instant, packet: &[u8]) -> Option<Vec<u8>> {
        let lsi = self.lsis.ours?;
        let it = Ipv4::parse(packet).ok().filter(|it| it.src() == lsi)?;
        let (peer, ours) = *self.lsis.tags_of.get(&it.dst())?;
        let out = translate::to_v6(packet, ours, peer)?;
        let conversation = match (it.protocol(), it.payload()) {
            (protocol::ICMP, [8, _, _, _, i0, i1, ..]) => {
                Some((protocol::ICMPV6, u16::from_be_bytes([*i0, *i1]), peer, 0))
            }
            (protocol::ICMP, _) => None,
            (kind, [s0, s1, d0, d1, ..]) => {
                Some((kind, u16::from_be_bytes([*s0, *s1]), peer, u16::from_be_bytes([*d0, *d1])))
            }
            _ => None,
        };
        conversation.into_iter().for_each(|conversation| self.note(now, conversation));
        Some(out)
    }

    /// A program here sends this packet, of this flow, as IPv6: if it has the ports of a conversation in IPv4, that is over.
    pub(super) fn ends(&mut self, flow: &Flow, packet: &[u8]) {
        if self.held.is_empty() {
            return;
        }
        if let Some(conversation) = conversation_of(flow, packet) {
            self.forget(conversation);
        }
    }

    fn forget(&mut self, conversation: Conversation) {
        if let Some(noted) = self.held.remove(&conversation) {
            self.by_time.remove(&(noted, conversation));
        }
    }

    /// Whether a program here holds the conversation in IPv4.
    fn holds(&mut self, now: Instant, conversation: Conversation) -> bool {
        let silent = if conversation.0 == protocol::TCP { SILENT_TCP } else { SILENT };
        match self.held.get(&conversation) {
            Some(noted) if now - *noted <= silent => true,
            Some(_) => {
                self.forget(conversation);
                false
            }
            None => false,
        }
    }

    /// The IPv4 packet of a program that became this one, and the address of the peer in it; `None` if it was none.
    pub(super) fn original(&mut self, now: Instant, packet: &[u8]) -> Option<(Vec<u8>, Ipv4Addr)> {
        let flow = flow(packet)?;
        let peer = if let IpAddr::V6(peer) = flow.dst { *self.lsis.lsi_of.get(&peer)? } else { return None };
        let conversation = conversation_of(&flow, packet).filter(|it| self.holds(now, *it));
        let served = flow.src_port.is_some_and(|port| self.lsis.services.contains(&(flow.protocol, port)));
        if conversation.is_none() && !served {
            return None;
        }
        let lsi = self.lsis.ours?;
        let (header, payload) = packet.split_at_checked(Ipv6::HEADER)?;
        let mut payload = payload.to_vec();
        let header = translate::to_v4(header, &mut payload, lsi, peer)?;
        Some(([&header[..], &payload].concat(), peer))
    }

    /// Makes a packet that is a peer's, or is made here in its stead, one of IPv4 if its conversation is.
    pub(super) fn answer(&mut self, now: Instant, packet: &mut Vec<u8>) {
        if self.lsis.ours.is_none() {
            return;
        }
        let Some(flow) = flow(packet) else { return };
        let Some((header, payload)) = packet.split_at_mut_checked(Ipv6::HEADER) else { return };
        if let Some(v4) = self.inbound(now, &flow, header, payload) {
            packet.splice(..Ipv6::HEADER, v4);
        }
    }

    fn note(&mut self, now: Instant, conversation: Conversation) {
        match self.held.get(&conversation) {
            Some(before) if *before + NOTED > now => return,
            Some(before) => drop(self.by_time.remove(&(*before, conversation))),
            None if self.held.len() >= MOST => {
                if let Some((_, oldest)) = self.by_time.pop_first() {
                    self.held.remove(&oldest);
                }
            }
            None => {}
        }
        self.held.insert(conversation, now);
        self.by_time.insert((now, conversation));
    }

    /// A packet of a peer, of this flow: if a program here holds the conversation in IPv4, the header of that, and the payload as it
    /// belongs behind it.
    pub(super) fn inbound(
        &mut self,
        now: Instant,
        flow: &Flow,
        header: &[u8],
        payload: &mut [u8],
    ) -> Option<[u8; Ipv4::MIN_HEADER]> {
        let lsi = self.lsis.ours?;
        let (IpAddr::V6(peer), IpAddr::V6(here)) = (flow.src, flow.dst) else { return None };
        let of_peer = *self.lsis.lsi_of.get(&peer)?;
        self.lsis.tags_of.get(&of_peer).filter(|(_, ours)| *ours == here)?;
        let conversation = match (flow.protocol, &*payload) {
            (protocol::ICMPV6, [129, _, _, _, i0, i1, ..]) => {
                (protocol::ICMPV6, u16::from_be_bytes([*i0, *i1]), peer, 0)
            }
            (protocol::ICMPV6, _) => return None,
            (kind, _) => (kind, flow.dst_port?, peer, flow.src_port?),
        };
        let served = self.lsis.services.contains(&(conversation.0, conversation.1));
        if !served && !self.holds(now, conversation) {
            return None;
        }
        let header = translate::to_v4(header, payload, of_peer, lsi)?;
        if !served {
            self.note(now, conversation);
        }
        Some(header)
    }
}

/// The conversation of a packet of IPv6 that a program here sends.
fn conversation_of(flow: &Flow, packet: &[u8]) -> Option<Conversation> {
    let IpAddr::V6(peer) = flow.dst else { return None };
    if flow.protocol == protocol::ICMPV6 {
        let [128, _, _, _, i0, i1, ..] = packet.get(Ipv6::HEADER..)? else { return None };
        return Some((protocol::ICMPV6, u16::from_be_bytes([*i0, *i1]), peer, 0));
    }
    Some((flow.protocol, flow.src_port?, peer, flow.dst_port?))
}

/// What [`Translator::inbound`] needs of a packet whose header is apart.
pub(super) fn put_v4(
    translator: &mut Translator,
    now: Instant,
    flow: &Flow,
    (header, len): ([u8; 60], usize),
    datagram: &mut [u8],
    payload: &Range<usize>,
) -> ([u8; 60], usize) {
    let carried = datagram.get_mut(payload.clone()).unwrap_or_default();
    let whole = header.get(..len).unwrap_or_default();
    let Some(v4) = translator.inbound(now, flow, whole, carried) else { return (header, len) };
    let mut room = [0; 60];
    if let Some(place) = room.get_mut(..v4.len()) {
        place.copy_from_slice(&v4);
    }
    (room, v4.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_wire::ip::udp;

    const OURS: (Ipv4Addr, Ipv6Addr) =
        (Ipv4Addr::new(1, 0, 0, 1), Ipv6Addr::new(0x2001, 0x22, 0, 0, 0, 0, 0, 1));
    const PEER: (Ipv4Addr, Ipv6Addr) =
        (Ipv4Addr::new(1, 0, 0, 2), Ipv6Addr::new(0x2001, 0x22, 0, 0, 0, 0, 0, 2));
    /// A peer of version 1, and our tag towards it.
    const OTHER: Ipv6Addr = Ipv6Addr::new(0x2001, 0x1a, 0, 0, 0, 0, 0, 3);
    const OLD: Ipv6Addr = Ipv6Addr::new(0x2001, 0x1b, 0, 0, 0, 0, 0, 1);

    fn translator() -> Translator {
        let mut it = Translator::default();
        let peers = [(PEER.0, (PEER.1, OURS.1)), (Ipv4Addr::new(1, 0, 0, 3), (OTHER, OLD))];
        it.set(Lsis::new(OURS.0, peers, BTreeSet::from([(17, 53)])));
        it
    }

    fn datagram(from: impl Into<IpAddr>, to: impl Into<IpAddr>, ports: (u16, u16)) -> Vec<u8> {
        let mut packet = Vec::new();
        udp::build((from.into(), ports.0).into(), (to.into(), ports.1).into(), b"data", &mut packet)
            .expect("it fits");
        packet
    }

    /// What a program here gets of a peer's packet: from where, if it is IPv4.
    fn seen(it: &mut Translator, mut packet: Vec<u8>) -> Option<IpAddr> {
        let flow = flow(&packet).expect("a packet");
        let (header, payload) = packet.split_at_mut(40);
        let v4 = it.inbound(Instant::ZERO, &flow, header, payload)?;
        let whole = [&v4[..], payload].concat();
        dormouse_wire::ip::flow(&whole).map(|flow| flow.src)
    }

    #[test]
    fn answers_come_back_in_the_family_of_what_was_asked() {
        let mut it = translator();
        let answer = || datagram(PEER.1, OURS.1, (80, 4_000));
        assert_eq!(seen(&mut it, answer()), None, "nothing was asked in IPv4");
        let out =
            it.outbound(Instant::ZERO, &datagram(OURS.0, PEER.0, (4_000, 80))).expect("it is translated");
        assert_eq!(flow(&out).map(|f| (f.src, f.dst)), Some((OURS.1.into(), PEER.1.into())));
        assert_eq!(seen(&mut it, answer()), Some(PEER.0.into()));
        // Other ports, and other peers, have nothing to do with it.
        for (peer, ports) in [(PEER.1, (80, 4_001)), (PEER.1, (81, 4_000)), (OTHER, (80, 4_000))] {
            assert_eq!(seen(&mut it, datagram(peer, OURS.1, ports)), None);
        }
        assert_eq!(seen(&mut it, datagram(PEER.1, OURS.1, (9, 53))), Some(PEER.0.into()), "a service");
        assert_eq!(seen(&mut it, datagram(PEER.1, OLD, (9, 53))), None, "our other tag");
        assert_eq!(seen(&mut it, datagram(OTHER, OLD, (9, 53))), Some(Ipv4Addr::new(1, 0, 0, 3).into()));
    }

    /// A peer of version 1 sees this host by its tag of version 1.
    #[test]
    fn each_peer_sees_the_tag_of_its_version() {
        let mut it = translator();
        for (to, tags) in [(PEER.0, (OURS.1, PEER.1)), (Ipv4Addr::new(1, 0, 0, 3), (OLD, OTHER))] {
            let out =
                it.outbound(Instant::ZERO, &datagram(OURS.0, to, (4_000, 80))).expect("it is translated");
            assert_eq!(flow(&out).map(|f| (f.src, f.dst)), Some((tags.0.into(), tags.1.into())));
        }
    }

    #[test]
    fn only_what_is_between_known_identifiers_goes_in() {
        let mut it = translator();
        let stranger = Ipv4Addr::new(1, 0, 0, 9);
        assert!(it.is_for(PEER.0.into()) && !it.is_for(stranger.into()) && !it.is_for(OURS.0.into()));
        for (from, to) in [(stranger, PEER.0), (OURS.0, stranger), (PEER.0, OURS.0)] {
            assert_eq!(it.outbound(Instant::ZERO, &datagram(from, to, (1, 2))), None, "{from} {to}");
        }
    }

    /// A program of IPv6 that has the ports of an earlier one of IPv4 gets its answers; and silence ends a conversation.
    #[test]
    fn conversations_end() {
        let mut it = translator();
        let (out, back) = (datagram(OURS.0, PEER.0, (4_000, 80)), datagram(PEER.1, OURS.1, (80, 4_000)));
        it.outbound(Instant::ZERO, &out).expect("it is translated");
        let other = datagram(OURS.1, PEER.1, (4_001, 80));
        it.ends(&flow(&other).expect("a flow"), &other);
        assert_eq!(seen(&mut it, back.clone()), Some(PEER.0.into()), "another port");
        let same = datagram(OURS.1, PEER.1, (4_000, 80));
        it.ends(&flow(&same).expect("a flow"), &same);
        assert_eq!(seen(&mut it, back.clone()), None);
        assert!(it.held.is_empty() && it.by_time.is_empty());

        it.outbound(Instant::ZERO, &out).expect("it is translated");
        let answer = flow(&back).expect("a flow");
        let (header, payload) = back.split_at(40);
        let mut at = |now| it.inbound(now, &answer, header, &mut payload.to_vec()).is_some();
        assert!(at(Instant::ZERO + SILENT) && at(Instant::ZERO + SILENT * 2), "it is not silent");
        assert!(!at(Instant::ZERO + SILENT * 3 + NOTED));
        assert!(it.held.is_empty() && it.by_time.is_empty());
    }

    /// What is answered here in the stead of a peer, and what is too big for the tunnel, is said in the family of the program.
    #[test]
    fn answers_that_are_made_here_have_the_family_of_the_program() {
        let mut it = translator();
        let out = datagram(OURS.0, PEER.0, (4_000, 80));
        let translated = it.outbound(Instant::ZERO, &out).expect("it is translated");
        let (original, peer) = it.original(Instant::ZERO, &translated).expect("it was IPv4");
        assert_eq!((peer, flow(&original)), (PEER.0, flow(&out)));
        let foreign = datagram(OURS.1, PEER.1, (4_001, 80));
        assert_eq!(it.original(Instant::ZERO, &foreign), None);
        for (ports, from) in [((80, 4_000), IpAddr::from(PEER.0)), ((80, 4_001), IpAddr::from(PEER.1))] {
            let mut answer = datagram(PEER.1, OURS.1, ports);
            it.answer(Instant::ZERO, &mut answer);
            assert_eq!(flow(&answer).map(|f| f.src), Some(from));
        }
    }

    /// However many conversations there are, those in use are remembered.
    #[test]
    fn conversations_are_bounded() {
        let mut it = translator();
        let first = datagram(OURS.0, PEER.0, (1, 1));
        for n in 0..2 * MOST as u64 {
            let now = Instant::from_nanos(n * 1_000_000_000);
            it.outbound(now, &first).expect("it is translated");
            let ports = ((n % 60_000 + 2) as u16, (n / 60_000) as u16);
            it.outbound(now, &datagram(OURS.0, PEER.0, ports)).expect("it is translated");
            assert!(it.held.len() <= MOST && it.held.len() == it.by_time.len());
        }
        assert_eq!(seen(&mut it, datagram(PEER.1, OURS.1, (1, 1))), Some(PEER.0.into()));
    }
}
