//! Local-scope identifiers: IPv4 addresses by which programs that know IPv4 only reach the peers of HIP. They mean something on this host
//! alone, and never leave it: in the tunnel every packet is between host identity tags.
//!
//! Owns which address means which peer, and which conversations a program of this host holds by them: answers of the peer to those are
//! made IPv4, and so is what this host answers for a peer. A conversation ends when a program here sends IPv6 from the same port, or after
//! its time of silence. What a peer begins is IPv6, but at the ports that the configuration says have programs of IPv4 only. Fragments are put
//! together before they are translated, and cut anew for the tunnel. Must never let a packet through to another peer than its address means.

use super::reassembly::{Reassembly, fragments, is_fragment_v4};
use crate::config::directory::Service;
use dormouse_sansio::Instant;
use dormouse_wire::ip::{Flow, Ipv4, Ipv6, Packet, flow, protocol, translate};
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
    /// Fragments of programs here, and of peers.
    outgoing: Reassembly,
    incoming: Reassembly,
    /// Datagrams that were cut for the tunnel: their identification.
    cut: u32,
}

/// What becomes of a peer's packet that must be seen whole.
#[derive(Debug)]
pub(super) enum Apart {
    /// It is none.
    No,
    /// The rest of it has not come, or never fits.
    Waits,
    /// This is to be handed over in its place.
    Packet(Vec<u8>),
}

impl Translator {
    pub(super) fn set(&mut self, lsis: Lsis) {
        self.lsis = lsis;
    }

    /// Whether a packet is for a peer by its local-scope identifier.
    pub(super) fn is_for(&self, destination: IpAddr) -> bool {
        matches!(destination, IpAddr::V4(lsi) if self.lsis.tags_of.contains_key(&lsi))
    }

    /// A packet of a program, as it goes into the tunnel: none yet if the rest of its datagram has not come. `None` if it cannot.
    pub(super) fn outbound(&mut self, now: Instant, packet: &[u8]) -> Option<Vec<Vec<u8>>> {
        if !is_fragment_v4(packet) {
            return Some(vec![self.outbound_whole(now, packet)?]);
        }
        let fragment = Packet::parse(packet).ok().filter(|it| self.is_for(it.dst()))?;
        let Some(whole) = self.outgoing.take(now, &fragment) else { return Some(Vec::new()) };
        let translated = self.outbound_whole(now, &whole)?;
        self.cut = self.cut.wrapping_add(1);
        Some(fragments(translated, self.cut))
    }

