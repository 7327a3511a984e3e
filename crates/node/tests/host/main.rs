//! The host core: what waits, what is sealed, and in which order the driver hears of it. Two hosts, without a network between them.

mod arrivals;

use dormouse_energy::model::Resumption;
use dormouse_energy::profile::Profile;
use dormouse_energy::schedule::Policy;
use dormouse_ike::EndpointConfig;
use dormouse_ike::ticket::lineage::Outcome;
use dormouse_ike::ticket::{ClientTicket, TicketKeys};
use dormouse_node::config::{Resolved, parse, resolve};
use dormouse_node::host::{Arrival, Host, News, NotSent, Order, Origin, Output, Store};
use dormouse_node::ladder::State;
use dormouse_node::pool::{Pool, SharedPool};
use dormouse_node::sleeper::{Cause, Mode, Reason, Settings};
use dormouse_node::{Node, SleepFlags, Train};
use dormouse_sansio::packet::{Plan, Received, Verdict};
use dormouse_sansio::{Carrier, Instant, Path, Seeded, UnixTime};
use dormouse_wire::ip::{Packet, tcp, udp};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

const NOW: Instant = Instant::ZERO;
const WISHES: SleepFlags = SleepFlags { stand_in: true, buffering: true };
const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 99, 0, 2));
const POOL: &str = "10.55.0.0/24";
/// What the first device gets of it.
const FIRST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 55, 0, 2));

fn way() -> Path {
    Path {
        local: ([198, 51, 100, 7], 500).into(),
        remote: ([192, 0, 2, 1], 500).into(),
        carrier: Carrier::Ike,
    }
}

fn find_ways(host: &mut Host, now: Instant, mtu: u16) {
    host.find_ways(now, "office", |_| Some((way(), mtu)));
}

fn host(
    role: &str,
    keys: &str,
    own: &str,
    peer: &str,
    child: &str,
    pool: Option<SharedPool>,
    (endpoint, seed): (EndpointConfig, u64),
) -> End {
    let secret = "secret = \"a secret of the test\"";
    let toml = format!(
        "[connection.office]\nrole = \"{role}\"\n{keys}\n[connection.office.local]\nid = \"{own}\"\n{secret}\n\
         [connection.office.remote]\nid = \"{peer}\"\n{secret}\n[connection.office.child]\n{child}\n",
    );
    let node = Node::new(resolved(&toml), endpoint, Box::new(Seeded::new(seed)), Box::new(Seeded::new(2)));
    let mut host = Host::new(NOW, node, pool);
    host.set_wall_clock(NOW, UnixTime(1_800_000_000));
    End { host, seen: Seen::default() }
}

fn resolved(toml: &str) -> Vec<Resolved> {
    let file = parse(toml).expect("TOML");
    resolve(&file, &mut |_, _| Err("no files here".into())).expect("a configuration")
}

fn gateway() -> End {
    gateway_with_unique("replace")
}

fn gateway_with_unique(unique: &str) -> End {
    let local = format!(
        "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n[connection.office.pool]\naddresses = [\"{POOL}\"]"
    );
    let keys = format!("unique = \"{unique}\"");
    let unix = UnixTime(1_800_000_000);
    let day = Duration::from_secs(86_400);
    let pool = SharedPool::new(Pool::new([POOL.parse().expect("a prefix")]));
    let mut endpoint = EndpointConfig {
        pool: Some(Box::new(pool.clone())),
        ticket_keys: Some(TicketKeys::generate(unix, day, 2 * day, &mut Seeded::new(3))),
        ..EndpointConfig::default()
    };
    endpoint.hold.services = WISHES;
    let mut gateway =
        host("gateway", &keys, "gateway.test", "device.test", &local, Some(pool), (endpoint, 1));
    let (limits, longest) = parse("").expect("TOML").standin.limits(10).expect("it stands in");
    gateway.node_mut().stand_in_for_sleepers(limits, longest);
    gateway
}

