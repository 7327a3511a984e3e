//! A fuzz entry that leads two endpoints through what they can do with each other, while the input edits what they say: of a
//! protected message the plaintext, as if its sender had written it, so that every exchange meets a peer that errs or lies, in both
//! roles. Owns the language of the input and the clock; must never be used outside of tests.
//!
//! The input is a list of steps: one byte, whose low five bits say what happens ([`Run::step`]), and its arguments. Bit 7 makes the
//! gateway the one who does it, bit 6 leaves what was sent on the way, so that the next step meets it. An edit applies to a message
//! that is still to be sent, names one payload of it, and corrects the lengths unless the edit forbids it.

use std::collections::VecDeque;
use std::sync::Arc;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;
use core::time::Duration;

use dormouse_crypto::cert::Identity;
use dormouse_keying::Sleeping;
use dormouse_sansio::{Carrier, Instant, Path, Seeded};
use dormouse_wire::fuzz::Input;
use dormouse_wire::ike::mlike::Excerpt;
use dormouse_wire::ike::{Message, PayloadType};

use crate::config::{Connection, IdentityPattern, Role, RouterPolicy, RouterRule, ZonePolicy};
use crate::config_payload::{AddressPool, Lease, LeaseRequest};
use crate::endpoint_config::EndpointConfig;
use crate::fuzz_endpoint::{START, connection, path};
use crate::handshake::Slot;
use crate::ticket::lineage::Memory;
use crate::ticket::{ClientTicket, TicketKeys};
use crate::{Endpoint, Event, SleepFlags};
use dormouse_keying::{ChildId, ChildSa, GrantId, HeaderGrant, HeaderNews, HeaderOrder, Opened, SaId};

/// Steps of one input, edits that wait, and rounds of delivery after a step: bounds on the time of a run.
const STEPS: usize = 64;
const EDITS: usize = 16;
const ROUNDS: usize = 32;
/// Deadlines that one end may have at one moment; more is a loop.
const SPIN: usize = 64;
/// The IKE header, and the generic header of a payload.
const HEADER: usize = 28;
const GENERIC: usize = 4;
/// In the byte that names a payload: leave the lengths as they are; take the payload out.
const RAW: u8 = 0x80;
const CUT: u8 = 0x40;

/// Hands everybody the same addresses.
#[derive(Debug)]
struct OneAddress;

impl AddressPool for OneAddress {
    fn lease(&mut self, _: &Connection, _: &Identity, request: &LeaseRequest) -> Lease {
        let v6 = Ipv6Addr::from_bits(0xfd00_u128 << 112 | 7);
        Lease { v4: request.v4.then_some(Ipv4Addr::new(10, 9, 0, 7)), v6: request.v6.then_some((v6, 128)) }
    }

    fn release(&mut self, _: &Lease) {}
}

/// What the sender changes in one of its messages.
#[derive(Debug)]
struct Edit {
    /// Messages that go by unchanged before it.
    skip: u8,
    /// Which payload, and [`RAW`] and [`CUT`]. Beyond the last: a new one at the end, whose type is the first byte.
    payload: u8,
    /// From here in the payload, its header included, so many bytes are replaced.
    offset: u8,
    removed: u8,
    bytes: Vec<u8>,
}

/// Where the payloads of a chain lie.
fn payloads(first: u8, chain: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut kind, mut at) = (Vec::new(), first, 0);
    while kind != 0
        && let Some(&[next, _, high, low]) = chain.get(at..).and_then(<[u8]>::first_chunk::<GENERIC>)
    {
        let len = usize::from(u16::from_be_bytes([high, low])).max(GENERIC);
        let end = (at + len).min(chain.len());
        found.push(at..end);
        (kind, at) = (next, end);
    }
    found
}

impl Edit {
    fn apply(&self, first: &mut u8, chain: &mut Vec<u8>) {
        let all = payloads(*first, chain);
        let number = usize::from(self.payload & !(RAW | CUT));
        let before = number.min(all.len()).checked_sub(1).and_then(|i| all.get(i)).map(|r| r.start);
        let mut link = |chain: &mut Vec<u8>, kind: u8| match before.and_then(|at| chain.get_mut(at)) {
            Some(next) => *next = kind,
            None => *first = kind,
        };
        let Some(place) = all.get(number).cloned() else {
            let Some((&kind, body)) = self.bytes.split_first() else { return };
            link(chain, kind);
            chain.extend([0, 0, 0, u8::try_from(GENERIC + body.len()).unwrap_or(u8::MAX)]);
            chain.extend(body);
            return;
        };
        if self.payload & CUT != 0 {
            let next = chain.get(place.start).copied().unwrap_or(0);
            link(chain, next);
            chain.drain(place);
            return;
        }
        let start = place.start + usize::from(self.offset).min(place.len());
        let end = (start + usize::from(self.removed)).min(place.end);
        chain.splice(start..end, self.bytes.iter().copied());
        let len = place.len() - (end - start) + self.bytes.len();
        if self.payload & RAW == 0
            && let Some(field) = chain.get_mut(place.start + 2..place.start + GENERIC)
        {
            field.copy_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
        }
    }

