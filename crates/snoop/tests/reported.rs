//! The repair that ships: an agent with the keys of first zones, and the device's reporter behind its SA. What is lost comes again, in order; forgers and
//! strangers change nothing; a device without a router waits for none.

mod common;

use common::ms;
use core::net::Ipv4Addr;
use dormouse_crypto::{Encr, Secret};
use dormouse_esp::{IPV4_IN_IP, Inbound, Outbound, SaParams, ZoneParams};
use dormouse_keying::{GrantId, HeaderGrant, HeaderOrder, HeaderSa, Nodes, ZoneEnd, ZoneMap};
use dormouse_sansio::{Deadline, Instant, Seeded};
use dormouse_snoop::arq::{Agent, Limits, Reporter, reports_key};
use dormouse_snoop::{Ends, Verdict};
use dormouse_wire::ike::mlike::Excerpt;
use dormouse_wire::ip::{Ipv4Header, protocol, udp};

const GCM: Encr = Encr::Aes128Gcm16;
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DEVICE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// How ESP travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Carried {
    Bare,
    InUdp,
    /// Between agents of Mobile IP.
    InIp,
}

fn carry(carried: Carried, down: bool, esp: &[u8]) -> Vec<u8> {
    let (src, dst) = if down { (GATEWAY, DEVICE) } else { (DEVICE, GATEWAY) };
    let bare = |src, dst, protocol, esp: &[u8]| {
        let header = Ipv4Header::new(src, dst, protocol).to_bytes(esp.len()).expect("a header");
        [&header[..], esp].concat()
    };
    match carried {
        Carried::Bare => bare(src, dst, protocol::ESP, esp),
        Carried::InUdp => {
            let mut out = Vec::new();
            udp::build((src, 4_500).into(), (dst, 4_500).into(), esp, &mut out).expect("a datagram");
            out
        }
        Carried::InIp => {
            let agents = [Ipv4Addr::new(203, 0, 113, 1), Ipv4Addr::new(203, 0, 113, 2)];
            let [from, to] = if down { agents } else { [agents[1], agents[0]] };
            bare(from, to, protocol::IPV4, &bare(src, dst, protocol::ESP, esp))
        }
    }
}

/// What is in there, and whether it goes to the device.
fn esp_of(carried: Carried, packet: &[u8]) -> &[u8] {
    let skip = match carried {
        Carried::Bare => 20,
        Carried::InUdp => 28,
        Carried::InIp => 40,
    };
    &packet[skip..]
}

/// The far end, the router, and the device.
struct World {
    carried: Carried,
    far: Outbound,
    agent: Agent,
    sa: Inbound,
    reporter: Reporter,
    /// What the device's programs got, by its last byte.
    got: Vec<u8>,
    sent: u8,
}

fn grant() -> HeaderOrder {
    grant_of(ZoneMap::default())
}

fn grant_of(map: ZoneMap) -> HeaderOrder {
    let sa = |spi| HeaderSa { spi, keymat: Secret::from([7; 20]), reached: 0.into() };
    HeaderOrder::Grant(Box::new(HeaderGrant {
        map,
        encr: GCM,
        esn: true,
        to_device: sa(1_000),
        from_device: sa(1_001),
        nodes: Nodes::new(1, 16).expect("nodes"),
    }))
}

const SA: GrantId = GrantId { to_device: 1_000, from_device: 1_001 };

/// A report of the SA's device, as anyone makes it who was ever given the key of its headers.
fn forged(number: u64, next: u32) -> Vec<u8> {
    let said =
        [&b"ARQ1"[..], &1_000_u32.to_be_bytes(), &number.to_be_bytes(), &next.to_be_bytes(), &[0]].concat();
    let mac = reports_key(&Secret::from([7; 20])).compute(&[&said]);
    let esp = [&1_001_u32.to_be_bytes()[..], &[0; 4], &said, &mac.as_bytes()[..16]].concat();
    carry(Carried::Bare, false, &esp)
}

fn inner(number: u8) -> Vec<u8> {
    let mut packet = Vec::new();
    udp::build(([203, 0, 113, 9], 53).into(), ([10, 55, 0, 2], 99).into(), &[number; 40], &mut packet)
        .expect("a packet");
    packet
}

