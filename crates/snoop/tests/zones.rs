//! The agent at ESP packets in zones whose first zone it can read: what it keeps, repeats and hides there, and what it leaves alone.

mod common;

use common::{ack, data, ms, stamped, stamped_ack};
use core::net::Ipv4Addr;
use dormouse_crypto::{Encr, Secret};
use dormouse_esp::{IPV4_IN_IP, Inbound, Outbound, SaParams, ZoneParams};
use dormouse_keying::{GrantId, HeaderGrant, HeaderNews, HeaderOrder, HeaderSa, Nodes, ZoneEnd, ZoneMap};
use dormouse_sansio::{Instant, Seeded};
use dormouse_snoop::tcp::{Agent, Limits};
use dormouse_snoop::{Repair, Verdict};
use dormouse_wire::ip::{Ipv4Header, protocol, tcp, udp};
use proptest::prelude::*;
use std::collections::BTreeSet;

const GCM: Encr = Encr::Aes128Gcm16;
const LEN: usize = 100;

/// A composite SA in both directions, as its ends and a router have it.
struct Sa {
    down: (Outbound, Inbound),
    up: (Outbound, Inbound),
    map: ZoneMap,
    key: u8,
    spi: u32,
    in_udp: bool,
}

impl Sa {
    fn new(spi: u32, key: u8, map: ZoneMap) -> Self {
        let half = |spi| {
            let zones =
                Some(ZoneParams { map: map.clone(), further: vec![(GCM, Secret::from([key + 1; 20]))] });
            let params = SaParams { zones, ..SaParams::new(spi, GCM, None, Secret::from([key; 20])) };
            let out = Outbound::new(&params, &mut Seeded::new(1)).expect("a sender");
            (out, Inbound::new(&params).expect("a receiver"))
        };
        Self { down: half(spi), up: half(spi + 1), map, key, spi, in_udp: false }
    }

    fn grant(&self, node: u32) -> HeaderOrder {
        let sa = |spi| HeaderSa { spi, keymat: Secret::from([self.key; 20]), reached: 0.into() };
        HeaderOrder::Grant(Box::new(HeaderGrant {
            map: self.map.clone(),
            encr: GCM,
            esn: true,
            to_device: sa(self.spi),
            from_device: sa(self.spi + 1),
            nodes: Nodes::new(node, node).expect("a node"),
        }))
    }

    /// An outer packet with this one inside, on its way down or up.
    fn seal(&mut self, inner: &[u8], down: bool) -> Vec<u8> {
        let out = if down { &mut self.down.0 } else { &mut self.up.0 };
        let mut slot = vec![0; out.sealed_len(inner.len())];
        let head = out.head_len();
        slot[head..head + inner.len()].copy_from_slice(inner);
        out.seal(&mut slot, inner.len(), IPV4_IN_IP).expect("sealed");
        let (gateway, device) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2));
        let (src, dst) = if down { (gateway, device) } else { (device, gateway) };
        if self.in_udp {
            let mut outer = Vec::new();
            let ports =
                (core::net::SocketAddr::from((src, 4_500)), core::net::SocketAddr::from((dst, 4_500)));
            udp::build(ports.0, ports.1, &slot, &mut outer).expect("a datagram");
            return outer;
        }
        let header = Ipv4Header::new(src, dst, protocol::ESP).to_bytes(slot.len()).expect("a header");
        [&header[..], &slot].concat()
    }

    /// What the far end makes of it.
    fn open(&mut self, packet: &[u8], down: bool) -> Option<Vec<u8>> {
        let mut esp = packet[20..].to_vec();
        let opened = if down { &mut self.down.1 } else { &mut self.up.1 }.open(&mut esp).ok()?;
        Some(esp[opened.inner].to_vec())
    }
}

fn agent(sa: &Sa) -> Agent {
    let mut agent = Agent::new(Limits::default());
    agent.reader().zones().apply(&sa.grant(1)).expect("keys");
    agent
}

fn segment(number: usize) -> Vec<u8> {
    data((number * LEN) as u32, LEN)
}

fn repeats(agent: &mut Agent, now: Instant) -> Vec<Vec<u8>> {
    let (mut all, mut out) = (Vec::new(), Vec::new());
    while agent.poll_transmit(now, &mut out) {
        all.push(std::mem::take(&mut out));
    }
    all
}

