//! The home agent: it knows where each of its mobile hosts is, and sends packets after those that are away. Owns the bindings; must never
//! change one for a request that is not authentic and new.

mod types;

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use dormouse_sansio::{Deadline, Entropy, Instant};
use dormouse_wire::ip::udp::Udp;
use dormouse_wire::ip::{Ipv4, Packet as Ip, icmp, protocol};
use dormouse_wire::mobileip::{
    ALL_AGENTS, Code, INFINITY, Message, PORT, Packet, Reply, Request, agent, is_solicitation, kind, request,
};

use crate::advertise::Advertiser;
use crate::association::{Association, Replay};
use crate::clock::{WallClock, apart, is_after};
use crate::limits::{MAX_BINDINGS, TTL};
use crate::outbox::Outbox;
use crate::tunnel::{self, Tunnel, decapsulate};
use crate::{Discard, LinkAddress, Reverse, Side};
pub use types::{HomeConfig, HomeEvent, HomeStats, Member};

#[derive(Debug)]
struct Binding {
    until: Option<Instant>,
    /// Of the request that it was accepted for.
    id: u64,
    /// The host asked for a tunnel back.
    reverse: bool,
    tunnel: Tunnel,
}

/// What the next request must carry to be new.
#[derive(Debug)]
enum Fresh {
    Timestamp {
        tolerance: Duration,
        /// The newest that was accepted.
        last: Option<u64>,
    },
    /// The number that was given out and not used yet.
    Nonce(u32),
}

#[derive(Debug)]
struct Node {
    association: Association,
    fresh: Fresh,
    bindings: Vec<Binding>,
    /// Where it is while it is at home.
    at_home: Option<LinkAddress>,
}

/// See the module.
pub struct HomeAgent {
    config: HomeConfig,
    clock: WallClock,
    random: Box<dyn Entropy>,
    nodes: BTreeMap<Ipv4Addr, Node>,
    advertiser: Advertiser,
    outbox: Outbox,
    events: VecDeque<HomeEvent>,
    stats: HomeStats,
}

impl HomeAgent {
    /// An agent that knows no bindings.
    #[must_use]
    pub fn new(now: Instant, mut config: HomeConfig, clock: WallClock, mut random: Box<dyn Entropy>) -> Self {
        let members = std::mem::take(&mut config.members);
        let nodes = members.into_iter().map(|(home, member)| {
            let fresh = match member.replay {
                Replay::Timestamps(tolerance) => Fresh::Timestamp { tolerance, last: None },
                Replay::Nonces => Fresh::Nonce(nonce(&mut *random)),
            };
            (home, Node { association: member.association, fresh, bindings: Vec::new(), at_home: None })
        });
        let nodes = nodes.collect();
        // "Agent Advertisement messages sent by the home agent on this link MUST have the 'H' bit set." (RFC 5944 section 2.3)
        let back = if config.agent.reverse == Reverse::Refused { 0 } else { agent::REVERSE };
        let flags = agent::HOME | back;
        let advertiser =
            Advertiser::new(now, config.agent.advertise, config.agent.address, flags, Vec::new());
        let (outbox, events, stats) = Default::default();
        Self { config, clock, random, nodes, advertiser, outbox, events, stats }
    }

    /// A packet has come.
    ///
    /// # Errors
    /// Why it went no further.
    pub fn handle_packet(&mut self, now: Instant, from: Side, packet: &[u8]) -> Result<(), Discard> {
        let ip = Ipv4::parse(packet)?;
        if !ip.checksum_ok() {
            return Err(Discard::Checksum);
        }
        let result = self.take(now, from, &ip);
        self.stats.forged += u64::from(matches!(result, Err(Discard::Unauthentic(_))));
        result
    }

