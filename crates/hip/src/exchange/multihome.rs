//! Several addresses at either end (RFC 8047). Owns the peer's addresses besides the one in use, and the change to another way when that
//! one does not answer; must never send user data to an address that is not verified.
//!
//! I2 and R2 name ours, and when they change an UPDATE does. An R1 of ours does not: anyone is sent one.
//! "A host SHOULD be prepared to receive a LOCATOR_SET parameter in the following HIP packets: R1, I2, R2, and UPDATE." (RFC 8047 section 5.2)
//!
//! There is one pair of ESP SAs, which moves to the way that answers. Ways are tried one after the other, each for a short time, and at
//! the end the first one again for as long as any packet is: so a short outage of all ends no association.

use core::net::{IpAddr, SocketAddr};

use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::{Hit, Locator, LocatorValue, Packet, Param, ParamType, Version};

use crate::address::{is_locator, mapped};
use crate::association::{Association, OurAddress, Session, Stage};
use crate::exchange::{Around, alive, locate, update};
use crate::hit::HitSuite;
use crate::limits::MAX_OTHER_ADDRESSES;

/// Tries on one way while there are others.
pub(crate) const TRIES: u32 = 2;

/// What an association knows of ways besides the one in use.
#[derive(Debug, Default)]
pub(crate) struct Multihome {
    /// Addresses that the peer named last, besides the one in use.
    others: Vec<IpAddr>,
    /// The peer knows that we have several.
    announced: bool,
}

/// Our addresses besides the one that we send from. In UDP none: a NAT has made them others.
fn ours(path: Path, around: &Around<'_>) -> Vec<IpAddr> {
    let all = around.config.multihoming && path.carrier == Carrier::RawHip;
    let ours = if all { around.peers.ours() } else { &[] };
    let other = |a: &IpAddr| *a != path.local.ip() && is_locator(*a);
    ours.iter().copied().filter(other).take(MAX_OTHER_ADDRESSES).collect()
}

/// Our addresses besides the one that we send from, as far as an I2 or R2 names them. In version 1 an UPDATE does.
pub(crate) fn named(peer: Hit, path: Path, around: &Around<'_>) -> Vec<IpAddr> {
    let is_old = HitSuite::of(peer).is_none_or(|suite| suite.version() == Version::V1);
    if is_old || !locate::can_verify(peer, around) { Vec::new() } else { ours(path, around) }
}

/// They, and the one that we send from, in an I2 or R2.
/// "These parameters MUST be protected by the I2 signature." (RFC 8047 section 4.2.8) By their type they are.
pub(crate) fn shows(peer: Hit, path: Path, spi: u32, around: &Around<'_>) -> Option<Param> {
    let several = !named(peer, path, around).is_empty();
    several.then(|| Param::LocatorSet(locate::ours(path, spi, around)))
}

/// Where an R1 asks for the I2, if that is not where the R1 came from. In UDP that stays: a NAT may be there.
/// "If the R1 packet contains LOCATOR_SET parameters with a new preferred locator, the Initiator [...] MUST send the I2 packet to the new
/// preferred locator." (RFC 8047 section 4.2.8) The R2 shows that the responder is there, for it answers what was sent there.
pub(crate) fn preferred(packet: &Packet<'_>, path: Path, around: &Around<'_>) -> Option<Path> {
    let Some(Param::LocatorSet(locators)) = packet.read(ParamType::LocatorSet) else { return None };
    if path.carrier != Carrier::RawHip {
        return None;
    }
    let way = |remote: IpAddr| {
        let same = (remote.is_ipv4() == path.local.is_ipv4()).then(|| path.local.ip());
        let local = same.or_else(|| around.peers.ours_to(remote))?;
        Some(Path { local: SocketAddr::new(local, 0), remote: SocketAddr::new(remote, 0), ..path })
    };
    let preferred = locators.iter().filter(|l| l.preferred).filter_map(locate::address);
    preferred.map(|a| a.to_canonical()).filter(|a| is_locator(*a)).find_map(way)
}

/// What is announced behind the address that we send from: "for fault tolerance", without an SPI (RFC 8047 section 5.1).
pub(crate) fn announced(path: Path, lifetime: u32, around: &Around<'_>) -> Vec<Locator> {
    let locator = |a| LocatorValue::Address(mapped(a));
    let of = |a| Locator { traffic: 0, preferred: false, lifetime, value: locator(a) };
    ours(path, around).into_iter().map(of).collect()
}

