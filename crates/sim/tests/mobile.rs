//! Mobile IP: packets reach a host wherever it is, and what is lost in a handoff is in the books. Foreign agents crash, registrations are lost
//! and forged, the host moves twice in one round trip, and comes home.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_crypto::Secret;
use dormouse_mobileip::{
    Advertise, AgentConfig, Association, Authenticator, ForeignConfig, HomeConfig, Member, MobileConfig,
    Replay, Reverse, WallClock,
};
use dormouse_netem::LinkConfig;
use dormouse_sansio::{Entropy as _, Seeded};
use dormouse_sim::mobile::{Mobile, Place, clock};
use dormouse_wire::ip::udp::{self, Udp};
use dormouse_wire::ip::{Ipv4, Packet as Ip};
use dormouse_wire::mobileip::{Message, PORT, Packet, Request, request};

const HOME: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 2);
const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 1);
const FOREIGN: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 51, 0, 1), Ipv4Addr::new(10, 52, 0, 1)];
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn shared(n: u8, authenticator: Authenticator) -> Association {
    Association { spi: 256 + u32::from(n), key: Secret::from([n; 16]), authenticator }
}

#[derive(Clone, Copy)]
struct Setting {
    replay: Replay,
    reverse: bool,
    sent_after: u16,
    wire: Duration,
    loss: f64,
    skew: Duration,
}

impl Default for Setting {
    fn default() -> Self {
        let (wire, skew) = (10 * MS, Duration::ZERO);
        Self { replay: Replay::default(), reverse: true, sent_after: 5, wire, loss: 0.0, skew }
    }
}

fn world(seed: u64, setting: Setting) -> Mobile {
    let (md5, sha) = (Authenticator::HmacMd5, Authenticator::HmacSha256);
    let member = Member { association: shared(1, md5), replay: setting.replay };
    let agent = |address| {
        let (advertise, reverse) = (Advertise::default(), Reverse::Offered);
        AgentConfig { address, advertise, reverse, width: 1_500 }
    };
    let home = HomeConfig {
        agent: agent(HOME_AGENT),
        network: "10.50.0.0/24".parse().expect("a network"),
        members: BTreeMap::from([(HOME, member)]),
        foreign: BTreeMap::from([(FOREIGN[0], shared(2, sha)), (FOREIGN[1], shared(3, md5))]),
    };
    let foreign = [0, 1].map(|n| ForeignConfig {
        agent: agent(FOREIGN[n]),
        home_agents: BTreeMap::from([(HOME_AGENT, shared(2 + n as u8, [sha, md5][n]))]),
        mobiles: BTreeMap::from([(HOME, shared(4 + n as u8, md5))]),
    });
    let host = MobileConfig {
        home: HOME,
        home_agent: HOME_AGENT,
        association: shared(1, md5),
        replay: setting.replay,
        foreign: BTreeMap::from([0, 1].map(|n| (FOREIGN[n], shared(4 + n as u8, md5)))),
        lifetime: 60,
        reverse: setting.reverse,
        sent_after: setting.sent_after,
        width: 1_500,
    };
    let wire = LinkConfig { delay: setting.wire, ..LinkConfig::default() };
    let radio = LinkConfig { delay: 2 * MS, loss: setting.loss, ..LinkConfig::default() };
    let ours = clock(Duration::ZERO);
    let host_clock = WallClock { unix: ours.unix.saturating_sub(setting.skew), ..ours };
    Mobile::new(seed, (wire, radio), home, foreign.into(), host, host_clock)
}

fn at(world: &Mobile) -> Vec<Ipv4Addr> {
    world.home.bindings(HOME).collect()
}

