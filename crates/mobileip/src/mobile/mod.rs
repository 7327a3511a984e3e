//! The mobile host: it finds out where it is, registers there, and keeps its home address all the while. Owns the choice of the agent and
//! every timer of a registration; must never take a registration for granted that its home agent has not signed.

mod message;
mod types;

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use dormouse_sansio::{Deadline, Entropy, Instant};
use dormouse_wire::ip::udp::Udp;
use dormouse_wire::ip::{Ipv4, Packet as Ip, protocol};
use dormouse_wire::mobileip::{
    ALL_AGENTS, Advertisement, Code, INFINITY, Message, PORT, Packet, Reply, agent, kind, solicitation,
};

use crate::association::Replay;
use crate::clock::{WallClock, is_after};
use crate::limits::{
    FIRST_SOLICITATION, FIRST_TIMEOUT, LAST_SOLICITATION, LAST_TIMEOUT, MAX_AGENTS, REFUSED, SILENT,
    SOLICITATIONS,
};
use crate::outbox::Outbox;
use crate::tunnel::{self, Tunnel, decapsulate};
use crate::{Discard, LinkAddress, Side};
pub use types::{CoLocated, Current, MobileConfig, MobileEvent, MobileStats};

/// "The mobile node MUST set the TTL field of the IP header to 255." (RFC 3024 section 4.1.1)
const TTL: u8 = 255;

/// An agent that was heard on this link.
#[derive(Clone, Copy, Debug)]
struct Heard {
    link: LinkAddress,
    /// Time of its last advertisement. The preference goes by it, and not by the lifetime that it advertises.
    at: Instant,
    until: Instant,
    sequence: u16,
    lifetime: u16,
    flags: u16,
    care_of: Ipv4Addr,
    /// Not to be asked again before, while there is another.
    refused: Option<Instant>,
}

/// A request that waits for its reply.
#[derive(Debug)]
struct Attempt {
    agent: Ipv4Addr,
    care_of: Ipv4Addr,
    link: LinkAddress,
    lifetime: u16,
    id: u64,
    /// The message, to be sent again as it is where nonces are used.
    message: Vec<u8>,
    /// Of the series, of this one.
    first: Instant,
    sent: Instant,
    timeout: Duration,
}

/// Looking for an agent.
#[derive(Clone, Copy, Debug)]
struct Search {
    next: Instant,
    sent: u32,
    interval: Duration,
}

/// Where the host is.
#[derive(Debug, Default)]
struct Link {
    agents: BTreeMap<Ipv4Addr, Heard>,
    co_located: Option<(CoLocated, Tunnel)>,
    search: Option<Search>,
    attempt: Option<Attempt>,
    current: Option<Current>,
    /// When the last request was sent on this link.
    asked: Option<Instant>,
}

impl Heard {
    /// Whether it is not to be asked now, while there is another.
    fn avoided(&self, now: Instant) -> bool {
        self.refused.is_some_and(|until| now < until)
    }
}

impl Link {
    /// Whether this agent is not to be asked now, and there is another.
    fn avoids(&self, now: Instant, agent: Ipv4Addr) -> bool {
        let others = self.agents.iter().any(|(other, h)| *other != agent && !h.avoided(now));
        others && self.agents.get(&agent).is_some_and(|h| h.avoided(now))
    }

    /// Makes room for an agent: forgets the one that was heard longest ago, but for those that the host has to do with.
    fn forget_one(&mut self) {
        let ours = [self.current.map(|c| c.agent), self.attempt.as_ref().map(|a| a.agent)];
        let others = self.agents.iter().filter(|(agent, _)| !ours.contains(&Some(**agent)));
        if let Some(oldest) = others.min_by_key(|(_, heard)| heard.at).map(|(agent, _)| *agent) {
            self.agents.remove(&oldest);
        }
    }
}

/// See the module.
pub struct MobileHost {
    config: MobileConfig,
    clock: WallClock,
    random: Box<dyn Entropy>,
    /// Added to the clock: what the home agent's differs by, in NTP's units.
    skew: u64,
    /// The identification of the last request.
    last_id: Option<u64>,
    /// The number that the home agent gave out.
    nonce: u32,
    link: Option<Link>,
    /// The foreign agent by which it was registered on another link, and that request's identification.
    previous: Option<(Ipv4Addr, u64)>,
    outbox: Outbox,
    events: VecDeque<MobileEvent>,
    stats: MobileStats,
}

