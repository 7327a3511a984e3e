//! The foreign agent: it relays registrations of mobile hosts on its link, is the end of their tunnels, and sends packets after those that
//! have moved on, if they say where to. Owns the visitor list; must never make up a registration message for another host.

mod types;

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use dormouse_sansio::{Deadline, Entropy, Instant};
use dormouse_wire::ip::udp::Udp;
use dormouse_wire::ip::{Ipv4, Packet as Ip, icmp, protocol, set_hop_limit};
use dormouse_wire::mobileip::{
    ALL_AGENTS, Code, Message, Moved, PORT, Packet, Reply, Request, agent, is_solicitation, kind, request,
};

use crate::advertise::Advertiser;
use crate::home::ends;
use crate::limits::{MAX_PENDING, MAX_PENDING_OF_ONE, MAX_VISITORS, PENDING, SENT_AFTER, TTL};
use crate::outbox::{Outbox, Pace};
use crate::tunnel::{self, Tunnel, decapsulate};
use crate::{Discard, LinkAddress, Reverse, Side};
pub use types::{ForeignConfig, ForeignEvent, ForeignStats, RouterNews};

/// Time to live of requests: who sends them is on the link.
const ON_LINK: u8 = 255;

/// A request that the home agent has not answered yet.
#[derive(Debug)]
struct Pending {
    link: LinkAddress,
    port: u16,
    request: Request,
    since: Instant,
    /// The foreign agent before, if the host is known to be authentic: what that one sends after it may be handed out already.
    previous: Option<Ipv4Addr>,
}

#[derive(Debug)]
struct Visitor {
    until: Option<Instant>,
    /// Of the request that was accepted last: a notice names it, so that none can be replayed.
    id: u64,
    home_agent: Ipv4Addr,
    /// The agent before may still send packets after it.
    previous: Option<Ipv4Addr>,
    state: Stay,
}

#[derive(Debug)]
enum Stay {
    Here {
        link: LinkAddress,
        /// The tunnel back, if it has one.
        back: Option<Tunnel>,
    },
    MovedOn(Tunnel),
}

impl Visitor {
    /// Where it is, if it is here.
    const fn link(&self) -> Option<LinkAddress> {
        match self.state {
            Stay::Here { link, .. } => Some(link),
            Stay::MovedOn(_) => None,
        }
    }
}

/// See the module.
pub struct ForeignAgent {
    config: ForeignConfig,
    random: Box<dyn Entropy>,
    /// By home address and the lower half of the identification, which the reply repeats.
    pending: BTreeMap<(Ipv4Addr, u32), Pending>,
    visitors: BTreeMap<Ipv4Addr, Visitor>,
    advertiser: Advertiser,
    denials: Pace,
    outbox: Outbox,
    events: VecDeque<ForeignEvent>,
    stats: ForeignStats,
}

impl ForeignAgent {
    /// An agent without visitors.
    #[must_use]
    pub fn new(now: Instant, config: ForeignConfig, random: Box<dyn Entropy>) -> Self {
        let back = if config.agent.reverse == Reverse::Refused { 0 } else { agent::REVERSE };
        // "An Agent Advertisement MUST include at least one care-of address if the 'F' bit is set." (RFC 5944 section 2.1.1)
        let care_of = vec![config.agent.address];
        let advertiser = Advertiser::new(
            now,
            config.agent.advertise,
            config.agent.address,
            agent::FOREIGN | back,
            care_of,
        );
        let (pending, visitors, denials) = Default::default();
        let (outbox, events, stats) = Default::default();
        Self { config, random, pending, visitors, advertiser, denials, outbox, events, stats }
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
        // "All mobility agents MUST process packets that they receive addressed to the Mobile-Agents multicast group, at address 224.0.0.11."
        // (RFC 5944 section 2.3)
        let own = [self.config.agent.address, ALL_AGENTS].contains(&ip.dst());
        let message = ip.payload().get(2..4) == Some(&PORT.to_be_bytes()) && ip.fragment().is_none();
        let result = match (from, ip.protocol()) {
            (Side::Link(link), protocol::ICMP) if is_solicitation(&ip) => {
                self.say_if_full();
                self.advertiser.solicited(now, link, &ip, &mut self.outbox)
            }
            (_, protocol::UDP) if own && message => self.message(now, from, &ip),
            (Side::Routed, protocol::ICMP) if own => match icmp::parse_error(&ip) {
                Some(error) => self.trouble(now, &error),
                None => self.outbox.pong(from, self.config.agent.address, packet),
            },
            (Side::Link(_), protocol::ICMP) if own => {
                self.outbox.pong(from, self.config.agent.address, packet)
            }
            (Side::Routed, protocol::IPV4) if own => self.arrived(now, &ip),
            (Side::Routed, _) => Err(Discard::NotForUs),
            (Side::Link(link), _) => self.leave(now, link, &ip),
        };
        self.stats.forged += u64::from(matches!(result, Err(Discard::Unauthentic(_))));
        result
    }

