//! The machines of a world of HIP: their keys, where they are, and their cores as the daemon makes them. Owns what each knows of the others.

use super::script::Edit;
use super::settings::{Meeting, Settings};
use crate::ends::EPOCH;
use crate::world::Access;
use dormouse_crypto::hip::{DhGroup, v1};
use dormouse_crypto::sign::SigningKey;
use dormouse_energy::model::Resumption;
use dormouse_energy::profile::Profile;
use dormouse_energy::schedule::Policy;
use dormouse_hip::{Accept, Hold, Host as Hip, HostConfig, Identity, Peer, Registrar};
use dormouse_ike::EndpointConfig;
use dormouse_node::host::Host;
use dormouse_node::sleeper::{self, Mode};
use dormouse_node::{Limits, Node, SleepFlags};
use dormouse_sansio::{Instant, Seeded};
use dormouse_wire::hip::{DomainId, Hit};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Keys that protect nothing but simulations.
pub const KEYS: [&str; 7] = [
    "-----BEGIN PRIVATE KEY-----\n\
     MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgDqOhbP517DeqUcB8\n\
     tZDJsrBHQNPS4qzkOn/9AXEatGqhRANCAASYv/shRrG00k/IQmcRniauw97wrFXO\n\
     DrIRGQbLpC5D3Bx9ebP9BxPA1WlkKjn/Ap9/UqKV39NphF0dUCIRSpUA\n\
     -----END PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n\
     MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgx/aVegT44h7P5jY5\n\
     B8XWnz0Wu4zmcPxnJJ0NGyHiCGihRANCAAQWGBYhYiOwSx589CVFoRvpBx5riB55\n\
     HSuraQJWo0bYUa9keBRSTBl8pRhTRJ3wa9sDkXV33mSYeHZvdwfHNwJo\n\
     -----END PRIVATE KEY-----",
    include_str!("../../../hip/tests/keys/p384.pem"),
    "-----BEGIN PRIVATE KEY-----\n\
     MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgb/MXls3elQHTmHec\n\
     KkGJ9q+Evb8ApY8E/wkX5kxxcGyhRANCAARayH65UZBfSIelY12W08wCOmgMbw8/\n\
     zwjG6NwZz+ibHv1hK/tvVACIcATlD6EPdFwrxxgR4lYDM+xXXcYlIqSs\n\
     -----END PRIVATE KEY-----",
    include_str!("../../../hip/tests/keys/rsa1024.pem"),
    include_str!("../../../hip/tests/keys/dsa1024.pem"),
    include_str!("../../../hip/tests/keys/rsa.pem"),
];
/// From this one on they are of version 1.
pub const OLD: usize = 4;

/// Where a server is, in either family.
pub const SERVER: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// What is done for a peer that sleeps, and asked for by one that does.
pub(super) const SERVICES: SleepFlags = SleepFlags { stand_in: true, buffering: true };
/// Associations of peers that sleep are kept for so long.
pub(super) const LONGEST: Duration = Duration::from_secs(4 * 3_600);

/// The identity of a key of [`KEYS`].
///
/// # Panics
/// If there is no such key.
#[must_use]
pub fn identity(n: usize) -> Identity {
    if n >= OLD {
        let key = v1::SigningKey::from_file_content(KEYS[n].as_bytes()).expect("a key");
        return Identity::v1(key, DomainId::default()).expect("an identity");
    }
    let key = SigningKey::from_pem(KEYS[n].as_bytes()).expect("a key");
    Identity::new(key, DomainId::default()).expect("an identity")
}

/// A radio that goes off after five seconds of silence.
///
/// # Panics
/// Never: the profile is part of the program.
#[must_use]
pub fn radio() -> sleeper::Settings {
    sleeper::Settings {
        mode: Mode::Energy,
        policy: Policy::Timeout(5.0),
        min_idle: Duration::from_millis(250),
        wake_every: None,
        renew: false,
        latency: Duration::from_secs(3),
        lost_per_hour: 20,
        model: Profile::shipped("laptop-000").and_then(|p| p.model().ok()).expect("it ships"),
        profile: "laptop-000".into(),
        resumption: Resumption::HeldSa,
    }
}

