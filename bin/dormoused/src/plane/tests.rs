use super::*;
use dormouse_ike::config::EndpointConfig;
use dormouse_node::config::{parse, resolve};
use dormouse_node::pool::{Pool, SharedPool};
use dormouse_node::{Discard, Event, SleepFlags};
use dormouse_sansio::{Carrier, Seeded, UnixTime};
use dormouse_wire::ip::udp;

const NOW: Instant = Instant::ZERO;
const WISHES: SleepFlags = SleepFlags { stand_in: true, buffering: true };

fn node(role: &str, own: &str, peer: &str, child: &str, endpoint: EndpointConfig) -> Node {
    let secret = "secret = \"a secret of the test\"";
    let toml = format!(
        "[connection.office]\nrole = \"{role}\"\n{}\n[connection.office.local]\nid = \"{own}\"\n{secret}\n\
         [connection.office.remote]\nid = \"{peer}\"\n{secret}\n[connection.office.child]\n{child}\n",
        if role == "client" { "gateway = \"192.0.2.1\"" } else { "" },
    );
    let file = parse(&toml).expect("TOML");
    let resolved = resolve(&file, &mut |_, _| Err("no files here".into())).expect("a configuration");
    let mut node = Node::new(resolved, endpoint, Box::new(Seeded::new(1)), Box::new(Seeded::new(2)));
    node.set_wall_clock(NOW, UnixTime(1_800_000_000));
    node
}

/// A client with an address in the tunnel, and its gateway, whose driver has not yet seen what its node has to say.
fn connected() -> (Node, Node, IpAddr) {
    let pool = "10.55.0.0/24";
    let local = format!(
        "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n[connection.office.pool]\naddresses = [\"{pool}\"]"
    );
    let mut endpoint = EndpointConfig {
        pool: Some(Box::new(SharedPool::new(Pool::new(vec![pool.parse().expect("a prefix")])))),
        ..EndpointConfig::default()
    };
    endpoint.hold.services = WISHES;
    let mut gateway = node("gateway", "gateway.test", "device.test", &local, endpoint);
    let (limits, longest) = parse("").expect("TOML").standin.limits(10).expect("it stands in");
    gateway.stand_in_for_sleepers(limits, longest);
    let remote = "remote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"";
    let mut device = node("client", "device.test", "gateway.test", remote, EndpointConfig::default());
    let way = Path {
        local: ([198, 51, 100, 7], 500).into(),
        remote: ([192, 0, 2, 1], 500).into(),
        carrier: Carrier::Ike,
    };
    device.set_network(NOW, "office", Some(way));
    assert!(device.up(NOW, "office"));
    while carry(&mut device, &mut gateway) | carry(&mut gateway, &mut device) {}
    let inner = std::iter::from_fn(|| device.poll_event()).find_map(|event| match event {
        Event::Configure { assigned, .. } => assigned.v4,
        _ => None,
    });
    (device, gateway, inner.expect("a session").into())
}

/// Carries the IKE messages of `from` to the other end; whether there were any.
fn carry(from: &mut Node, to: &mut Node) -> bool {
    let (mut datagram, mut any) = (Vec::new(), false);
    while let Some(sent) = from.poll_transmit(NOW, &mut datagram) {
        to.handle_datagram(NOW, arriving(sent.path), &mut datagram).expect("a good message");
        datagram.clear();
        any = true;
    }
    any
}

fn arriving(path: Path) -> Path {
    Path { local: path.remote, remote: path.local, ..path }
}

/// A packet of the device, as it is and as its gateway receives it.
fn packet(device: &mut Node, inner: IpAddr, content: &[u8]) -> (Vec<u8>, Path, Vec<u8>) {
    let mut packet = Vec::new();
    udp::build((inner, 9).into(), ([10, 99, 0, 2], 9).into(), content, &mut packet).expect("it fits");
    let Route::Send(id) = device.route(&ip::flow(&packet).expect("a flow")) else { panic!("no session") };
    let child = device.child_mut(id).expect("as routed");
    let head = child.outbound.head_len();
    let mut slot = vec![0; child.outbound.sealed_len(packet.len())];
    slot[head..head + packet.len()].copy_from_slice(&packet);
    let (path, len) = (child.path, child.outbound.seal(&mut slot, packet.len(), 4).expect("sealed"));
    slot.truncate(len);
    (packet, arriving(path), slot)
}