fn device() -> End {
    device_with(None)
}

fn device_with(ticket: Option<ClientTicket>) -> End {
    device_drawn(1, ticket)
}

/// A device whose numbers are drawn from this seed.
fn device_drawn(seed: u64, ticket: Option<ClientTicket>) -> End {
    let remote = "remote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"";
    let mut device = host(
        "client",
        "gateway = \"192.0.2.1\"",
        "device.test",
        "gateway.test",
        remote,
        None,
        (EndpointConfig::default(), seed),
    );
    if let Some(ticket) = ticket {
        device.node_mut().restore_ticket("office", ticket);
    }
    assert!(device.up(NOW, "office"));
    device.resolved(NOW, "192.0.2.1", Ok(vec![way().remote.ip()]), true);
    find_ways(&mut device, NOW, 1_500);
    device
}

/// What a driver was handed.
#[derive(Default)]
struct Seen {
    datagrams: Vec<(Path, Vec<u8>)>,
    inner: Vec<(Origin, Vec<u8>)>,
    orders: Vec<Order>,
    news: Vec<News>,
    /// In their order: `d` for a datagram, `i` for an inner packet, `s` for something to store, `r` for a route.
    order: String,
}

/// A host, and what it has handed back that [`drive`] has not taken.
struct End {
    host: Host,
    seen: Seen,
}

