use super::*;
use dormouse_crypto::{Encr, Secret};
use dormouse_esp::{IPV4_IN_IP, Outbound, SaParams, ZoneParams};
use dormouse_keying::{HeaderGrant, HeaderSa, Nodes, ZoneMap};
use dormouse_sansio::Seeded;
use dormouse_snoop::{Done, Ends};
use dormouse_wire::ike::mlike::Excerpt;
use dormouse_wire::ip::tcp::{ACK, Segment};
use dormouse_wire::ip::{Ipv4Header, protocol};
use std::net::{Ipv4Addr, SocketAddr};

mod flood;

const GCM: Encr = Encr::Aes128Gcm16;
const LEN: u32 = 100;
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DEVICE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

fn ms(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}

fn router(repair: Kind, rate_kbit: u32) -> Router {
    Router::new(&Settings { device: "wlan0".into(), network: "eth0".into(), repair, rate_kbit })
}

/// A composite SA: what its two senders seal, with SPI 1,000 to the device and 1,001 from it.
struct Sa {
    down: Outbound,
    up: Outbound,
    key: u8,
}

impl Sa {
    fn new(key: u8) -> Self {
        let half = |spi| {
            let further = vec![(GCM, Secret::from([key + 1; 20]))];
            let zones = Some(ZoneParams { map: ZoneMap::default(), further });
            let params = SaParams { zones, ..SaParams::new(spi, GCM, None, Secret::from([key; 20])) };
            Outbound::new(&params, &mut Seeded::new(1)).expect("a sender")
        };
        Self { down: half(1_000), up: half(1_001), key }
    }

    const fn id() -> GrantId {
        GrantId { to_device: 1_000, from_device: 1_001 }
    }

    fn grant(&self) -> HeaderOrder {
        let sa = |spi| HeaderSa { spi, keymat: Secret::from([self.key; 20]), reached: 0.into() };
        HeaderOrder::Grant(Box::new(HeaderGrant {
            map: ZoneMap::default(),
            encr: GCM,
            esn: true,
            to_device: sa(1_000),
            from_device: sa(1_001),
            nodes: Nodes::new(1, 16).expect("nodes"),
        }))
    }

    fn seal(sender: &mut Outbound, inner: &[u8], [src, dst]: [Ipv4Addr; 2]) -> Vec<u8> {
        let mut slot = vec![0; sender.sealed_len(inner.len())];
        let head = sender.head_len();
        slot[head..head + inner.len()].copy_from_slice(inner);
        sender.seal(&mut slot, inner.len(), IPV4_IN_IP).expect("sealed");
        let header = Ipv4Header::new(src, dst, protocol::ESP).to_bytes(slot.len()).expect("a header");
        [&header[..], &slot].concat()
    }

    /// The data segment of this number, sealed.
    fn data(&mut self, number: u32) -> Vec<u8> {
        Self::seal(&mut self.down, &data(number), [GATEWAY, DEVICE])
    }

    /// The device's acknowledgement of all segments before this one, sealed.
    fn ack(&mut self, number: u32) -> Vec<u8> {
        Self::seal(&mut self.up, &ack(number), [DEVICE, GATEWAY])
    }
}

fn segment(down: bool, sequence: u32, acknowledgement: u32, payload: &[u8]) -> Vec<u8> {
    let ends: [SocketAddr; 2] = [([203, 0, 113, 1], 80).into(), ([10, 1, 0, 2], 5_000).into()];
    let [src, dst] = if down { ends } else { [ends[1], ends[0]] };
    let segment = Segment { src, dst, sequence, acknowledgement, flags: ACK, window: 1_000, options: &[] };
    let mut out = Vec::new();
    segment.build(payload, &mut out).expect("a packet");
    out
}

fn data(number: u32) -> Vec<u8> {
    segment(true, number * LEN, 0, &[number as u8; LEN as usize])
}

fn ack(number: u32) -> Vec<u8> {
    segment(false, 0, number * LEN, &[])
}