/// Sends segment 0, which is acknowledged, and 1 to 5; those sealed are returned.
fn warm(agent: &mut Agent, sa: &mut Sa) -> Vec<Vec<u8>> {
    agent.to_device(ms(0), &sa.seal(&segment(0), true));
    assert_eq!(agent.from_device(ms(10), &sa.seal(&ack(LEN as u32, &[]), false)), Verdict::Forward);
    let sealed: Vec<_> = (1..=5).map(|number| sa.seal(&segment(number), true)).collect();
    for (packet, at) in sealed.iter().zip(20..) {
        agent.to_device(ms(at), packet);
    }
    sealed
}

#[test]
fn a_lost_packet_is_repeated_byte_for_byte_and_its_duplicates_are_hidden() {
    let paper = ZoneMap::new(vec![ZoneEnd::At(40)]).expect("a map");
    for (map, in_udp) in [(ZoneMap::default(), false), (ZoneMap::default(), true), (paper, false)] {
        let mut sa = Sa { in_udp, ..Sa::new(1_000, 7, map) };
        let mut agent = agent(&sa);
        let sealed = warm(&mut agent, &mut sa);
        assert_eq!(agent.from_device(ms(31), &sa.seal(&ack(LEN as u32, &[]), false)), Verdict::Suppress);
        assert_eq!(repeats(&mut agent, ms(31)), sealed[..1]);
        assert_eq!(agent.from_device(ms(42), &sa.seal(&ack(6 * LEN as u32, &[]), false)), Verdict::Forward);
        assert_eq!(agent.held(), (1, 0, 0));
        assert_eq!((agent.stats().repeated, agent.reader().zones().stats().changed), (1, 0));
    }
}

#[test]
fn in_a_bridge_a_lost_frame_is_repeated_byte_for_byte() {
    let mut sa = Sa::new(1_000, 7, ZoneMap::default());
    let frame = |packet: Vec<u8>| [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00][..], &packet].concat();
    let mut agent = Agent::in_bridge(Limits::default());
    agent.reader().zones().apply(&sa.grant(1)).expect("keys");
    agent.to_device(ms(0), &frame(sa.seal(&segment(0), true)));
    agent.from_device(ms(10), &frame(sa.seal(&ack(LEN as u32, &[]), false)));
    let frames: Vec<_> = (1..=5).map(|number| frame(sa.seal(&segment(number), true))).collect();
    frames.iter().zip(20..).for_each(|(frame, at)| agent.to_device(ms(at), frame));
    let duplicate = frame(sa.seal(&ack(LEN as u32, &[]), false));
    assert_eq!(agent.from_device(ms(31), &duplicate), Verdict::Suppress);
    assert_eq!(repeats(&mut agent, ms(31)), frames[..1]);
}

#[test]
fn selective_acknowledgements_are_seen_where_the_zone_has_the_options() {
    let paper = ZoneMap::new(vec![ZoneEnd::At(40)]).expect("a map");
    for (map, seen) in [(ZoneMap::default(), true), (paper, false)] {
        let mut sa = Sa::new(1_000, 7, map);
        let mut agent = agent(&sa);
        let sealed = warm(&mut agent, &mut sa);
        let blocks = [(2, 3), (4, 6)].map(|(a, b)| (a * LEN as u32, b * LEN as u32));
        agent.from_device(ms(31), &sa.seal(&ack(LEN as u32, &blocks), false));
        let expected =
            if seen { vec![sealed[0].clone(), sealed[2].clone()] } else { vec![sealed[0].clone()] };
        assert_eq!(repeats(&mut agent, ms(31)), expected);
    }
}

/// 1 comes late, sent by the fixed host again, and the radio has lost 3: the device refuses a copy of that (`timestamps.rs`).
#[test]
fn timestamps_are_seen_where_the_zone_has_the_options() {
    let paper = ZoneMap::new(vec![ZoneEnd::At(40)]).expect("a map");
    for (map, seen) in [(ZoneMap::default(), true), (paper, false)] {
        let mut sa = Sa::new(1_000, 7, map);
        let mut agent = agent(&sa);
        let sealed = [0, 2, 3, 4, 1].map(|number: u32| {
            let clock = if number == 1 { 60 } else { 20 + number };
            let packet = sa.seal(&stamped(number * LEN as u32, LEN, clock), true);
            agent.to_device(ms(clock.into()), &packet);
            packet
        });
        let taken = sa.seal(&stamped_ack(3 * LEN as u32, (500, 60), &[]), false);
        assert_eq!(agent.from_device(ms(70), &taken), Verdict::Forward);
        let expected = if seen { vec![] } else { vec![sealed[2].clone()] };
        assert_eq!(repeats(&mut agent, ms(70)), expected);
    }
}