    /// The link layer says that a host has entered the link.
    pub fn handle_arrival(&mut self, now: Instant) {
        self.advertiser.hurry(now);
        self.handle_timeout(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.say_if_full();
        self.advertiser.handle_timeout(now, &mut *self.random, &mut self.outbox);
        let over: Vec<_> =
            self.pending.iter().filter(|(_, p)| now >= p.since + PENDING).map(|(k, _)| *k).collect();
        for key in over {
            // "in this case, the foreign agent SHOULD reject the Request with Code 78 (registration timeout)." (RFC 5944 section 3.7.1)
            if let Some(pending) = self.pending.remove(&key) {
                self.deny(now, pending.link, pending.port, &pending.request, Code::ForeignTimeout);
            }
        }
        let events = &mut self.events;
        self.visitors.retain(|home, visitor| {
            // "a foreign agent MUST NOT generate a Registration Request or Reply because a mobile node's registration Lifetime has
            // expired." (RFC 5944 section 3.7)
            let stays = visitor.until.is_none_or(|until| now < until);
            if !stays {
                events.push_back(ForeignEvent::Gone { home: *home });
            }
            stays
        });
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let waits = self.pending.values().map(|p| p.since + PENDING).min();
        let waits = waits.map(|at| Deadline::strict(at, "a home agent does not answer"));
        let ends = self.visitors.values().filter_map(|v| v.until).min();
        let ends = ends.map(|at| Deadline::strict(at, "a visit ends"));
        Deadline::earlier(Deadline::earlier(Some(self.advertiser.poll_timeout()), waits), ends)
    }

    /// Appends the next packet to send, and says where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Side> {
        self.outbox.pop(out)
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<ForeignEvent> {
        self.events.pop_front()
    }

    /// What it has done.
    #[must_use]
    pub const fn stats(&self) -> &ForeignStats {
        &self.stats
    }

    /// The mobile hosts that are registered here.
    pub fn visitors(&self) -> impl Iterator<Item = Ipv4Addr> {
        let here = |v: &Visitor| matches!(v.state, Stay::Here { .. });
        self.visitors.iter().filter(move |(_, v)| here(v)).map(|(home, _)| *home)
    }

    /// Requests and visitors that are remembered.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        (self.pending.len(), self.visitors.len())
    }

    fn message(&mut self, now: Instant, from: Side, ip: &Ipv4<'_>) -> Result<(), Discard> {
        // "Registration Requests with an invalid, non-zero UDP checksum MUST be silently discarded." (RFC 5944 section 3.7.2.1)
        let udp = Udp::parse(&Ip::V4(*ip))?;
        let packet = Packet::parse(udp.payload)?;
        match (from, packet.message) {
            (Side::Link(link), Message::Request(asked)) => {
                self.asked(now, link, ip.ttl(), udp.src_port, &packet, asked)
            }
            (Side::Routed, Message::Reply(reply)) => self.answered(now, ip.src(), &packet, reply),
            (Side::Routed, Message::Moved(moved)) => self.moved(now, &packet, moved),
            _ => Err(Discard::NotForUs),
        }
    }