fn ready(router: &mut Router) -> Vec<Sent> {
    std::iter::from_fn(|| router.poll_packet()).collect()
}

fn wishes(router: &mut Router) -> Vec<Wish> {
    std::iter::from_fn(|| router.poll_wish()).collect()
}

/// A packet that goes on, and where to.
type Sent = (Side, Vec<u8>);

/// Segments 0 to 5 pass; the device has all but 1. What the router sends then.
fn lose_one(router: &mut Router, sa: &mut Sa) -> (Vec<Vec<u8>>, Vec<Sent>) {
    router.handle_packet(ms(0), Side::Network, sa.data(0));
    router.handle_packet(ms(10), Side::Device, sa.ack(1));
    let sent: Vec<_> = (1..=5).map(|n| sa.data(n)).collect();
    for (packet, at) in sent.iter().zip(20..) {
        router.handle_packet(ms(at), Side::Network, packet.clone());
    }
    ready(router);
    let duplicate = sa.ack(1);
    router.handle_packet(ms(31), Side::Device, duplicate);
    (sent, ready(router))
}

#[test]
fn with_the_keys_of_a_gateway_it_repeats_what_the_radio_lost_and_hides_it() {
    let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
    router.obey(&sa.grant());
    let (sent, answer) = lose_one(&mut router, &mut sa);
    assert_eq!(answer, [(Side::Device, sent[0].clone())], "the packet byte for byte, and no duplicate");
    let info = router.info();
    assert_eq!((info.snoop.repeated, info.snoop.suppressed), (1, 1));
    assert_eq!(info.keys, [(Sa::id(), Keys::Fit)]);
    let [flow] = info.flows[..] else { panic!("one connection: {:?}", info.flows) };
    let (fixed, device) = (([203, 0, 113, 1], 80).into(), ([10, 1, 0, 2], 5_000).into());
    let esp = Some((GATEWAY.into(), DEVICE.into()));
    assert_eq!(flow.ends, Ends::Tcp { fixed, device, esp });
    // Of six segments the first was acknowledged, after 10 ms.
    assert_eq!((flow.held, flow.done), (5, Done { kept: 6, repeated: 1, suppressed: 1 }));
    assert_eq!((flow.round_trip, flow.heard), (Some(Duration::from_millis(10)), ms(31)));
    assert_eq!((info.counters.to_device, info.counters.to_network, info.counters.asked), (7, 1, 0));
    // They go when their gateway says so, and what comes goes on as before.
    router.obey(&HeaderOrder::Revoke(Sa::id()));
    let (_, answer) = lose_one(&mut router, &mut sa);
    assert!(matches!(answer.as_slice(), [(Side::Network, _)]), "{answer:?}");
    assert_eq!((router.info().keys, router.info().snoop.repeated), (vec![], 1));
}

#[test]
fn without_keys_and_without_repair_all_goes_on_as_it_came() {
    for repair in [Kind::None, Kind::Snoop] {
        let (mut router, mut sa) = (router(repair, 0), Sa::new(7));
        if repair == Kind::None {
            router.obey(&sa.grant());
        }
        for n in 0..6 {
            let (down, up) = (sa.data(n), sa.ack(1));
            router.handle_packet(ms(n.into()), Side::Network, down.clone());
            router.handle_packet(ms(n.into()), Side::Device, up.clone());
            assert_eq!(ready(&mut router), [(Side::Device, down), (Side::Network, up)]);
        }
        let asked = wishes(&mut router);
        let seen = Excerpt::of(&Sa::new(7).data(0)[20..]).expect("a packet");
        let (previous, registered) = (None, false);
        let missing = Wish::Missing { gateway: GATEWAY.into(), spi: 1_000, seen, previous, registered };
        assert_eq!(asked, if repair == Kind::Snoop { vec![missing] } else { vec![] });
    }
}