/// Without keys, packets of an SA are shown to who may have them. A report is none of these.
#[test]
fn what_is_shown_of_an_sa_without_keys_is_a_packet() {
    for carried in [Carried::Bare, Carried::InUdp, Carried::InIp] {
        let mut world = World::new(carried);
        world.agent.obey(&HeaderOrder::Revoke(SA)).expect("they are gone");
        assert_eq!(world.agent.from_device(ms(0), &forged(1, 1)), Verdict::Forward);
        assert_eq!(world.agent.reader().poll_unknown(), None);
        let [first, second] = [world.next(), world.next()];
        world.agent.to_device(ms(1), &first);
        world.agent.to_device(ms(2), &second);
        let unknown = world.agent.reader().poll_unknown().expect("they are missing");
        assert_eq!((unknown.gateway, unknown.device), (GATEWAY.into(), DEVICE.into()));
        assert_eq!((unknown.spi, unknown.to_device), (1_000, true));
        assert_eq!(Some(unknown.seen), Excerpt::of(esp_of(carried, &first)));
        assert_eq!(world.agent.reader().poll_unknown(), None, "once");
    }
}

impl World {
    fn new(carried: Carried) -> Self {
        Self::zoned(carried, ZoneMap::default())
    }

    fn zoned(carried: Carried, map: ZoneMap) -> Self {
        let zones = Some(ZoneParams { map: map.clone(), further: vec![(GCM, Secret::from([8; 20]))] });
        let params = SaParams { zones, ..SaParams::new(1_000, GCM, None, Secret::from([7; 20])) };
        let mut agent = Agent::new(Limits::default());
        agent.obey(&grant_of(map)).expect("keys");
        Self {
            carried,
            far: Outbound::new(&params, &mut Seeded::new(1)).expect("a sender"),
            agent,
            sa: Inbound::new(&params).expect("a receiver"),
            reporter: Reporter::new(ms(0), &Secret::from([7; 20]), 1_000, 1_001, Limits::default()),
            got: Vec::new(),
            sent: 0,
        }
    }

    /// The next packet of the far end, at the router.
    fn next(&mut self) -> Vec<u8> {
        let packet = inner(self.sent);
        self.sent += 1;
        let mut slot = vec![0; self.far.sealed_len(packet.len())];
        let head = self.far.head_len();
        slot[head..head + packet.len()].copy_from_slice(&packet);
        self.far.seal(&mut slot, packet.len(), IPV4_IN_IP).expect("sealed");
        carry(self.carried, true, &slot)
    }

    /// A packet has come over the radio.
    fn device(&mut self, now: Instant, packet: &[u8]) {
        let mut esp = esp_of(self.carried, packet).to_vec();
        if self.reporter.answer(&esp) {
            return;
        }
        let Ok(opened) = self.sa.open(&mut esp) else { return };
        let packet = esp[opened.inner].to_vec();
        if self.reporter.takes(now, opened.seq) {
            self.reporter.arrive(now, opened.seq, packet);
        } else {
            self.got.push(*packet.last().expect("a byte"));
        }
        self.settle(now);
    }

    /// Everything that is due at this time; nothing of it is lost.
    fn settle(&mut self, now: Instant) {
        self.reporter.handle_timeout(now);
        while let Some(packet) = self.reporter.poll_deliver() {
            self.got.push(*packet.last().expect("a byte"));
        }
        let mut report = Vec::new();
        while self.reporter.poll_report(now, &mut report) {
            let report = carry(self.carried, false, &std::mem::take(&mut report));
            assert_eq!(self.agent.from_device(now, &report), Verdict::Suppress);
        }
        self.agent.handle_timeout(now);
        let mut out = Vec::new();
        while self.agent.poll_transmit(now, &mut out) {
            self.device(now, &std::mem::take(&mut out));
        }
    }

    /// A packet goes to the device; the radio may lose it.
    fn send(&mut self, now: Instant, lost: bool) {
        let packet = self.next();
        self.agent.to_device(now, &packet);
        if !lost {
            self.device(now, &packet);
        }
    }

    fn run(&mut self, from: u64, to: u64) {
        (from..to).for_each(|at| self.settle(ms(at)));
    }
}