    fn asked(
        &mut self,
        now: Instant,
        link: LinkAddress,
        ttl: u8,
        port: u16,
        packet: &Packet<'_>,
        asked: Request,
    ) -> Result<(), Discard> {
        if self.is_repeated(link, &asked) {
            return Err(Discard::Unauthentic("a request from another link address than before"));
        }
        let displaces = self.displaces(link, &asked).then_some(Code::ForeignProhibited);
        if let Some(code) = self.refuses(ttl, packet, &asked).or(displaces) {
            self.deny(now, link, port, &asked, code);
            return Err(match code {
                Code::ForeignMobileAuthentication => Discard::Unauthentic("the mobile host"),
                code => Discard::Refused(code),
            });
        }
        // What it says about the agent before is believed if the host is authentic to us, and has signed it for us: what stands behind its
        // authentication anybody may have appended.
        let known = self.config.mobiles.contains_key(&asked.home) && asked.lifetime > 0;
        let signed = packet.only(kind::MOBILE_FOREIGN).filter(|_| known).map_or(0, |e| e.at);
        let notice = packet.extensions.iter().filter(|e| e.at < signed).find_map(|e| e.moved());
        let previous = notice.and_then(|notice| self.notify(&asked, &notice));
        let request = asked;
        let pending = Pending { link, port, request, since: now, previous };
        // "The foreign agent MUST record the new pending Request as a separate part of the existing visitor list entry for the mobile
        // node." (RFC 5944 section 3.7.2)
        self.pending.insert((asked.home, asked.id as u32), pending);
        self.stats.relayed += 1;
        // "The foreign agent MUST NOT modify any of the fields beginning with the fixed portion of the Registration Request up through and
        // including the Mobile-Home Authentication Extension" (RFC 5944 section 3.7.2.2)
        let mut message = packet.authorized().to_vec();
        // "If the foreign agent shares a Mobility Security Association with the home agent, and the Request has Lifetime != 0, then it MUST
        // append the Foreign-Home Authentication Extension." (RFC 5944 section 3.7.2.2). "If the Care-of Address in the Registration
        // Request is not in the Agent Advertisement, then the foreign agent MUST NOT append the Foreign-Home Authentication Extension"
        // (RFC 5944 section 3.5.4).
        let vouches = asked.lifetime > 0 && asked.care_of == self.config.agent.address;
        if let Some(association) = self.config.home_agents.get(&asked.agent).filter(|_| vouches) {
            association.sign(kind::FOREIGN_HOME, &mut message);
        }
        let own = SocketAddr::new(self.config.agent.address.into(), PORT);
        let to = SocketAddr::new(asked.agent.into(), PORT);
        self.outbox.message(Side::Routed, TTL, own, to, &message);
        let (home, home_agent) = (asked.home, asked.agent);
        self.events.push_back(ForeignEvent::Asked { home, home_agent, previous });
        Ok(())
    }

    /// Whether a request came before, from elsewhere on the link: then it was captured, and its sender would get the packets of the mobile node.
    fn is_repeated(&self, link: LinkAddress, asked: &Request) -> bool {
        let pending = self.pending.get(&(asked.home, asked.id as u32)).is_some_and(|p| p.link != link);
        let same = self.visitors.get(&asked.home).filter(|v| v.id == asked.id);
        pending || same.is_some_and(|v| v.link() != Some(link))
    }

    /// Whether a request without an authentic Mobile-Foreign extension would take the place of a host that is here.
    fn displaces(&self, link: LinkAddress, asked: &Request) -> bool {
        let here = self.visitors.get(&asked.home).filter(|_| !self.config.mobiles.contains_key(&asked.home));
        here.is_some_and(|v| v.home_agent != asked.agent || v.link().is_some_and(|l| l != link))
    }

