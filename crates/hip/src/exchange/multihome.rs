//! Several addresses at either end (RFC 8047). Owns the peer's addresses besides the one in use, and the change to another way when that
//! one does not answer; must never send user data to an address that is not verified.
//!
//! There is one pair of ESP SAs, which moves to the way that answers. Ways are tried one after the other, each for a short time, and at
//! the end the first one again for as long as any packet is: so a short outage of all ends no association.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::{Locator, LocatorValue, Packet, Param, ParamType};

use crate::association::{Association, Session, Stage};
use crate::exchange::{Around, alive, locate, update};
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
    pub(crate) failover: Failover,
}

/// How far the search for a way that answers is.
#[derive(Debug, Default)]
pub(crate) enum Failover {
    #[default]
    None,
    /// One is being tried; then these, the last first.
    Trying(Vec<Path>),
    /// All were tried, and the first is tried once more.
    Last,
}

/// Whether an address can be a locator at all.
/// "[...] link-local addresses MUST NOT be announced to a peer unless that peer is known to be on the same link." (RFC 8047 section 5.1)
/// "That is, the address MUST NOT be a broadcast or multicast address." (RFC 8047 section 5.2)
pub(crate) fn is_locator(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    };
    !(address.is_unspecified()
        || address.is_multicast()
        || address == IpAddr::V4(Ipv4Addr::BROADCAST)
        || link_local)
}

/// Our addresses besides the one that we send from. In UDP none: a NAT has made them others.
fn ours(path: Path, around: &Around<'_>) -> Vec<IpAddr> {
    let all = around.config.multihoming && path.carrier == Carrier::RawHip;
    let ours = if all { around.peers.ours() } else { &[] };
    let other = |a: &IpAddr| *a != path.local.ip() && is_locator(*a);
    ours.iter().copied().filter(other).take(MAX_OTHER_ADDRESSES).collect()
}

/// What is announced behind the address that we send from: "for fault tolerance", without an SPI (RFC 8047 section 5.1).
pub(crate) fn announced(path: Path, lifetime: u32, around: &Around<'_>) -> Vec<Locator> {
    let locator = |a| LocatorValue::Address(locate::mapped(a));
    let of = |a| Locator { traffic: 0, preferred: false, lifetime, value: locator(a) };
    ours(path, around).into_iter().map(of).collect()
}

/// An association is established, or our addresses have changed: the peer learns them if there are several.
pub(crate) fn announce(association: &mut Association, around: &mut Around<'_>) {
    let path = association.path;
    let several = locate::can_verify(association.peer, around) && !ours(path, around).is_empty();
    alive::heard(association, around);
    let Stage::Up(session) = &mut association.stage else { return };
    if several || session.multihome.announced {
        session.multihome.announced = several;
        session.announcing = true;
        update::send(association, None, around);
    }
}

/// Learns the peer's addresses from an UPDATE, besides the one in use.
pub(crate) fn learn(session: &mut Session, packet: &Packet<'_>, in_use: Path) {
    let Some(Param::LocatorSet(locators)) = packet.read(ParamType::LocatorSet) else { return };
    let others = locators.iter().filter_map(locate::address).map(|a| a.to_canonical());
    let others = others.filter(|a| *a != in_use.remote.ip() && is_locator(*a));
    session.multihome.others = others.take(MAX_OTHER_ADDRESSES).collect();
}

/// The ways to the peer besides the one in use, the best first: to its address from another of ours, then to its others.
pub(crate) fn ways(session: &Session, path: Path, around: &Around<'_>) -> Vec<Path> {
    let can_change = locate::can_verify(session.agreed.identity.hit(), around);
    if !around.config.multihoming || path.carrier != Carrier::RawHip || !can_change {
        return Vec::new();
    }
    let theirs = [&[path.remote.ip()], session.multihome.others.as_slice()].concat();
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
    let mut left = match core::mem::take(&mut session.multihome.failover) {
        Failover::None => {
            let mut ways = ways(session, path, around);
            ways.reverse();
            ways
        }
        Failover::Trying(left) => left,
        Failover::Last => return false,
    };
    let Some(way) = left.pop() else {
        // There were none, or this was the last of them.
        if session.candidate.is_none() {
            return false;
        }
        session.candidate = None;
        session.outstanding = None;
        session.multihome.failover = Failover::Last;
        update::send(association, None, around);
        return true;
    };
    session.multihome.failover = Failover::Trying(left);
    session.announcing = true;
    session.candidate = None;
    locate::take(association, way, None, around);
    update::send(association, None, around);
    true
}