/// An association is established; our I2 or R2 has named these addresses. It is the peer's I2 or R2 from which its are learned, and if it prefers
/// another than it sent from, it is asked there.
pub(crate) fn established(
    association: &mut Association,
    packet: &Packet<'_>,
    named: &[IpAddr],
    around: &mut Around<'_>,
) {
    let path = association.path;
    let Stage::Up(session) = &mut association.stage else { return };
    learn(session, packet, path);
    if named.is_empty() || named != ours(path, around) {
        announce(association, around);
    } else {
        session.ways.multihome.announced = true;
        alive::heard(association, around);
    }
    if path.carrier == Carrier::RawHip
        && let Some(elsewhere) = locate::read(packet, path, path)
    {
        locate::take(association, elsewhere, None, around);
        update::send(association, None, around);
    }
}

/// An association is established, or our addresses have changed: the peer learns them if there are several.
pub(crate) fn announce(association: &mut Association, around: &mut Around<'_>) {
    let path = association.path;
    let several = locate::can_verify(association.peer, around) && !ours(path, around).is_empty();
    alive::heard(association, around);
    let Stage::Up(session) = &mut association.stage else { return };
    if several || session.ways.multihome.announced {
        session.ways.multihome.announced = several;
        session.place.ours.announce();
        update::send(association, None, around);
    }
}

/// Learns the peer's addresses from a packet, besides the one in use.
pub(crate) fn learn(session: &mut Session, packet: &Packet<'_>, in_use: Path) {
    if let Some(others) = others(packet, in_use) {
        session.ways.multihome.others = others;
    }
}

/// The peer's addresses in a packet, besides the one in use; `None` if it names none at all.
pub(crate) fn others(packet: &Packet<'_>, in_use: Path) -> Option<Vec<IpAddr>> {
    let Some(Param::LocatorSet(locators)) = packet.read(ParamType::LocatorSet) else { return None };
    let others = locators.iter().filter_map(locate::address).map(|a| a.to_canonical());
    let others = others.filter(|a| *a != in_use.remote.ip() && is_locator(*a));
    Some(others.take(MAX_OTHER_ADDRESSES).collect())
}

impl Multihome {
    /// With the addresses that an R1 has named.
    pub(crate) fn with(others: Vec<IpAddr>) -> Self {
        Self { others, ..Self::default() }
    }
}

/// The ways to the peer besides the one in use, the best first: to its address from another of ours, then to its others.
pub(crate) fn ways(session: &Session, path: Path, around: &Around<'_>) -> Vec<Path> {
    let can_change = locate::can_verify(session.agreed.identity.hit(), around);
    if !around.config.multihoming || path.carrier != Carrier::RawHip || !can_change {
        return Vec::new();
    }
    let theirs = [&[path.remote.ip()], session.ways.multihome.others.as_slice()].concat();
    let locals = [&[path.local.ip()], ours(path, around).as_slice()].concat();
    let mut ways = Vec::new();
    for remote in theirs {
        for local in locals.iter().filter(|l| l.is_ipv4() == remote.is_ipv4()) {
            ways.push(Path { local: SocketAddr::new(*local, 0), remote: SocketAddr::new(remote, 0), ..path });
        }
    }
    ways.retain(|way| *way != path);
    ways.truncate(MAX_OTHER_ADDRESSES);
    ways
}

/// The way that was tried does not answer: the next is. False if none is left.
pub(crate) fn next(association: &mut Association, around: &mut Around<'_>) -> bool {
    let path = association.path;
    let Stage::Up(session) = &mut association.stage else { return false };
    let mut left = match &mut session.place.ours {
        OurAddress::Acknowledged | OurAddress::Announced => {
            let mut ways = ways(session, path, around);
            ways.reverse();
            ways
        }
        OurAddress::Searched(left) => core::mem::take(left),
        OurAddress::LastTried => return false,
    };
    let Some(way) = left.pop() else {
        // There were none, or this was the last of them.
        if session.place.candidate.is_none() {
            return false;
        }
        session.place.candidate = None;
        session.updates.outstanding = None;
        session.place.ours = OurAddress::LastTried;
        update::send(association, None, around);
        return true;
    };
    session.place.ours = OurAddress::Searched(left);
    session.place.candidate = None;
    locate::take(association, way, None, around);
    update::send(association, None, around);
    true
}
