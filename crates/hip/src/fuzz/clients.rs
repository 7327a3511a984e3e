//! Two clients of a relay and the relay itself, in UDP, each client behind a NAT: what the input says happens to them, and packets are
//! changed before they are sealed. Owns the small world of that target.

use std::collections::{BTreeSet, VecDeque};

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use dormouse_crypto::sign::SigningKey;
use dormouse_keying::{ChildId, KeyManager, Owner, SaId};
use dormouse_keying::{SleepFlags, Sleeping};
use dormouse_sansio::{Carrier, Instant, Path, Seeded};
use dormouse_wire::fuzz::Input;
use dormouse_wire::hip::{
    DomainId, Draft, Header, Hit, Packet, PacketType, Param, ParamType, Version, set_checksum,
};

use super::identity;
use crate::association::{Association, Stage};
use crate::keymat::HipKeys;
use crate::outbox::MARKER;
use crate::quirks::Quirks;
use crate::{Accept, Hold, Host, HostConfig, Identity, Peer, Registrar, Registration, protect, relay};

const RELAY: usize = 2;
const PORT: u16 = 10_500;
/// Steps of one input: a bound on the time of a run.
const STEPS: usize = 32;
/// Datagrams that are carried between two steps, and at the end: more than any honest exchange needs.
const CARRIED: usize = 400;
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

/// Where a host is, as it sees itself, and as others do.
fn inside(n: usize) -> SocketAddr {
    let ip = if n == RELAY { [192, 0, 2, 1] } else { [10, 0, n as u8, 1] };
    SocketAddr::from((ip, PORT))
}

fn outside(n: usize) -> SocketAddr {
    if n == RELAY { inside(n) } else { SocketAddr::from(([198, 51, 100, n as u8], 20_000)) }
}

/// A datagram under way: from whom, whom it is for, and from where it seems to come.
struct Flight {
    from: usize,
    to: usize,
    remote: SocketAddr,
    bytes: Vec<u8>,
}

struct Clients {
    hosts: [Host; 3],
    now: Instant,
    /// What waits to be carried.
    flights: VecDeque<Flight>,
    last: Option<(usize, Vec<u8>)>,
}

fn identity_of(n: usize) -> Option<Identity> {
    if n == RELAY {
        let key = SigningKey::from_pem(include_bytes!("../../tests/keys/p384.pem")).ok()?;
        return Identity::new(key, DomainId::default()).ok();
    }
    identity(n, false)
}

fn host(n: usize, relay: Hit) -> Option<Host> {
    let registrar = Registrar { permits: Accept::Any, longest: Duration::from_secs(300), max_clients: 2 };
    let services = SleepFlags { stand_in: true, buffering: true };
    let config = HostConfig {
        accept: Accept::Any,
        groups: vec![dormouse_crypto::hip::DhGroup::Ecp256],
        relay_server: (n == RELAY).then_some(registrar),
        relays: if n == RELAY { BTreeSet::new() } else { BTreeSet::from([relay]) },
        registration: Duration::from_secs(120),
        may_sleep: n != RELAY,
        hold: Some(Hold { longest: Duration::from_secs(600), services }),
        ..HostConfig::default()
    };
    let spis = Box::new(BTreeSet::<ChildId>::new());
    Some(Host::new(config, vec![identity_of(n)?], spis, Box::new(Seeded::new(n as u64))))
}

impl Clients {
    /// Both clients are registered, and neither knows the other but through the relay.
    fn new() -> Option<Self> {
        let tags = [0, 1, RELAY].map(|n| identity_of(n).map(|identity| identity.hit()));
        let [Some(a), Some(b), Some(server)] = tags else { return None };
        let mut hosts = [host(0, server)?, host(1, server)?, host(RELAY, server)?];
        for (n, other) in [(0, b), (1, a)] {
            hosts[n].set_peer(server, Some(Peer { addresses: vec![inside(RELAY).ip()], udp: true }));
            hosts[n].set_relays_of(other, vec![inside(RELAY).ip()]);
        }
        for (n, host) in hosts.iter_mut().enumerate() {
            host.set_addresses(Instant::ZERO, &[inside(n).ip()]);
        }
        let mut clients = Self { hosts, now: Instant::ZERO, flights: VecDeque::new(), last: None };
        clients.carry(CARRIED);
        let registered =
            |n: usize| clients.hosts[n].describe().any(|d| d.registration == Registration::AtPeer);
        assert!(registered(0) && registered(1), "both register");
        Some(clients)
    }

