//! A network address and port translator for UDP (RFC 4787). Owns mappings; must never look inside a datagram.

use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::BTreeMap;

use dormouse_sansio::{Carrier, Entropy, Instant, Path, Seeded};

/// When two flows of one inside socket share an outside port (RFC 4787 section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mapping {
    /// Always: one outside port for each inside socket.
    #[default]
    EndpointIndependent,
    /// Only towards the same address and port ("symmetric").
    AddressAndPortDependent,
}

/// Who may send to an outside port (RFC 4787 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Filtering {
    /// From any remote address and port.
    EndpointIndependent,
    /// An address that the inside socket has sent to.
    AddressDependent,
    /// An address and port that the inside socket has sent to.
    #[default]
    AddressAndPortDependent,
}

/// The behaviour of a NAT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NatConfig {
    /// The outside address.
    pub public: IpAddr,
    /// The outside ports to choose from.
    pub ports: RangeInclusive<u16>,
    /// Keeps the inside port where it is free, even outside of `ports`.
    pub preserve_ports: bool,
    /// Which flows share a port.
    pub mapping: Mapping,
    /// Who may send in.
    pub filtering: Filtering,
    /// A mapping, or a permission to send in, that was not used for this long is forgotten.
    pub idle: Duration,
    /// Whether datagrams from outside count as use; those from inside always do (RFC 4787 section 4.3, REQ-6).
    pub inbound_refreshes: bool,
}

impl NatConfig {
    /// A home router's behaviour behind `public`: any high port, endpoint-independent mapping, address-and-port-dependent
    /// filtering, 30 seconds for a UDP mapping (Linux conntrack's default for a flow without an answer).
    #[must_use]
    pub fn new(public: IpAddr) -> Self {
        Self {
            public,
            ports: 1024..=u16::MAX,
            preserve_ports: false,
            mapping: Mapping::default(),
            filtering: Filtering::default(),
            idle: Duration::from_secs(30),
            inbound_refreshes: false,
        }
    }
}

/// Why a datagram was not translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NatDrop {
    /// Its carrier has no ports.
    NoPorts,
    /// An address is not of the family of the outside address.
    Family,
    /// All outside ports are taken.
    Exhausted,
    /// It is not addressed to the outside address.
    NotOurs,
    /// No mapping has the port: there never was one, or it has expired.
    NoMapping {
        /// The outside port that it was sent to.
        port: u16,
    },
    /// There is a mapping, but the sender has not been sent to.
    Filtered {
        /// Who sent it.
        from: SocketAddr,
    },
}

/// A NAT. Paths are as the sender of the datagram sees them: `local` is the source and `remote` the destination.
#[derive(Clone, Debug)]
pub struct Nat {
    config: NatConfig,
    entropy: Seeded,
    by_inside: BTreeMap<Key, u16>,
    by_port: BTreeMap<u16, State>,
}

/// What flows are mapped together: the inside socket, and with address-and-port-dependent mapping the destination.
type Key = (SocketAddr, Option<SocketAddr>);

#[derive(Clone, Debug)]
struct State {
    key: Key,
    used: Instant,
    /// The remotes that the inside socket has sent to, and when each last counted as use.
    peers: BTreeMap<SocketAddr, Instant>,
}

impl Nat {
    /// A NAT without mappings. The seed decides the ports.
    #[must_use]
    pub const fn new(config: NatConfig, seed: u64) -> Self {
        Self { config, entropy: Seeded::new(seed), by_inside: BTreeMap::new(), by_port: BTreeMap::new() }
    }

    /// The behaviour in force.
    #[must_use]
    pub const fn config(&self) -> &NatConfig {
        &self.config
    }

    /// Forgets every mapping, as a NAT that loses power does. Later flows get other ports, unless ports are preserved.
    pub fn reboot(&mut self) {
        self.by_inside.clear();
        self.by_port.clear();
    }

    /// Translates a datagram from inside: its source becomes the outside address and the port of its mapping, which is made
    /// if there is none.
    ///
    /// # Errors
    /// [`NatDrop::NoPorts`], [`NatDrop::Family`] or [`NatDrop::Exhausted`].
    pub fn outbound(&mut self, now: Instant, path: Path) -> Result<Path, NatDrop> {
        self.check_family(path)?;
        self.expire(now);
        let key = match self.config.mapping {
            Mapping::EndpointIndependent => (path.local, None),
            Mapping::AddressAndPortDependent => (path.local, Some(path.remote)),
        };
        let port = match self.by_inside.get(&key) {
            Some(port) => *port,
            None => self.choose_port(path.local.port()).ok_or(NatDrop::Exhausted)?,
        };
        self.by_inside.insert(key, port);
        let state =
            self.by_port.entry(port).or_insert_with(|| State { key, used: now, peers: BTreeMap::new() });
        state.used = now;
        state.peers.insert(path.remote, now);
        Ok(Path { local: SocketAddr::new(self.config.public, port), ..path })
    }

    /// Translates a datagram from outside: its destination becomes the inside socket of the mapping.
    ///
    /// # Errors
    /// [`NatDrop`], for each reason but exhaustion.
    pub fn inbound(&mut self, now: Instant, path: Path) -> Result<Path, NatDrop> {
        self.check_family(path)?;
        if path.remote.ip() != self.config.public {
            return Err(NatDrop::NotOurs);
        }
        self.expire(now);
        let (port, from) = (path.remote.port(), path.local);
        let state = self.by_port.get_mut(&port).ok_or(NatDrop::NoMapping { port })?;
        let permitted = match self.config.filtering {
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => state.peers.keys().any(|peer| peer.ip() == from.ip()),
            Filtering::AddressAndPortDependent => state.peers.contains_key(&from),
        };
        if !permitted {
            return Err(NatDrop::Filtered { from });
        }
        if self.config.inbound_refreshes {
            state.used = now;
            if let Some(used) = state.peers.get_mut(&from) {
                *used = now;
            }
        }
        Ok(Path { remote: state.key.0, ..path })
    }

    fn check_family(&self, path: Path) -> Result<(), NatDrop> {
        if matches!(path.carrier, Carrier::RawEsp | Carrier::RawHip) {
            return Err(NatDrop::NoPorts);
        }
        let v4 = self.config.public.is_ipv4();
        if path.local.is_ipv4() == v4 && path.remote.is_ipv4() == v4 { Ok(()) } else { Err(NatDrop::Family) }
    }

    /// Forgets what has not been used for the idle time.
    fn expire(&mut self, now: Instant) {
        let idle = self.config.idle;
        let alive = |used: Instant| now - used < idle;
        let by_inside = &mut self.by_inside;
        self.by_port.retain(|_, state| {
            state.peers.retain(|_, used| alive(*used));
            let keep = alive(state.used);
            if !keep {
                by_inside.remove(&state.key);
            }
            keep
        });
    }

    /// The inside port if it is to be kept and is free; else the first free one from a random place on.
    fn choose_port(&mut self, inside: u16) -> Option<u16> {
        if self.config.preserve_ports && !self.by_port.contains_key(&inside) {
            return Some(inside);
        }
        let (first, last) = (*self.config.ports.start(), *self.config.ports.end());
        let count = u64::from(last.checked_sub(first)?) + 1;
        let start = self.entropy.below(count);
        (0..count)
            .filter_map(|i| u16::try_from(u64::from(first) + (start + i) % count).ok())
            .find(|port| !self.by_port.contains_key(port))
    }
}