#[test]
fn plain_tcp_is_repaired_without_any_key() {
    let mut router = router(Kind::Snoop, 0);
    for (n, at) in [(0, 0), (1, 20), (2, 21)] {
        router.handle_packet(ms(at), Side::Network, data(n));
        if n == 0 {
            router.handle_packet(ms(10), Side::Device, ack(1));
        }
    }
    ready(&mut router);
    router.handle_packet(ms(31), Side::Device, ack(1));
    assert_eq!(ready(&mut router), [(Side::Device, data(1))]);
}

#[test]
fn the_flows_that_were_used_last_are_listed_and_the_others_counted() {
    let mut router = router(Kind::Snoop, 0);
    let flow = |port: u16| {
        let (src, dst) = (([203, 0, 113, 1], 80).into(), ([10, 1, 0, 2], port).into());
        let segment =
            Segment { src, dst, sequence: 0, acknowledgement: 0, flags: ACK, window: 1_000, options: &[] };
        let mut out = Vec::new();
        segment.build(&[0; 10], &mut out).expect("a packet");
        out
    };
    for n in 0..20 {
        router.handle_packet(ms(n.into()), Side::Network, flow(5_000 + n));
    }
    router.handle_packet(ms(30), Side::Network, flow(5_001));
    let info = router.info();
    assert_eq!(info.held.0, 20);
    let ports = info.flows.iter().map(|flow| match flow.ends {
        Ends::Tcp { device, esp: None, .. } => device.port(),
        ends => panic!("TCP in clear: {ends:?}"),
    });
    let expected: Vec<u16> = [5_001].into_iter().chain((5_005..5_020).rev()).collect();
    assert_eq!(ports.collect::<Vec<_>>(), expected);
}

#[test]
fn stale_keys_are_told_and_asked_about_again_until_others_come() {
    let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
    router.obey(&Sa::new(50).grant());
    let mut asked = Vec::new();
    for second in 0..60 {
        let packet = sa.data(second);
        router.handle_packet(ms(u64::from(second) * 1_000), Side::Network, packet.clone());
        assert_eq!(ready(&mut router), [(Side::Device, packet)], "untouched");
        asked.extend(wishes(&mut router).into_iter().map(|wish| (second, wish)));
    }
    let stale = Wish::Other(HeaderNews::Stale(Sa::id()));
    // The third packet that does not open says it; then after 2, 4, 8, ... seconds.
    assert_eq!(asked, [2, 4, 8, 16, 32].map(|second| (second, stale.clone())));
    assert_eq!(router.info().keys, [(Sa::id(), Keys::Stale)]);
    router.obey(&sa.grant());
    assert_eq!(router.info().keys, [(Sa::id(), Keys::Fit)]);
    let (_, answer) = lose_one(&mut router, &mut Sa { down: sa.down, up: sa.up, key: 7 });
    assert!(matches!(answer.as_slice(), [(Side::Device, _)]), "{answer:?}");
}

#[test]
fn a_radio_of_known_rate_takes_one_packet_at_a_time_and_repetitions_first() {
    let (mut router, mut sa) = (router(Kind::Snoop, 1_000), Sa::new(7));
    router.obey(&sa.grant());
    let mut now = ms(1_000);
    let mut taken = Vec::new();
    let mut turn = |router: &mut Router, now: &mut Instant| {
        let due = router.poll_timeout().expect("packets wait");
        assert!(due.at > *now, "no packet before the radio is free");
        *now = due.at;
        router.handle_timeout(*now);
        taken.extend(ready(router).into_iter().map(|(_, packet)| packet));
    };
    let sent: Vec<_> = (0..30).map(|n| sa.data(n)).collect();
    for packet in &sent {
        router.handle_packet(now, Side::Network, packet.clone());
    }
    assert_eq!(ready(&mut router).len(), 2, "one, and what the radio could have taken before");
    for _ in 0..8 {
        turn(&mut router, &mut now);
    }
    // The third packet is lost: the device has 0 and 1, and what came after.
    let first = sa.ack(2);
    router.handle_packet(now, Side::Device, first);
    let again = sa.ack(2);
    router.handle_packet(now, Side::Device, again);
    ready(&mut router);
    turn(&mut router, &mut now);
    turn(&mut router, &mut now);
    assert!(taken[8..].contains(&sent[2]), "it overtakes the 20 that wait");
}