    /// The same in a message without protection, whose length in the header is put right.
    fn apply_clear(&self, datagram: &mut Vec<u8>) {
        let Some(header) = datagram.first_chunk::<HEADER>() else { return };
        let (mut header, mut chain) = (*header, datagram.split_off(HEADER));
        self.apply(&mut header[16], &mut chain);
        let len = u32::try_from(HEADER + chain.len()).unwrap_or(u32::MAX);
        header[24..].copy_from_slice(&len.to_be_bytes());
        datagram.clear();
        datagram.extend(header);
        datagram.extend(chain);
    }
}

/// Takes SPI and number of a packet for what they say: there is no data plane here, and its ciphers have a fuzz target of their own.
fn open_first_zone(grant: &HeaderGrant, packet: &[u8]) -> Option<Opened> {
    let (spi, seq) = packet.split_first_chunk()?;
    let (spi, seq) = (u32::from_be_bytes(*spi), u32::from_be_bytes(*seq.first_chunk()?).into());
    let GrantId { to_device, from_device } = grant.id();
    [to_device, from_device].contains(&spi).then_some(Opened { to_device: spi == to_device, seq })
}

/// One endpoint, with what its driver would hold.
#[derive(Debug)]
struct Side {
    endpoint: Endpoint,
    host: u8,
    sa: Option<SaId>,
    child: Option<ChildId>,
    /// The session that has it.
    session: Option<SaId>,
    /// Keys of headers that it was given last.
    grant: Option<GrantId>,
    ticket: Option<Box<ClientTicket>>,
    store: Memory,
    established: usize,
}

impl Side {
    fn new(name: &str, host: u8) -> Self {
        let day = Duration::from_secs(86_400);
        let config = EndpointConfig {
            connections: vec![link(name, ROUTER), conversation(name)],
            router: Some(RouterPolicy {
                gateways: vec![IdentityPattern::Exact(named(GATEWAY_NAME))],
                neighbours: vec![named(GATEWAY_NAME), named(ROUTER)],
                most: KEYS_MOST,
            }),
            open_first_zone,
            ticket_keys: Some(TicketKeys::generate(START, day, day, &mut Seeded::new(host.into()))),
            pool: Some(Box::new(OneAddress)),
            window: 3,
            ..EndpointConfig::default()
        };
        let mut endpoint = Endpoint::new(config, Box::new(Seeded::new(host.into())));
        endpoint.set_wall_clock(Instant::ZERO, START);
        Self {
            endpoint,
            host,
            sa: None,
            child: None,
            session: None,
            grant: None,
            ticket: None,
            store: Memory::default(),
            established: 0,
        }
    }

    /// What it sends, as the other end receives it; its events are taken note of.
    fn drain(&mut self, now: Instant, to: u8, out: &mut VecDeque<(u8, Carrier, Vec<u8>)>) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Established(established) => {
                    self.sa = Some(established.sa);
                    self.established += 1;
                }
                Event::Child(ChildSa::Install(install)) => {
                    (self.child, self.session) = (Some(install.child), install.owner.ike());
                }
                Event::Header(HeaderOrder::Grant(grant)) => self.grant = Some(grant.id()),
                Event::Ticket { ticket, .. } => self.ticket = Some(ticket),
                Event::Store(operation) => {
                    let outcome = self.store.apply(START, &operation);
                    if let Some(sa) = operation.asked_by() {
                        self.endpoint.stored(now, sa, outcome);
                    }
                }
                _ => {}
            }
        }
        let mut bytes = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut bytes) {
            let mut datagram = core::mem::take(&mut bytes);
            if transmit.path.carrier == Carrier::NatT {
                datagram.drain(..4.min(datagram.len()));
            }
            out.push_back((to, transmit.path.carrier, datagram));
        }
    }

    /// Does what is due; a deadline that stays due is a loop.
    fn run_due(&mut self, now: Instant) {
        for _ in 0..SPIN {
            match self.endpoint.poll_timeout() {
                Some(deadline) if deadline.at <= now => self.endpoint.handle_timeout(now),
                _ => return,
            }
        }
        panic!("something is due at {now:?} again and again: {:?}", self.endpoint.poll_timeout());
    }
}