impl Deref for End {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl DerefMut for End {
    fn deref_mut(&mut self) -> &mut Host {
        &mut self.host
    }
}

/// A packet comes from the inner side.
fn forward(end: &mut End, now: Instant, packet: &mut [u8]) {
    let Plan::Seal(geometry) = end.plan(now, packet) else { return };
    let mut slot = vec![0; geometry.stride];
    slot[geometry.head..geometry.head + packet.len()].copy_from_slice(packet);
    let sealed = end.seal(now, &geometry, &mut slot, &[packet.len()]).expect("an SA");
    slot.truncate(sealed.len);
    end.seen.order.push('d');
    end.seen.datagrams.push((sealed.path, slot));
}

fn drive(end: &mut End, now: Instant) -> Seen {
    drive_over(end, now, 1_500)
}

/// The same, over a link that carries `mtu` bytes.
fn drive_over(end: &mut End, now: Instant, mtu: u16) -> Seen {
    let (mut seen, mut bytes) = (std::mem::take(&mut end.seen), Vec::new());
    let host = &mut end.host;
    while let Some(output) = host.poll(now, &mut bytes) {
        match output {
            Output::Datagram(datagram) => {
                seen.order.push('d');
                seen.datagrams.push((datagram.path, std::mem::take(&mut bytes)));
            }
            Output::Inner(origin) => {
                seen.order.push('i');
                seen.inner.push((origin, std::mem::take(&mut bytes)));
            }
            Output::Order(order) => {
                match &order {
                    Order::Store(_) => seen.order.push('s'),
                    Order::Lease { number, .. } => host.leased(now, *number),
                    Order::PeerRoutes { .. } => seen.order.push('r'),
                    Order::FindWays { .. } => find_ways(host, now, mtu),
                    Order::Lineage(operation) => {
                        operation.asked_by().into_iter().for_each(|sa| host.stored(now, sa, Outcome::Done));
                    }
                    _ => {}
                }
                seen.orders.push(order);
            }
            Output::Transit(_) => {}
            Output::News(news) => seen.news.push(news),
        }
    }
    seen
}

fn arriving(path: Path) -> Received {
    Received { path: Path { local: path.remote, remote: path.local, ..path }, ecn: 0 }
}

fn hand_over(sent: Vec<(Path, Vec<u8>)>, to: &mut End, now: Instant) {
    for (path, mut datagram) in sent {
        let verdict = to.open(now, &arriving(path), &mut Train::default(), &mut datagram);
        if let Verdict::Deliver(range) = verdict {
            to.seen.order.push('i');
            to.seen.inner.push((Origin::Tunnel, datagram[range].to_vec()));
        }
        while to.handle_arrival(now).is_some() {}
    }
}

/// Carries everything to and fro until both are silent.
fn converse(device: &mut End, gateway: &mut End, now: Instant) -> [Seen; 2] {
    let mut all = [Seen::default(), Seen::default()];
    loop {
        let [mut from_device, mut from_gateway] = [drive(device, now), drive(gateway, now)];
        let silent = from_device.datagrams.is_empty() && from_gateway.datagrams.is_empty();
        for (all, seen) in all.iter_mut().zip([&mut from_device, &mut from_gateway]) {
            all.inner.append(&mut seen.inner);
            all.orders.append(&mut seen.orders);
            all.order += &seen.order;
        }
        hand_over(from_device.datagrams, gateway, now);
        hand_over(from_gateway.datagrams, device, now);
        if silent {
            return all;
        }
    }
}

/// A device with a session and its inner address, and its gateway.
fn connected() -> (End, End, IpAddr) {
    let (mut device, mut gateway) = (device(), gateway());
    converse(&mut device, &mut gateway, NOW);
    let inner = device.node().inner_addresses();
    let [inner] = inner.as_slice() else { panic!("{inner:?}") };
    (device, gateway, *inner)
}

fn packet(from: IpAddr, to: IpAddr, content: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    udp::build((from, 9).into(), (to, 9).into(), content, &mut packet).expect("it fits");
    packet
}

fn seconds(n: u64) -> Instant {
    NOW + Duration::from_secs(n)
}

#[test]
fn what_must_be_durable_and_routed_comes_before_what_depends_on_it() {
    let (mut device, mut gateway) = (device(), gateway());
    let (mut early, mut asked) = (Vec::new(), drive(&mut device, NOW));
    // The device's first packet leaves with its last message, and comes before the gateway's driver has set the route.
    loop {
        hand_over(asked.datagrams, &mut gateway, NOW);
        let answered = drive(&mut gateway, NOW);
        early.push(answered.order.clone());
        if answered.datagrams.is_empty() {
            break;
        }
        hand_over(answered.datagrams, &mut device, NOW);
        asked = drive(&mut device, NOW);
    }
    assert!(early.iter().any(|o| o.contains('r')), "{early:?}");
    for order in &early {
        let (last, first) = (order.rfind(['s', 'r']), order.find(['d', 'i']));
        assert!(last.zip(first).is_none_or(|(last, first)| last < first), "{order}");
    }
}

/// A stranger has recorded a resumption, and sends it again and again.
#[test]
fn copies_of_a_request_are_answered_and_leave_nothing_on_record_or_on_the_disk() {
    let (mut first, mut gateway) = (device(), gateway());
    let [seen, _] = converse(&mut first, &mut gateway, NOW);
    let mut again = device_with(ticket_of(&seen));
    let [(path, request)] = drive(&mut again, NOW).datagrams.try_into().expect("one request");
    let mut seen = Seen::default();
    for port in 1..=40 {
        let from = Path { local: (path.local.ip(), port).into(), ..path };
        hand_over(vec![(from, request.clone())], &mut gateway, NOW);
        let answered = drive(&mut gateway, NOW);
        assert_eq!(answered.datagrams.len(), 1, "like any other");
        seen.orders.extend(answered.orders);
        seen.news.extend(answered.news);
    }
    while let Some(due) = gateway.poll_timeout().filter(|due| due.at <= seconds(60)) {
        gateway.handle_timeout(due.at);
        let later = drive(&mut gateway, due.at);
        seen.orders.extend(later.orders);
        seen.news.extend(later.news);
    }
    assert_eq!(gateway.node().ike().half_open(), 0, "all are over");
    let stored = seen.orders.iter().find(|o| matches!(o, Order::Lease { .. } | Order::Lineage(_)));
    assert!(stored.is_none(), "{stored:?}");
    assert!(!seen.news.iter().any(|news| matches!(news, News::Record(_))), "{:?}", seen.news);
}

fn ticket_of(seen: &Seen) -> Option<ClientTicket> {
    seen.orders.iter().rev().find_map(|order| match order {
        Order::Store(Store::Ticket { bytes: Some(bytes), .. }) => ClientTicket::decode(bytes.as_bytes()).ok(),
        _ => None,
    })
}

/// Two devices share an identity. The second has got the address of the first, which has been away for long and comes back.
#[test]
fn a_ticket_does_not_bring_an_address_back_that_another_device_has() {
    let (mut first, mut gateway) = (device(), gateway_with_unique("never"));
    let [seen, _] = converse(&mut first, &mut gateway, NOW);
    let ticket = ticket_of(&seen);
    let (mut now, address) = (NOW, first.node().inner_addresses());
    while !gateway.node().gateway_sessions(now).is_empty() {
        now = gateway.poll_timeout().expect("it looks after its session").at;
        gateway.handle_timeout(now);
        drive(&mut gateway, now);
    }
    let mut second = device();
    converse(&mut second, &mut gateway, now);
    assert_eq!(second.node().inner_addresses(), address, "it was free");
    let mut again = device_with(ticket);
    converse(&mut again, &mut gateway, now);
    assert_eq!(again.node().inner_addresses().len(), 1);
    assert_ne!(again.node().inner_addresses(), address);
    assert_eq!(gateway.node().gateway_sessions(now).len(), 2);
    for device in [&mut second, &mut again] {
        let inner = device.node().inner_addresses()[0];
        forward(&mut gateway, now, &mut packet(SERVER, inner, b"whose"));
        let [seen, _] = converse(device, &mut gateway, now);
        assert_eq!(seen.inner, [(Origin::Tunnel, packet(SERVER, inner, b"whose"))]);
    }
}

#[test]
fn a_packet_that_waited_is_told_to_be_too_big_and_a_syn_is_clamped() {
    let mut device = device();
    let mut gateway = gateway();
    converse(&mut device, &mut gateway, NOW);
    let inner = device.node().inner_addresses()[0];
    device.suspend(NOW, Reason::User);
    drive(&mut device, NOW);
    let mut syn = Vec::new();
    let segment = tcp::Segment {
        src: (inner, 9).into(),
        dst: (SERVER, 9).into(),
        sequence: 1,
        acknowledgement: 0,
        flags: tcp::SYN,
        window: 65_535,
        options: &[2, 4, 5, 180],
    };
    segment.build(&[], &mut syn).expect("it fits");
    forward(&mut device, NOW, &mut packet(inner, SERVER, &[7; 1384]));
    forward(&mut device, NOW, &mut syn.clone());
    assert_eq!(device.held(), 2);
    let info = device.node().client_infos(NOW).remove(0);
    assert_eq!(
        (info.state, info.asleep),
        (State::Offline, true),
        "it may not send, though there is a network"
    );
    device.resume(NOW, Cause::User);
    // The network that it wakes in carries less.
    let seen = drive_over(&mut device, NOW, 1_280);
    let [(Origin::Error, error)] = seen.inner.as_slice() else { panic!("{:?}", seen.inner) };
    assert_eq!(error[20..22], [3, 4], "fragmentation needed");
    let mtu = usize::from(u16::from_be_bytes([error[26], error[27]]));
    assert!((1_180..1_280).contains(&mtu), "{mtu}");
    hand_over(seen.datagrams, &mut gateway, NOW);
    let arrived = drive(&mut gateway, NOW).inner;
    let [(Origin::Tunnel, clamped)] = arrived.as_slice() else { panic!("{arrived:?}") };
    let parsed = Packet::parse(clamped).expect("a packet");
    let mss = tcp::Tcp::parse(&parsed).expect("TCP").option(2).expect("a SYN");
    assert_eq!(mss, u16::try_from(mtu - 40).expect("a size").to_be_bytes());
    assert_eq!(clamped.len(), syn.len());
}

#[test]
fn a_packet_that_could_not_be_sent_waits_again() {
    let (mut device, mut gateway, inner) = connected();
    device.suspend(NOW, Reason::User);
    drive(&mut device, NOW);
    forward(&mut device, NOW, &mut packet(inner, SERVER, b"waits"));
    device.resume(NOW, Cause::User);
    let mut bytes = Vec::new();
    loop {
        match device.poll(NOW, &mut bytes) {
            Some(Output::Datagram(d)) if !d.fragmentable => break device.not_sent(NOW, NotSent::Failed),
            Some(Output::Order(Order::FindWays { .. })) => find_ways(&mut device, NOW, 1_500),
            Some(_) => {}
            None => panic!("it is released"),
        }
    }
    drive(&mut device, NOW);
    assert_eq!(device.held(), 1);
    // The next sign that packets flow lets it go.
    device.suspend(NOW, Reason::User);
    drive(&mut device, NOW);
    device.resume(NOW, Cause::User);
    hand_over(drive(&mut device, NOW).datagrams, &mut gateway, NOW);
    assert_eq!(drive(&mut gateway, NOW).inner, [(Origin::Tunnel, packet(inner, SERVER, b"waits"))]);
}

#[test]
fn as_many_packets_wait_as_the_connections_of_now_allow() {
    let device = |most: usize| {
        format!(
            "[connection.office]\nrole = \"client\"\ngateway = \"192.0.2.1\"\nwake = {{ hold_packets = {most} }}\n\
             [connection.office.local]\nid = \"device.test\"\nsecret = \"a secret of the test\"\n\
             [connection.office.remote]\nid = \"gateway.test\"\nsecret = \"a secret of the test\"\n\
             [connection.office.child]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\n",
        )
    };
    let [few, more] = [3, 5].map(|most| resolved(&device(most)));
    let [a, b] = [1, 2].map(|seed| Box::new(Seeded::new(seed)));
    let node = Node::new(few, EndpointConfig::default(), a, b);
    let mut host = End { host: Host::new(NOW, node, None), seen: Seen::default() };
    let mut gateway = gateway();
    host.set_wall_clock(NOW, UnixTime(1_800_000_000));
    assert!(host.up(NOW, "office"));
    host.resolved(NOW, "192.0.2.1", Ok(vec![way().remote.ip()]), true);
    find_ways(&mut host, NOW, 1_500);
    converse(&mut host, &mut gateway, NOW);
    let inner = host.node().inner_addresses()[0];
    host.suspend(NOW, Reason::User);
    drive(&mut host, NOW);
    let wait = |host: &mut End| {
        (0..8).for_each(|_| forward(host, NOW, &mut packet(inner, SERVER, b"waits")));
        host.held()
    };
    assert_eq!(wait(&mut host), 3);
    host.reconfigure(NOW, &more, &BTreeSet::new());
    assert_eq!(wait(&mut host), 5);
}

#[test]
fn what_was_kept_is_kept_again_for_a_device_that_wakes_only_to_say_that_it_sleeps() {
    let (mut device, mut gateway, inner) = connected();
    let announce = |device: &mut End, gateway: &mut End| {
        assert!(device.node_mut().prepare_sleep(NOW, "office", None, None, WISHES));
        let [_, seen] = converse(device, gateway, NOW);
        device.suspend(NOW, Reason::User);
        drive(device, NOW);
        assert_eq!(seen.inner, []);
    };
    announce(&mut device, &mut gateway);
    let waits = packet(SERVER, inner, b"waits");
    assert_eq!(gateway.plan(NOW, waits.clone().as_mut_slice()), Plan::Drop, "its stand-in has it");
    device.node_mut().resume(NOW);
    announce(&mut device, &mut gateway);
    let waiting = |gateway: &Host| gateway.node().stand_in_totals().expect("a stand-in").1.0;
    assert_eq!(waiting(&gateway), 1, "the announcement has woken it, and it sleeps again");
    device.resume(NOW, Cause::User);
    drive(&mut device, NOW);
    forward(&mut device, NOW, &mut packet(inner, SERVER, b"awake"));
    let [seen, _] = converse(&mut device, &mut gateway, NOW);
    assert_eq!(seen.inner, [(Origin::Tunnel, waits)]);
    assert_eq!(waiting(&gateway), 0);
}

fn laptop(mode: Mode, lost_per_hour: u64) -> Settings {
    Settings {
        mode,
        policy: Policy::Timeout(5.0),
        min_idle: Duration::from_millis(250),
        wake_every: None,
        renew: false,
        latency: Duration::from_secs(3),
        lost_per_hour,
        model: Profile::shipped("laptop-000").and_then(|p| p.model().ok()).expect("it ships"),
        profile: "laptop-000".into(),
        resumption: Resumption::HeldSa,
    }
}

/// With a policy whose clock runs faster than the machine's, losses age on the policy's clock like everything else.
#[test]
fn the_bound_on_lost_packets_holds_at_any_speed() {
    for speed in [1, 90] {
        let (mut device, mut gateway, inner) = connected();
        device.let_sleep(NOW, laptop(Mode::Balanced, 3), speed, SleepFlags::default());
        device.set_radio(NOW, true);
        drive(&mut device, NOW);
        let at = |policy: f64| NOW + Duration::from_secs_f64(policy / f64::from(speed));
        // Five packets are lost while the radio is off, ten minutes of the policy after the start.
        device.suspend(at(600.0), Reason::User);
        drive(&mut device, at(600.0));
        while !device.node().is_suspended() {
            let due = device.poll_timeout().expect("the announcement ends");
            device.handle_timeout(due.at);
            drive(&mut device, due.at);
        }
        for n in 0..5 {
            forward(&mut gateway, at(600.0), &mut packet(SERVER, inner, &[n]));
            drive(&mut gateway, at(600.0));
        }
        device.resume(at(610.0), Cause::User);
        drive(&mut device, at(610.0));
        forward(&mut gateway, at(610.0), &mut packet(SERVER, inner, b"seen"));
        hand_over(drive(&mut gateway, at(610.0)).datagrams, &mut device, at(610.0));
        drive(&mut device, at(610.0));
        let lately =
            |device: &Host, policy: f64| device.sleep_report(at(policy)).map(|(report, _)| report.backoff.1);
        assert_eq!(lately(&device, 611.0), Some(5), "speed {speed}");
        assert_eq!(lately(&device, 610.0 + 3_500.0), Some(5), "speed {speed}");
        assert_eq!(lately(&device, 610.0 + 3_700.0), Some(0), "speed {speed}");
    }
}

#[test]
fn what_the_sleeper_learned_is_stored_before_the_radio_goes_off() {
    let (mut device, mut gateway, inner) = connected();
    device.let_sleep(NOW, laptop(Mode::Energy, 0), 1, SleepFlags::default());
    device.set_radio(NOW, true);
    forward(&mut device, NOW, &mut packet(inner, SERVER, b"once"));
    drive(&mut device, NOW);
    forward(&mut gateway, NOW, &mut packet(SERVER, inner, b"answer"));
    hand_over(drive(&mut gateway, NOW).datagrams, &mut device, NOW);
    drive(&mut device, NOW);
    let mut orders = Vec::new();
    while let Some(due) = device.poll_timeout().filter(|d| d.at <= seconds(60)) {
        device.handle_timeout(due.at);
        orders.extend(drive(&mut device, due.at).orders);
    }
    let stored = orders.iter().position(|o| matches!(o, Order::Store(Store::SleepHistory(_))));
    let off = orders.iter().position(|o| matches!(o, Order::Radio(dormouse_node::host::Radio::Off)));
    assert!(stored.is_some() && stored < off, "{orders:?}");
}