/// A thief who copies on the wire what waits here, and shows it to a neighbour's neighbour, shows nothing new.
#[test]
fn packets_that_wait_for_the_radio_have_passed_and_are_opened_once() {
    let (mut router, mut sa) = (router(Kind::Snoop, 8), Sa::new(7));
    let HeaderOrder::Grant(grant) = sa.grant() else { unreachable!("a grant") };
    let reached = grant.to_device.reached.clone();
    for n in 0..3 {
        router.handle_packet(ms(0), Side::Network, sa.data(n));
    }
    router.obey(&HeaderOrder::Grant(grant));
    let opened = |router: &Router| router.info().zones.opened;
    assert_eq!((reached.highest(), opened(&router)), (3, 2), "the radio had taken the first one");
    for n in 3..10 {
        router.handle_packet(ms(0), Side::Network, sa.data(n));
        assert_eq!(reached.highest(), u64::from(n) + 1);
    }
    assert_eq!((router.info().waiting, router.info().snoop.kept), (9, 0), "nothing is kept before its turn");
    while router.info().waiting > 0 {
        let due = router.poll_timeout().expect("packets wait");
        router.handle_timeout(due.at);
    }
    assert_eq!((opened(&router), router.info().snoop.kept), (9, 9));
    // What finds no room has come here all the same.
    for n in 10..400 {
        router.handle_packet(ms(0), Side::Network, sa.data(n));
    }
    assert!(router.info().counters.dropped > 0);
    assert_eq!(reached.highest(), 400);
}

#[test]
fn what_was_read_of_waiting_packets_goes_with_the_keys() {
    let (mut router, mut sa) = (router(Kind::Snoop, 8), Sa::new(7));
    router.obey(&sa.grant());
    for n in 0..5 {
        router.handle_packet(ms(0), Side::Network, sa.data(n));
    }
    let kept = router.info().snoop.kept;
    router.obey(&HeaderOrder::Revoke(Sa::id()));
    router.handle_timeout(ms(60_000));
    assert_eq!(router.info().snoop.kept, kept);
}

#[test]
fn what_waits_for_the_radio_is_bounded() {
    let mut router = router(Kind::Snoop, 8);
    for n in 0..5_000 {
        router.handle_packet(ms(0), Side::Network, data(n));
    }
    assert!(router.waiting_bytes <= WAITING_LEAST, "{}", router.waiting_bytes);
    let info = router.info();
    assert_eq!(info.counters.dropped + info.counters.to_device + info.waiting as u64, 5_000);
    assert!(info.counters.dropped > 4_000);
}

#[test]
fn what_the_kernel_says_to_its_own_link_goes_nowhere() {
    let mut router = router(Kind::Snoop, 0);
    let header = Ipv4Header::new(DEVICE, Ipv4Addr::new(224, 0, 0, 22), protocol::UDP);
    let packet = [&header.to_bytes(8).expect("a header")[..], &[0; 8]].concat();
    for from in [Side::Device, Side::Network] {
        router.handle_packet(ms(0), from, packet.clone());
    }
    assert_eq!(ready(&mut router), []);
}

/// The packet in a tunnel of IP in IP, as agents of Mobile IP have it.
fn tunnelled(packet: &[u8]) -> Vec<u8> {
    let [from, to] = [Ipv4Addr::new(203, 0, 113, 1), Ipv4Addr::new(203, 0, 113, 2)];
    let header = Ipv4Header::new(from, to, protocol::IPV4).to_bytes(packet.len()).expect("a header");
    [&header[..], packet].concat()
}