    fn outbound_whole(&mut self, now: Instant, packet: &[u8]) -> Option<Vec<u8>> {
        let lsi = self.lsis.ours?;
        let it = Ipv4::parse(packet).ok().filter(|it| it.src() == lsi)?;
        let (peer, ours) = *self.lsis.tags_of.get(&it.dst())?;
        let out = translate::to_v6(packet, ours, peer);
        // What is not said by a packet's own kind may be said about another.
        let out = out.or_else(|| translate::errors::to_v6(packet, ours, peer))?;
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

    /// A peer's packet, of this flow, that must be seen whole: a fragment, or an ICMP error, which quotes what it is about.
    pub(super) fn apart(&mut self, now: Instant, flow: &Flow, header: &[u8], payload: &[u8]) -> Apart {
        let cut = header.get(6) == Some(&protocol::FRAGMENT);
        let error = flow.protocol == protocol::ICMPV6 && payload.first().is_some_and(|kind| *kind < 128);
        let known = || matches!(flow.src, IpAddr::V6(peer) if self.lsis.lsi_of.contains_key(&peer));
        if !(cut || error) || !known() {
            return Apart::No;
        }
        let packet = [header, payload].concat();
        let Ok(parsed) = Packet::parse(&packet) else { return Apart::No };
        let mut whole = match parsed.fragment() {
            Some(_) => match self.incoming.take(now, &parsed) {
                Some(whole) => whole,
                None => return Apart::Waits,
            },
            None if cut => return Apart::No,
            None => packet,
        };
        self.answer(now, &mut whole);
        Apart::Packet(whole)
    }

    /// A peer's error about a packet that this host sends it, if a program here sent that as IPv4: the same for that program.
    fn error(&mut self, now: Instant, packet: &[u8]) -> Option<Vec<u8>> {
        let (outer, quoted) = translate::errors::quoted_v6(packet)?;
        let lsi = self.lsis.ours?;
        let of_peer = *self.lsis.lsi_of.get(&outer.src())?;
        self.lsis.tags_of.get(&of_peer).filter(|(_, ours)| *ours == outer.dst())?;
        let conversation = conversation_of(&Packet::V6(quoted).flow(), quoted.as_bytes())?;
        let served = self.lsis.services.contains(&(conversation.0, conversation.1));
        if !served && !self.holds(now, conversation) {
            return None;
        }
        translate::errors::to_v4(packet, of_peer, lsi)
    }

    /// Makes a packet that is a peer's, or is made here in its stead, one of IPv4 if its conversation is.
    pub(super) fn answer(&mut self, now: Instant, packet: &mut Vec<u8>) {
        if self.lsis.ours.is_none() {
            return;
        }
        let Some(flow) = flow(packet) else { return };
        if let Some(error) = self.error(now, packet) {
            *packet = error;
            return;
        }
        let Some((header, payload)) = packet.split_at_mut_checked(Ipv6::HEADER) else { return };
        if let Some(v4) = self.inbound(now, &flow, header, payload) {
            packet.splice(..Ipv6::HEADER, v4);
        }
    }

    /// What is remembered is bounded, and both orders of it agree.
    pub(super) fn is_sound(&self) {
        assert!(self.held.len() <= MOST && self.held.len() == self.by_time.len());
        self.outgoing.is_bounded();
        self.incoming.is_bounded();
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

    /// What a packet becomes in the tunnel, which is one packet.
    fn outbound(it: &mut Translator, now: Instant, packet: &[u8]) -> Option<Vec<u8>> {
        it.outbound(now, packet).map(|mut all| all.pop().filter(|_| all.is_empty()).expect("one packet"))
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
        let out = outbound(&mut it, Instant::ZERO, &datagram(OURS.0, PEER.0, (4_000, 80)))
            .expect("it is translated");
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
            let out = outbound(&mut it, Instant::ZERO, &datagram(OURS.0, to, (4_000, 80)))
                .expect("it is translated");
            assert_eq!(flow(&out).map(|f| (f.src, f.dst)), Some((tags.0.into(), tags.1.into())));
        }
    }

    #[test]
    fn only_what_is_between_known_identifiers_goes_in() {
        let mut it = translator();
        let stranger = Ipv4Addr::new(1, 0, 0, 9);
        assert!(it.is_for(PEER.0.into()) && !it.is_for(stranger.into()) && !it.is_for(OURS.0.into()));
        for (from, to) in [(stranger, PEER.0), (OURS.0, stranger), (PEER.0, OURS.0)] {
            assert_eq!(outbound(&mut it, Instant::ZERO, &datagram(from, to, (1, 2))), None, "{from} {to}");
        }
    }

    /// A program of IPv6 that has the ports of an earlier one of IPv4 gets its answers; and silence ends a conversation.
    #[test]
    fn conversations_end() {
        let mut it = translator();
        let (out, back) = (datagram(OURS.0, PEER.0, (4_000, 80)), datagram(PEER.1, OURS.1, (80, 4_000)));
        outbound(&mut it, Instant::ZERO, &out).expect("it is translated");
        let other = datagram(OURS.1, PEER.1, (4_001, 80));
        it.ends(&flow(&other).expect("a flow"), &other);
        assert_eq!(seen(&mut it, back.clone()), Some(PEER.0.into()), "another port");
        let same = datagram(OURS.1, PEER.1, (4_000, 80));
        it.ends(&flow(&same).expect("a flow"), &same);
        assert_eq!(seen(&mut it, back.clone()), None);
        assert!(it.held.is_empty() && it.by_time.is_empty());

        outbound(&mut it, Instant::ZERO, &out).expect("it is translated");
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
        let translated = outbound(&mut it, Instant::ZERO, &out).expect("it is translated");
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

    /// What is too big for one packet goes and comes in several, and is whole for the program in its family.
    #[test]
    fn fragments_are_put_together_before_they_are_translated() {
        let mut it = translator();
        let mut big = Vec::new();
        udp::build((OURS.0, 4_000).into(), (PEER.0, 80).into(), &[7; 3_000], &mut big).expect("it fits");
        let mut pieces = Vec::new();
        for (at, data) in big[20..].chunks(1_376).enumerate() {
            let mut piece = big[..20].to_vec();
            piece.extend_from_slice(data);
            let (len, place) = (piece.len() as u16, (at * 1_376 / 8) as u16);
            let more = if (at + 1) * 1_376 < big.len() - 20 { 0x2000 } else { 0 };
            piece[2..4].copy_from_slice(&len.to_be_bytes());
            piece[6..8].copy_from_slice(&(place | more).to_be_bytes());
            pieces.push(piece);
        }
        let out: Vec<Vec<Vec<u8>>> =
            pieces.iter().map(|p| it.outbound(Instant::ZERO, p).expect("for a peer")).collect();
        assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 3]);
        let mut seen = out[2].iter().map(|p| Packet::parse(p).expect("a packet"));
        assert!(seen.all(|p| p.dst() == IpAddr::from(PEER.1) && p.fragment().is_some()));
        // The peer's answer, in pieces too.
        let mut answer = Vec::new();
        udp::build((PEER.1, 80).into(), (OURS.1, 4_000).into(), &[8; 3_000], &mut answer).expect("it fits");
        let pieces = fragments(answer.clone(), 9);
        let apart = |it: &mut Translator, piece: &[u8]| {
            it.apart(Instant::ZERO, &flow(piece).expect("a flow"), &piece[..40], &piece[40..])
        };
        let (last, others) = pieces.split_last().expect("several");
        assert!(others.iter().all(|p| matches!(apart(&mut it, p), Apart::Waits)));
        let Apart::Packet(whole) = apart(&mut it, last) else { panic!("it is whole") };
        assert_eq!(flow(&whole).map(|f| (f.src, f.dst_port)), Some((PEER.0.into(), Some(4_000))));
        assert_eq!(whole.len(), 20 + 8 + 3_000);
        // With a program of IPv6 it stays IPv6.
        let other = datagram(OURS.1, PEER.1, (4_000, 80));
        it.ends(&flow(&other).expect("a flow"), &other);
        assert!(others.iter().all(|p| matches!(apart(&mut it, p), Apart::Waits)));
        assert!(matches!(apart(&mut it, last), Apart::Packet(whole) if whole == answer));
        // Nothing is held of a host that has no identifier here, or for an address that means none.
        let mut stranger = pieces[0].clone();
        stranger[23] ^= 0x55;
        assert!(matches!(apart(&mut it, &stranger), Apart::No));
        let mut elsewhere = big[..20].to_vec();
        elsewhere[6] = 0x20;
        elsewhere[19] = 99;
        elsewhere.resize(big.len(), 0);
        assert_eq!(it.outbound(Instant::ZERO, &elsewhere), None);
    }