impl MobileHost {
    /// A host that is nowhere yet.
    #[must_use]
    pub fn new(config: MobileConfig, clock: WallClock, random: Box<dyn Entropy>) -> Self {
        let (link, previous) = (None, None);
        let (outbox, events, stats) = Default::default();
        Self {
            config,
            clock,
            random,
            skew: 0,
            last_id: None,
            nonce: 0,
            link,
            previous,
            outbox,
            events,
            stats,
        }
    }

    /// It has entered a link: the link layer says so. With an address of its own there it needs no foreign agent.
    pub fn attach(&mut self, now: Instant, co_located: Option<CoLocated>) {
        self.detach();
        let (home_agent, width) = (self.config.home_agent, self.config.width);
        let co_located = co_located.map(|own| (own, Tunnel::new(own.address, home_agent, width)));
        let search =
            co_located.is_none().then_some(Search { next: now, sent: 0, interval: FIRST_SOLICITATION });
        self.link = Some(Link { co_located, search, ..Link::default() });
        if let Some((own, _)) = self.link.as_ref().and_then(|l| l.co_located.as_ref()) {
            let (address, router) = (own.address, own.router);
            self.ask(now, home_agent, address, router, self.config.lifetime, None);
        }
        self.handle_timeout(now);
    }

    /// It has left its link.
    pub fn detach(&mut self) {
        self.outbox.forget_link();
        if let Some(current) = self.link.take().and_then(|link| link.current) {
            self.previous = self.by_foreign(&current);
        }
    }

    /// A packet has come: from the link, or to be sent by the host's own programs.
    ///
    /// # Errors
    /// Why it went no further.
    pub fn handle_packet(&mut self, now: Instant, from: Side, packet: &[u8]) -> Result<(), Discard> {
        let ip = Ipv4::parse(packet)?;
        if from == Side::Routed {
            return self.send(now, &ip);
        }
        if !ip.checksum_ok() {
            return Err(Discard::Checksum);
        }
        let Side::Link(neighbour) = from else { return Err(Discard::NotForUs) };
        let Some(link) = &mut self.link else { return Err(Discard::NotForUs) };
        let message = ip.payload().get(2..4) == Some(&PORT.to_be_bytes()) && ip.fragment().is_none();
        let own = link.co_located.as_ref().map(|(own, _)| own.address);
        let result = if ip.protocol() == protocol::ICMP
            && let Ok(heard) = Advertisement::parse(&ip)
        {
            self.heard(now, neighbour, ip.src(), &heard)
        } else if ip.protocol() == protocol::UDP
            && message
            && (ip.dst() == self.config.home || Some(ip.dst()) == own || ip.dst().is_broadcast())
        {
            // "Registration Replies with an invalid, non-zero UDP checksum MUST be silently discarded." (RFC 5944 section 3.6.2.1)
            Udp::parse(&Ip::V4(ip)).map_err(Discard::from).and_then(|udp| self.answered(now, udp.payload))
        } else if ip.dst() == self.config.home {
            self.receive(packet.to_vec())
        } else if Some(ip.dst()) == own && ip.src() == self.config.home_agent {
            let inner = decapsulate(&ip)?;
            let for_us = Ipv4::parse(&inner)?.dst() == self.config.home;
            if for_us { self.receive(inner) } else { Err(Discard::NotForUs) }
        } else {
            Err(Discard::NotForUs)
        };
        self.stats.forged += u64::from(matches!(result, Err(Discard::Unauthentic(_))));
        result
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(link) = &mut self.link else { return };
        // "If the mobile node fails to receive another advertisement from the same agent within the specified Lifetime, it SHOULD assume that
        // it has lost contact with that agent." (RFC 5944 section 2.4.2.1)
        link.agents.retain(|_, heard| now < heard.until);
        let gone = |agent: Ipv4Addr| link.co_located.is_none() && !link.agents.contains_key(&agent);
        let over = |c: &Current| gone(c.agent) || c.until.is_some_and(|until| now >= until);
        if let Some(lost) = link.current.filter(over) {
            link.current = None;
            self.previous = self.by_foreign(&lost);
            self.events.push_back(MobileEvent::Lost { agent: lost.agent });
        }
        let Some(link) = &mut self.link else { return };
        let gone = |agent: Ipv4Addr| link.co_located.is_none() && !link.agents.contains_key(&agent);
        if link.attempt.as_ref().is_some_and(|a| gone(a.agent)) {
            link.attempt = None;
        }
        match &link.attempt {
            Some(attempt) if now >= attempt.sent + attempt.timeout => self.repeat(now),
            Some(_) => {}
            None => self.choose(now),
        }
        self.look(now);
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let link = self.link.as_ref()?;
        let attempt = link.attempt.as_ref().map(|a| Deadline::strict(a.sent + a.timeout, "no reply"));
        let search = link.search.map(|s| Deadline::strict(s.next, "the next agent solicitation"));
        let current = link.current.filter(|_| link.attempt.is_none());
        let renew = current.and_then(|c| c.renew).map(|at| at.max(self.earliest()));
        let renew = renew.map(|at| Deadline::strict(at, "a registration must be renewed"));
        let end = link.current.and_then(|c| c.until).map(|at| Deadline::strict(at, "a registration ends"));
        let silent = link.agents.values().map(|h| h.until).min();
        let silent = silent.map(|at| Deadline::strict(at, "an agent was not heard for long"));
        let whom = link.co_located.is_some() || !link.agents.is_empty();
        let wants = whom && link.current.is_none() && link.attempt.is_none();
        let again = wants.then(|| Deadline::strict(self.earliest(), "the next registration"));
        [attempt, search, renew, end, silent, again].into_iter().fold(None, Deadline::earlier)
    }

