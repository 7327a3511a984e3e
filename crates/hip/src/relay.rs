//! What a control and data relay (RFC 9028) has to do with packets of others. Owns whom a data relay lets through, and the names of the
//! two ends of a relay; must never look inside ESP.

use std::collections::{BTreeMap, BTreeSet};

use core::net::{IpAddr, SocketAddr};

use dormouse_keying::SaId;
use dormouse_sansio::Instant;
use dormouse_wire::hip::{PeerPermission, TransportAddress};

use crate::address::{is_locator, mapped};
use crate::limits::{BUSY_FOR, MAX_PERMITS, MAX_PERMITS_OF_ONE, PERMIT};

/// The only protocol below HIP that is relayed.
const UDP: u8 = 17;

/// Behind which relay of ours a peer is, for packets to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RelayTo {
    /// Our relay.
    pub(crate) server: SocketAddr,
    /// The peer, as the relay sees it.
    pub(crate) to: SocketAddr,
}

/// Where a relay takes data for a client: one place of each family at most, by [`family`].
pub(crate) type Relayed = [Option<SocketAddr>; 2];

/// The place of an address in [`Relayed`].
pub(crate) const fn family(at: SocketAddr) -> usize {
    at.is_ipv6() as usize
}

/// What a relay of ours has told of the packet that is being looked at, and of us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// From where to where it was relayed.
    pub(crate) relay: RelayTo,
    /// We, as the relay sees us.
    pub(crate) reflexive: Option<SocketAddr>,
    /// Where it takes data for us.
    pub(crate) relayed: Relayed,
    /// The relay's association with us.
    pub(crate) server: SaId,
}

/// An address and port as they stand in a packet.
pub(crate) fn written(address: SocketAddr) -> TransportAddress {
    TransportAddress { port: address.port(), protocol: UDP, address: mapped(address.ip()) }
}

/// An address and port of a packet, if a host can be there.
pub(crate) fn read(written: TransportAddress) -> Option<SocketAddr> {
    let TransportAddress { port, protocol, address } = written;
    usable(SocketAddr::new(address.to_canonical(), port)).filter(|_| protocol == UDP)
}

/// Whether a host can be there, and not this one itself.
pub(crate) fn usable(address: SocketAddr) -> Option<SocketAddr> {
    let tag = match address.ip() {
        IpAddr::V6(ip) => crate::hit::HitSuite::of(dormouse_wire::hip::Hit(ip)).is_some(),
        IpAddr::V4(_) => false,
    };
    (address.port() != 0 && is_locator(address.ip()) && !address.ip().is_loopback() && !tag)
        .then_some(address)
}

/// One peer of a client, through whose relayed address data may pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Permit {
    peer: SocketAddr,
    /// What the client receives, and what it sends.
    spi_in: u32,
    spi_out: u32,
    until: Instant,
}

/// Whom a data relay lets through: from a peer to a client by the peer's address and the SPI, and back by the SPI.
/// "The Data Relay Server uses a similar permission model as a TURN server: before the Data Relay Server forwards any ESP data packets
/// from a peer to a Data Relay Client (or the other direction), the client MUST set a permission for the peer's address." (RFC 9028
/// section 4.12.1)
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    of: BTreeMap<SaId, Vec<Permit>>,
    inward: BTreeMap<(u32, SocketAddr), SaId>,
    outward: BTreeSet<(u32, SaId)>,
    total: usize,
    /// When all were last looked through for those that are over.
    looked: Option<Instant>,
}

