//! A key manager beside IKE: static keys under a small handshake of its own, over the carriers of HIP. It installs a BEET tunnel
//! between two nodes whose inner and outer addresses are of different families; traffic passes both ways, its messages and
//! deadlines are driven by the node, its tunnel is replaced when it is used up, and its removal ends the traffic.

use dormouse_crypto::{Encr, Secret};
use dormouse_esp::{Outer, Spis};
use dormouse_ike::EndpointConfig;
use dormouse_keying::{
    Beet, ChildId, ChildSa, Discard, Event as Told, Install, KeyManager, Mode, Owner, Protection, SaId,
    Share, SoftBounds, SpiSource,
};
use dormouse_node::audit::{Record, What};
use dormouse_node::host::Order;
use dormouse_node::{Change, Event, Inbound, Node, Route, Train};
use dormouse_sansio::{Carrier, Class, Deadline, Instant, Path, Seeded, Transmit};
use dormouse_wire::ike::TsRange;
use dormouse_wire::ip::{Ecn, flow};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

const MARKER: [u8; 4] = [0; 4];
/// An unanswered message is sent again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// After so many packets the tunnel is replaced.
const SOFT: u64 = 8;

/// Messages: a letter (`B`egin, `A`nswer, `D`elete the replaced, `E`nd; of one that is refused `S`tranger, `N`amed) and the SPI of its sender. Keys are static, one for each direction.
#[derive(Debug)]
struct StaticKeys {
    spis: Spis,
    entropy: Seeded,
    initiator: bool,
    inner: Beet,
    path: Path,
    /// Our proposal that is not answered, and when it is repeated.
    proposed: Option<(ChildId, Instant)>,
    installed: Option<ChildId>,
    replaced: Option<ChildId>,
    messages: VecDeque<Vec<u8>>,
    events: VecDeque<Told>,
}

const OWNER: Owner = Owner::Hip(SaId::new(7));