#[test]
fn packets_reach_a_host_at_home_away_and_home_again() {
    for (replay, reverse) in [(Replay::default(), true), (Replay::default(), false), (Replay::Nonces, true)] {
        let mut w = world(1, Setting { replay, reverse, ..Setting::default() });
        for place in [Place::Home, Place::Foreign(0), Place::Foreign(1), Place::Foreign(0), Place::Home] {
            w.go(Some(place));
            w.run(SECOND);
            let bound = match place {
                Place::Home => vec![],
                Place::Foreign(n) => vec![FOREIGN[n]],
            };
            assert_eq!(at(&w), bound, "{replay:?}");
            w.talk(SECOND, 10 * MS);
            w.run(SECOND);
        }
        // Nothing was sent in the second that each registration had, nor was anything under way when the host left.
        assert!(w.handoffs().iter().all(|h| h.lost == [0, 0]), "{:?}", w.handoffs());
        assert_eq!(w.handoffs().iter().map(|h| h.sent[0]).sum::<u32>(), 500);
    }
}

/// What a handoff loses is what was under way to the old place, and what was sent until the home agent knew: with 10 ms to it and 2 ms on the
/// radio that is some tens of milliseconds. With the notice to the agent before, what the core still sends there is sent on.
#[test]
fn a_handoff_loses_what_was_under_way_and_less_with_a_notice() {
    let lost = |sent_after| {
        let mut w = world(2, Setting { sent_after, ..Setting::default() });
        w.go(Some(Place::Foreign(0)));
        w.run(SECOND);
        for n in 0..10 {
            w.go(Some(Place::Foreign((n + 1) % 2)));
            w.talk(2 * SECOND, MS);
        }
        w.run(SECOND);
        let handoffs = w.handoffs();
        let away = &handoffs[2..];
        assert!(away.iter().all(|h| h.sent == [2_000, 2_000]));
        [0, 1].map(|by| away.iter().map(|h| h.lost[by]).sum::<u32>())
    };
    let (without, with) = (lost(0), lost(5));
    // 30 ms: to the agent, from there to the home agent and on to the new place.
    assert!(without[0] > 10 * 10 && without[0] < 10 * 60, "{without:?}");
    assert!(with[0] < without[0], "{with:?} {without:?}");
    // The other direction waits for the reply alone.
    assert!(without[1] <= 10 * 60 && with[1] <= without[1], "{with:?} {without:?}");
}

#[test]
fn two_handoffs_in_one_round_trip_end_at_the_second_place() {
    for seed in 0..50 {
        let mut w = world(seed, Setting { wire: 100 * MS, ..Setting::default() });
        w.go(Some(Place::Foreign(0)));
        w.run(2 * SECOND);
        w.go(Some(Place::Foreign(1)));
        w.run(Duration::from_millis(20 + seed * 5));
        w.go(Some(Place::Foreign(0)));
        w.run(5 * SECOND);
        assert_eq!(at(&w), [FOREIGN[0]], "seed {seed}");
        w.talk(SECOND, 10 * MS);
        w.run(SECOND);
        assert_eq!(w.handoffs().last().unwrap().lost, [0, 0], "seed {seed}");
    }
}

#[test]
fn a_foreign_agent_that_crashed_is_registered_with_again() {
    let mut w = world(3, Setting::default());
    w.go(Some(Place::Foreign(0)));
    w.run(5 * SECOND);
    w.crash(0);
    w.run(SECOND);
    w.restart(0);
    assert!(w.foreign[0].as_ref().unwrap().visitors().next().is_none());
    w.run(5 * SECOND);
    assert!(w.foreign[0].as_ref().unwrap().visitors().eq([HOME]));
    // One that stays away: the host notices that it hears nothing, and looks for another.
    w.crash(0);
    w.run(10 * SECOND);
    assert!(w.host.current().is_none());
    w.restart(0);
    w.run(5 * SECOND);
    w.talk(SECOND, 10 * MS);
    w.run(SECOND);
    assert_eq!(w.handoffs()[1].lost, [0, 0]);
}