    /// What the hosts send now is under way. What is for an address behind a NAT that is not ours to know is lost.
    fn collect(&mut self) {
        for from in 0..self.hosts.len() {
            self.hosts[from].handle_timeout(self.now);
            while self.hosts[from].poll_event().is_some() {}
            let mut bytes = Vec::new();
            while let Some(transmit) = self.hosts[from].poll_transmit(self.now, &mut bytes) {
                let to = (0..self.hosts.len()).find(|n| outside(*n) == transmit.path.remote);
                let bytes = core::mem::take(&mut bytes);
                let remote = outside(from);
                self.flights.extend(to.map(|to| Flight { from, to, remote, bytes }));
            }
        }
    }

    fn deliver(&mut self, Flight { to, remote, mut bytes, .. }: Flight) {
        self.last = Some((to, bytes.clone()));
        let path = Path { local: inside(to), remote, carrier: Carrier::HipUdp };
        let _ = match bytes.strip_prefix(&MARKER) {
            Some(_) => self.hosts[to].handle_datagram(self.now, path, &mut bytes).is_ok(),
            None => self.hosts[to].pass_on(self.now, path, &bytes),
        };
    }

    /// Carries up to so many datagrams; whether none is left.
    fn carry(&mut self, budget: usize) -> bool {
        // A puzzle is solved in slices.
        let mut idle = 0;
        for _ in 0..budget {
            while self.flights.is_empty() && idle < 64 {
                self.collect();
                idle += 1;
            }
            let Some(flight) = self.flights.pop_front() else { return true };
            self.deliver(flight);
            idle = 0;
        }
        false
    }

    fn owners(&self, n: usize) -> Vec<SaId> {
        self.hosts[n].describe().map(|d| d.id).collect()
    }

    fn bounded(&self) {
        for host in &self.hosts {
            let peers: BTreeSet<_> = host.describe().map(|d| d.peer).collect();
            assert!(
                peers.len() == host.describe().count() && peers.len() <= 2,
                "one association with a peer"
            );
        }
    }

    /// Time passes, in steps in which what is due is carried.
    fn wait(&mut self, time: Duration) {
        for _ in 0..10 {
            self.now += time / 10;
            self.carry(CARRIED);
        }
    }

    fn associate(&mut self, n: usize) {
        let (ours, peer) = (self.hosts[n].tags().next(), self.hosts[1 - n].tags().next());
        if let Some((ours, peer)) = ours.zip(peer) {
            let ways = self.hosts[n].ways(peer);
            // There may be one.
            let _ = self.hosts[n].connect(self.now, ours, peer, &ways).is_ok();
        }
    }

    /// The next datagram that waits is changed before it was sealed: in what host it leaves, its parameters are others, and its MACs and its
    /// signature right.
    fn edit(&mut self, changes: &[u8]) {
        self.collect();
        let Some(mut flight) = self.flights.pop_front() else { return };
        if let Some(edited) = self.edited(&flight, changes) {
            flight.bytes = edited;
        }
        self.deliver(flight);
    }