#[test]
fn what_the_radio_lost_comes_again_and_in_order() {
    for carried in [Carried::Bare, Carried::InUdp, Carried::InIp] {
        let mut world = World::new(carried);
        world.send(ms(0), false);
        assert!(world.reporter.is_repaired(), "{carried:?}: the first report was answered");
        for n in 1..100_u64 {
            world.send(ms(n * 5), n % 7 == 3);
            world.run(n * 5, n * 5 + 5);
        }
        world.run(500, 1_000);
        assert_eq!(world.got, (0..100).collect::<Vec<_>>(), "{carried:?}");
        assert!(world.agent.stats().repeated >= 14, "{:?}", world.agent.stats());
        assert_eq!(world.reporter.held(), (0, 0));
        let [flow] = world.agent.followed(9)[..] else { panic!("one SA: {:?}", world.agent.followed(9)) };
        assert_eq!(flow.ends, Ends::Esp { spi: 1_000, device: DEVICE.into() });
        let stats = world.agent.stats();
        assert_eq!((flow.done.kept, flow.done.repeated), (stats.kept, stats.repeated));
        assert_eq!((flow.done.suppressed, flow.held, flow.round_trip.is_some()), (0, 0, true));
        assert_eq!(world.agent.followed(0), []);
    }
}

/// A router whose key opens no byte of any packet repairs as one that reads headers; forged packets are none of its.
#[test]
fn it_repairs_what_it_cannot_read() {
    let nothing = ZoneMap::new(vec![ZoneEnd::At(0)]).expect("a map");
    let mut world = World::zoned(Carried::InUdp, nothing);
    world.send(ms(0), false);
    for n in 1..100_u64 {
        // The same number and lengths, from one without the key.
        let mut forged = world.next();
        world.sent -= 1;
        let icv = forged.len() - 32;
        forged[icv] ^= 1;
        let kept = world.agent.stats().kept;
        world.agent.to_device(ms(n * 5), &forged);
        assert_eq!(world.agent.stats().kept, kept);
        world.send(ms(n * 5), n % 7 == 3);
        world.run(n * 5, n * 5 + 5);
    }
    world.run(500, 1_000);
    assert_eq!(world.got, (0..100).collect::<Vec<_>>());
    assert!(world.agent.stats().repeated >= 14, "{:?}", world.agent.stats());
    assert_eq!(world.agent.readable().stats().changed, 0);
}

#[test]
fn without_a_router_nothing_waits_and_little_is_said() {
    let mut world = World::new(Carried::Bare);
    world.agent.obey(&HeaderOrder::Revoke(SA)).expect("forgotten");
    let (mut reports, mut out) = (0, Vec::new());
    for n in 0..200_u64 {
        let now = ms(n * 300);
        let packet = world.next();
        if n % 5 == 1 {
            continue;
        }
        let mut esp = esp_of(world.carried, &packet).to_vec();
        let opened = world.sa.open(&mut esp).expect("it opens");
        assert!(!world.reporter.takes(now, opened.seq), "delivered at once");
        world.reporter.handle_timeout(now);
        while world.reporter.poll_report(now, &mut out) {
            let report = carry(world.carried, false, &std::mem::take(&mut out));
            assert_eq!(world.agent.from_device(now, &report), Verdict::Forward, "not this router's");
            reports += 1;
        }
    }
    assert_eq!(reports, 4 + 1, "a row, and then one in half a minute");
    assert_eq!(world.agent.held(), (0, 0, 0));
}

/// The radio loses the device's first questions, or the answers to them.
#[test]
fn a_question_that_is_lost_is_repeated_soon() {
    for (questions, answers) in [(1, 0), (0, 1), (3, 0), (0, 2)] {
        let mut world = World::new(Carried::InUdp);
        let (mut questions, mut answers, mut out) = (questions, answers, Vec::new());
        for n in 0..20_u64 {
            let now = ms(n * 100);
            let packet = world.next();
            world.agent.to_device(now, &packet);
            let mut esp = esp_of(world.carried, &packet).to_vec();
            let opened = world.sa.open(&mut esp).expect("it opens");
            if world.reporter.takes(now, opened.seq) {
                world.reporter.arrive(now, opened.seq, esp[opened.inner].to_vec());
            }
            while world.reporter.poll_report(now, &mut out) {
                let report = carry(world.carried, false, &std::mem::take(&mut out));
                if questions > 0 {
                    questions -= 1;
                } else {
                    world.agent.from_device(now, &report);
                }
            }
            while world.agent.poll_transmit(now, &mut out) {
                let answer = std::mem::take(&mut out);
                if answers > 0 {
                    answers -= 1;
                } else {
                    world.reporter.answer(esp_of(world.carried, &answer));
                }
            }
        }
        assert!(world.reporter.is_repaired(), "{questions} questions and {answers} answers are left to lose");
    }
}