#[test]
fn packets_in_a_tunnel_of_mobile_ip_are_repaired_as_they_came() {
    let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
    router.obey(&sa.grant());
    router.handle_packet(ms(0), Side::Network, tunnelled(&sa.data(0)));
    router.handle_packet(ms(10), Side::Device, tunnelled(&sa.ack(1)));
    let sent: Vec<_> = (1..=5).map(|n| tunnelled(&sa.data(n))).collect();
    for (packet, at) in sent.iter().zip(20..) {
        router.handle_packet(ms(at), Side::Network, packet.clone());
    }
    ready(&mut router);
    let duplicate = tunnelled(&sa.ack(1));
    router.handle_packet(ms(31), Side::Device, duplicate);
    assert_eq!(ready(&mut router), [(Side::Device, sent[0].clone())]);
}

#[test]
fn the_router_before_is_asked_for_keys_of_a_device_that_has_come_from_there() {
    let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
    let previous: Option<Identity> = Some("r1.test".parse().expect("an identity"));
    let [first, last] = [1, 1].map(|n| sa.ack(n));
    let missing = |packet: &[u8], previous| {
        let seen = Excerpt::of(&packet[20..]).expect("a packet");
        Wish::Missing { gateway: GATEWAY.into(), spi: 1_001, seen, previous, registered: true }
    };
    router.device_has_come(ms(0), DEVICE.into(), previous.clone());
    // A registration that is renewed says nothing new.
    router.device_has_come(ms(10), DEVICE.into(), None);
    // That one has seen what it sends after the device.
    router.handle_packet(ms(15), Side::Network, tunnelled(&sa.data(0)));
    assert_eq!(wishes(&mut router), []);
    router.handle_packet(ms(20), Side::Device, first.clone());
    assert_eq!(wishes(&mut router), [missing(&first, previous)]);
    router.handle_packet(ms(10_010), Side::Network, sa.data(0));
    assert_eq!(wishes(&mut router).len(), 1, "a device that sends nothing");
    router.handle_packet(ms(60_000), Side::Device, last.clone());
    assert_eq!(wishes(&mut router), [missing(&last, None)], "that one has forgotten them");
}

/// Whether the next question about a device says that it is registered here.
fn asks_as_registered(router: &mut Router, at: Instant, sa: &mut Sa) -> bool {
    router.handle_packet(at, Side::Device, sa.ack(1));
    match wishes(router).as_slice() {
        [Wish::Missing { registered, .. }] => *registered,
        asked => panic!("{asked:?}"),
    }
}

#[test]
fn a_device_is_registered_when_that_is_said_and_not_when_it_asks_to_be() {
    let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
    let previous: Option<Identity> = Some("r1.test".parse().expect("an identity"));
    let minutes = |n: u64| ms(n * 60_000);
    assert!(!asks_as_registered(&mut router, minutes(0), &mut sa));
    router.device_has_come(minutes(1), DEVICE.into(), previous.clone());
    assert!(!asks_as_registered(&mut router, minutes(1), &mut sa));
    router.device_has_come(minutes(2), DEVICE.into(), None);
    assert!(asks_as_registered(&mut router, minutes(2), &mut sa));
    // Its request is repeated.
    router.device_has_come(minutes(20), DEVICE.into(), previous.clone());
    assert!(asks_as_registered(&mut router, minutes(20), &mut sa));
    assert!(!asks_as_registered(&mut router, minutes(32), &mut sa), "nothing was said for half an hour");
    router.device_has_come(minutes(33), DEVICE.into(), None);
    assert!(asks_as_registered(&mut router, minutes(33), &mut sa));
    router.device_has_gone(minutes(34), DEVICE.into());
    router.device_has_come(minutes(34), DEVICE.into(), previous);
    assert!(!asks_as_registered(&mut router, minutes(34), &mut sa));
}