#[test]
fn what_comes_before_its_senders_route_is_set_waits_for_it() {
    let (mut device, mut gateway, inner) = connected();
    let (mut counters, mut early, mut held) = (Counters::default(), Vec::new(), Held::new(8));
    let mut open = |gateway: &mut Node, early: &mut Vec<Vec<u8>>, path, datagram: &mut [u8]| {
        let (held, counters) = (&mut held, &mut counters);
        let mut plane = Plane { node: gateway, now: NOW, held, sleep: None, counters, early, inner: &[] };
        plane.open(&Received { path, ecn: 0 }, &mut Train::default(), datagram)
    };
    assert!(gateway.routes_due());
    let mut expected = Vec::new();
    for content in [b"first", b"again"] {
        let (plain, path, mut sealed) = packet(&mut device, inner, content);
        assert_eq!(open(&mut gateway, &mut early, path, &mut sealed), Verdict::Done);
        expected.push(plain);
    }
    assert_eq!(early, expected, "whole, and in their order");
    // The driver applies the events, and with them the route.
    let routed = std::iter::from_fn(|| gateway.poll_event())
        .any(|event| matches!(event, Event::PeerRoutes { routes, .. } if routes == [inner.into()]));
    assert!(routed && !gateway.routes_due());
    let (plain, path, mut sealed) = packet(&mut device, inner, b"later");
    let Verdict::Deliver(range) = open(&mut gateway, &mut early, path, &mut sealed) else {
        panic!("nothing more to wait for")
    };
    assert_eq!(sealed.get(range), Some(plain.as_slice()));
    assert_eq!((early.len(), counters.discards), (2, 0));
}

/// The device tells its gateway that it sleeps.
fn sleep(device: &mut Node, gateway: &mut Node) {
    assert!(device.prepare_sleep(NOW, "office", None, None, WISHES));
    while carry(device, gateway) | carry(gateway, device) {}
    device.suspend(NOW);
}

/// What the gateway's driver is to send to the device.
fn to_deliver(gateway: &mut Node) -> Vec<Box<[u8]>> {
    std::iter::from_fn(|| gateway.poll_event())
        .filter_map(|event| match event {
            Event::Deliver { packets } => Some(packets),
            _ => None,
        })
        .flatten()
        .collect()
}

#[test]
fn what_was_kept_is_kept_again_for_a_device_that_wakes_only_to_say_that_it_sleeps() {
    let (mut device, mut gateway, inner) = connected();
    let (mut counters, mut early, mut held, mut out) =
        (Counters::default(), Vec::new(), Held::new(8), Vec::new());
    assert_eq!(to_deliver(&mut gateway).len(), 0);
    sleep(&mut device, &mut gateway);
    let mut waits = Vec::new();
    udp::build(([10, 99, 0, 2], 9).into(), (inner, 9).into(), b"waits", &mut waits).expect("it fits");
    let Route::StandIn(id) = gateway.route(&ip::flow(&waits).expect("a flow")) else { panic!("it sleeps") };
    let _verdict = gateway.stand_in(NOW, id, &waits, &mut out);
    assert!(out.is_empty());

    let mut seal = |gateway: &mut Node, packet: &mut [u8]| {
        let (held, counters, early) = (&mut held, &mut counters, &mut early);
        let mut plane = Plane { node: gateway, now: NOW, held, sleep: None, counters, early, inner: &[] };
        plane.seal_kept(packet, &mut Vec::new())
    };
    device.resume(NOW);
    sleep(&mut device, &mut gateway);
    let mut packets = to_deliver(&mut gateway);
    assert_eq!(packets.len(), 1, "the announcement has woken it");
    assert!(matches!(seal(&mut gateway, &mut packets[0]), Kept::Again));

    device.resume(NOW);
    let (_, path, mut sealed) = packet(&mut device, inner, b"awake");
    gateway.handle_datagram(NOW, path, &mut sealed).expect("authentic");
    let mut packets = to_deliver(&mut gateway);
    assert_eq!(packets, [waits.into_boxed_slice()]);
    assert!(matches!(seal(&mut gateway, &mut packets[0]), Kept::Send(_)));
}

#[test]
fn the_first_packet_of_a_train_speaks_only_for_those_that_show_the_same() {
    let (mut device, mut gateway, inner) = connected();
    let (_, path, mut late) = packet(&mut device, inner, b"under way when it announced its sleep");
    sleep(&mut device, &mut gateway);
    device.resume(NOW);
    let (_, _, mut woken) = packet(&mut device, inner, b"awake");
    let (_, _, mut next) = packet(&mut device, inner, b"the next");
    let mut replayed = next.clone();

    let mut train = Train::default();
    let mut handle = |datagram: &mut [u8]| {
        let Ok(Inbound::Inner { child, .. }) = gateway.handle_next(NOW, path, &mut train, datagram) else {
            panic!("authentic")
        };
        gateway.is_peer_asleep(child)
    };
    assert!(handle(&mut late), "sent before it slept");
    assert!(!handle(&mut woken), "sent after");
    assert!(!handle(&mut next));
    let refused = gateway.handle_next(NOW, path, &mut train, &mut replayed);
    assert!(matches!(refused, Err(Discard::Esp(dormouse_esp::Discard::Replay(_)))));
}