    /// Why a request is not relayed.
    fn refuses(&self, ttl: u8, packet: &Packet<'_>, asked: &Request) -> Option<Code> {
        let has = |bits: u8| asked.flags & bits != 0;
        // "If no Mobile-Foreign Authentication Extension is found, or if more than one Mobile-Foreign Authentication Extension is found, or
        // if the Authenticator is invalid, the foreign agent MUST silently discard the Request" (RFC 5944 section 3.7.2.1): it is not
        // relayed, and the reply is what the same section asks for.
        let association = self.config.mobiles.get(&asked.home);
        if association.is_some_and(|a| a.verify(kind::MOBILE_FOREIGN, packet).is_err()) {
            return Some(Code::ForeignMobileAuthentication);
        }
        // "Requests with non-zero bits in reserved fields MUST be rejected with Code 70 (poorly formed Request)." (RFC 5944 section 3.7.2.1)
        let home_is_host =
            !(asked.home.is_unspecified() || asked.home.is_broadcast() || asked.home.is_multicast());
        if has(request::RESERVED) || !packet.has(kind::MOBILE_HOME) || !home_is_host {
            return Some(Code::ForeignRequest);
        }
        // "if the foreign agent does not serve the mobile node as a home agent, the foreign agent rejects the Registration Request with
        // Code 194 (Invalid Home Agent Address)." (RFC 5944 section 3.7.2)
        if asked.agent == self.config.agent.address
            || asked.agent.is_multicast()
            || asked.agent.is_unspecified()
        {
            return Some(Code::ForeignInvalidHome);
        }
        if asked.lifetime == 0 {
            return self.is_full(asked.home).then_some(Code::ForeignResources);
        }
        // "specifying a care-of address not offered by the foreign agent, MUST be rejected with Code 77 (invalid care-of address)." (RFC
        // 5944 section 3.7.2.1)
        if !has(request::DECAPSULATES) && asked.care_of != self.config.agent.address {
            return Some(Code::ForeignCareOf);
        }
        // "the foreign agent sets the Lifetime in the Reply to the maximum Lifetime value it is willing to accept in any Registration
        // Request, and sets the Code field to 69." (RFC 5944 section 3.7.2.3)
        if asked.lifetime > self.config.agent.advertise.lifetime {
            return Some(Code::ForeignLifetime);
        }
        // "if the foreign agent is unable to support the requested form of encapsulation it MUST return code 72." (RFC 3024 section 4.2.1)
        if has(request::MINIMAL | request::GRE) {
            return Some(Code::ForeignEncapsulation);
        }
        match (self.config.agent.reverse, has(request::REVERSE)) {
            // "If it cannot, it MUST return a Registration Reply denying the request with code 74" (RFC 3024 section 4.2.1)
            (Reverse::Refused, true) => return Some(Code::ForeignReverse),
            (Reverse::Mandatory, false) => return Some(Code::ForeignReverseMandatory),
            // "The foreign agent MUST verify that the TTL field of the IP header is set to 255. Otherwise, it MUST reject the registration
            // with code 76 (mobile node too distant)." (RFC 3024 section 4.2.1)
            (_, true) if ttl != ON_LINK => return Some(Code::ForeignTooDistant),
            _ => {}
        }
        // "If a foreign agent does not implement the Encapsulating Delivery Style, it MUST respond to the mobile node with code 79" (RFC
        // 3024 section 3.4)
        if packet.has(kind::ENCAPSULATING) {
            return Some(Code::ForeignDelivery);
        }
        // "Additional registrations SHOULD then be rejected by the foreign agent with Code 66." (RFC 5944 section 3.7.1)
        self.is_full(asked.home).then_some(Code::ForeignResources)
    }

    /// "The foreign agent will not accept registrations from additional mobile nodes." (RFC 5944 section 2.1.1)
    fn say_if_full(&mut self) {
        self.advertiser.set(agent::BUSY, self.visitors.len() >= MAX_VISITORS);
    }

    fn is_full(&self, home: Ipv4Addr) -> bool {
        let visitors = self.visitors.len() >= MAX_VISITORS && !self.visitors.contains_key(&home);
        let of_one = self.pending.range((home, 0)..=(home, u32::MAX)).count();
        visitors || of_one >= MAX_PENDING_OF_ONE || self.pending.len() >= MAX_PENDING
    }

    /// "it MUST send a Registration Reply to the mobile node with an appropriate denial code" (RFC 5944 section 3.7.2)
    fn deny(&mut self, now: Instant, link: LinkAddress, port: u16, asked: &Request, code: Code) {
        self.stats.refused += 1;
        // "The foreign agent MUST limit the rate at which it sends these registration replies to a maximum of one per second." (RFC 3024
        // section 4.2.1)
        if !self.denials.admits(now, asked.home) {
            return;
        }
        self.events.push_back(ForeignEvent::Refused { home: asked.home, code });
        let max = self.config.agent.advertise.lifetime;
        let lifetime = if code == Code::ForeignLifetime { max } else { asked.lifetime };
        let (home, agent, id) = (asked.home, asked.agent, asked.id);
        let mut message = Vec::new();
        Message::Reply(Reply { code, lifetime, home, agent, id }).emit(&mut message);
        self.hand_over(link, port, home, message);
    }