    /// Appends the next packet to send, and says where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Side> {
        self.outbox.pop(out)
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<MobileEvent> {
        self.events.pop_front()
    }

    /// What it has done.
    #[must_use]
    pub const fn stats(&self) -> &MobileStats {
        &self.stats
    }

    /// The registration that counts.
    #[must_use]
    pub fn current(&self) -> Option<&Current> {
        self.link.as_ref()?.current.as_ref()
    }

    /// The foreign agent that a registration is by, and the registration's name there.
    fn by_foreign(&self, current: &Current) -> Option<(Ipv4Addr, u64)> {
        (current.agent != self.config.home_agent).then_some((current.agent, current.id))
    }

    /// When a request may be sent at the earliest, without a word from the link layer.
    /// "In the absence of link-layer indications, a mobile node MUST NOT attempt to register more often than once per second." (RFC 5944
    /// section 3.6)
    fn earliest(&self) -> Instant {
        let asked = self.link.as_ref().and_then(|l| l.asked);
        asked.map_or(Instant::ZERO, |at| at + FIRST_TIMEOUT)
    }

    fn receive(&mut self, packet: Vec<u8>) -> Result<(), Discard> {
        self.stats.received += 1;
        self.outbox.push(Side::Routed, packet);
        Ok(())
    }

    /// A packet of our own programs.
    /// "The mobile node MUST designate the foreign agent as its default router." (RFC 3024 section 5.1.1)
    fn send(&mut self, now: Instant, ip: &Ipv4<'_>) -> Result<(), Discard> {
        let registered = self.link.as_mut().and_then(|l| Some((l.current?, l.co_located.as_mut())));
        let Some((current, co_located)) = registered.filter(|_| ip.src() == self.config.home) else {
            self.stats.unsent += 1;
            return Err(Discard::NotRegistered);
        };
        let link = Side::Link(current.link);
        match co_located.filter(|_| self.config.reverse) {
            None => self.outbox.push(link, ip.as_bytes().to_vec()),
            Some((_, tunnel)) => {
                let outbox = &mut self.outbox;
                let sent = tunnel.encapsulate(now, ip, false, |packet| outbox.push(link, packet));
                if let Err(refusal) = sent {
                    let told = tunnel::answer(self.config.home_agent, ip.as_bytes(), refusal);
                    told.into_iter().for_each(|told| self.outbox.push(Side::Routed, told));
                    return Err(Discard::NotTunnelled(refusal));
                }
            }
        }
        Ok(())
    }

