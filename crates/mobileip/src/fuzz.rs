//! Bodies of the fuzz targets: any bytes at each part, which holds keys, registrations and tunnels. Each panics if a property does not hold; none
//! is for use in a program.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

use dormouse_crypto::Secret;
use dormouse_crypto::mobileip::Authenticator;
use dormouse_sansio::{Entropy as _, Instant, Seeded};
use dormouse_wire::ip::{Ipv4, udp};
use dormouse_wire::mobileip::PORT;

use crate::limits::{MAX_PENDING, MAX_VISITORS};
use crate::{
    Advertise, AgentConfig, Association, ForeignAgent, ForeignConfig, HomeAgent, HomeConfig, LinkAddress,
    Member, MobileConfig, MobileHost, Replay, Reverse, Side, WallClock,
};

const HOME: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 2);
const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 1);
const FOREIGN: Ipv4Addr = Ipv4Addr::new(10, 51, 0, 1);
const HOST: LinkAddress = LinkAddress([2; 6]);
const AGENT: LinkAddress = LinkAddress([4; 6]);

fn shared(n: u8) -> Association {
    Association { spi: 256 + u32::from(n), key: Secret::from([n; 16]), authenticator: Authenticator::HmacMd5 }
}

/// A home agent, a foreign agent and a host that is registered through it.
struct World {
    now: Instant,
    home: HomeAgent,
    foreign: ForeignAgent,
    host: MobileHost,
    random: Seeded,
}

impl World {
    fn new(replay: Replay) -> Self {
        let now = Instant::ZERO;
        let agent = |address| {
            let (advertise, reverse) = (Advertise::default(), Reverse::Offered);
            AgentConfig { address, advertise, reverse, width: 1_500 }
        };
        let clock = WallClock { at: now, unix: Duration::from_secs(1_700_000_000) };
        let mut random = Seeded::new(1);
        let home = HomeConfig {
            agent: agent(HOME_AGENT),
            network: ipnet::Ipv4Net::new_assert(Ipv4Addr::new(10, 50, 0, 0), 24),
            members: BTreeMap::from([(HOME, Member { association: shared(1), replay })]),
            foreign: BTreeMap::from([(FOREIGN, shared(2))]),
        };
        let foreign = ForeignConfig {
            agent: agent(FOREIGN),
            home_agents: BTreeMap::from([(HOME_AGENT, shared(2))]),
            mobiles: BTreeMap::from([(HOME, shared(3))]),
        };
        let host = MobileConfig {
            home: HOME,
            home_agent: HOME_AGENT,
            association: shared(1),
            replay,
            foreign: BTreeMap::from([(FOREIGN, shared(3))]),
            lifetime: 300,
            reverse: true,
            sent_after: 5,
            width: 1_500,
        };
        let mut world = Self {
            now,
            home: HomeAgent::new(now, home, clock, Box::new(random.fork())),
            foreign: ForeignAgent::new(now, foreign, Box::new(random.fork())),
            host: MobileHost::new(host, clock, Box::new(random.fork())),
            random,
        };
        world.host.attach(now, None);
        world.foreign.handle_timeout(now);
        world.carry();
        world
    }

    /// Hands on what each part sends, until all are quiet. What leaves a part is a whole packet.
    fn carry(&mut self) {
        let (now, mut packet) = (self.now, Vec::new());
        for _ in 0..64 {
            let mut quiet = true;
            let sound = |p: &[u8]| {
                assert!(Ipv4::parse(p).is_ok_and(|ip| ip.checksum_ok() && ip.total_len() == p.len()))
            };
            while let Some(side) = self.home.poll_transmit(&mut packet) {
                (quiet, _) = (false, sound(&packet));
                if side == Side::Routed {
                    let _ = self.foreign.handle_packet(now, Side::Routed, &packet);
                }
                packet.clear();
            }
            while let Some(side) = self.foreign.poll_transmit(&mut packet) {
                (quiet, _) = (false, sound(&packet));
                let _ = match side {
                    Side::Routed => self.home.handle_packet(now, Side::Routed, &packet),
                    Side::Link(_) => self.host.handle_packet(now, Side::Link(AGENT), &packet),
                };
                packet.clear();
            }
            while let Some(side) = self.host.poll_transmit(&mut packet) {
                quiet = false;
                if side != Side::Routed {
                    sound(&packet);
                    let _ = self.foreign.handle_packet(now, Side::Link(HOST), &packet);
                }
                packet.clear();
            }
            if quiet {
                break;
            }
        }
        while self.home.poll_event().is_some() {}
        while self.foreign.poll_event().is_some() {}
        while self.host.poll_event().is_some() {}
    }

    fn check(&self) {
        let (pending, visitors) = self.foreign.held();
        assert!(pending <= MAX_PENDING && visitors <= MAX_VISITORS);
        // Only the host has its key: no other message moves it.
        assert!(
            self.home.bindings(HOME).all(|care_of| care_of == FOREIGN),
            "{:?}",
            self.home.bindings(HOME).collect::<Vec<_>>()
        );
    }
}

/// Packets at each part in turn: in each record a byte that says where and how, one of time, one of length, and so many bytes. They are a
/// whole packet, or a registration message in one. Returns how many were taken, of how many.
///
/// # Panics
/// If a bound is broken, a part sends what is no packet, or a binding changes.
pub fn parts(data: &[u8]) -> (u32, u32) {
    let Some((first, mut rest)) = data.split_first() else { return (0, 0) };
    let replay = if first & 1 == 0 { Replay::default() } else { Replay::Nonces };
    let mut world = World::new(replay);
    assert!(world.home.bindings(HOME).eq([FOREIGN]), "the world does not work");
    let (mut taken, mut all) = (0, 0);
    while let [what, time, len, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = after;
        world.now += Duration::from_millis(u64::from(*time) * 4);
        let mut packet = bytes.to_vec();
        if what & 8 != 0 {
            let from = [HOME, HOME_AGENT, FOREIGN, Ipv4Addr::new(10, 52, 0, 1)][usize::from(what >> 4 & 3)];
            let to = [HOME_AGENT, FOREIGN, HOME][usize::from(what % 3)];
            packet.clear();
            let ends = [from, to].map(|a| SocketAddr::new(a.into(), PORT));
            if udp::build(ends[0], ends[1], bytes, &mut packet).is_err() {
                continue;
            }
        }
        let side =
            if what & 4 == 0 { Side::Routed } else { Side::Link(if what & 64 == 0 { HOST } else { AGENT }) };
        let now = world.now;
        let handled = match what % 3 {
            0 => world.home.handle_packet(now, side, &packet),
            1 => world.foreign.handle_packet(now, side, &packet),
            _ => world.host.handle_packet(now, side, &packet),
        };
        (taken, all) = (taken + u32::from(handled.is_ok()), all + 1);
        if what & 128 != 0 {
            world.home.handle_timeout(now);
            world.foreign.handle_timeout(now);
            world.host.handle_timeout(now);
        }
        let _ = world.random.next_u64();
        world.carry();
        world.check();
    }
    (taken, all)
}