    /// A registration reply for a mobile host.
    /// "It MUST append the Mobile-Foreign Authentication Extension, if the foreign agent shares a Mobility Security Association with the mobile
    /// node." (RFC 5944 section 3.7.3.2)
    fn hand_over(&mut self, link: LinkAddress, port: u16, home: Ipv4Addr, mut message: Vec<u8>) {
        if let Some(association) = self.config.mobiles.get(&home) {
            association.sign(kind::MOBILE_FOREIGN, &mut message);
        }
        let own = SocketAddr::new(self.config.agent.address.into(), PORT);
        let to = SocketAddr::new(home.into(), port);
        self.outbox.message(Side::Link(link), TTL, own, to, &message);
    }

    /// Sends on what a mobile host has for the agent that served it before; who that is. It was checked already that the request is
    /// authentic.
    fn notify(&mut self, asked: &Request, notice: &[u8]) -> Option<Ipv4Addr> {
        let Ok(Message::Moved(moved)) = Packet::parse(notice).map(|p| p.message) else { return None };
        let own = self.config.agent.address;
        let fits = moved.home == asked.home && moved.care_of == own && moved.previous != own;
        if !fits
            || moved.previous.is_multicast()
            || moved.previous.is_broadcast()
            || moved.previous.is_unspecified()
        {
            return None;
        }
        let (from, to) = (SocketAddr::new(own.into(), PORT), SocketAddr::new(moved.previous.into(), PORT));
        self.outbox.message(Side::Routed, TTL, from, to, notice);
        Some(moved.previous)
    }

    fn answered(
        &mut self,
        now: Instant,
        from: Ipv4Addr,
        packet: &Packet<'_>,
        reply: Reply,
    ) -> Result<(), Discard> {
        // "The foreign agent MUST also silently discard the Reply if the low-order 32 bits of the Identification field in the Reply do not
        // match those in the Request." (RFC 5944 section 3.7.3.1)
        let key = (reply.home, reply.id as u32);
        let pending = self.pending.get(&key).ok_or(Discard::Unexpected)?;
        let asked = pending.request;
        // It comes from whom it was asked of; but where the host looked for any home agent, one names itself and denies.
        if (from, reply.agent) != (asked.agent, asked.agent) && reply.code != Code::HomeUnknown {
            return Err(Discard::Unexpected);
        }
        // "If the foreign agent and the home agent share a Mobility Security Association, exactly one Foreign-Home Authentication Extension
        // MUST be present in the Registration Reply" (RFC 5944 section 3.7.3.1)
        let association = self.config.home_agents.get(&asked.agent).filter(|_| asked.lifetime > 0);
        if let Some(Err(forged)) = association.map(|a| a.verify(kind::FOREIGN_HOME, packet)) {
            return Err(forged);
        }
        let signed = association.is_some();
        let Some(pending) = self.pending.remove(&key) else { return Err(Discard::Unexpected) };
        let (link, port) = (pending.link, pending.port);
        if reply.code.is_accepted() {
            // What the host asked before is settled with it: a late answer to that moves no visitor.
            self.pending.retain(|(home, _), p| *home != reply.home || p.since > pending.since);
            self.admit(now, &pending, reply, signed);
        }
        // "It MUST process and remove any Extensions that are not covered by any authorization-enabling extension" (RFC 5944 section
        // 3.7.3.2)
        self.hand_over(link, port, reply.home, packet.authorized().to_vec());
        Ok(())
    }