    fn take(&mut self, now: Instant, from: Side, ip: &Ipv4<'_>) -> Result<(), Discard> {
        let own = ip.dst() == self.config.agent.address;
        match (from, ip.protocol()) {
            (_, protocol::UDP) if self.is_registration(ip) => self.registration(now, from, ip),
            (Side::Link(link), protocol::ICMP) if is_solicitation(ip) => {
                self.advertiser.solicited(now, link, ip, &mut self.outbox)
            }
            (_, protocol::ICMP) if own => match icmp::parse_error(ip) {
                Some(error) => self.trouble(now, &error),
                None => self.outbox.pong(from, self.config.agent.address, ip.as_bytes()),
            },
            // "Home agents MUST decapsulate packets addressed to themselves" (RFC 5944 section 4.2.3)
            (Side::Routed, protocol::IPV4) if own => self.reversed(now, ip),
            (Side::Routed, _) => self.intercept(now, ip, false),
            (Side::Link(link), _) => self.leave(now, link, ip),
        }
    }

    /// The link layer says that a host has entered the link.
    pub fn handle_arrival(&mut self, now: Instant) {
        self.advertiser.hurry(now);
        self.handle_timeout(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advertiser.handle_timeout(now, &mut *self.random, &mut self.outbox);
        for (home, node) in &mut self.nodes {
            let had = !node.bindings.is_empty();
            // "it MUST retain any other (non-expired) simultaneous mobility bindings that it holds for the mobile node." (RFC 5944 section
            // 4.2.3)
            node.bindings.retain(|b| b.until.is_none_or(|until| now < until));
            if had && node.bindings.is_empty() {
                self.events.push_back(HomeEvent::Unbound { home: *home });
            }
        }
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let ends = self.nodes.values().flat_map(|n| &n.bindings).filter_map(|b| b.until).min();
        let ends = ends.map(|at| Deadline::strict(at, "a binding ends"));
        Deadline::earlier(Some(self.advertiser.poll_timeout()), ends)
    }

    /// Appends the next packet to send, and says where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Side> {
        self.outbox.pop(out)
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<HomeEvent> {
        self.events.pop_front()
    }

    /// What it has done.
    #[must_use]
    pub const fn stats(&self) -> &HomeStats {
        &self.stats
    }

    /// Its mobile hosts.
    pub fn members(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.nodes.keys().copied()
    }

    /// The care-of addresses of a mobile host.
    pub fn bindings(&self, home: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> {
        self.nodes.get(&home).into_iter().flat_map(|n| &n.bindings).map(|b| b.tunnel.to())
    }

    /// Whether it is a registration message to us, to any of the addresses that such messages are sent to.
    fn is_registration(&self, ip: &Ipv4<'_>) -> bool {
        // "All mobility agents MUST process packets that they receive addressed to the Mobile-Agents multicast group, at address 224.0.0.11."
        // (RFC 5944 section 2.3)
        let ours =
            [self.config.agent.address, ALL_AGENTS, self.config.network.broadcast(), Ipv4Addr::BROADCAST];
        ours.contains(&ip.dst())
            && ip.payload().get(2..4) == Some(&PORT.to_be_bytes())
            && ip.fragment().is_none()
    }

    fn registration(&mut self, now: Instant, from: Side, ip: &Ipv4<'_>) -> Result<(), Discard> {
        // "Registration Requests with an invalid, non-zero UDP checksum MUST be silently discarded by the home agent." (RFC 5944 section
        // 3.8.2.1)
        let udp = Udp::parse(&Ip::V4(*ip))?;
        let packet = Packet::parse(udp.payload)?;
        let Message::Request(asked) = packet.message else { return Err(Discard::NotForUs) };
        let refused = self.checks(ip.src(), &packet, &asked)?;
        // "home agents MUST deny Registration Requests that are sent to the subnet-directed broadcast address of the home network (as opposed to
        // being unicast to the home agent)." (RFC 5944 section 3.8.2.1). "some routers change the IP Destination Address of a datagram from a
        // subnet-directed broadcast address to 255.255.255.255" (RFC 5944 section 3.8.2.1).
        let everybody = ip.dst() != self.config.agent.address
            && [self.config.network.broadcast(), Ipv4Addr::BROADCAST].contains(&ip.dst());
        let refused = refused.or(everybody.then_some(Code::HomeUnknown));
        let (code, lifetime, id) = match refused {
            Some(code) => {
                let node = self.nodes.get(&asked.home).ok_or(Discard::NotRegistered)?;
                (code, 0, node.fresh.mark(asked.id))
            }
            None => self.admit(now, from, &asked),
        };
        let signs = self.config.foreign.get(&ip.src()).filter(|_| asked.lifetime > 0);
        let reply = Reply { code, lifetime, home: asked.home, agent: self.config.agent.address, id };
        let message = self.signed(reply, signs);
        // "If the IP Destination Address of the Registration Request was a broadcast or multicast address, the IP Source Address of the
        // Registration Reply MUST be set to the home agent's (unicast) IP address." (RFC 5944 section 3.8.3.1). On the home link "the home
        // agent MUST transmit the Reply directly onto the home network as if the mobile node were at home" (RFC 5944 section 3.8.3.1).
        let own = SocketAddr::new(self.config.agent.address.into(), PORT);
        let to = SocketAddr::new(ip.src().into(), udp.src_port);
        self.outbox.message(from, TTL, own, to, &message);
        self.settle(asked.home, code)
    }

    /// Whether a request is authentic; the code if it is not, and its sender is to be told.
    fn checks(&self, from: Ipv4Addr, packet: &Packet<'_>, asked: &Request) -> Result<Option<Code>, Discard> {
        // "If the home agent receives a Registration Request from a mobile node with which it does not have any security association, the
        // home agent MUST silently discard the Registration Request." (RFC 5944 section 3.8.2.1)
        let node = self.nodes.get(&asked.home).ok_or(Discard::NotRegistered)?;
        // "The Source IP Address will be the same as the Care-of Address field of the Registration Request" (RFC 5944 section 3.5.4)
        let foreign = self.config.foreign.get(&from);
        if foreign.is_none() && packet.has(kind::FOREIGN_HOME) {
            // "If the home agent and the foreign agent do not share a Mobility Security Association, and the Registration contains a
            // Foreign-Home Authentication Extension, the home agent MUST discard the Request" (RFC 5944 section 3.8.2.1)
            return Err(Discard::Unauthentic("a foreign agent without association"));
        }
        let vouched = foreign.map(|association| association.verify(kind::FOREIGN_HOME, packet));
        // "If the home agent receives a Registration Request without any authorization-enabling extension, the home agent MUST silently
        // discard the Registration Request." (RFC 5944 section 3.8.2.1)
        match (node.association.verify(kind::MOBILE_HOME, packet), vouched) {
            // "If there is a valid Foreign-Home authentication extension, the home agent MUST send a Registration Reply with Code 131."
            // (RFC 5944 section 3.8.2.1)
            (Err(_), Some(Ok(()))) if packet.has(kind::MOBILE_HOME) => {
                Ok(Some(Code::HomeMobileAuthentication))
            }
            (Err(forged), _) => Err(forged),
            // Of a request that ends a registration: "it MUST NOT for this reason discard the request as part of security association
            // processing." (RFC 5944 section 3.5.4). Of any other "the home agent MUST reject the mobile node's registration and SHOULD send
            // a Registration Reply to the mobile node with Code 132." (RFC 5944 section 3.8.2.1)
            (Ok(()), Some(Err(_))) if asked.lifetime > 0 => Ok(Some(Code::HomeForeignAuthentication)),
            (Ok(()), _) => Ok(None),
        }
    }

    /// Counts an answer; an error unless the request was accepted.
    fn settle(&mut self, home: Ipv4Addr, code: Code) -> Result<(), Discard> {
        if code.is_accepted() {
            self.stats.accepted += 1;
            return Ok(());
        }
        self.stats.refused += 1;
        self.events.push_back(HomeEvent::Refused { home, code });
        match code {
            Code::HomeMobileAuthentication => Err(Discard::Unauthentic("a mobile host that was vouched for")),
            Code::HomeForeignAuthentication => Err(Discard::Unauthentic("the foreign agent")),
            code => Err(Discard::Refused(code)),
        }
    }

    /// A reply with its authentication.
    /// "Note that items (a) and (c) MUST appear in every Registration Reply sent by the home agent." (RFC 5944 section 3.8.3.3)
    fn signed(&self, reply: Reply, foreign: Option<&Association>) -> Vec<u8> {
        let mut message = Vec::new();
        Message::Reply(reply).emit(&mut message);
        if let Some(node) = self.nodes.get(&reply.home) {
            node.association.sign(kind::MOBILE_HOME, &mut message);
        }
        // "if the home agent shares a Mobility Security Association with the foreign agent, the home agent MUST include a Foreign-Home
        // Authentication Extension in the message" (RFC 5944 section 3.8.1), but "The Foreign-Home Authentication extension MUST NOT be
        // applied to deregistration messages." (RFC 5944 section 3.5.4)
        if let Some(association) = foreign {
            association.sign(kind::FOREIGN_HOME, &mut message);
        }
        message
    }

    /// An authentic request: code, lifetime and identification of its reply. Bindings change here alone.
    fn admit(&mut self, now: Instant, from: Side, asked: &Request) -> (Code, u16, u64) {
        let time = self.clock.ntp(now);
        let Some(node) = self.nodes.get_mut(&asked.home) else { return (Code::HomeUnspecified, 0, asked.id) };
        // "If the Registration Request duplicates an accepted current Registration Request, the new Lifetime MUST NOT extend beyond the
        // Lifetime originally granted." (RFC 5944 section 3.8.2.2)
        if let Some(same) = node.bindings.iter().find(|b| (b.id, b.tunnel.to()) == (asked.id, asked.care_of))
        {
            return (Code::Accepted, same.remaining(now), node.fresh.mark(asked.id));
        }
        let id = match node.fresh.take(time, asked.id, &mut *self.random) {
            Ok(id) => id,
            // "If incorrect, the home agent MUST reject the Request and SHOULD send a Registration Reply to the mobile node with Code
            // 133" (RFC 5944 section 3.8.2.1)
            Err(id) => return (Code::HomeIdentification, 0, id),
        };
        let lifetime = match self.config.grants(asked, &node.bindings) {
            Ok(lifetime) => lifetime,
            Err(code) => return (code, 0, id),
        };
        let had = !node.bindings.is_empty();
        node.change(now, &self.config, asked, lifetime);
        if lifetime > 0 {
            let (home, care_of) = (asked.home, asked.care_of);
            self.events.push_back(HomeEvent::Bound { home, care_of, lifetime });
        } else if had && node.bindings.is_empty() {
            self.events.push_back(HomeEvent::Unbound { home: asked.home });
        }
        node.at_home = match from {
            Side::Link(link) if node.bindings.is_empty() => Some(link),
            _ => None,
        };
        (Code::Accepted, lifetime, id)
    }

    /// A packet for a host in the home network. `forwards`: it came from there, so that nothing has shortened its time to live.
    fn intercept(&mut self, now: Instant, ip: &Ipv4<'_>, forwards: bool) -> Result<(), Discard> {
        let node = self.nodes.get_mut(&ip.dst()).ok_or(Discard::NotRegistered)?;
        if node.bindings.is_empty() {
            // "In this case, the home agent MUST assume the mobile node is at home and simply forward the datagram directly onto the home
            // network." (RFC 5944 section 4.2.3)
            let link = node.at_home.ok_or(Discard::NotRegistered)?;
            self.outbox.push(Side::Link(link), ip.as_bytes().to_vec());
            return Ok(());
        }
        let inside = (ip.protocol() == protocol::IPV4).then(|| Ipv4::parse(ip.payload()).ok()).flatten();
        let goes_round = inside.is_some_and(|inner| inner.dst() == ip.dst());
        let (outbox, stats) = (&mut self.outbox, &mut self.stats);
        let mut outcome = Err(Discard::NotTunnelled(tunnel::Refusal::Loop));
        for binding in &mut node.bindings {
            // "If this outer Source Address is the same as the mobile node's current care-of address, the home agent MUST silently
            // discard that datagram in order to prevent a likely routing loop." (RFC 5944 section 4.2.3)
            if goes_round && ip.src() == binding.tunnel.to() {
                continue;
            }
            let sent = binding.tunnel.encapsulate(now, ip, forwards, |packet| {
                stats.tunnelled += 1;
                outbox.push(Side::Routed, packet);
            });
            outcome = sent.map_err(Discard::NotTunnelled);
        }
        if let Err(Discard::NotTunnelled(refusal)) = outcome
            && let Some(answer) = tunnel::answer(self.config.agent.address, ip.as_bytes(), refusal)
        {
            self.outbox.push(Side::Routed, answer);
        }
        outcome
    }

    /// A packet from the home link.
    fn leave(&mut self, now: Instant, link: LinkAddress, ip: &Ipv4<'_>) -> Result<(), Discard> {
        let node = self.nodes.get(&ip.src()).ok_or(Discard::NotRegistered)?;
        if node.at_home != Some(link) || !node.bindings.is_empty() {
            return Err(Discard::NotRegistered);
        }
        if self.nodes.contains_key(&ip.dst()) {
            return self.intercept(now, ip, true);
        }
        self.outbox.push(Side::Routed, ip.as_bytes().to_vec());
        Ok(())
    }

    /// A packet out of a tunnel back.
    fn reversed(&mut self, now: Instant, ip: &Ipv4<'_>) -> Result<(), Discard> {
        let packet = decapsulate(ip)?;
        let inner = Ipv4::parse(&packet)?;
        // "If no such binding is found, or if the packet uses an encapsulation mechanism that was not negotiated at registration the home
        // agent MUST silently discard the packet" (RFC 3024 section 4.3.2)
        let node = self.nodes.get(&inner.src()).ok_or(Discard::NotRegistered)?;
        if !node.bindings.iter().any(|b| b.reverse && b.tunnel.to() == ip.src()) {
            return Err(Discard::NotRegistered);
        }
        self.stats.returned += 1;
        if inner.dst() == self.config.agent.address {
            // A tunnel in a tunnel to ourselves would be unpacked without end.
            let nested = inner.protocol() == protocol::IPV4;
            return if nested { Err(Discard::NotForUs) } else { self.take(now, Side::Routed, &inner) };
        }
        if self.nodes.contains_key(&inner.dst()) {
            return self.intercept(now, &inner, true);
        }
        self.outbox.push(Side::Routed, packet);
        Ok(())
    }

    /// An ICMP error, perhaps from inside of a tunnel of ours.
    fn trouble(&mut self, now: Instant, error: &icmp::ErrorV4<'_>) -> Result<(), Discard> {
        let tunnels = self.nodes.values_mut().flat_map(|n| &mut n.bindings).map(|b| &mut b.tunnel);
        let relay = tunnel::note_all(tunnels, now, error).ok_or(Discard::Unexpected)?;
        let told = tunnel::relayed(self.config.agent.address, error, relay).ok_or(Discard::Unexpected)?;
        self.outbox.push(Side::Routed, told);
        Ok(())
    }
}

impl HomeConfig {
    /// For how many seconds a new and authentic request is granted what it asks for.
    fn grants(&self, asked: &Request, bindings: &[Binding]) -> Result<u16, Code> {
        let has = |bits: u8| asked.flags & bits != 0;
        // "Requests with non-zero bits in reserved fields MUST be rejected with Code 134 (poorly formed Request)." (RFC 5944 section
        // 3.8.2.3)
        if has(request::RESERVED) {
            return Err(Code::HomeRequest);
        }
        // "In this latter case, the home agent MUST reject the registration with a suitable code (e.g., Code 136)" (RFC 5944 section
        // 3.8.3.2): it names the address that the host should use.
        if asked.agent != self.agent.address {
            return Err(Code::HomeUnknown);
        }
        if asked.lifetime == 0 {
            return Ok(0);
        }
        // "if the home agent is unable to support the requested form of encapsulation it MUST return code 139" (RFC 3024 section 4.3.1)
        if has(request::MINIMAL | request::GRE) {
            return Err(Code::HomeEncapsulation);
        }
        match (self.agent.reverse, has(request::REVERSE)) {
            // "it MUST send back a registration denial with code 137" (RFC 3024 section 4.3.1)
            (Reverse::Refused, true) => return Err(Code::HomeReverse),
            (Reverse::Mandatory, false) => return Err(Code::HomeReverseMandatory),
            _ => {}
        }
        let there = asked.care_of;
        let nowhere =
            there.is_unspecified() || there.is_broadcast() || there.is_multicast() || there.is_loopback();
        if nowhere || self.network.contains(&there) {
            return Err(Code::HomeProhibited);
        }
        let others = bindings.iter().filter(|b| b.tunnel.to() != there).count();
        if has(request::SIMULTANEOUS) && others >= MAX_BINDINGS {
            return Err(Code::HomeTooMany);
        }
        // "The home agent MUST NOT increase the Lifetime above that specified by the mobile node in the Registration Request." (RFC 5944
        // section 3.8.2.2)
        Ok(asked.lifetime.min(self.agent.advertise.lifetime))
    }
}

impl Node {
    /// "the home agent MUST update its mobility binding list for the requesting mobile node" (RFC 5944 section 3.8.2.2)
    fn change(&mut self, now: Instant, config: &HomeConfig, asked: &Request, lifetime: u16) {
        let (all, there) = (asked.care_of == asked.home, asked.care_of);
        if lifetime == 0 {
            self.bindings.retain(|b| !all && b.tunnel.to() != there);
            return;
        }
        let keeps = asked.flags & request::SIMULTANEOUS != 0;
        // What is known of the way outlasts a renewal.
        let before = self.bindings.iter().position(|b| b.tunnel.to() == there);
        let before = before.map(|n| self.bindings.remove(n).tunnel);
        self.bindings.retain(|_| keeps);
        self.bindings.push(Binding {
            until: ends(now, lifetime),
            id: asked.id,
            reverse: asked.flags & request::REVERSE != 0,
            tunnel: before.unwrap_or_else(|| Tunnel::new(config.agent.address, there, config.agent.width)),
        });
    }
}

impl Binding {
    /// Seconds that are left.
    fn remaining(&self, now: Instant) -> u16 {
        let left = self.until.map_or(INFINITY.into(), |until| until.saturating_since(now).as_secs());
        u16::try_from(left).unwrap_or(INFINITY)
    }
}

impl Fresh {
    /// Whether an authentic request is new; either way, the identification of the reply.
    fn take(&mut self, time: u64, id: u64, random: &mut dyn Entropy) -> Result<u64, u64> {
        match self {
            // "the timestamp contained in the Identification field MUST be close enough to the home agent's time-of-day clock, and the
            // timestamp MUST be greater than all previously accepted timestamps for the requesting mobile node." (RFC 5944 section 5.7.1)
            Self::Timestamp { tolerance, last } => {
                if apart(time, id) <= *tolerance && last.is_none_or(|last| is_after(id, last)) {
                    *last = Some(id);
                    return Ok(id);
                }
                // "the home agent copies only the low-order 32 bits into the Registration Reply, and supplies the high-order 32 bits from
                // its own time of day." (RFC 5944 section 5.7.1)
                Err(joined((time >> 32) as u32, id))
            }
            Self::Nonce(expected) => {
                let given = *expected;
                if (id >> 32) as u32 != given {
                    // A replayed request must not use up the number that the host is about to use.
                    return Err(joined(given, id));
                }
                *expected = nonce(random);
                Ok(joined(*expected, id))
            }
        }
    }

    /// The identification of a reply that takes nothing.
    fn mark(&self, id: u64) -> u64 {
        match self {
            Self::Timestamp { .. } => id,
            Self::Nonce(expected) => joined(*expected, id),
        }
    }
}

/// "the low-order 32 bits of the Identification field MUST be copied unchanged from the Registration Request to the Reply." (RFC 5944
/// section 5.7)
fn joined(high: u32, id: u64) -> u64 {
    u64::from(high) << 32 | id & 0xffff_ffff
}

fn nonce(random: &mut dyn Entropy) -> u32 {
    (random.next_u64() >> 32) as u32
}

/// When a lifetime that begins now ends.
pub(crate) fn ends(now: Instant, lifetime: u16) -> Option<Instant> {
    (lifetime != INFINITY).then(|| now + Duration::from_secs(lifetime.into()))
}