    /// "Mobile nodes MUST process received Agent Advertisements." (RFC 5944 section 2.4)
    fn heard(
        &mut self,
        now: Instant,
        neighbour: LinkAddress,
        from: Ipv4Addr,
        advertisement: &Advertisement,
    ) -> Result<(), Discard> {
        let at_home = from == self.config.home_agent && advertisement.agent(agent::HOME).is_some();
        let care_of = if at_home { Some(self.config.home) } else { advertisement.care_of() };
        let (Some(link), Some(mobility)) = (&mut self.link, &advertisement.mobility) else {
            return Err(Discard::NotForUs);
        };
        let care_of = care_of.ok_or(Discard::NotForUs)?;
        // A request by an agent that grants no time would end the registration, and the advertisement may be forged.
        if mobility.lifetime == 0 && !at_home {
            return Err(Discard::NotForUs);
        }
        let before = link.agents.get(&from).copied();
        if before.is_none() && link.agents.len() >= MAX_AGENTS {
            link.forget_one();
        }
        let until = now + Duration::from_secs(advertisement.lifetime.into());
        let (sequence, lifetime, flags) = (mobility.sequence, mobility.lifetime, mobility.flags);
        let refused = before.and_then(|b| b.refused);
        let heard = Heard { link: neighbour, at: now, until, sequence, lifetime, flags, care_of, refused };
        link.agents.insert(from, heard);
        // "the second of which is less than the first and inside the range 0 to 255, the mobile node SHOULD register again." (RFC 5944
        // section 2.4.4)
        let restarted = before.is_some_and(|b| sequence < b.sequence && sequence < 256);
        if let Some(current) = link.current.as_mut().filter(|c| c.agent == from && restarted) {
            current.renew = Some(now);
        }
        // "Solicitations SHOULD only be sent in the absence of Agent Advertisements" (RFC 5944 section 2.4)
        link.search = None;
        // "In the absence of link-layer indications of changes in point of attachment, Agent Advertisements from new agents SHOULD NOT cause
        // a mobile node to attempt a new registration, if its current registration has not expired and it is still also receiving Agent
        // Advertisements from the foreign agent with which it is currently registered." (RFC 5944 section 3.6)
        if link.attempt.is_none() {
            self.choose(now);
        }
        Ok(())
    }

    /// Begins a registration if one is needed, and permitted now.
    fn choose(&mut self, now: Instant) {
        let earliest = self.earliest();
        let Some(link) = &self.link else { return };
        if now < earliest {
            return;
        }
        if let Some(current) = link.current {
            if current.renew.is_none_or(|at| now < at) {
                return;
            }
            // One that has not answered, or has refused, counts on; another is asked meanwhile, if there is one.
            if !link.avoids(now, current.agent) {
                let lifetime = self.lifetime_of(current.agent);
                return self.ask(now, current.agent, current.care_of, current.link, lifetime, None);
            }
        }
        if let Some((own, _)) = &link.co_located {
            let (address, router) = (own.address, own.router);
            self.ask(now, self.config.home_agent, address, router, self.config.lifetime, None);
            return;
        }
        // Who has not refused lately; then at home first, who is not busy, and who was heard last.
        let rank = |(from, h): &(&Ipv4Addr, &Heard)| {
            (!h.avoided(now), **from == self.config.home_agent, h.flags & agent::BUSY == 0, h.at)
        };
        if let Some((agent, heard)) = link.agents.iter().max_by_key(rank).map(|(a, h)| (*a, *h)) {
            self.ask(now, agent, heard.care_of, heard.link, self.lifetime_of(agent), None);
        }
    }

    /// "the Lifetime SHOULD NOT exceed the value in the Registration Lifetime field of the Agent Advertisement message received from the
    /// foreign agent." (RFC 5944 section 3.6.1.2)
    fn lifetime_of(&self, agent: Ipv4Addr) -> u16 {
        let heard = self.link.as_ref().and_then(|l| l.agents.get(&agent));
        heard.map_or(self.config.lifetime, |h| h.lifetime.min(self.config.lifetime))
    }

    /// Sends a request. `series`: when the first one of its series was sent, and how long to wait this time.
    fn ask(
        &mut self,
        now: Instant,
        agent: Ipv4Addr,
        care_of: Ipv4Addr,
        link: LinkAddress,
        lifetime: u16,
        series: Option<(Instant, Duration)>,
    ) {
        // "a Lifetime of zero is used when the mobile node deregisters all care-of addresses, such as upon returning home." (RFC 5944
        // section 3.6.1.2)
        let lifetime = if care_of == self.config.home { 0 } else { lifetime };
        let id = self.next_id(now);
        let message = self.request(agent, care_of, lifetime, id);
        let (first, timeout) = series.unwrap_or((now, FIRST_TIMEOUT));
        let attempt = Attempt { agent, care_of, link, lifetime, id, message, first, sent: now, timeout };
        self.transmit(&attempt);
        if series.is_none() {
            self.events.push_back(MobileEvent::Asked { agent, care_of });
        }
        if let Some(here) = &mut self.link {
            (here.attempt, here.asked) = (Some(attempt), Some(now));
        }
    }