    /// A request was accepted. `signed`: by the home agent, for us.
    fn admit(&mut self, now: Instant, pending: &Pending, reply: Reply, signed: bool) {
        let (asked, home, link) = (pending.request, reply.home, pending.link);
        // Another host may have come since it was asked.
        if self.displaces(link, &asked) {
            return;
        }
        let lifetime = reply.lifetime.min(asked.lifetime).min(self.config.agent.advertise.lifetime);
        // "if the code indicates that the Lifetime field is zero, the foreign agent MUST delete its visitor list entry for the mobile node."
        // (RFC 5944 section 3.7.3.2)
        if lifetime == 0 {
            // A reply that is not signed, and for which the host has not asked from where it is, leaves the visit's end as it was.
            let from_there = self.visitors.get(&home).and_then(Visitor::link) == Some(link);
            let ends = signed || asked.lifetime == 0 && from_there;
            if ends && self.visitors.remove(&home).is_some() {
                self.events.push_back(ForeignEvent::Gone { home });
            }
            return;
        }
        if asked.care_of != self.config.agent.address {
            return;
        }
        // "the foreign agent SHOULD set the Lifetime in the visitor list entry to the minimum of the following two values" (RFC 5944
        // section 3.7.3.2)
        let (own, width) = (self.config.agent.address, self.config.agent.width);
        let back = (asked.flags & request::REVERSE != 0).then(|| {
            // What is known of the way outlasts a renewal.
            let before = self.visitors.remove(&home).and_then(|v| match v.state {
                Stay::Here { back, .. } => back.filter(|tunnel| tunnel.to() == asked.agent),
                Stay::MovedOn(_) => None,
            });
            before.unwrap_or_else(|| Tunnel::new(own, asked.agent, width))
        });
        let (until, id, home_agent, previous) =
            (ends(now, lifetime), asked.id, asked.agent, pending.previous);
        let state = Stay::Here { link, back };
        self.visitors.insert(home, Visitor { until, id, home_agent, previous, state });
        self.events.push_back(ForeignEvent::Visiting { home, lifetime });
    }

    /// A visitor says, by its new agent, that it has moved on.
    fn moved(&mut self, now: Instant, packet: &Packet<'_>, moved: Moved) -> Result<(), Discard> {
        let association = self.config.mobiles.get(&moved.home).ok_or(Discard::NotRegistered)?;
        association.verify(kind::MOBILE_FOREIGN, packet)?;
        let visitor = self.visitors.get_mut(&moved.home).ok_or(Discard::NotRegistered)?;
        let own = self.config.agent.address;
        // The first notice counts: the same one, sent again, must not prolong anything.
        let here = matches!(visitor.state, Stay::Here { .. });
        if !here || moved.previous != own || moved.care_of == own || moved.id != visitor.id {
            return Err(Discard::Unexpected);
        }
        let until = ends(now, moved.lifetime).into_iter().chain(visitor.until);
        visitor.until = Some(until.fold(now + SENT_AFTER, Instant::min));
        visitor.state = Stay::MovedOn(Tunnel::new(own, moved.care_of, self.config.agent.width));
        let (home, care_of) = (moved.home, moved.care_of);
        self.events.push_back(ForeignEvent::MovedOn { home, care_of });
        Ok(())
    }

    /// A packet out of a tunnel.
    /// "a foreign agent MUST compare the inner Destination Address to those entries in its visitor list." (RFC 5944 section 4.2.2)
    fn arrived(&mut self, now: Instant, ip: &Ipv4<'_>) -> Result<(), Discard> {
        let mut packet = decapsulate(ip)?;
        let inner = Ipv4::parse(&packet)?;
        let (home, from, ttl) = (inner.dst(), ip.src(), inner.ttl());
        let awaited = |p: &Pending| p.previous == Some(from);
        let sends = |v: &&mut Visitor| v.home_agent == from || v.previous == Some(from);
        let link = match self.visitors.get_mut(&home).filter(sends).map(|v| &mut v.state) {
            Some(Stay::Here { link, .. }) => *link,
            Some(Stay::MovedOn(tunnel)) if tunnel.to() != from => {
                let (outbox, stats) = (&mut self.outbox, &mut self.stats);
                let sent = tunnel.encapsulate(now, &inner, true, |packet| {
                    stats.sent_after += 1;
                    outbox.push(Side::Routed, packet);
                });
                return sent.map_err(Discard::NotTunnelled);
            }
            _ => {
                let mut waiting = self.pending.range((home, 0)..=(home, u32::MAX)).map(|(_, p)| p);
                // "The datagram SHOULD be silently discarded. ICMP Destination Unreachable MUST NOT be sent when a foreign agent is unable
                // to forward an incoming tunneled datagram." (RFC 5944 section 4.2.2)
                waiting.find(|p| awaited(p)).ok_or(Discard::NotRegistered)?.link
            }
        };
        if ttl <= 1 {
            return Err(Discard::NotTunnelled(tunnel::Refusal::Expired));
        }
        set_hop_limit(&mut packet, ttl - 1);
        self.stats.delivered += 1;
        self.outbox.push(Side::Link(link), packet);
        Ok(())
    }