    /// What a peer says about a packet is said to the program that sent it, in its family; and what this host says about a peer's.
    #[test]
    fn errors_have_the_family_of_what_they_are_about() {
        use dormouse_wire::ip::icmp;
        let mut it = translator();
        let out =
            outbound(&mut it, Instant::ZERO, &datagram(OURS.0, PEER.0, (4_000, 80))).expect("translated");
        // The peer's kernel makes it; here it is the one that a peer with identifiers would translate.
        let refusal = |quoted: &[u8], from: Ipv6Addr, to: Ipv6Addr| {
            let mut v4 = Vec::new();
            let (a, b) = (Ipv4Addr::new(9, 0, 0, 1), Ipv4Addr::new(9, 0, 0, 2));
            let (header, payload) = quoted.split_at(40);
            let mut payload = payload.to_vec();
            let header = translate::to_v4(header, &mut payload, a, b).expect("it is whole");
            assert!(icmp::error(&[&header[..], &payload].concat(), b, 3, 3, &mut v4));
            translate::errors::to_v6(&v4, from, to).expect("it is said")
        };
        let mut error = refusal(&out, PEER.1, OURS.1);
        it.answer(Instant::ZERO, &mut error);
        let said = Ipv4::parse(&error).expect("IPv4");
        let said = icmp::parse_error(&said).expect("an error");
        assert_eq!((said.kind, said.code, flow(&error).map(|f| f.src)), (3, 3, Some(PEER.0.into())));
        assert_eq!(said.quoted, datagram(OURS.0, PEER.0, (4_000, 80)));
        // About what a program of IPv6 sent: as it is.
        let other = refusal(&datagram(OURS.1, PEER.1, (4_001, 80)), PEER.1, OURS.1);
        let mut same = other.clone();
        it.answer(Instant::ZERO, &mut same);
        assert_eq!(same, other);
        // And this host's refusal of what the peer sent to a service of IPv4 alone.
        let mut v4 = Vec::new();
        assert!(icmp::error(&datagram(PEER.0, OURS.0, (9, 53)), OURS.0, 3, 3, &mut v4));
        let out = outbound(&mut it, Instant::ZERO, &v4).expect("translated");
        let (outer, quoted) = translate::errors::quoted_v6(&out).expect("an error");
        assert_eq!((outer.src(), outer.dst(), quoted.src()), (OURS.1, PEER.1, PEER.1));
    }

    /// However many conversations there are, those in use are remembered.
    #[test]
    fn conversations_are_bounded() {
        let mut it = translator();
        let first = datagram(OURS.0, PEER.0, (1, 1));
        for n in 0..2 * MOST as u64 {
            let now = Instant::from_nanos(n * 1_000_000_000);
            outbound(&mut it, now, &first).expect("it is translated");
            let ports = ((n % 60_000 + 2) as u16, (n / 60_000) as u16);
            outbound(&mut it, now, &datagram(OURS.0, PEER.0, ports)).expect("it is translated");
            assert!(it.held.len() <= MOST && it.held.len() == it.by_time.len());
        }
        assert_eq!(seen(&mut it, datagram(PEER.1, OURS.1, (1, 1))), Some(PEER.0.into()));
    }
}
