//! Where a datagram goes and how urgent it is. Owns the addressing vocabulary; must never resolve or bind anything.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// How a datagram is carried between the two outer addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Carrier {
    /// The IKE port (500 unless configured): bare IKE messages, never ESP.
    Ike,
    /// The NAT-traversal port (4500 unless configured): ESP, IKE behind the non-ESP marker, keepalives (RFC 3948).
    NatT,
    /// IP protocol 50, without ports: both ports of the path are 0.
    RawEsp,
    /// IP protocol 139, without ports: HIP messages, never ESP (RFC 7401 section 5.1).
    RawHip,
    /// The port of HIP behind NATs (10500 unless configured): ESP, and HIP behind a marker of four zero bytes (RFC 5770 section
    /// 5.1).
    HipUdp,
}

/// A pair of outer addresses and the carrier between them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Ours. An unspecified address leaves the choice to the route.
    pub local: SocketAddr,
    /// The peer's, as seen from here (possibly a NAT's).
    pub remote: SocketAddr,
    /// What lies between them.
    pub carrier: Carrier,
}

impl Path {
    /// Same addresses, ports and carrier replaced.
    #[must_use]
    pub fn with_ports(self, carrier: Carrier, local: u16, remote: u16) -> Self {
        Self {
            local: SocketAddr::new(self.local.ip(), local),
            remote: SocketAddr::new(self.remote.ip(), remote),
            carrier,
        }
    }

    /// Bytes of IP and UDP header that this path puts before a datagram.
    #[must_use]
    pub fn outer_overhead(&self) -> usize {
        let ip = match self.remote.ip() {
            IpAddr::V4(_) => 20,
            IpAddr::V6(_) => 40,
        };
        ip + match self.carrier {
            Carrier::RawEsp | Carrier::RawHip => 0,
            Carrier::Ike | Carrier::NatT | Carrier::HipUdp => 8,
        }
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} ({:?})", self.local, self.remote, self.carrier)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let carrier = match self.carrier {
            Carrier::Ike | Carrier::NatT | Carrier::HipUdp => "UDP",
            Carrier::RawEsp => "ESP",
            Carrier::RawHip => "HIP",
        };
        write!(f, "{} -> {} ({carrier})", self.local, self.remote)
    }
}

/// How urgent a transmission is: what the scheduler needs to know to leave the radio asleep.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// User data, or an exchange that user data waits for.
    Urgent,
    /// Belongs to a running exchange that no user data waits for.
    Timely,
    /// Upkeep that may wait for the next wake within its deadline's slack: keepalives, liveness, scheduled rekeying.
    Upkeep,
}

/// One datagram (or, with `segment`, several of equal size but the last) that a core wants sent. Its bytes were appended to
/// the buffer handed to `poll_transmit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The path that it takes.
    pub path: Path,
    /// How urgent.
    pub class: Class,
    /// Size of each datagram in the buffer, in bytes, if there is more than one (UDP GSO).
    pub segment: Option<usize>,
    /// Whether IP may cut it into fragments: key management may be, ESP may not.
    pub fragmentable: bool,
}

/// Whether a network interface may be called so: what the kernel takes, less what has a meaning of its own in a packet filter's rules or
/// in a file name (`"`, `*`, `/`, a blank).
#[must_use]
pub fn fit_interface(name: &str) -> bool {
    let fit = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    (1..=15).contains(&name.len()) && name != "." && name != ".." && name.chars().all(fit)
}