impl StaticKeys {
    fn new(node: &Node, initiator: bool, inner: Beet, path: Path) -> Self {
        Self {
            spis: node.spis(),
            entropy: Seeded::new(initiator.into()),
            initiator,
            inner,
            path,
            proposed: initiator.then_some((ChildId::new(0), Instant::ZERO)),
            installed: None,
            replaced: None,
            messages: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    fn say(&mut self, letter: u8, spi: ChildId) {
        let marker = if self.path.carrier == Carrier::HipUdp { &MARKER[..] } else { &[] };
        self.messages.push_back([marker, &[letter], &spi.spi().to_be_bytes()].concat());
    }

    fn propose(&mut self, now: Instant) {
        let spi = match self.proposed {
            Some((spi, _)) if spi.spi() > 0 => spi,
            _ => self.spis.reserve(&mut self.entropy),
        };
        self.proposed = Some((spi, now + AGAIN));
        self.say(b'B', spi);
    }

    fn install(&mut self, child: ChildId, spi_out: u32) {
        let key = |to_initiator: bool| Secret::from([if to_initiator { 1 } else { 2 }; 20]);
        let host = |address| vec![TsRange::addresses(address, address)];
        if self.installed.is_none() {
            let (owner, peer, path) = (OWNER, "the other end".to_owned(), self.path);
            self.events.push_back(Told::Established { owner, peer, path, may_sleep: false });
        }
        let install = Install {
            owner: OWNER,
            child,
            spi_out,
            keymat_in: key(self.initiator),
            keymat_out: key(!self.initiator),
            encr: Encr::Aes128Gcm16,
            integ: None,
            esn: true,
            mode: Mode::Beet(self.inner),
            protection: Protection::Whole,
            pad_to: 0,
            ts_local: host(self.inner.local),
            ts_remote: host(self.inner.remote),
            original: None,
            path: match self.path.carrier {
                Carrier::RawHip => Path { carrier: Carrier::RawEsp, ..self.path },
                _ => self.path,
            },
            replaces: self.installed,
            send_now: self.initiator || self.installed.is_none(),
            replay_window: 1_024,
            soft: SoftBounds { packets: SOFT, ..SoftBounds::NONE },
            share: Share::Rest,
        };
        self.events.push_back(Told::Child(ChildSa::Install(Box::new(install))));
        self.replaced = self.installed.replace(child);
    }

    fn remove_replaced(&mut self) {
        if let Some(child) = self.replaced.take() {
            self.events.push_back(Told::Child(ChildSa::Remove { owner: OWNER, child }));
        }
    }

    fn end(&mut self, why: &'static str) {
        if let Some(child) = self.installed.take() {
            self.events.push_back(Told::Child(ChildSa::Remove { owner: OWNER, child }));
            self.events.push_back(Told::Closed { owner: OWNER, why });
        }
    }
}

impl KeyManager for StaticKeys {
    fn handle_datagram(&mut self, _: Instant, path: Path, datagram: &mut [u8]) -> Result<(), Discard> {
        let marker = if path.carrier == Carrier::HipUdp { MARKER.len() } else { 0 };
        let message = datagram.get(marker..).unwrap_or_default();
        let [letter, spi @ ..] = message else { return Err(Discard("empty")) };
        let spi = u32::from_be_bytes(spi.try_into().map_err(|_| Discard("not an SPI"))?);
        match letter {
            b'B' => {
                let child = self.spis.reserve(&mut self.entropy);
                self.install(child, spi);
                self.say(b'A', child);
            }
            b'A' => {
                let (child, _) = self.proposed.take().ok_or(Discard("not asked for"))?;
                self.install(child, spi);
                self.remove_replaced();
                self.say(b'D', child);
            }
            b'D' => self.remove_replaced(),
            b'E' => self.end("the peer ended it"),
            b'S' | b'N' => {
                let (peer, named, why) = (format!("host {spi}"), *letter == b'N', "not admitted");
                self.events.push_back(Told::Refused { path, peer, named, why });
            }
            _ => return Err(Discard("not a message")),
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.proposed.is_some_and(|(_, at)| at <= now) {
            self.propose(now);
        }
    }

    fn poll_transmit(&mut self, _: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        out.extend(self.messages.pop_front()?);
        Some(Transmit { path: self.path, class: Class::Urgent, segment: None, fragmentable: true })
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.proposed.map(|(_, at)| Deadline::strict(at, "static keys: no answer"))
    }

    fn poll_event(&mut self) -> Option<Told> {
        self.events.pop_front()
    }

    fn rekey_child(&mut self, now: Instant, child: ChildId) {
        if self.initiator && self.installed == Some(child) && self.proposed.is_none() {
            self.propose(now);
        }
    }
}

/// Has very many sessions, and loses all of them at once while they are on their way back.
#[derive(Debug)]
struct Many {
    spis: Spis,
    entropy: Seeded,
    due: bool,
    there: bool,
    events: VecDeque<Told>,
}

impl Many {
    const SESSIONS: u32 = 5_000;

    fn begin(&mut self) {
        for n in 1..=Self::SESSIONS {
            let (owner, child) = (Owner::Hip(SaId::new(n.into())), self.spis.reserve(&mut self.entropy));
            let address =
                |host: u32| IpAddr::V6(std::net::Ipv6Addr::from(0x2001_0020_u128 << 96 | u128::from(host)));
            let inner = Beet { local: address(0), remote: address(n) };
            let mut one = StaticKeys {
                spis: self.spis.clone(),
                entropy: Seeded::new(n.into()),
                initiator: true,
                inner,
                path: Path {
                    local: V4[0].parse().expect("an address"),
                    remote: V4[1].parse().expect("an address"),
                    carrier: Carrier::HipUdp,
                },
                proposed: None,
                installed: None,
                replaced: None,
                messages: VecDeque::new(),
                events: VecDeque::new(),
            };
            one.install(child, n);
            for event in one.events {
                self.events.push_back(match event {
                    Told::Established { peer, path, may_sleep, .. } => {
                        Told::Established { owner, peer, path, may_sleep }
                    }
                    Told::Child(ChildSa::Install(install)) => {
                        Told::Child(ChildSa::Install(Box::new(Install { owner, ..*install })))
                    }
                    other => other,
                });
            }
        }
    }
}

impl KeyManager for Many {
    fn handle_datagram(&mut self, _: Instant, _: Path, _: &mut [u8]) -> Result<(), Discard> {
        Err(Discard("nothing is expected"))
    }

    fn handle_timeout(&mut self, _: Instant) {
        self.due = false;
        if std::mem::replace(&mut self.there, true) {
            let owners = (1..=Self::SESSIONS).map(|n| Owner::Hip(SaId::new(n.into())));
            self.events.extend(owners.map(|owner| Told::Closed { owner, why: "lost" }));
        } else {
            self.begin();
        }
    }

    fn poll_transmit(&mut self, _: Instant, _: &mut Vec<u8>) -> Option<Transmit> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.due.then(|| Deadline::strict(Instant::ZERO, "it begins, or ends"))
    }

    fn poll_event(&mut self) -> Option<Told> {
        self.events.pop_front()
    }

    fn rekey_child(&mut self, _: Instant, _: ChildId) {}

    fn woke(&mut self, _: Instant, _: Owner) -> bool {
        self.due = true;
        false
    }
}

#[test]
fn sessions_that_are_lost_together_end_one_after_the_other() {
    let now = Instant::ZERO;
    let entropy = || Box::new(Seeded::new(1));
    let mut node = Node::new(Vec::new(), EndpointConfig::default(), entropy(), entropy());
    let (spis, entropy) = (node.spis(), Seeded::new(2));
    let many = Many { spis, entropy, due: true, there: false, events: VecDeque::new() };
    node.set_key_manager("many", Box::new(many));
    node.handle_timeout(now);
    assert_eq!(node.gateway_sessions(now).len(), Many::SESSIONS as usize);
    node.suspend(now);
    node.resume(now);
    node.handle_timeout(now);
    assert_eq!(node.gateway_sessions(now).len(), 0);
    assert_eq!(node.poll_timeout(), None, "nothing is on its way back");
}

struct World {
    now: Instant,
    nodes: [Node; 2],
    /// Datagrams that were carried, by carrier; ESP apart.
    messages: usize,
    changes: Vec<Change>,
    records: Vec<Record>,
    routes: [Vec<ipnet::IpNet>; 2],
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl World {
    fn new(outer: [&str; 2], inner: [&str; 2], carrier: Carrier) -> Self {
        let node = |seed| {
            let entropy = |seed| Box::new(Seeded::new(seed));
            Node::new(Vec::new(), EndpointConfig::default(), entropy(seed), entropy(seed + 1))
        };
        let mut nodes = [node(10), node(20)];
        for (i, node) in nodes.iter_mut().enumerate() {
            let address = |n: usize| outer[n].parse().expect("an address and a port");
            let path = Path { local: address(i), remote: address(1 - i), carrier };
            let inner = Beet { local: ip(inner[i]), remote: ip(inner[1 - i]) };
            let manager = StaticKeys::new(node, i == 0, inner, path);
            node.set_key_manager("static", Box::new(manager));
        }
        let routes = [Vec::new(), Vec::new()];
        Self { now: Instant::ZERO, nodes, messages: 0, changes: Vec::new(), records: Vec::new(), routes }
    }

    /// Drives both nodes by their contract until neither has anything to send. Loses the first `lose` messages.
    fn settle(&mut self, mut lose: usize) {
        loop {
            let mut quiet = true;
            for i in 0..2 {
                while let Some(event) = self.nodes[i].poll_event() {
                    match event {
                        Event::Changed(change) => self.changes.push(change),
                        Event::Order(Order::PeerRoutes { routes, .. }) => self.routes[i].extend(routes),
                        Event::Order(Order::PeerGone { routes }) => {
                            self.routes[i].retain(|r| !routes.contains(r));
                        }
                        Event::Record(record) => self.records.push(*record),
                        other => panic!("{other:?}"),
                    }
                }
                let mut datagram = Vec::new();
                while let Some(transmit) = self.nodes[i].poll_transmit(self.now, &mut datagram) {
                    quiet = false;
                    self.messages += 1;
                    if lose > 0 {
                        lose -= 1;
                    } else {
                        let path = Path {
                            local: transmit.path.remote,
                            remote: transmit.path.local,
                            ..transmit.path
                        };
                        let taken = self.nodes[1 - i].handle_next(
                            self.now,
                            path,
                            &mut Train::default(),
                            &mut datagram,
                        );
                        assert_eq!(taken, Ok(Inbound::Consumed));
                    }
                    datagram.clear();
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn run_until_due(&mut self) {
        let due = self.nodes.iter().filter_map(Node::poll_timeout).map(|d| d.at).min();
        self.now = due.expect("something is due");
        self.nodes.iter_mut().for_each(|node| node.handle_timeout(self.now));
    }

    /// Sends a packet from one node to the other; what arrives.
    fn send(&mut self, from: usize, packet: &[u8]) -> Option<Vec<u8>> {
        let Route::Send(id) = self.nodes[from].route(&flow(packet).expect("a packet")) else { return None };
        let mut packet = packet.to_vec();
        let tunnel = self.nodes[from].child_mut(id)?;
        let stripped = tunnel.strip(&mut packet).expect("it can be carried");
        let carried = &packet[stripped.len..];
        let (head, path) = (tunnel.outbound.head_len(), tunnel.path);
        let mut slot = vec![0; tunnel.outbound.sealed_len(carried.len())];
        slot[head..head + carried.len()].copy_from_slice(carried);
        tunnel.outbound.seal(&mut slot, carried.len(), stripped.next_header).expect("room");
        self.nodes[from].sent(self.now, id);
        let path = Path { local: path.remote, remote: path.local, ..path };
        let to = &mut self.nodes[1 - from];
        let inbound = to.handle_next(self.now, path, &mut Train::default(), &mut slot).ok()?;
        let Inbound::Inner { range, child, next_header, flow, .. } = inbound else { panic!("{inbound:?}") };
        let outer =
            Outer { source: path.remote.ip(), destination: path.local.ip(), ecn: Ecn::from_traffic_class(0) };
        let carried = slot.get_mut(range)?;
        let rebuilt = to.child_mut(child)?.rebuild(next_header, flow, carried, outer).expect("a packet");
        Some([rebuilt.header?.as_bytes(), &carried[rebuilt.skip..]].concat())
    }
}

/// A UDP packet as the far end rebuilds it: hop limit 64, no identification.
fn packet(src: &str, dst: &str) -> Vec<u8> {
    let udp = [0, 9, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4];
    let mut packet = match (ip(src), ip(dst)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = vec![0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0];
            header.extend([src.octets(), dst.octets()].concat());
            let sum = dormouse_wire::ip::checksum::checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
            header.extend([src.octets(), dst.octets()].concat());
            header
        }
        _ => panic!("two families"),
    };
    packet.extend(udp);
    packet
}

const V4: [&str; 2] = ["192.0.2.1:10500", "192.0.2.2:10500"];
const V6: [&str; 2] = ["[2001:db8::1]:0", "[2001:db8::2]:0"];
const HITS: [&str; 2] = ["2001:20::a", "2001:20::b"];
const LSIS: [&str; 2] = ["1.0.0.1", "1.0.0.2"];

/// Refused hosts with made-up identities count as strangers in the pace of records: a host that is denied by name stays on record.
#[test]
fn hosts_that_are_made_up_do_not_keep_those_off_the_record_that_are_refused_by_name() {
    let mut world =
        World::new(["192.0.2.1:500", "198.51.100.2:500"], ["10.0.0.1", "10.0.0.2"], Carrier::RawHip);
    let path = Path {
        local: "198.51.100.2:500".parse().expect("an address"),
        remote: "192.0.2.1:500".parse().expect("an address"),
        carrier: Carrier::RawHip,
    };
    let mut call = |letter: u8, spi: u32| {
        let mut message = [&[letter][..], &spi.to_be_bytes()].concat();
        let taken = world.nodes[1].handle_next(world.now, path, &mut Train::default(), &mut message);
        assert_eq!(taken, Ok(Inbound::Consumed));
        let events = core::iter::from_fn(|| world.nodes[1].poll_event());
        events.filter(|event| matches!(event, Event::Record(_))).count()
    };
    let made_up: usize = (0..1_000).map(|n| call(b'S', n)).sum();
    assert!((1..100).contains(&made_up), "{made_up}");
    assert_eq!(call(b'N', 1), 1);
}

#[test]
fn a_beet_tunnel_of_another_key_manager_carries_traffic_both_ways() {
    for (outer, inner, carrier) in [(V4, HITS, Carrier::HipUdp), (V6, LSIS, Carrier::RawHip)] {
        let mut world = World::new(outer, inner, carrier);
        assert_eq!(world.nodes[0].route(&flow(&packet(inner[0], inner[1])).expect("a flow")), Route::None);
        world.run_until_due();
        world.settle(2);
        assert_eq!((world.messages, world.changes.len()), (1, 0), "the first message is lost");
        world.run_until_due();
        assert_eq!(world.now, Instant::ZERO + AGAIN);
        world.settle(0);
        assert!(
            world
                .changes
                .iter()
                .all(|c| matches!(c, Change::PeerUp { connection, .. } if connection == "static"))
        );
        assert_eq!(world.changes.len(), 2);
        assert!(world.records.iter().all(|r| matches!(r.what, What::Login { .. })), "{:?}", world.records);
        for (i, routes) in world.routes.iter().enumerate() {
            assert_eq!(*routes, [ipnet::IpNet::from(ip(inner[1 - i]))]);
        }
        for _ in 0..3 {
            for (from, sent) in [(1, packet(inner[1], inner[0])), (0, packet(inner[0], inner[1]))] {
                assert_eq!(world.send(from, &sent).as_deref(), Some(sent.as_slice()));
            }
        }
        assert_eq!(world.nodes[1].gateway_sessions(world.now)[0].children[0].mode, "beet");
    }
}

#[test]
fn its_tunnels_are_replaced_when_used_up_and_gone_when_removed() {
    let mut world = World::new(V4, HITS, Carrier::HipUdp);
    world.run_until_due();
    world.settle(0);
    let sent = [packet(HITS[0], HITS[1]), packet(HITS[1], HITS[0])];
    let names = |world: &World| world.nodes[0].gateway_sessions(world.now)[0].children[0].id;
    let first = names(&world);
    for n in 0..SOFT * 2 {
        assert!(world.send(0, &sent[0]).is_some() && world.send(1, &sent[1]).is_some(), "packet {n}");
        world.settle(0);
    }
    assert_ne!(names(&world), first);
    assert!(world.nodes.iter().all(|node| node.spis().in_use() > 1), "replaced ones drain");
    world.now += dormouse_esp::DRAIN;
    world.nodes.iter_mut().for_each(|node| node.handle_timeout(world.now));
    assert!(world.nodes.iter().all(|node| node.spis().in_use() == 1));
    let path = Path {
        local: V4[0].parse().expect("an address"),
        remote: V4[1].parse().expect("an address"),
        carrier: Carrier::HipUdp,
    };
    let end = [&MARKER[..], b"E\0\0\0\0"].concat();
    for (i, node) in world.nodes.iter_mut().enumerate() {
        let path = if i == 0 { path } else { Path { local: path.remote, remote: path.local, ..path } };
        assert_eq!(
            node.handle_next(world.now, path, &mut Train::default(), &mut end.clone()),
            Ok(Inbound::Consumed)
        );
    }
    world.settle(0);
    assert!(world.routes.iter().all(Vec::is_empty));
    assert_eq!((world.send(0, &sent[0]), world.send(1, &sent[1])), (None, None));
    assert_eq!(world.nodes.each_ref().map(|node| node.gateway_sessions(world.now).len()), [0, 0]);
    assert_eq!(world.nodes.each_ref().map(|node| node.spis().in_use()), [0, 0]);
}

#[test]
fn while_the_radio_sleeps_it_has_no_deadline_and_without_it_its_messages_are_refused() {
    let mut world = World::new(V4, HITS, Carrier::HipUdp);
    assert!(world.nodes[0].poll_timeout().is_some_and(|d| d.why.starts_with("static keys")));
    world.nodes[0].suspend(world.now);
    assert_eq!(world.nodes[0].poll_timeout(), None);
    world.nodes[0].resume(world.now);
    assert!(world.nodes[0].poll_timeout().is_some());
    let entropy = || Box::new(Seeded::new(1));
    let mut alone = Node::new(Vec::new(), EndpointConfig::default(), entropy(), entropy());
    for carrier in [Carrier::RawHip, Carrier::HipUdp] {
        let (local, remote) = (V4[0].parse().expect("an address"), V4[1].parse().expect("an address"));
        let mut message = [&MARKER[..], b"B\0\0\x01\0"].concat();
        let path = Path { local, remote, carrier };
        assert!(alone.handle_next(world.now, path, &mut Train::default(), &mut message).is_err());
    }
}

#[test]
fn packets_of_its_sessions_wait_while_the_radio_sleeps() {
    let mut world = World::new(V4, HITS, Carrier::HipUdp);
    world.run_until_due();
    world.settle(0);
    let flow = flow(&packet(HITS[0], HITS[1])).expect("a flow");
    let node = &mut world.nodes[0];
    assert!(matches!(node.route(&flow), Route::Send(child) if node.is_clients(child)));
    node.suspend(world.now);
    assert_eq!(node.route(&flow), Route::Hold);
    node.resume(world.now);
    assert!(matches!(node.route(&flow), Route::Send(_)));
    let events = std::iter::from_fn(|| node.poll_event()).collect::<Vec<_>>();
    assert!(events.iter().any(|e| matches!(e, Event::Flowing)), "{events:?}");
}