#[test]
fn a_home_agent_that_forgot_everything_learns_it_with_the_renewal() {
    let mut w = world(4, Setting::default());
    w.go(Some(Place::Foreign(0)));
    w.run(SECOND);
    w.restart_home();
    assert!(at(&w).is_empty());
    w.run(46 * SECOND);
    assert_eq!(at(&w), [FOREIGN[0]]);
}

#[test]
fn lost_registrations_are_sent_again() {
    for replay in [Replay::default(), Replay::Nonces] {
        let mut w = world(5, Setting { replay, ..Setting::default() });
        let left = Arc::new(Mutex::new(4));
        w.thief = Some(Box::new(move |packet, on_radio| {
            // The first four on the radio, requests and replies alike.
            let mut left = left.lock().unwrap();
            let hit = on_radio && *left > 0 && is_message(packet);
            *left -= u32::from(hit);
            hit
        }));
        w.go(Some(Place::Foreign(1)));
        w.run(40 * SECOND);
        assert_eq!(at(&w), [FOREIGN[1]], "{replay:?}");
        assert!(w.host.stats().asked >= 3, "{:?}", w.host.stats());
        assert!(w.host.current().is_some_and(|c| c.care_of == FOREIGN[1]), "{replay:?}");
    }
}

fn is_message(packet: &[u8]) -> bool {
    Ipv4::parse(packet)
        .is_ok_and(|ip| ip.protocol() == 17 && ip.payload().get(2..4) == Some(&PORT.to_be_bytes()))
}

#[test]
fn a_wrong_clock_is_set_by_the_home_agent() {
    let mut w = world(6, Setting { skew: 3_600 * SECOND, ..Setting::default() });
    w.go(Some(Place::Foreign(0)));
    w.run(2 * SECOND);
    assert_eq!(at(&w), [FOREIGN[0]]);
    assert_eq!(w.host.stats().refused, 1);
}

/// Requests without a signature, changed ones, and those seen before change nothing.
#[test]
fn forged_and_replayed_registrations_change_nothing() {
    for replay in [Replay::default(), Replay::Nonces] {
        let mut w = world(7, Setting { replay, ..Setting::default() });
        let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let tap = seen.clone();
        w.thief = Some(Box::new(move |packet, on_radio| {
            if !on_radio && is_message(packet) {
                tap.lock().unwrap().push(packet.to_vec());
            }
            false
        }));
        w.go(Some(Place::Foreign(0)));
        w.run(2 * SECOND);
        w.go(Some(Place::Foreign(1)));
        w.run(2 * SECOND);
        w.thief = None;
        assert_eq!(at(&w), [FOREIGN[1]]);
        let mut rng = Seeded::new(7);
        let attacker = SocketAddr::from(([10, 52, 0, 99], PORT));
        let away = Message::Request(Request {
            flags: request::DECAPSULATES,
            lifetime: 300,
            home: HOME,
            agent: HOME_AGENT,
            care_of: Ipv4Addr::new(10, 52, 0, 99),
            id: clock(Duration::ZERO).ntp(w.now),
        });
        let mut bare = Vec::new();
        away.emit(&mut bare);
        let guess = [&bare[..], &[32, 20, 0, 0, 1, 1], &[7; 16]].concat();
        for payload in [bare, guess] {
            let mut packet = Vec::new();
            udp::build(attacker, (HOME_AGENT, PORT).into(), &payload, &mut packet).unwrap();
            w.inject(packet);
        }
        for packet in seen.lock().unwrap().iter() {
            w.inject(packet.clone());
            let ip = Ipv4::parse(packet).unwrap();
            let payload = Udp::parse(&Ip::V4(ip)).unwrap().payload;
            for _ in 0..50 {
                let mut changed = payload.to_vec();
                let at = rng.below(changed.len() as u64) as usize;
                changed[at] ^= 1 << rng.below(8);
                let mut packet = Vec::new();
                let ends = [ip.src(), ip.dst()].map(|a| SocketAddr::new(a.into(), PORT));
                udp::build(ends[0], ends[1], &changed, &mut packet).unwrap();
                w.inject(packet);
            }
        }
        w.run(20 * SECOND);
        assert_eq!(at(&w), [FOREIGN[1]], "{replay:?}");
        assert!(w.home.stats().forged > 50, "{:?}", w.home.stats());
        w.talk(SECOND, 10 * MS);
        w.run(SECOND);
        assert_eq!(w.handoffs().last().unwrap().lost, [0, 0], "{replay:?}");
    }
}