#[test]
fn a_router_that_is_gone_is_not_waited_for() {
    let mut world = World::new(Carried::InUdp);
    world.send(ms(0), false);
    assert!(world.reporter.is_repaired());
    let mut out = Vec::new();
    for n in 1..800_u64 {
        let now = ms(n * 5);
        let packet = world.next();
        if n % 10 != 3 {
            let mut esp = esp_of(world.carried, &packet).to_vec();
            let opened = world.sa.open(&mut esp).expect("it opens");
            if world.reporter.takes(now, opened.seq) {
                world.reporter.arrive(now, opened.seq, Vec::new());
            }
        }
        world.reporter.handle_timeout(now);
        // There is no answer.
        while world.reporter.poll_report(now, &mut out) {}
        if world.sent == u8::MAX {
            world.sent = 0;
        }
    }
    assert!(!world.reporter.is_repaired() && world.reporter.held() == (0, 0));
}

/// Without the keys, anyone who can send ESP to the router and the device neither takes the place of copies nor moves what either holds.
#[test]
fn forged_packets_and_reports_change_nothing() {
    let mut world = World::new(Carried::Bare);
    world.send(ms(0), false);
    let forged = |number: u32, message: &[u8]| {
        carry(Carried::Bare, true, &[&1_000_u32.to_be_bytes()[..], &number.to_be_bytes(), message].concat())
    };
    for n in 1..100_u64 {
        let at = ms(n * 5);
        // At the router, and over the radio: near numbers, far ones, and other SPIs than the device's.
        for number in [n as u32 + 2, n as u32 + 400, u32::MAX, n as u32 * 1_000_003] {
            let packet = forged(number, &[7; 80]);
            world.agent.to_device(at, &packet);
            world.device(at, &packet);
            let mut stranger = packet.clone();
            stranger[20..24].copy_from_slice(&(number | 1 << 31).to_be_bytes());
            world.agent.to_device(at, &stranger);
            world.device(at, &stranger);
        }
        // Answers and reports of strangers, in both directions.
        world.device(at, &forged(0, b"ARQ2\0\0\0\0\0\0\0\xffwhoever sent this"));
        let report = [&1_001_u32.to_be_bytes()[..], &[0; 4], b"ARQ1", &[0xff; 60]].concat();
        assert_eq!(world.agent.from_device(at, &carry(Carried::Bare, false, &report)), Verdict::Forward);
        world.send(at, n % 7 == 3);
        world.run(n * 5, n * 5 + 5);
        assert!(world.agent.held().1 <= 20, "copies of what opened alone");
    }
    world.run(500, 1_000);
    assert_eq!(world.got, (0..100).collect::<Vec<_>>());
    assert!(world.agent.stats().repeated >= 14 && world.reporter.is_repaired());
}

#[test]
fn a_report_counts_once_also_after_a_silence() {
    let mut world = World::new(Carried::Bare);
    world.send(ms(0), false);
    let mut report = Vec::new();
    // Nothing is missing: it is reported after a while.
    world.send(ms(5), false);
    for at in 6..40 {
        world.reporter.handle_timeout(ms(at));
        if world.reporter.poll_report(ms(at), &mut report) {
            break;
        }
    }
    assert!(!report.is_empty());
    let report = carry(Carried::Bare, false, &report);
    assert_eq!(world.agent.from_device(ms(40), &report), Verdict::Suppress);
    let taken = world.agent.stats().reports;
    // The SA is silent, and forgotten but for that.
    world.agent.handle_timeout(ms(60_000));
    assert_eq!(world.agent.held(), (0, 0, 0));
    assert_eq!(world.agent.from_device(ms(60_001), &report), Verdict::Suppress);
    assert_eq!((world.agent.stats().reports, world.agent.held().0), (taken, 0));
}

/// What the device reports of what it has got, caught on the way, and taken by its router.
fn recorded(world: &mut World) -> Vec<u8> {
    world.send(ms(0), false);
    let packet = world.next();
    world.agent.to_device(ms(5), &packet);
    let mut esp = esp_of(world.carried, &packet).to_vec();
    let opened = world.sa.open(&mut esp).expect("it opens");
    assert!(world.reporter.takes(ms(5), opened.seq));
    world.reporter.arrive(ms(5), opened.seq, esp[opened.inner].to_vec());
    let mut report = Vec::new();
    assert!(world.reporter.poll_report(ms(40), &mut report));
    let report = carry(world.carried, false, &report);
    let before = world.agent.stats().reports;
    assert_eq!(world.agent.from_device(ms(40), &report), Verdict::Suppress);
    assert_eq!(world.agent.stats().reports, before + 1);
    report
}