/// The device itself may say nothing for long.
#[test]
fn keys_that_are_taken_back_are_asked_for_by_what_is_sent_to_a_registered_device() {
    for registered in [true, false] {
        let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
        router.device_has_come(ms(0), DEVICE.into(), Some("r1.test".parse().expect("an identity")));
        router.handle_packet(ms(10), Side::Device, sa.ack(1));
        assert_eq!(wishes(&mut router).len(), 1);
        router.obey(&sa.grant());
        router.handle_packet(ms(20), Side::Network, sa.data(0));
        if registered {
            router.device_has_come(ms(1_000), DEVICE.into(), None);
        }
        router.obey(&HeaderOrder::Revoke(Sa::id()));
        router.handle_packet(ms(2_000), Side::Network, sa.data(1));
        assert_eq!(wishes(&mut router).len(), usize::from(registered));
        router.obey(&sa.grant());
        assert!(router.taken_back.is_empty());
    }
    let mut router = router(Kind::Snoop, 0);
    (0..1_000).for_each(|spi| {
        router.obey(&HeaderOrder::Revoke(GrantId { to_device: spi, from_device: spi }));
    });
    assert_eq!(router.taken_back.len(), TAKEN_BACK_MOST);
}

/// The packet that was recorded is sent here again and again, also from other addresses.
#[test]
fn who_sends_one_packet_again_asks_less_and_less_and_holds_up_no_registration() {
    let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
    let recorded = sa.ack(1);
    let mut asked = Vec::new();
    for second in 0..200 {
        let mut packet = recorded.clone();
        packet[15] = second as u8;
        router.handle_packet(ms(second * 1_000), Side::Device, packet);
        asked.extend(wishes(&mut router).iter().map(|_| second));
    }
    assert_eq!(asked, [0, 2, 6, 14, 30, 62, 122, 182], "after 2, 4, 8, ... seconds, and once a minute");
    router.device_has_come(ms(200_000), DEVICE.into(), None);
    for (second, asks) in [(200, 1), (201, 0), (202, 1), (204, 1), (231, 0)] {
        router.handle_packet(ms(second * 1_000), Side::Device, sa.ack(2));
        assert_eq!(wishes(&mut router).len(), asks, "{second}");
    }
}

#[test]
fn packets_that_are_sent_after_a_device_ask_for_nothing() {
    let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
    router.device_has_gone(ms(0), DEVICE.into());
    for at in 1..10 {
        let packet = tunnelled(&sa.data(0));
        router.handle_packet(ms(at * 1_000), Side::Network, packet.clone());
        // The agent sends it back into the network.
        router.handle_packet(ms(at * 1_000 + 1), Side::Device, packet);
    }
    assert_eq!(wishes(&mut router), []);
    router.device_has_come(ms(11_000), DEVICE.into(), None);
    router.handle_packet(ms(11_001), Side::Network, tunnelled(&sa.data(0)));
    assert_eq!(wishes(&mut router).len(), 1);
}

#[test]
fn a_device_whose_keys_are_here_is_told_of_once_when_a_packet_of_it_was_read() {
    let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
    router.obey(&sa.grant());
    // Its request to be registered may have been recorded elsewhere, as its packets may.
    router.device_has_come(ms(0), DEVICE.into(), Some("r1.test".parse().expect("an identity")));
    router.handle_packet(ms(0), Side::Device, sa.ack(1));
    assert_eq!(wishes(&mut router), []);
    router.device_has_come(ms(0), DEVICE.into(), None);
    // What is for it says nothing: it may have moved on.
    router.handle_packet(ms(1), Side::Network, sa.data(0));
    // Nor does what only has its address and SPI.
    router.handle_packet(ms(2), Side::Device, Sa::new(50).ack(1));
    assert_eq!(wishes(&mut router), []);
    router.handle_packet(ms(3), Side::Device, sa.ack(1));
    let came = Wish::Came { device: DEVICE.into(), id: Sa::id() };
    assert_eq!(wishes(&mut router), std::slice::from_ref(&came));
    // It could not be told: again later, and no more once it was.
    router.handle_packet(ms(1_000), Side::Device, sa.ack(1));
    assert_eq!(wishes(&mut router), []);
    router.handle_packet(ms(3_000), Side::Device, sa.ack(1));
    assert_eq!(wishes(&mut router), [came]);
    router.told(DEVICE.into(), Sa::id());
    router.handle_packet(ms(60_000), Side::Device, sa.ack(1));
    assert_eq!(wishes(&mut router), []);
}