/// The NAT of a host's second network.
pub(super) fn outside(n: usize) -> IpAddr {
    Ipv4Addr::new(198, 51, 100, 10 + number(n)).into()
}

/// An address of a host, in either family.
pub(super) fn addresses(n: usize, access: Access, at: u8) -> [IpAddr; 2] {
    let (n, at) = (number(n), 2 + at);
    let six = |net: u16| Ipv6Addr::new(0x2001, 0xdb8, net + u16::from(n), 0, 0, 0, 0, u16::from(at)).into();
    match access {
        Access::A => [Ipv4Addr::new(10, 10 + n, 0, at).into(), six(0xa0)],
        Access::B => [Ipv4Addr::new(192, 168, n, at).into(), six(0xb0)],
    }
}

/// An address that a host takes for its own.
pub(super) fn astray(n: usize) -> [IpAddr; 2] {
    let n = number(n);
    [
        Ipv4Addr::new(203, 0, 113, 60 + n).into(),
        Ipv6Addr::new(0x2001, 0xdb8, 0xdead, 0, 0, 0, 0, n.into()).into(),
    ]
}

fn number(n: usize) -> u8 {
    u8::try_from(n).unwrap_or(u8::MAX)
}

/// What the configuration of one machine says now.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub(super) settings: Settings,
    /// The tags of all, the server's last.
    pub(super) tags: Vec<Hit>,
    /// What each has read last.
    pub(super) edits: Vec<Edit>,
}

impl Ends {
    pub(super) fn new(settings: Settings) -> Self {
        let machines = settings.hosts + usize::from(settings.has_server());
        let first = if settings.v1 { OLD } else { 0 };
        let tags = (first..first + machines).map(|n| identity(n).hit()).collect();
        Self { settings, tags, edits: vec![Edit::Nothing; machines] }
    }

    /// The server's number, which is that of no host.
    pub(super) fn server(&self) -> usize {
        self.settings.hosts
    }

    /// Where a host is at home.
    pub(super) fn home(&self, n: usize) -> Access {
        if self.settings.behind.get(n).is_some_and(|b| *b) { Access::B } else { Access::A }
    }

    fn servers_of(&self, n: usize) -> (BTreeSet<Hit>, BTreeSet<Hit>) {
        let there = n != self.server() && self.edits[n] != Edit::Unregistered;
        let of = |meeting| {
            let wanted = there && self.settings.meeting == meeting;
            wanted.then(|| self.tags[self.server()]).into_iter().collect()
        };
        (of(Meeting::Rendezvous), of(Meeting::Relay))
    }

    fn accept(&self, n: usize) -> Accept {
        let all = |it: &Self| it.tags.iter().copied().filter(|tag| *tag != it.tags[n]).collect();
        match self.edits[n] {
            Edit::Alone => Accept::Listed(BTreeSet::new()),
            _ if self.settings.listed && n != self.server() => Accept::Listed(all(self)),
            _ => Accept::Any,
        }
    }

    fn multihoming(&self, n: usize) -> bool {
        self.settings.multihoming != (self.edits[n] == Edit::Multihoming && !self.settings.udp)
    }

    fn liveness(&self, n: usize) -> Option<Duration> {
        match self.edits[n] {
            Edit::Liveness(seconds) => Some(Duration::from_secs(seconds.into())),
            _ => self.settings.liveness,
        }
    }