    fn transmit(&mut self, attempt: &Attempt) {
        // "When registering on a foreign network with a co-located care-of address, the IP source address MUST be the care-of address." (RFC
        // 5944 section 3.6.1.1). "In all other circumstances, the IP source address MUST be the mobile node's home address." (RFC 5944 section
        // 3.6.1.1)
        let own = self.link.as_ref().and_then(|l| l.co_located.as_ref()).map(|(own, _)| own.address);
        let from = SocketAddr::new(own.unwrap_or(self.config.home).into(), PORT);
        // "the address of the agent as learned from the IP source address of the corresponding Agent Advertisement MUST be used." (RFC 5944
        // section 3.6.1.1). "the mobile node MUST use a link-layer Destination Address copied from the link-layer source address of the
        // Agent Advertisement message in which it learned this foreign agent's IP address." (RFC 5944 section 3.6.1.1)
        let to = SocketAddr::new(attempt.agent.into(), PORT);
        self.outbox.message(Side::Link(attempt.link), TTL, from, to, &attempt.message);
        self.stats.asked += 1;
    }

    /// No reply has come.
    fn repeat(&mut self, now: Instant) {
        let Some(attempt) = self.link.as_mut().and_then(|l| l.attempt.take()) else { return };
        // "Each successive retransmission timeout period SHOULD be at least twice the previous period" (RFC 5944 section 3.6.3)
        let timeout = (attempt.timeout * 2).min(LAST_TIMEOUT);
        // Anybody can advertise. Who never answers is given up for a while as soon as there is another.
        if let Some(link) = self.link.as_mut().filter(|l| timeout >= SILENT && l.co_located.is_none())
            && link.agents.iter().any(|(other, h)| *other != attempt.agent && !h.avoided(now))
            && let Some(silent) = link.agents.get_mut(&attempt.agent)
        {
            silent.refused = Some(now + REFUSED);
            return self.choose(now);
        }
        if matches!(self.config.replay, Replay::Timestamps(_)) {
            let Attempt { agent, care_of, link, lifetime, first, .. } = attempt;
            return self.ask(now, agent, care_of, link, lifetime, Some((first, timeout)));
        }
        // "When nonces are used, the unanswered Request is retransmitted unchanged" (RFC 5944 section 3.6.3)
        let again = Attempt { sent: now, timeout, ..attempt };
        self.transmit(&again);
        if let Some(link) = &mut self.link {
            (link.attempt, link.asked) = (Some(again), Some(now));
        }
    }

    /// Solicits, if it is time to.
    /// "Every mobile node MUST implement Agent Solicitation." (RFC 5944 section 2.4)
    fn look(&mut self, now: Instant) {
        let Some(link) = &mut self.link else { return };
        let silent = link.agents.is_empty() && link.co_located.is_none();
        let first = Search { next: now, sent: 0, interval: FIRST_SOLICITATION };
        link.search = if silent { link.search.or(Some(first)) } else { None };
        let Some(search) = link.search.as_mut().filter(|s| now >= s.next) else { return };
        search.sent += 1;
        // "Subsequent solicitations MUST be sent using a binary exponential backoff mechanism, doubling the interval between consecutive
        // solicitations, up to a maximum interval." (RFC 5944 section 2.4)
        if search.sent > SOLICITATIONS {
            search.interval = (search.interval * 2).min(LAST_SOLICITATION);
        }
        // "Mobile nodes MUST randomize their solicitation times around these nominal values" (RFC 5944 section 2.4)
        let jitter = self.random.below(u64::try_from(search.interval.as_nanos() / 5).unwrap_or(0));
        search.next = now + search.interval + Duration::from_nanos(jitter);
        let mut packet = Vec::new();
        if solicitation(self.config.home, ALL_AGENTS, &mut packet).is_ok() {
            self.outbox.push(Side::Link(LinkAddress::BROADCAST), packet);
        }
    }