    fn edited(&self, flight: &Flight, changes: &[u8]) -> Option<Vec<u8>> {
        let packet = Packet::parse(flight.bytes.strip_prefix(&MARKER)?).ok()?;
        let host = &self.hosts[flight.from];
        let (header, mut to_relay, mut from_relay) = (packet.header, None, None);
        let mut draft = Draft::new(&header);
        for (at, raw) in packet.params().iter().enumerate() {
            let changed = changed(raw.contents, at, changes);
            match raw.kind {
                ParamType::HipMac
                | ParamType::HipMac2
                | ParamType::HipSignature
                | ParamType::HipSignature2
                | ParamType::RelayHmac => {}
                ParamType::RelayTo => to_relay = Some(changed),
                ParamType::RelayFrom => from_relay = Some(changed),
                kind => draft.add(&Param::Opaque(kind, changed)),
            }
        }
        let mut bytes = if header.sender == host.tags().next()? {
            let finished = match header.kind {
                PacketType::I1 | PacketType::R1 => draft.finish().ok(),
                kind => {
                    let (identity, association) = host.sealing(|a| a.peer == header.receiver)?;
                    let key = &keys(association)?.mac_out;
                    if kind == PacketType::R2 {
                        protect::finish_r2(draft, key, identity, Quirks::NONE)
                    } else {
                        protect::finish(draft, key, identity)
                    }
                }
            };
            finished?
        } else {
            // The relay has no key of the two: it changes where it says that a packet is from.
            packet_without_relay(&packet)?
        };
        // The keys of a client and its relay.
        let [relay, client] = [RELAY, flight.to].map(|n| self.hosts[n].tags().next());
        for (kind, changed, other) in
            [(ParamType::RelayTo, to_relay, relay), (ParamType::RelayFrom, from_relay, client)]
        {
            let at = changed.map(|contents| transport(kind, contents));
            let relayed = host.sealing(|a| Some(a.peer) == other).and_then(|(_, a)| keys(a));
            if let (Some(at), Some(key)) = (at, relayed) {
                bytes = protect::with_relay(&Packet::parse(&bytes).ok()?, kind, at?, &key.mac_out)?;
            }
        }
        set_checksum(&mut bytes, None);
        Some([MARKER.as_slice(), &bytes].concat())
    }

    /// One step; `None` at the end of the input.
    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        let op = input.byte()?;
        let (n, now) = (usize::from(op >> 4) % 3, self.now);
        let client = n % 2;
        match op & 15 {
            0 => _ = self.carry(usize::from(input.byte()?)),
            1 => {
                let byte = u64::from(input.byte()?);
                self.wait(Duration::from_millis(10 * byte * byte));
            }
            2 => self.associate(client),
            3 => {
                let children: Vec<_> = self.hosts[n].describe().filter_map(|d| d.child).collect();
                children.into_iter().for_each(|child| self.hosts[n].rekey_child(now, child));
            }
            4 => {
                let flags = SleepFlags { stand_in: true, buffering: true };
                let sleeping = Sleeping { flags, expect: Some(Duration::from_secs(60)), marks: Vec::new() };
                for id in self.owners(client) {
                    self.hosts[client].announce_sleep(now, Owner::Hip(id), &sleeping);
                }
            }
            5 => {
                self.hosts[client].radio_on(now);
                for id in self.owners(client) {
                    self.hosts[client].woke(now, Owner::Hip(id));
                }
            }
            6 => {
                // Data of the clients, of the right SPIs or of others, at the relay.
                let spis: Vec<u32> = self.spis();
                let spi = *spis.get(usize::from(input.byte()?) % spis.len().max(1)).unwrap_or(&7);
                let bytes = [spi.to_be_bytes().as_slice(), input.bytes()?].concat();
                self.deliver(Flight { from: client, to: RELAY, remote: outside(client), bytes });
            }
            7 => {
                let at = SocketAddr::new(STRANGER, u16::from(input.byte()?));
                let path = Path { local: inside(n), remote: at, carrier: Carrier::HipUdp };
                for id in self.owners(n) {
                    self.hosts[n].observed_path(now, Owner::Hip(id), path);
                }
            }
            8 => {
                for (id, heard) in self.owners(n).into_iter().zip([true, false]) {
                    self.hosts[n].traffic(now, Owner::Hip(id), heard);
                    self.hosts[n].peer_awake(now, Owner::Hip(id));
                }
            }
            9 => self.owners(n).into_iter().for_each(|id| self.hosts[n].close(now, id)),
            10 => {
                if let Some((to, bytes)) = self.last.clone() {
                    let remote = SocketAddr::new(STRANGER, PORT);
                    self.deliver(Flight { from: n, to, remote, bytes });
                }
            }
            11 => {
                let bytes = [MARKER.as_slice(), input.bytes()?].concat();
                self.deliver(Flight { from: n, to: n, remote: SocketAddr::new(STRANGER, 10_500), bytes });
            }
            12 => drop(self.flights.pop_front()),
            _ => self.edit(input.bytes()?),
        }
        Some(())
    }

    /// Under which data may go.
    fn spis(&self) -> Vec<u32> {
        self.hosts.iter().flat_map(Host::describe).filter_map(|d| d.child).map(ChildId::spi).collect()
    }
}