    /// A packet from the link to somewhere else.
    /// "The foreign agent MUST route datagrams it receives from registered mobile nodes." (RFC 5944 section 4.2.2)
    fn leave(&mut self, now: Instant, from: LinkAddress, ip: &Ipv4<'_>) -> Result<(), Discard> {
        let state = self.visitors.get_mut(&ip.src()).map(|v| &mut v.state);
        let Some(Stay::Here { link, back, .. }) = state else { return Err(Discard::NotRegistered) };
        if *link != from {
            return Err(Discard::NotRegistered);
        }
        let Some(tunnel) = back else {
            self.outbox.push(Side::Routed, ip.as_bytes().to_vec());
            return Ok(());
        };
        // "the foreign agent MUST process incoming traffic according to the delivery style, encapsulate it and tunnel it from the care-of
        // address to the home agent's address." (RFC 3024 section 4.2.2)
        let (outbox, stats) = (&mut self.outbox, &mut self.stats);
        let sent = tunnel.encapsulate(now, ip, true, |packet| {
            stats.returned += 1;
            outbox.push(Side::Routed, packet);
        });
        if let Err(refusal) = sent
            && let Some(answer) = tunnel::answer(self.config.agent.address, ip.as_bytes(), refusal)
        {
            self.outbox.push(Side::Link(from), answer);
        }
        sent.map_err(Discard::NotTunnelled)
    }

    /// An ICMP error: about a tunnel back, or about a request that was relayed.
    fn trouble(&mut self, now: Instant, error: &icmp::ErrorV4<'_>) -> Result<(), Discard> {
        let backs = self.visitors.values_mut().filter_map(|v| match &mut v.state {
            Stay::Here { back, .. } => back.as_mut(),
            Stay::MovedOn(_) => None,
        });
        let quoted = Ipv4::parse_header(error.quoted)?;
        if let Some(relay) = tunnel::note_all(backs, now, error) {
            let told = tunnel::relayed(self.config.agent.address, error, relay).ok_or(Discard::Unexpected)?;
            let inner = Ipv4::parse_header(quoted.payload())?;
            let link =
                self.visitors.get(&inner.src()).and_then(Visitor::link).ok_or(Discard::NotRegistered)?;
            self.outbox.push(Side::Link(link), told);
            return Ok(());
        }
        let relayed = quoted.payload().get(8..).unwrap_or_default();
        // What is quoted must hold the whole fixed part: anyone can make an error up that says less.
        let Ok(Packet { message: Message::Request(asked), .. }) =
            Packet::parse(relayed.get(..24).unwrap_or_default())
        else {
            return Err(Discard::Unexpected);
        };
        let key = (asked.home, asked.id as u32);
        if self.pending.get(&key).is_none_or(|p| p.request != asked) {
            return Err(Discard::Unexpected);
        }
        let Some(pending) = self.pending.remove(&key) else { return Err(Discard::Unexpected) };
        // "the foreign agent SHOULD send to the mobile node a Registration Reply" (RFC 5944 section 3.7.3) that says how the home agent
        // cannot be reached.
        let code = match (error.kind, error.code) {
            (3, 0) => Code::ForeignNetworkUnreachable,
            (3, 1) => Code::ForeignHostUnreachable,
            (3, 3) => Code::ForeignPortUnreachable,
            _ => Code::ForeignUnreachable,
        };
        self.deny(now, pending.link, pending.port, &pending.request, code);
        Ok(())
    }
}