/// A connection that both ends of the conversation use: with inner addresses, resumption and dormancy.
fn conversation(name: &str) -> Arc<Connection> {
    let mut conn = connection(name, Role::Both);
    (conn.request.v4, conn.request.v6, conn.request.dns) = (true, true, true);
    conn.answering.policy.pool = vec![ipnet::Ipv4Net::default().into(), ipnet::Ipv6Net::default().into()];
    conn.answering.offer.dns = vec![IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1))];
    let rule = RouterRule { id: named(ROUTER), serves: Vec::new(), neighbours: vec![named(ROUTER)] };
    let zones = ZonePolicy { required: false, routers: vec![rule], ..ZonePolicy::default() };
    conn.children.iter_mut().for_each(|child| child.zones = Some(zones.clone()));
    Arc::new(conn)
}

/// The same at a device that wants no zones, whose sessions come back in one round trip.
fn whole(name: &str) -> Arc<Connection> {
    let mut conn = conversation(name);
    Arc::make_mut(&mut conn).children.iter_mut().for_each(|child| child.zones = None);
    conn
}

/// A connection over which keys of headers travel.
fn link(name: &str, peer: &str) -> Arc<Connection> {
    let mut conn = connection(name, Role::Both);
    "keys".clone_into(&mut conn.name);
    conn.remote_id = IdentityPattern::Exact(named(peer));
    conn.children.clear();
    Arc::new(conn)
}

fn named(name: &str) -> Identity {
    Identity::Fqdn(name.to_owned())
}

struct Run {
    now: Instant,
    client: Side,
    gateway: Side,
    /// On the way: to which host, by which carrier, what.
    network: VecDeque<(u8, Carrier, Vec<u8>)>,
    edits: Vec<Edit>,
    /// Where the client is.
    host: u8,
    /// The client wants zones.
    zoned: bool,
}

const GATEWAY: u8 = 1;
const CLIENT: u8 = 2;
const GATEWAY_NAME: &str = "gw.example";
const CLIENT_NAME: &str = "client.example";
/// The client is an access router besides, under a name of its own.
const ROUTER: &str = "router.example";
/// Most devices whose keys it holds.
const KEYS_MOST: usize = 2;

impl Run {
    fn new() -> Self {
        Self {
            now: Instant::ZERO,
            client: Side::new(CLIENT_NAME, CLIENT),
            gateway: Side::new(GATEWAY_NAME, GATEWAY),
            network: VecDeque::new(),
            edits: Vec::new(),
            host: CLIENT,
            zoned: false,
        }
    }

    fn path(&self) -> Path {
        path(self.host, GATEWAY, Carrier::Ike)
    }

    fn connect(&mut self) {
        let (now, path) = (self.now, self.path());
        let conn = if self.zoned { conversation(CLIENT_NAME) } else { whole(CLIENT_NAME) };
        let sa = match self.client.ticket.take() {
            Some(ticket) => self.client.endpoint.resume(now, conn, *ticket, path),
            None => self.client.endpoint.connect(now, conn, path),
        };
        self.client.sa = Some(sa);
    }