/// SNOOP has nothing to read in a first zone without bytes: all goes on as it came.
#[test]
fn of_a_zone_without_bytes_it_keeps_nothing() {
    let mut sa = Sa::new(1_000, 7, ZoneMap::new(vec![ZoneEnd::At(0)]).expect("a map"));
    let mut agent = agent(&sa);
    for packet in warm(&mut agent, &mut sa) {
        assert!(sa.open(&packet, true).is_some());
    }
    for _ in 0..4 {
        assert_eq!(agent.from_device(ms(31), &sa.seal(&ack(LEN as u32, &[]), false)), Verdict::Forward);
    }
    assert_eq!((agent.held(), repeats(&mut agent, ms(200)).len()), ((0, 0, 0), 0));
    assert!(agent.reader().zones().stats().opened > 0, "the keys are the SA's");
}

#[test]
fn without_the_key_all_goes_on_and_nothing_is_kept() {
    let mut sa = Sa::new(1_000, 7, ZoneMap::default());
    let mut repair = Repair::Snoop(Box::default());
    for number in 0..5 {
        repair.to_device(ms(number), &sa.seal(&segment(number as usize), true));
        assert_eq!(repair.from_device(ms(20 + number), &sa.seal(&ack(0, &[]), false)), Verdict::Forward);
    }
    let Repair::Snoop(agent) = &mut repair else { unreachable!() };
    assert_eq!((agent.held(), agent.reader().zones().poll_news()), ((0, 0, 0), None));
}

#[test]
fn with_a_stale_key_it_says_so_and_lets_all_go_on() {
    let (mut sa, old) = (Sa::new(1_000, 7, ZoneMap::default()), Sa::new(1_000, 50, ZoneMap::default()));
    let mut agent = agent(&old);
    for number in 0..5 {
        agent.to_device(ms(number), &sa.seal(&segment(number as usize), true));
        assert_eq!(agent.from_device(ms(20 + number), &sa.seal(&ack(0, &[]), false)), Verdict::Forward);
    }
    assert_eq!(agent.held(), (0, 0, 0));
    let id = GrantId { to_device: 1_000, from_device: 1_001 };
    assert_eq!(agent.reader().zones().poll_news(), Some(HeaderNews::Stale(id)));
    assert_eq!(agent.reader().zones().poll_news(), None);
    // It gets the new one.
    agent.reader().zones().apply(&sa.grant(2)).expect("keys");
    warm(&mut agent, &mut sa);
    assert_eq!(agent.held().1, 5);
}

#[test]
fn a_connection_outlives_the_rekeying_of_its_sa() {
    let (mut old, mut new) = (Sa::new(1_000, 7, ZoneMap::default()), Sa::new(2_000, 50, ZoneMap::default()));
    let mut agent = agent(&old);
    agent.reader().zones().apply(&new.grant(1)).expect("keys");
    let sealed = warm(&mut agent, &mut old);
    assert_eq!(agent.from_device(ms(31), &new.seal(&ack(LEN as u32, &[]), false)), Verdict::Suppress);
    assert_eq!(repeats(&mut agent, ms(31)), sealed[..1], "under the SA that it was sealed in");
}

#[test]
fn what_goes_the_wrong_way_is_not_taken_for_the_other() {
    let mut sa = Sa::new(1_000, 7, ZoneMap::default());
    let mut agent = agent(&sa);
    let up = sa.seal(&segment(0), false);
    agent.to_device(ms(0), &up);
    assert_eq!(agent.held(), (0, 0, 0));
    warm(&mut agent, &mut sa);
    let down = sa.seal(&ack(LEN as u32, &[]), true);
    assert_eq!(agent.from_device(ms(31), &down), Verdict::Forward);
    assert!(repeats(&mut agent, ms(31)).is_empty());
}