/// Keys may come without an answer, from a gateway that does not know yet where the device is.
#[test]
fn a_device_is_awaited_until_a_question_about_it_is_answered() {
    for was_asked in [true, false] {
        let (mut router, mut sa) = (router(Kind::Snoop, 0), Sa::new(7));
        router.device_has_come(ms(0), DEVICE.into(), None);
        router.handle_packet(ms(1), Side::Device, sa.ack(1));
        assert!(matches!(wishes(&mut router).as_slice(), [Wish::Missing { .. }]));
        if !was_asked {
            router.not_asked(GATEWAY.into(), 1_001);
        }
        router.obey(&sa.grant());
        router.handle_packet(ms(1_000), Side::Device, sa.ack(1));
        let came = Wish::Came { device: DEVICE.into(), id: Sa::id() };
        assert_eq!(wishes(&mut router), if was_asked { vec![] } else { vec![came] });
    }
}

#[test]
fn what_is_remembered_of_devices_is_bounded() {
    let mut router = router(Kind::Snoop, 0);
    for n in 0..5_000_u32 {
        let device = IpAddr::from(Ipv4Addr::from(n));
        match n % 2 {
            0 => router.device_has_come(ms(n.into()), device, None),
            _ => router.device_has_gone(ms(n.into()), device),
        }
    }
    assert!(router.visits.has_gone(ms(5_000), Ipv4Addr::from(4_999).into()));
    assert!(!router.visits.has_gone(ms(5_000), Ipv4Addr::from(1).into()), "the oldest gave way");
    assert!(format!("{:?}", router.visits).matches("Visit {").count() <= 1_024);
}

/// Eight SAs of one SPI are tried for a packet: the keys of a ninth are of no use.
#[test]
fn keys_that_cannot_be_used_are_not_held_and_their_gateway_hears_of_it() {
    let mut router = router(Kind::Snoop, 0);
    let alike = |from_device: u32| {
        let HeaderOrder::Grant(mut grant) = Sa::new(7).grant() else { unreachable!("a grant") };
        grant.from_device.spi = from_device;
        HeaderOrder::Grant(grant)
    };
    for n in 0..8 {
        router.obey(&alike(2_000 + n));
    }
    assert_eq!((router.info().keys.len(), wishes(&mut router)), (8, vec![]));
    router.obey(&alike(2_008));
    let id = GrantId { to_device: 1_000, from_device: 2_008 };
    assert_eq!(wishes(&mut router), [Wish::Other(HeaderNews::Unusable(id))]);
    assert_eq!(router.info().keys.len(), 8);
    // Nor are those of the same name that were here before.
    let HeaderOrder::Grant(mut grant) = alike(2_000) else { unreachable!("a grant") };
    grant.to_device.keymat = Secret::from([7; 19]);
    router.obey(&HeaderOrder::Grant(grant));
    assert_eq!((router.info().keys.len(), wishes(&mut router).len()), (7, 1));
}

#[test]
fn its_turn_on_the_radio_and_every_timer_of_the_repair_are_listed() {
    let mut router = router(Kind::Snoop, 8);
    for n in 0..3 {
        router.handle_packet(ms(0), Side::Network, data(n));
    }
    let timers: Vec<_> = router.timers().collect();
    assert_eq!(router.poll_timeout(), timers.iter().copied().min_by_key(|timer| timer.at));
    let mut whys: Vec<_> = timers.iter().map(|timer| timer.why).collect();
    whys.sort_unstable();
    let expected = [
        "a connection without packets",
        "a device acknowledges nothing",
        "a packet over the radio was not acknowledged",
        "the radio is free for the next packet",
    ];
    assert_eq!(whys, expected);
}