#[test]
fn a_notice_cannot_be_replayed_to_send_packets_astray() {
    let mut w = world(8, Setting::default());
    let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let tap = seen.clone();
    w.thief = Some(Box::new(move |packet, on_radio| {
        let notice = |p: &[u8]| {
            let ip = Ipv4::parse(p).ok()?;
            let udp = Udp::parse(&Ip::V4(ip)).ok()?;
            matches!(Packet::parse(udp.payload).ok()?.message, Message::Moved(_)).then_some(())
        };
        if !on_radio && is_message(packet) && notice(packet).is_some() {
            tap.lock().unwrap().push(packet.to_vec());
        }
        false
    }));
    for n in [0, 1, 0] {
        w.go(Some(Place::Foreign(n)));
        w.run(2 * SECOND);
    }
    w.thief = None;
    let notices = seen.lock().unwrap().clone();
    assert!(notices.len() >= 2);
    notices.into_iter().for_each(|notice| w.inject(notice));
    w.talk(SECOND, 10 * MS);
    w.run(SECOND);
    assert_eq!(w.handoffs().last().unwrap().lost, [0, 0]);
}

/// Without a tunnel back, its packets have a source address that the network where it is does not let out.
#[test]
fn a_host_with_an_address_of_its_own_needs_no_foreign_agent() {
    for reverse in [true, false] {
        let mut w = world(9, Setting { reverse, ..Setting::default() });
        for (n, own) in [(0, [10, 51, 0, 77]), (1, [10, 52, 0, 88])] {
            w.go_with(Some(Place::Foreign(n)), Some(own.into()));
            w.run(SECOND);
            assert_eq!(at(&w), [Ipv4Addr::from(own)]);
            w.talk(SECOND, 10 * MS);
            w.run(SECOND);
        }
        let lost = [0, if reverse { 0 } else { 100 }];
        assert!(w.handoffs()[1..].iter().all(|h| h.lost == lost), "{:?}", w.handoffs());
    }
}

/// Any walk over bad radios, with agents that crash, ends where the host is once the faults have stopped: its packets arrive, and none arrives
/// twice.
#[test]
fn any_walk_over_bad_radios_ends_where_the_host_is() {
    for seed in 0..150 {
        let mut rng = Seeded::new(seed);
        let replay = if rng.below(3) == 0 { Replay::Nonces } else { Replay::default() };
        let loss = [0.0, 0.1, 0.3][rng.below(3) as usize];
        let skew = [Duration::ZERO, 100 * SECOND][rng.below(2) as usize];
        let mut w = world(seed, Setting { replay, loss, skew, ..Setting::default() });
        for _ in 0..8 {
            match rng.below(6) {
                0 => w.go(Some(Place::Home)),
                1 => w.go(None),
                2 => {
                    let n = rng.below(2) as usize;
                    w.crash(n);
                    w.run(rng.below(2_000) as u32 * MS);
                    w.restart(n);
                }
                3 => w.restart_home(),
                n => w.go(Some(Place::Foreign(n as usize - 4))),
            }
            w.talk(rng.below(4_000) as u32 * MS, 20 * MS);
        }
        w.heal();
        w.go(Some(Place::Foreign(0)));
        w.run(100 * SECOND);
        assert_eq!(at(&w), [FOREIGN[0]], "seed {seed}");
        w.talk(SECOND, 10 * MS);
        w.run(SECOND);
        assert_eq!(w.handoffs().last().unwrap().lost, [0, 0], "seed {seed}");
    }
}