    fn answered(&mut self, now: Instant, payload: &[u8]) -> Result<(), Discard> {
        let packet = Packet::parse(payload)?;
        let Message::Reply(reply) = packet.message else { return Err(Discard::NotForUs) };
        let attempt = self.link.as_ref().and_then(|l| l.attempt.as_ref()).ok_or(Discard::Unexpected)?;
        // "The mobile node MUST verify that the low-order 32 bits of any Registration Reply are identical to the bits it sent in the
        // Registration Request." (RFC 5944 section 5.7)
        if reply.home != self.config.home || reply.id as u32 != attempt.id as u32 {
            return Err(Discard::Unexpected);
        }
        // "If no Mobile-Foreign Authentication Extension is found, or if more than one Mobile-Foreign Authentication Extension is found, or
        // if the Authenticator is invalid, the mobile node MUST silently discard the Reply" (RFC 5944 section 3.6.2.1)
        let foreign = self.config.foreign.get(&attempt.agent);
        if let Some(association) = foreign.filter(|_| attempt.agent != self.config.home_agent) {
            association.verify(kind::MOBILE_FOREIGN, &packet)?;
        }
        // "If the Registration Reply was generated by the home agent but no Mobile-Home Authentication Extension is found, or if more than
        // one Mobile-Home Authentication Extension is found, or if the Authenticator is invalid, the mobile node MUST silently discard the
        // Reply" (RFC 5944 section 3.6.2.1)
        if reply.code.is_of_home() {
            self.config.association.verify(kind::MOBILE_HOME, &packet)?;
            self.nonce = (reply.id >> 32) as u32;
        }
        if reply.code.is_accepted() {
            self.accepted(now, reply)
        } else {
            self.refused(now, reply)
        }
        Ok(())
    }

    fn accepted(&mut self, now: Instant, reply: Reply) {
        let Some(link) = &mut self.link else { return };
        let Some(Attempt { agent, care_of, link: via, lifetime, id, first, sent, .. }) = link.attempt.take()
        else {
            return;
        };
        // "If the Lifetime received in the Registration Reply is greater than that in the Registration Request, the Lifetime in the Request
        // MUST be used. When the Lifetime received in the Registration Reply is less than that in the Registration Request, the Lifetime in
        // the Reply MUST be used." (RFC 5944 section 3.4)
        let lifetime = lifetime.min(reply.lifetime);
        // "This procedure is equivalent to the mobile node starting a timer for the granted Lifetime at the time it sent the Registration
        // Request" (RFC 5944 section 3.6.2.2)
        let ends = (care_of != self.config.home && lifetime != INFINITY)
            .then(|| Duration::from_secs(lifetime.into()));
        let (until, renew) = (ends.map(|d| sent + d), ends.map(|d| sent + d * 3 / 4));
        link.current = Some(Current { agent, care_of, until, link: via, renew, id });
        self.previous = None;
        self.stats.registered += 1;
        let took = now.saturating_since(first);
        self.events.push_back(MobileEvent::Registered { agent, care_of, lifetime, took });
    }

    fn refused(&mut self, now: Instant, reply: Reply) {
        let Some(link) = &mut self.link else { return };
        let Some(attempt) = link.attempt.take() else { return };
        let Attempt { agent, care_of, link: via, lifetime, id, first, timeout, .. } = attempt;
        self.stats.refused += 1;
        self.events.push_back(MobileEvent::Refused { agent, code: reply.code });
        match reply.code {
            // "The mobile node MUST adjust the parameters it uses to compute the Identification field based upon the information in the
            // Registration Reply, before issuing any future Registration Requests." (RFC 5944 section 3.6.2.3). Once at once: the home agent
            // signed what it says. After that at the pace of repetitions.
            Code::HomeIdentification => {
                if matches!(self.config.replay, Replay::Timestamps(_)) {
                    let apart = (reply.id >> 32).wrapping_sub(id >> 32) << 32;
                    self.skew = self.skew.wrapping_add(apart);
                    // What is older than the home agent's clock counts for nothing there.
                    self.last_id = self.last_id.filter(|last| is_after(reply.id, *last)).or(Some(reply.id));
                }
                if timeout == FIRST_TIMEOUT {
                    self.ask(now, agent, care_of, via, lifetime, Some((first, timeout * 2)));
                }
            }
            // "using a Lifetime in the Registration Request that MUST be less than or equal to the value specified in the Reply." (RFC 5944
            // section 3.6.2.3)
            Code::ForeignLifetime if reply.lifetime > 0 && reply.lifetime < lifetime => {
                if let Some(heard) = link.agents.get_mut(&agent) {
                    heard.lifetime = reply.lifetime;
                }
            }
            _ => {
                if let Some(heard) = link.agents.get_mut(&agent) {
                    heard.refused = Some(now + REFUSED);
                }
            }
        }
    }
}