#[test]
fn a_needless_repetition_of_a_sealed_packet_hides_no_later_loss() {
    let mut sa = Sa::new(1_000, 7, ZoneMap::default());
    let mut agent = agent(&sa);
    let sealed = warm(&mut agent, &mut sa);
    let at = agent.poll_timeout().expect("a timer").at;
    agent.handle_timeout(at);
    assert_eq!(repeats(&mut agent, at), sealed[..1], "needlessly");
    let soon = at + core::time::Duration::from_millis(2);
    assert_eq!(agent.from_device(soon, &sa.seal(&ack(3 * LEN as u32, &[]), false)), Verdict::Forward);
    // The device's ESP drops what comes twice: a duplicate shows a loss, at once.
    let next = at + core::time::Duration::from_millis(11);
    assert_eq!(agent.from_device(next, &sa.seal(&ack(3 * LEN as u32, &[]), false)), Verdict::Suppress);
    assert_eq!(repeats(&mut agent, next), sealed[2..3]);
}

/// What both ends and the router of a world have sealed: key, nonce, and what was sealed under them.
#[derive(Default)]
struct Nonces(BTreeSet<(u32, Vec<u8>)>);

impl Nonces {
    /// A packet leaves the node that sealed its first zone.
    fn record(&mut self, packet: &[u8]) {
        let spi = u32::from_be_bytes(packet[20..24].try_into().expect("an SPI"));
        assert!(
            self.0.insert((spi, packet[28..36].to_vec())),
            "a nonce comes twice: {:02x?}",
            &packet[20..36]
        );
    }
}

proptest! {
    /// A fixed host sends a file through a router that repairs the radio and lowers the windows that the device announces; the router may
    /// crash and be given the keys anew. The file arrives, in order and unchanged, and no node makes a nonce that another made.
    #[test]
    fn a_world_of_two_ends_and_a_router_that_rewrites(seed: u64, losses in 0_u32..300, crash in 0_usize..400) {
        let mut sa = Sa::new(1_000, 7, ZoneMap::default());
        let (mut agent, mut nodes) = (agent(&sa), Nodes::new(2, 1_000).expect("numbers"));
        let (mut nonces, mut luck) = (Nonces::default(), Seeded::new(seed));
        let mut lost = || dormouse_sansio::Entropy::next_u64(&mut luck) % 1_000 < losses.into();
        let (mut next, mut acked, mut wanted, mut windows) = (0_usize, 0_usize, 0_usize, 0);
        let mut came = BTreeSet::new();
        let mut steps = 0;
        while acked < 40 {
            steps += 1;
            prop_assert!(steps < 20_000, "the transfer stands still at {acked}");
            let now = ms(10 * steps as u64);
            if steps == crash {
                agent = Agent::new(Limits::default());
                let fresh = nodes.take(1).expect("a number");
                agent.reader().zones().apply(&sa.grant(fresh.own())).expect("keys");
            }
            // What the radio carries now: what is repeated, else what is new, else after a while the oldest again.
            let mut radio = Vec::new();
            agent.handle_timeout(now);
            if !agent.poll_transmit(now, &mut radio) {
                let number = if next < (acked + 8).min(40) { next } else if steps % 50 == 0 { acked } else { continue };
                next = next.max(number + 1);
                radio = sa.seal(&segment(number), true);
                nonces.record(&radio);
                agent.to_device(now, &radio);
            }
            let Some(inner) = Some(radio).filter(|_| !lost()).and_then(|radio| sa.open(&radio, true)) else { continue };
            let sequence = u32::from_be_bytes(inner[24..28].try_into().expect("a number")) as usize;
            prop_assert_eq!(&inner, &segment(sequence / LEN), "unchanged");
            came.insert(sequence / LEN);
            while came.contains(&wanted) {
                wanted += 1;
            }
            let mut answer = sa.seal(&ack((wanted * LEN) as u32, &[]), false);
            nonces.record(&answer);
            if lost() || agent.from_device(now, &answer) == Verdict::Suppress {
                continue;
            }
            let changed = agent.reader().zones().change(&mut answer[20..], |header| _ = tcp::set_window(header, 500));
            if changed == Ok(true) {
                nonces.record(&answer);
            }
            let inner = sa.open(&answer, false).expect("the fixed host takes what the router made of it");
            windows += u32::from(inner[34..36] == 500_u16.to_be_bytes());
            acked = acked.max(u32::from_be_bytes(inner[28..32].try_into().expect("a number")) as usize / LEN);
        }
        prop_assert!(windows > 0);
    }
}