impl Forwards {
    /// A client permits a peer, or does so once more. False if there is no room, or the same packets are another client's.
    /// "If there is no such permission, a new permission MUST be created and its lifetime MUST be set to 5 minutes." (RFC 9028 section
    /// 4.12.1)
    /// "If an identical permission already existed, it MUST be refreshed by setting the lifetime to 5 minutes." (RFC 9028 section 4.12.1)
    pub(crate) fn permit(&mut self, now: Instant, client: SaId, wanted: &PeerPermission) -> bool {
        let PeerPermission { peer_port: port, protocol, peer_address: address, spi_in, spi_out, .. } =
            *wanted;
        let Some(peer) = read(TransportAddress { port, protocol, address }) else { return false };
        let until = now + PERMIT;
        let same = |p: &&mut Permit| (p.peer, p.spi_in, p.spi_out) == (peer, spi_in, spi_out);
        if let Some(permit) = self.of.get_mut(&client).and_then(|all| all.iter_mut().find(same)) {
            permit.until = until;
            return true;
        }
        self.remove_of(client, |permit| permit.until <= now);
        if self.total >= MAX_PERMITS && self.looked.is_none_or(|at| now >= at + BUSY_FOR) {
            // All are looked at, and not again soon.
            self.looked = Some(now);
            let clients: Vec<SaId> = self.of.keys().copied().collect();
            clients.into_iter().for_each(|client| self.remove_of(client, |permit| permit.until <= now));
        }
        let inward = (spi_in, peer);
        if self.inward.get(&inward) == Some(&client) {
            self.remove_of(client, |permit| (permit.spi_in, permit.peer) == inward);
        }
        let of_one = self.of.get(&client).map_or(0, Vec::len);
        let taken = self.inward.contains_key(&inward);
        if self.total >= MAX_PERMITS || of_one >= MAX_PERMITS_OF_ONE || taken || spi_in < 256 || spi_out < 256
        {
            return false;
        }
        self.of.entry(client).or_default().push(Permit { peer, spi_in, spi_out, until });
        self.inward.insert(inward, client);
        self.outward.insert((spi_out, client));
        self.total += 1;
        true
    }

    /// Removes these permissions of a client.
    fn remove_of(&mut self, client: SaId, is_it: impl Fn(&Permit) -> bool) {
        let Self { of, inward, outward, total, .. } = self;
        let Some(all) = of.get_mut(&client) else { return };
        let (gone, kept): (Vec<Permit>, Vec<Permit>) = all.drain(..).partition(is_it);
        for permit in &gone {
            inward.remove(&(permit.spi_in, permit.peer));
            outward.remove(&(permit.spi_out, client));
        }
        // Two may share an SPI.
        outward.extend(kept.iter().filter(|_| !gone.is_empty()).map(|permit| (permit.spi_out, client)));
        *total -= gone.len();
        *all = kept;
        if all.is_empty() {
            of.remove(&client);
        }
    }

    /// A client is gone.
    pub(crate) fn forget(&mut self, client: SaId) {
        self.remove_of(client, |_| true);
    }

    /// Whether a client has permitted a peer at this address.
    pub(crate) fn permits(&self, now: Instant, client: SaId, from: SocketAddr) -> bool {
        self.of.get(&client).is_some_and(|all| all.iter().any(|p| p.peer == from && p.until > now))
    }

    /// The client for which ESP from this address is.
    pub(crate) fn inward(&self, now: Instant, from: SocketAddr, spi: u32) -> Option<SaId> {
        let client = *self.inward.get(&(spi, from))?;
        let permits = self.of.get(&client)?;
        let is_it = |p: &Permit| p.spi_in == spi && p.peer == from && p.until > now;
        permits.iter().any(is_it).then_some(client)
    }