#[test]
fn a_recorded_report_counts_no_more_when_keys_were_taken_back_and_come_again() {
    let mut world = World::new(Carried::Bare);
    let report = recorded(&mut world);
    world.agent.obey(&HeaderOrder::Revoke(SA)).expect("forgotten");
    world.agent.obey(&grant()).expect("keys");
    let taken = world.agent.stats().reports;
    for at in [50, 60] {
        assert_eq!(world.agent.from_device(ms(at), &report), Verdict::Suppress, "it is for a router alone");
        assert_eq!((world.agent.stats().reports, world.agent.held()), (taken, (0, 0, 0)));
        let packet = world.next();
        world.agent.to_device(ms(at), &packet);
    }
    // What the device says of these packets counts.
    world.send(ms(70), false);
    world.run(70, 100);
    assert!(world.agent.stats().reports > taken && world.agent.held().0 == 1);
}

#[test]
fn a_recorded_report_counts_at_no_other_router() {
    let mut world = World::new(Carried::Bare);
    let report = recorded(&mut world);
    // A neighbour that got the keys ahead; then the same, started again, where the device has come.
    let mut other = Agent::new(Limits::default());
    other.obey(&grant()).expect("keys");
    other.from_device(ms(50), &report);
    let packet = world.next();
    other.to_device(ms(51), &packet);
    other.from_device(ms(52), &report);
    assert_eq!((other.stats().reports, other.held()), (0, (0, 0, 0)));
    let mut out = Vec::new();
    assert!(!other.poll_transmit(ms(60), &mut out), "nor is it answered");
    world.agent = other;
    world.send(ms(70), false);
    world.run(70, 100);
    assert!(world.agent.stats().reports > 0 && world.agent.held().0 == 1);
}

/// A router that had the keys, or a neighbour that has them, can send reports as the device does.
#[test]
fn a_forged_report_is_worth_nothing_once_the_next_packet_has_come() {
    let mut world = World::new(Carried::Bare);
    world.send(ms(0), false);
    let taken = world.agent.stats().reports;
    // Reports about packets that were never sent are refused.
    for next in [3, 500, 1 << 20, u32::MAX, 0] {
        world.agent.from_device(ms(1), &forged(u64::MAX, next));
    }
    assert_eq!(world.agent.stats().reports, taken);
    // Of those that were, as often as it likes.
    for n in 1..100_u64 {
        if n % 10 == 1 {
            world.agent.from_device(ms(n * 5 - 1), &forged(u64::MAX, world.sent.into()));
            world.agent.from_device(ms(n * 5 - 1), &forged(u64::MAX, u32::from(world.sent) + 1));
        }
        world.send(ms(n * 5), n % 10 == 5);
        world.run(n * 5, n * 5 + 5);
    }
    world.run(500, 1_000);
    assert_eq!(world.got, (0..100).collect::<Vec<_>>());
    assert!(world.agent.stats().repeated >= 10 && world.agent.stats().reports > taken + 20);
}

#[test]
fn every_timer_of_the_device_and_of_the_router_is_listed() {
    let mut world = World::new(Carried::Bare);
    for n in 0..4 {
        world.send(ms(n * 5), n == 1);
    }
    let (lost, kept) = (world.next(), world.next());
    world.agent.to_device(ms(20), &lost);
    world.agent.to_device(ms(20), &kept);
    let mut esp = esp_of(world.carried, &kept).to_vec();
    let opened = world.sa.open(&mut esp).expect("it opens");
    assert!(world.reporter.takes(ms(20), opened.seq));
    world.reporter.arrive(ms(20), opened.seq, esp[opened.inner].to_vec());
    let whys = |timers: Vec<Deadline>| timers.iter().map(|timer| timer.why).collect::<Vec<_>>();
    let of_device: Vec<_> = world.reporter.timers().collect();
    assert_eq!(world.reporter.poll_timeout(), of_device.iter().copied().min_by_key(|timer| timer.at));
    assert_eq!(whys(of_device), ["ESP packets behind a missing one", "a report of what came"]);
    let of_router: Vec<_> = world.agent.timers().collect();
    assert_eq!(world.agent.poll_timeout(), of_router.iter().copied().min_by_key(|timer| timer.at));
    assert_eq!(
        whys(of_router),
        ["an ESP packet over the radio was not reported", "a device without reports"]
    );
}