    /// One step of the input; `None` at its end.
    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        let op = input.byte()?;
        if op & 0x1f < 6 {
            let (skip, payload, offset, removed) =
                (input.byte()?, input.byte()?, input.byte()?, input.byte()?);
            let edit = Edit { skip, payload, offset, removed, bytes: input.bytes()?.to_vec() };
            if self.edits.len() < EDITS {
                self.edits.push(edit);
            }
            return Some(());
        }
        if self.client.sa.is_none() {
            self.connect();
            self.deliver();
        }
        self.command(op, input)?;
        self.collect();
        if op & 0x40 == 0 {
            self.deliver();
        }
        Some(())
    }

    fn command(&mut self, op: u8, input: &mut Input<'_>) -> Option<()> {
        let now = self.now;
        let side = if op & 0x80 == 0 { &mut self.client } else { &mut self.gateway };
        let Some(sa) = side.sa else { return Some(()) };
        let endpoint = &mut side.endpoint;
        match op & 0x1f {
            6 => {
                endpoint.rekey_ike(now, sa);
            }
            7 => {
                let _known = side.child.is_some_and(|child| endpoint.rekey_child(now, child));
            }
            8 => {
                endpoint.create_child(now, sa, 0);
            }
            9 => {
                let _known = side.child.is_some_and(|child| endpoint.delete_child(now, child));
            }
            10 => {
                endpoint.probe(now, sa, Duration::from_secs(5));
            }
            11 => {
                self.host = CLIENT + input.byte()? % 4;
                let path = self.path();
                self.client.endpoint.set_path(now, self.client.sa?, path);
            }
            12 => {
                let host = input.byte()?;
                let other = IpAddr::V4(Ipv4Addr::new(198, 51, 100, host));
                endpoint.set_own_addresses(now, &[other]);
            }
            13 => {
                let byte = input.byte()?;
                let flags = SleepFlags { stand_in: byte & 1 != 0, buffering: byte & 2 != 0 };
                let expect = Some(Duration::from_secs(u64::from(byte) * 16));
                let said = Sleeping { flags, expect, marks: Vec::new() };
                endpoint.announce_sleep(now, sa, said, expect, Duration::from_secs(3));
            }
            14 => {
                endpoint.woke(now, sa);
            }
            15 => {
                endpoint.peer_awake(now, sa);
            }
            16 => {
                endpoint.close(now, sa);
            }
            17 => {
                endpoint.forget(now, sa);
                self.connect();
            }
            18 => {
                self.client.ticket = None;
                self.connect();
            }
            19 => {
                let datagram = input.bytes()?.to_vec();
                self.network.push_back((side.host, Carrier::NatT, datagram));
            }
            20 => self.network.clear(),
            21 => {
                (self.zoned, self.client.ticket) = (true, None);
                self.connect();
            }
            22..27 => self.keys(op, input)?,
            31 => {
                // Under load, so that newcomers are given puzzles.
                let limits = &mut self.gateway.endpoint.shared.config.half_open;
                (limits.cookie_threshold, limits.per_prefix, limits.puzzle_difficulty) = (0, 0, 8);
            }
            _ => self.now += Duration::from_secs(1) * u32::from(input.byte()?),
        }
        Some(())
    }

    /// Steps about the keys of headers: the client as a router, or the gateway.
    fn keys(&mut self, op: u8, input: &mut Input<'_>) -> Option<()> {
        let (now, path) = (self.now, self.path());
        // The SPI that the gateway has chosen, or another.
        let (spi, session) = (self.gateway.child.map_or(0, ChildId::spi), self.gateway.session);
        let (side, peer) = match op & 0x80 {
            0 => (&mut self.client, GATEWAY_NAME),
            _ => (&mut self.gateway, ROUTER),
        };
        match op & 0x1f {
            22 => {
                let _link = side.endpoint.connect(now, link(ROUTER, GATEWAY_NAME), path);
            }
            23 => {
                let _known =
                    session.is_some_and(|session| side.endpoint.device_is_at(now, session, &named(ROUTER)));
            }
            24 => {
                let spi = spi ^ u32::from(input.byte()?);
                let _asked = side.endpoint.ask_for_keys(now, path.remote.ip(), spi);
            }
            25 => {
                let byte = u32::from(input.byte()?);
                let packet = [(spi ^ (byte & 1)).to_be_bytes(), byte.to_be_bytes()].concat();
                let (previous, registered) = (named(peer), byte & 2 != 0);
                let seen = Excerpt::of(&packet)?;
                let _asked = side.endpoint.fetch_keys(now, &previous, path.remote.ip(), seen, registered);
            }
            _ => {
                let news = match input.byte()? & 3 {
                    0 | 2 => HeaderNews::Stale,
                    1 => HeaderNews::Exhausted,
                    _ => HeaderNews::Unusable,
                };
                let news = side.grant.map(news);
                let _asked = news.is_some_and(|news| side.endpoint.header_news(now, news));
            }
        }
        Some(())
    }

    /// Takes what both ends send; edits apply here, at the sender.
    fn collect(&mut self) {
        let mut sent = VecDeque::new();
        self.client.run_due(self.now);
        self.client.drain(self.now, GATEWAY, &mut sent);
        self.gateway.run_due(self.now);
        self.gateway.drain(self.now, self.host, &mut sent);
        for (to, carrier, mut datagram) in sent {
            let (due, later): (Vec<Edit>, _) =
                core::mem::take(&mut self.edits).into_iter().partition(|e| e.skip == 0);
            self.edits = later;
            self.edits.iter_mut().for_each(|e| e.skip -= 1);
            if !due.is_empty() {
                let sender = if to == GATEWAY { &mut self.client } else { &mut self.gateway };
                match sender.endpoint.fuzz_edited(&datagram, &due) {
                    Some(edited) => datagram = edited,
                    None => due.iter().for_each(|e| e.apply_clear(&mut datagram)),
                }
            }
            self.network.push_back((to, carrier, datagram));
        }
    }

    /// Lets everything arrive, and what is said in answer to it.
    fn deliver(&mut self) {
        self.collect();
        for _ in 0..ROUNDS {
            let arriving = core::mem::take(&mut self.network);
            if arriving.is_empty() {
                return;
            }
            self.now += Duration::from_millis(10);
            for (to, carrier, mut datagram) in arriving {
                let (side, from) =
                    if to == GATEWAY { (&mut self.gateway, self.host) } else { (&mut self.client, GATEWAY) };
                let _ = side.endpoint.handle_datagram(self.now, path(to, from, carrier), &mut datagram);
            }
            self.collect();
        }
        self.network.clear();
    }

    /// Lets the deadlines of the rest of an hour come, or as many as a run may take.
    fn wait(&mut self) {
        let end = self.now + Duration::from_secs(3_600);
        for _ in 0..ROUNDS {
            let due = [&self.client, &self.gateway].into_iter().filter_map(|s| s.endpoint.poll_timeout());
            let Some(next) = due.map(|d| d.at).min().filter(|at| *at <= end) else { return };
            self.now = self.now.max(next);
            self.deliver();
        }
    }
}