    /// The clients that may send ESP with this SPI, and to whom: of two places of one peer, to that which was permitted last.
    pub(crate) fn outward(&self, now: Instant, spi: u32) -> impl Iterator<Item = (SaId, SocketAddr)> {
        let clients = self.outward.range((spi, SaId::new(0))..=(spi, SaId::new(u64::MAX)));
        clients.filter_map(move |(_, client)| {
            let is_it = |p: &&Permit| p.spi_out == spi && p.until > now;
            Some((*client, self.of.get(client)?.iter().filter(is_it).max_by_key(|p| p.until)?.peer))
        })
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv6Addr;

    use super::*;

    fn wanted(n: u32) -> PeerPermission {
        let v4 = |n: u32| core::net::Ipv4Addr::from_bits(0xc633_6400 + (n & 0xff)).to_ipv6_mapped();
        PeerPermission {
            relay_port: 10_500,
            peer_port: 10_500,
            protocol: UDP,
            relay_address: v4(1),
            peer_address: v4(n % 200 + 1),
            spi_out: 1_000_000 + n,
            spi_in: 2_000_000 + n,
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn what_is_permitted_passes_for_five_minutes_and_nothing_else_does() {
        let (mut it, client, other) = (Forwards::default(), SaId::new(1), SaId::new(2));
        let peer: SocketAddr = "198.51.100.2:10500".parse().unwrap();
        assert!(it.permit(at(0), client, &wanted(1)));
        assert_eq!(it.inward(at(299), peer, 2_000_001), Some(client));
        assert_eq!(it.outward(at(299), 1_000_001).collect::<Vec<_>>(), [(client, peer)]);
        for (from, spi) in [
            ("198.51.100.3:10500", 2_000_001),
            ("198.51.100.2:10501", 2_000_001),
            ("198.51.100.2:10500", 1_000_001),
        ] {
            assert_eq!(it.inward(at(1), from.parse().unwrap(), spi), None);
        }
        assert!(!it.permit(at(1), other, &wanted(1)), "another client's packets");
        assert!(it.permit(at(200), client, &wanted(1)), "refreshed");
        assert_eq!(it.inward(at(499), peer, 2_000_001), Some(client));
        assert_eq!((it.inward(at(500), peer, 2_000_001), it.outward(at(500), 1_000_001).count()), (None, 0));
        it.forget(client);
        assert!(it.permit(at(500), other, &wanted(1)));
        let moved = PeerPermission { peer_port: 4_000, ..wanted(1) };
        assert!(it.permit(at(501), other, &moved), "the peer has moved");
        assert_eq!(it.outward(at(502), 1_000_001).map(|(_, to)| to.port()).collect::<Vec<_>>(), [4_000]);
    }

    #[test]
    fn only_places_where_a_host_can_be_are_permitted() {
        let mut it = Forwards::default();
        let with = |peer_address: Ipv6Addr, peer_port, protocol, spi_in| PeerPermission {
            peer_address,
            peer_port,
            protocol,
            spi_in,
            ..wanted(1)
        };
        let good: Ipv6Addr = "2001:db8::1".parse().unwrap();
        for bad in ["::1", "ff02::1", "fe80::1", "::ffff:127.0.0.1", "::ffff:255.255.255.255", "2001:22::1"] {
            assert!(!it.permit(at(0), SaId::new(1), &with(bad.parse().unwrap(), 1, UDP, 300)), "{bad}");
        }
        for refused in [with(good, 0, UDP, 300), with(good, 1, 6, 300), with(good, 1, UDP, 255)] {
            assert!(!it.permit(at(0), SaId::new(1), &refused));
        }
        assert!(it.permit(at(0), SaId::new(1), &with(good, 1, UDP, 300)));
    }

    #[test]
    fn permits_are_bounded_for_each_and_in_all() {
        let mut it = Forwards::default();
        let granted = (0..2 * MAX_PERMITS_OF_ONE as u32)
            .filter(|n| it.permit(at(0), SaId::new(1), &wanted(*n)))
            .count();
        assert_eq!(granted, MAX_PERMITS_OF_ONE);
        let others = MAX_PERMITS / MAX_PERMITS_OF_ONE + 10;
        for client in 2..others as u32 {
            for n in 0..MAX_PERMITS_OF_ONE as u32 {
                it.permit(at(1), SaId::new(client.into()), &wanted(client << 8 | n));
            }
        }
        assert_eq!((it.total, it.inward.len(), it.outward.len()), (MAX_PERMITS, MAX_PERMITS, MAX_PERMITS));
        assert!(!it.permit(at(299), SaId::new(9_999), &wanted(7_000_000)), "no room");
        assert!(it.permit(at(400), SaId::new(9_999), &wanted(7_000_000)), "the old ones are over");
        assert_eq!((it.total, it.inward.len(), it.outward.len()), (1, 1, 1));
    }
}
