//! Agent advertisements. Owns their sequence numbers and the time of the next.

use core::net::Ipv4Addr;
use core::time::Duration;

use dormouse_sansio::{Deadline, Entropy, Instant};
use dormouse_wire::ip::Ipv4;
use dormouse_wire::mobileip::{ALL_SYSTEMS, Advertisement, Mobility, Router};

use crate::outbox::{Outbox, Pace};
use crate::{Discard, LinkAddress, Reverse, Side};

/// How an agent advertises itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advertise {
    /// Time between two advertisements. "the nominal interval at which Agent Advertisements are sent SHOULD be no longer than 1/3 of the
    /// advertisement Lifetime given in the ICMP header." (RFC 5944 section 2.1): that is three intervals, in whole seconds.
    pub interval: Duration,
    /// The longest registration that is accepted, in seconds.
    pub lifetime: u16,
}

impl Default for Advertise {
    fn default() -> Self {
        Self { interval: Duration::from_secs(1), lifetime: 300 }
    }
}

/// What every agent is.
#[derive(Clone, Copy, Debug)]
pub struct AgentConfig {
    /// Its address.
    pub address: Ipv4Addr,
    /// How it advertises itself, and the longest registration that it accepts.
    pub advertise: Advertise,
    /// Whether it has tunnels back.
    pub reverse: Reverse,
    /// What the way to the other ends of its tunnels takes, in bytes.
    pub width: u16,
}

#[derive(Debug)]
pub(crate) struct Advertiser {
    config: Advertise,
    own: Ipv4Addr,
    flags: u16,
    care_of: Vec<Ipv4Addr>,
    sequence: u16,
    next: Instant,
    /// When the last one went to all.
    last: Option<Instant>,
    pace: Pace,
}

impl Advertiser {
    pub(crate) fn new(
        now: Instant,
        config: Advertise,
        own: Ipv4Addr,
        flags: u16,
        care_of: Vec<Ipv4Addr>,
    ) -> Self {
        // "After booting, an agent MUST use the number 0 for its first advertisement." (RFC 5944 section 2.3.2)
        Self { config, own, flags, care_of, sequence: 0, next: now, last: None, pace: Pace::default() }
    }

    /// Sets or clears bits of all advertisements from now on.
    pub(crate) const fn set(&mut self, bits: u16, on: bool) {
        self.flags = if on { self.flags | bits } else { self.flags & !bits };
    }

    /// A solicitation on the link.
    pub(crate) fn solicited(
        &mut self,
        now: Instant,
        from: LinkAddress,
        packet: &Ipv4<'_>,
        out: &mut Outbox,
    ) -> Result<(), Discard> {
        // "a mobility agent that receives a Router Solicitation MUST NOT require that the IP Source Address is the address of a neighbor"
        // (RFC 5944 section 2.3). "When the Agent Advertisement is unicast to a mobile node, the IP home address of the mobile node SHOULD be
        // used as the Destination Address." (RFC 5944 section 2.1)
        let to = if packet.src().is_unspecified() { ALL_SYSTEMS } else { packet.src() };
        if !self.pace.admits(now, to) {
            return Err(Discard::TooMany);
        }
        self.send(Side::Link(from), to, out);
        Ok(())
    }

    /// The link layer says that a host has entered the link: the next advertisement comes at once, but at most ten in an interval.
    pub(crate) fn hurry(&mut self, now: Instant) {
        let earliest = self.last.map_or(now, |at| at + self.config.interval / 10);
        self.next = self.next.min(now.max(earliest));
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, random: &mut dyn Entropy, out: &mut Outbox) {
        if now < self.next {
            return;
        }
        self.send(Side::Link(LinkAddress::BROADCAST), ALL_SYSTEMS, out);
        self.last = Some(now);
        // "The actual transmission time for each advertisement SHOULD be slightly randomized" (RFC 5944 section 2.1)
        let tenth = self.config.interval / 10;
        let jitter = random.below(u64::try_from(2 * tenth.as_nanos()).unwrap_or(0) + 1);
        self.next = now + (self.config.interval - tenth) + Duration::from_nanos(jitter);
    }

    pub(crate) fn poll_timeout(&self) -> Deadline {
        Deadline { at: self.next, slack: self.config.interval / 10, why: "the next agent advertisement" }
    }

    fn send(&mut self, side: Side, to: Ipv4Addr, out: &mut Outbox) {
        let lifetime = (3 * self.config.interval).as_secs_f64().ceil() as u16;
        let advertisement = Advertisement {
            code: 0,
            lifetime,
            routers: vec![Router { address: self.own, preference: 0 }],
            mobility: Some(Mobility {
                sequence: self.sequence,
                lifetime: self.config.lifetime,
                flags: self.flags,
                care_of: self.care_of.clone(),
            }),
            prefixes: Vec::new(),
        };
        // "the sequence number 0xffff MUST be followed by sequence number 256." (RFC 5944 section 2.3.2)
        self.sequence = self.sequence.checked_add(1).unwrap_or(256);
        let mut packet = Vec::new();
        if advertisement.emit(self.own, to, &mut packet).is_ok() {
            out.push(side, packet);
        }
    }
}