/// Plays `data`. Returns how often the client and the gateway had an SA established.
///
/// # Panics
/// If an end panics, has a deadline that stays due, or keeps more than it may.
pub fn exchanges(data: &[u8]) -> (usize, usize) {
    let (mut run, mut input) = (Run::new(), Input(data));
    for _ in 0..STEPS {
        if run.step(&mut input).is_none() {
            break;
        }
    }
    if run.client.sa.is_none() {
        run.connect();
    }
    run.deliver();
    run.wait();
    assert!(run.gateway.endpoint.half_open() <= 4_096, "half-open SAs are bounded");
    let keys = [&run.client, &run.gateway].map(|side| side.endpoint.header_keys());
    assert!(keys.iter().all(|held| *held <= KEYS_MOST), "keys of headers are bounded");
    (run.client.established, run.gateway.established)
}

impl Endpoint {
    /// A protected message that was just sent, with other content. `None`: it is in clear, or its keys are gone.
    fn fuzz_edited(&mut self, datagram: &[u8], edits: &[Edit]) -> Option<Vec<u8>> {
        let message = Message::parse(datagram).ok()?;
        let protected = message.protected?;
        let header = message.header;
        let own = if header.flags.initiator { header.spi_i } else { header.spi_r };
        let channel = match self.slots.get(self.shared.by_spi.get(&own)?)? {
            Slot::Established(ike) => &ike.core.channel,
            Slot::Intermediate(waiting) => &waiting.first.channel,
            Slot::Authenticating(waiting) => &waiting.channel,
            Slot::HalfOpen(half) => half.channel.as_ref()?,
            Slot::Opening(_) | Slot::Signing(_) => return None,
        };
        let mut plain = channel.fuzz_reopen(datagram.to_vec(), &protected)?;
        let mut first = protected.first.code();
        edits.iter().for_each(|e| e.apply(&mut first, &mut plain));
        let first = PayloadType::from(first);
        channel.fuzz_seal(&mut self.shared, &header, first, protected.fragment, &plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(steps: &[u8]) -> Run {
        let (mut run, mut input) = (Run::new(), Input(steps));
        while run.step(&mut input).is_some() {}
        run
    }

    /// The steps lead to where they are meant to: a device with zones, a link, and keys on it.
    #[test]
    fn steps_about_keys_reach_them() {
        const AT_GATEWAY: u8 = 0x80;
        let steps = [21, 22, AT_GATEWAY | 23];
        let run = play(&steps);
        assert_eq!(run.client.endpoint.header_keys(), 1, "it was given");
        let run = play(&[&steps[..2], &[24, 0]].concat());
        assert_eq!(run.client.endpoint.header_keys(), 1, "it has asked");
        let before = play(&steps).client.endpoint.stats().round_trips;
        let run = play(&[&steps[..], &[26, 0]].concat());
        assert!(run.client.endpoint.stats().round_trips > before);
        // The gateway, a router too, shows a packet by its number: one that has passed, and one that has not.
        for (number, left) in [(0, 1), (2, 0)] {
            let run = play(&[&steps[..], &[AT_GATEWAY | 25, number]].concat());
            assert_eq!(run.client.endpoint.header_keys(), left);
        }
    }
}