/// The keys of an association, in every state.
fn keys(association: &Association) -> Option<&HipKeys> {
    match &association.stage {
        Stage::Up(session) => Some(&session.agreed.keys),
        Stage::I2Sent(sent) => Some(&sent.agreed.keys),
        Stage::Closing(closing) => Some(&closing.agreed.keys),
        Stage::Closed(closed) => Some(&closed.agreed.keys),
        Stage::I1Sent(_) | Stage::Solving(_) | Stage::Failed => None,
    }
}

/// The contents of the parameter at a place, changed by those triples (its place, where, to what) that are for it; longer or shorter by one
/// byte, where that is beyond its end.
fn changed(contents: &[u8], at: usize, changes: &[u8]) -> Vec<u8> {
    let mut changed = contents.to_vec();
    for change in changes.chunks_exact(3).filter(|change| usize::from(change[0]) == at) {
        match changed.get_mut(usize::from(change[1])) {
            Some(byte) => *byte = change[2],
            None if change[2] & 1 == 0 => changed.push(change[2]),
            None => _ = changed.pop(),
        }
    }
    changed
}

fn packet_without_relay(packet: &Packet<'_>) -> Option<Vec<u8>> {
    let mut draft = Draft::new(&packet.header);
    let of_relay = [ParamType::RelayFrom, ParamType::RelayTo, ParamType::RelayHmac];
    for raw in packet.params().iter().filter(|raw| !of_relay.contains(&raw.kind)) {
        draft.add(&Param::Opaque(raw.kind, raw.contents.to_vec()));
    }
    draft.finish().ok()
}

/// The address in the contents of such a parameter.
fn transport(kind: ParamType, contents: Vec<u8>) -> Option<SocketAddr> {
    let header = Header {
        kind: PacketType::Update,
        version: Version::V2,
        controls: 0,
        sender: Hit::NULL,
        receiver: Hit::NULL,
    };
    let mut draft = Draft::new(&header);
    draft.add(&Param::Opaque(kind, contents));
    let bytes = draft.finish().ok()?;
    match Packet::parse(&bytes).ok()?.read(kind) {
        Some(Param::Transport(_, at)) => relay::read(at),
        _ => None,
    }
}

/// Steps, each by its first byte: the lower half says what happens, the upper half to whom. Nothing may panic or loop; a host has one
/// association with each other; and at the end nothing goes round in circles.
///
/// # Panics
/// If a property does not hold.
pub fn clients_input(data: &[u8]) {
    let (Some(mut clients), mut input) = (Clients::new(), Input(data)) else { return };
    for _ in 0..STEPS {
        if clients.step(&mut input).is_none() {
            break;
        }
        clients.bounded();
    }
    // What there is to say is said, and then it is quiet.
    for _ in 0..20 {
        assert!(clients.carry(CARRIED), "packets go round in circles");
        clients.now += Duration::from_secs(60);
        clients.bounded();
    }
}
