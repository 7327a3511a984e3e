//! Ways to peers: from addresses of ours to addresses of theirs. Owns the directory and the choice; must never send anything.

use std::collections::{BTreeMap, BTreeSet};

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::Hit;

use crate::config::{Accept, HostConfig, Peer};
use crate::quirks::Quirks;

#[derive(Debug, Default)]
pub(crate) struct Peers {
    known: BTreeMap<Hit, Peer>,
    /// The addresses of [`Self::known`].
    at: BTreeSet<(IpAddr, Hit)>,
    /// Their rendezvous servers.
    servers: BTreeMap<Hit, Peer>,
    /// Their relays.
    relays: BTreeMap<Hit, Peer>,
    /// Which tag of ours those are called by that are not called by the first.
    identities: BTreeMap<Hit, Hit>,
    /// What those that have quirks have.
    quirks: BTreeMap<Hit, Quirks>,
    /// How long an association with those lasts for whom that is bounded.
    lifetimes: BTreeMap<Hit, Duration>,
    /// Ours, the preferred one of each family first.
    ours: Vec<IpAddr>,
}

impl Peers {
    pub(crate) fn set(&mut self, tag: Hit, peer: Option<Peer>) {
        if let Some(before) = self.known.remove(&tag) {
            for address in before.addresses {
                self.at.remove(&(address, tag));
            }
        }
        if let Some(peer) = peer {
            self.at.extend(peer.addresses.iter().map(|address| (*address, tag)));
            self.known.insert(tag, peer);
        }
    }

    pub(crate) fn set_servers(&mut self, tag: Hit, servers: Option<Peer>) {
        match servers {
            Some(servers) => self.servers.insert(tag, servers),
            None => self.servers.remove(&tag),
        };
    }

    pub(crate) fn set_relays(&mut self, tag: Hit, addresses: Vec<IpAddr>) {
        if addresses.is_empty() {
            self.relays.remove(&tag);
        } else {
            self.relays.insert(tag, Peer { addresses, udp: true });
        }
    }

    pub(crate) fn set_identity(&mut self, tag: Hit, ours: Option<Hit>) {
        match ours {
            Some(ours) => self.identities.insert(tag, ours),
            None => self.identities.remove(&tag),
        };
    }

    pub(crate) fn identity(&self, tag: Hit) -> Option<Hit> {
        self.identities.get(&tag).copied()
    }

    pub(crate) fn set_quirks(&mut self, tag: Hit, quirks: Quirks) {
        match quirks {
            Quirks::NONE => self.quirks.remove(&tag),
            _ => self.quirks.insert(tag, quirks),
        };
    }

    pub(crate) fn set_lifetime(&mut self, tag: Hit, lifetime: Option<Duration>) {
        match lifetime {
            Some(lifetime) => self.lifetimes.insert(tag, lifetime),
            None => self.lifetimes.remove(&tag),
        };
    }

    pub(crate) fn lifetime(&self, tag: Hit) -> Option<Duration> {
        self.lifetimes.get(&tag).copied()
    }

    pub(crate) fn quirks(&self, tag: Hit) -> Quirks {
        self.quirks.get(&tag).copied().unwrap_or_default()
    }

    /// The peer that has this address; none if several share it.
    pub(crate) fn at(&self, address: IpAddr) -> Option<Hit> {
        let mut there = self.at.range((address, Hit::NULL)..).take_while(|(at, _)| *at == address);
        let (_, tag) = there.next()?;
        there.next().is_none().then_some(*tag)
    }

    /// Whether the directory has this peer at this address.
    pub(crate) fn is_known_at(&self, tag: Hit, address: IpAddr) -> bool {
        self.at.contains(&(address, tag))
    }

    /// Whether it, or a server of it, is in the directory.
    pub(crate) fn has(&self, tag: Hit) -> bool {
        self.known.contains_key(&tag) || self.servers.contains_key(&tag) || self.relays.contains_key(&tag)
    }

    pub(crate) fn set_ours(&mut self, ours: &[IpAddr]) {
        self.ours = ours.to_vec();
    }

    /// Our address towards another of its family.
    pub(crate) fn ours(&self) -> &[IpAddr] {
        &self.ours
    }

    pub(crate) fn ours_to(&self, theirs: IpAddr) -> Option<IpAddr> {
        self.ours.iter().copied().find(|a| a.is_ipv4() == theirs.is_ipv4())
    }

    /// The ways to a peer, the best first, those through its servers last.
    pub(crate) fn ways(&self, tag: Hit, port: u16) -> Vec<Path> {
        let mut ways = self.to(self.known.get(&tag), port);
        ways.extend(self.servers(tag, port));
        ways
    }

    /// The ways to a peer's rendezvous servers and relays.
    pub(crate) fn servers(&self, tag: Hit, port: u16) -> Vec<Path> {
        let mut ways = self.to(self.servers.get(&tag), port);
        ways.extend(self.to(self.relays.get(&tag), port));
        ways
    }

    /// Whether this is the address of a relay of the peer's, which takes ESP for it.
    pub(crate) fn is_relay_of(&self, tag: Hit, address: IpAddr) -> bool {
        self.relays.get(&tag).is_some_and(|relay| relay.addresses.contains(&address))
    }

    fn to(&self, peer: Option<&Peer>, port: u16) -> Vec<Path> {
        let Some(peer) = peer else { return Vec::new() };
        let (carrier, port) = if peer.udp { (Carrier::HipUdp, port) } else { (Carrier::RawHip, 0) };
        let way = |theirs: &IpAddr| {
            let local = SocketAddr::new(self.ours_to(*theirs)?, port);
            Some(Path { local, remote: SocketAddr::new(*theirs, port), carrier })
        };
        peer.addresses.iter().filter_map(way).collect()
    }

    /// The way that takes the place of one whose address of ours is gone: to the same address if there is another of its family, else
    /// the best of those that are known. `None` if it can stay, or there is none.
    pub(crate) fn instead_of(&self, path: Path, tag: Hit, port: u16) -> Option<Path> {
        let local = path.local.ip();
        if local.is_unspecified() || self.ours.contains(&local) {
            return None;
        }
        let same = self.ours_to(path.remote.ip());
        let same = same.map(|ip| Path { local: SocketAddr::new(ip, path.local.port()), ..path });
        same.or_else(|| self.ways(tag, port).into_iter().next())
    }
}

/// Whether the configuration names this peer.
pub(crate) fn is_configured(config: &HostConfig, peers: &Peers, peer: Hit) -> bool {
    matches!(&config.accept, Accept::Listed(_)) && config.accept.permits(peer)
        || peers.has(peer)
        || config.rendezvous.contains(&peer)
        || config.relays.contains(&peer)
}
