//! What differs between worlds besides what happens in them: how many hosts there are, how they find each other, what carries HIP, and how
//! each is configured. Owns the odds.

use crate::settings::Family;
use dormouse_sansio::{Entropy, Seeded};
use std::time::Duration;

/// Most hosts of a world, besides a server.
pub(crate) const HOSTS: usize = 3;

/// How hosts find each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meeting {
    /// By addresses that are configured.
    Known,
    /// By a rendezvous server (RFC 8004).
    Rendezvous,
    /// By a relay (RFC 9028), in UDP.
    Relay,
}

/// When and how ESP SAs are replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rekeying {
    /// After so many packets.
    pub after: u64,
    /// By a new Diffie-Hellman exchange.
    pub with_dh: bool,
}

/// When associations end by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lasting {
    /// One with a peer that is not configured, when it was unused for so long.
    pub unused: Duration,
    /// Any one of each host, so long after its base exchange; `None`: it does not end for that.
    pub lifetimes: [Option<Duration>; HOSTS],
}

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Two or three.
    pub hosts: usize,
    /// How they find each other.
    pub meeting: Meeting,
    /// Of [`Meeting::Known`]: each knows where all others are; else only where those of higher numbers are.
    pub mutual: bool,
    /// All are of version 1.
    pub v1: bool,
    /// HIP and ESP go in UDP, and the second network of each host is behind a NAT.
    pub udp: bool,
    /// Addresses of the networks.
    pub outer: Family,
    /// Hosts that are at home in their second network.
    pub behind: [bool; HOSTS],
    /// Each destination sees another port of a NAT.
    pub symmetric: bool,
    /// One-way delay of the links.
    pub delay: Duration,
    /// Idle time after which a NAT forgets a mapping.
    pub nat_idle: Duration,
    /// The longest that a process takes to wake up.
    pub lag: Duration,
    /// Hosts whose radios sleep.
    pub radios: [bool; HOSTS],
    /// Hosts stand in for peers that sleep.
    pub stand_in: bool,
    /// Hosts tell all their addresses (RFC 8047).
    pub multihoming: bool,
    /// After so long without an authentic packet a peer is asked whether it is there.
    pub liveness: Option<Duration>,
    /// Hosts accept those that they have listed alone.
    pub listed: bool,
    /// When and how ESP SAs are replaced.
    pub rekeying: Rekeying,
    /// For how long hosts register at their server.
    pub registration: Duration,
    /// When associations end by themselves.
    pub lasting: Lasting,
    /// ESP goes in UDP between hosts whose HIP does not, once UDP has passed there, as by default.
    pub esp_in_udp: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hosts: 2,
            meeting: Meeting::Known,
            mutual: true,
            v1: false,
            udp: false,
            outer: Family::V4,
            behind: [false; HOSTS],
            symmetric: false,
            delay: Duration::from_millis(20),
            nat_idle: Duration::from_secs(60),
            lag: Duration::ZERO,
            radios: [false; HOSTS],
            stand_in: false,
            multihoming: false,
            liveness: None,
            listed: false,
            rekeying: Rekeying { after: 1 << 32, with_dh: true },
            registration: Duration::from_secs(300),
            lasting: Lasting { unused: Duration::from_secs(3_600), lifetimes: [None; HOSTS] },
            esp_in_udp: true,
        }
    }
}

fn pick<T: Copy>(rng: &mut Seeded, of: &[T]) -> T {
    of[usize::try_from(rng.below(of.len() as u64)).unwrap_or(0)]
}

/// How long each host lets its associations last: in a third of the worlds, some of them. Drawn by itself, so that all else of a seed is as without it.
fn lifetimes(seed: u64) -> [Option<Duration>; HOSTS] {
    let rng = &mut Seeded::new(seed ^ 0x11fe_71be_7401_0000);
    let of = [0, 0, 40, 300, 3_600, 28_800];
    let bounded = rng.below(3) == 0;
    [(); HOSTS].map(|()| Some(pick(rng, &of)).filter(|time| bounded && *time > 0).map(Duration::from_secs))
}

impl Settings {
    /// The settings of `seed`.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let rng = &mut Seeded::new(seed ^ 0x41b0_5e77_1965_0000);
        let meeting = pick(rng, &[Meeting::Known, Meeting::Known, Meeting::Rendezvous, Meeting::Relay]);
        let v1 = meeting != Meeting::Relay && rng.below(6) == 0;
        let udp = match meeting {
            Meeting::Known => rng.below(2) == 0,
            // FROM has no port (RFC 8004 section 4.2.1): a rendezvous server does not lead through a NAT.
            Meeting::Rendezvous => rng.below(4) == 0,
            Meeting::Relay => true,
        };
        let mut any = |of: u64| [(); HOSTS].map(|()| rng.below(of) == 0);
        let (behind, radios) = (any(2), any(3));
        let behind = match meeting {
            // The others would not find one that is behind a NAT.
            Meeting::Known => [udp && behind[0], false, false],
            Meeting::Rendezvous => [false; HOSTS],
            Meeting::Relay => behind,
        };
        let milliseconds = |rng: &mut Seeded, of: &[u64]| Duration::from_millis(pick(rng, of));
        Self {
            hosts: if v1 { 2 } else { pick(rng, &[2, 2, 3]) },
            meeting,
            mutual: rng.below(2) == 0,
            v1,
            udp,
            outer: pick(rng, &[Family::V4, Family::V4, Family::V6, Family::Both]),
            behind,
            symmetric: rng.below(3) == 0,
            delay: milliseconds(rng, &[1, 20, 150]),
            nat_idle: milliseconds(rng, &[20_000, 60_000, 600_000]),
            lag: milliseconds(rng, &[0, 2, 20]),
            radios,
            stand_in: rng.below(2) == 0,
            multihoming: !udp && rng.below(3) == 0,
            liveness: (rng.below(3) == 0).then(|| Duration::from_secs(30)),
            listed: rng.below(2) == 0,
            rekeying: Rekeying { after: pick(rng, &[5, 50, 1 << 32]), with_dh: rng.below(2) == 0 },
            registration: milliseconds(rng, &[60_000, 300_000, 86_400_000]),
            lasting: Lasting { unused: milliseconds(rng, &[120_000, 3_600_000]), lifetimes: lifetimes(seed) },
            esp_in_udp: rng.below(2) == 0,
        }
    }

    /// Whether there is a server, by which the hosts find each other.
    #[must_use]
    pub fn has_server(&self) -> bool {
        self.meeting != Meeting::Known
    }

    /// Whether host `n` knows where host `other` is found.
    #[must_use]
    pub fn knows(&self, n: usize, other: usize) -> bool {
        n != other && (self.has_server() || (self.mutual || n < other) && !self.behind[other])
    }
}