    fn config(&self, n: usize, unix: u64) -> HostConfig {
        let settings = &self.settings;
        let registrar = |meeting| {
            let serves = n == self.server() && settings.meeting == meeting;
            let (permits, longest) = (Accept::Any, Duration::from_secs(86_400));
            serves.then_some(Registrar { permits, longest, max_clients: 10 })
        };
        let (rendezvous, relays) = self.servers_of(n);
        HostConfig {
            groups: vec![DhGroup::Ecp256, DhGroup::Modp1536],
            accept: self.accept(n),
            first_generation: unix,
            rekey_with_dh: settings.rekeying.with_dh,
            soft_packets: settings.rekeying.after,
            unused: settings.lasting.unused,
            multihoming: self.multihoming(n),
            liveness: self.liveness(n),
            registrar: registrar(Meeting::Rendezvous),
            relay_server: registrar(Meeting::Relay),
            relays,
            rendezvous,
            registration: settings.registration,
            may_sleep: self.has_radio(n),
            esp_in_udp: settings.esp_in_udp,
            hold: Some(Hold {
                longest: LONGEST,
                services: if settings.stand_in { SERVICES } else { SleepFlags::default() },
            }),
            ..HostConfig::default()
        }
    }

    /// How long an association of a machine lasts. A server's do for as long as its clients want.
    pub(super) fn lifetime(&self, n: usize) -> Option<Duration> {
        self.settings.lasting.lifetimes.get(n).copied().flatten().filter(|_| n != self.server())
    }

    pub(super) fn has_radio(&self, n: usize) -> bool {
        n < self.settings.hosts && self.settings.radios[n]
    }

    /// What the directory of machine `n` has.
    fn tell(&self, hip: &mut Hip, n: usize) {
        let (settings, server) = (&self.settings, self.settings.outer.of(SERVER));
        let alone = self.edits[n] == Edit::Alone;
        for (other, tag) in self.tags.iter().enumerate().filter(|(other, _)| *other != n) {
            let knows = !alone && n != self.server() && settings.knows(n, other);
            let met = |meeting| knows && settings.meeting == meeting && other != self.server();
            let at = |addresses| Peer { addresses, udp: settings.udp };
            let home = || settings.outer.of(addresses(other, self.home(other), 0));
            let is_server = other == self.server() && n != self.server() && !alone;
            let known =
                is_server.then(|| at(server.clone())).or_else(|| met(Meeting::Known).then(|| at(home())));
            hip.set_peer(*tag, known);
            hip.set_lifetime_of(*tag, self.lifetime(n));
            hip.set_rendezvous_of(*tag, met(Meeting::Rendezvous).then(|| at(server.clone())));
            hip.set_relays_of(*tag, if met(Meeting::Relay) { server.clone() } else { Vec::new() });
        }
    }

    /// The core of machine `n`, as its daemon begins.
    pub(super) fn core(&self, n: usize, now: Instant, rng: &mut Seeded) -> Host {
        let unix = EPOCH + (now - Instant::ZERO);
        let key = n + if self.settings.v1 { OLD } else { 0 };
        let [a, b] = [rng.fork(), rng.fork()].map(Box::new);
        let mut node = Node::new(Vec::new(), EndpointConfig::default(), a, b);
        let config = self.config(n, unix.0);
        let mut hip = Hip::new(config, vec![identity(key)], Box::new(node.spis()), Box::new(rng.fork()));
        self.tell(&mut hip, n);
        if self.settings.stand_in {
            node.stand_in_for_sleepers(Limits::default(), LONGEST);
        }
        node.set_key_manager("hip", Box::new(hip));
        let mut host = Host::new(now, node, None);
        host.set_wall_clock(now, unix);
        host
    }

    /// The daemon of machine `n` has read its configuration again.
    pub(super) fn reload(&self, n: usize, now: Instant, host: &mut Host) {
        host.node_mut().with_manager(now, |hip: &mut Hip| {
            self.tell(hip, n);
            hip.set_accept(now, self.accept(n), Accept::Any);
            hip.set_servers(now, self.servers_of(n), self.settings.registration);
            hip.set_multihoming(now, self.multihoming(n));
            hip.set_liveness(now, self.liveness(n));
        });
    }
}
