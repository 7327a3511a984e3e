//! Addresses (RFC 8046): ours that change, and the peer's, which count when it has answered from there. Owns LOCATOR_SET and the
//! verification; must never send user data to an address that is not verified.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use dormouse_keying::ChildSa;
use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::{Hit, Locator, LocatorValue, Packet, Param, ParamType};

use crate::address::{is_locator, mapped};
use crate::association::{Association, Candidate, OurAddress, Session, Stage};
use crate::exchange::{Around, Fate, close, ice, in_udp, initiate, keepalive, multihome, update};
use crate::quirks::Quirk;
use crate::relay::RelayTo;

/// How long our address is said to be good; it is announced again when it changes.
const LIFETIME: u32 = 3_600;

/// Our address has changed: an UPDATE with the new locator goes to the peer, from there. An exchange that is under way begins anew, for
/// "However, it is RECOMMENDED that a host send a LOCATOR_SET whenever it recognizes a change of its IP addresses in use on an active HIP
/// association" (RFC 8046 section 5.2)
/// its puzzle was for the old address. Where the peer has said that it is, and has not answered yet, it is asked from the new address.
pub(crate) fn moved(association: &mut Association, path: Path, around: &mut Around<'_>) -> Fate {
    if association.path == path {
        return Fate::Lives;
    }
    let before = (association.path.remote, association.esp_in_use(around));
    association.path = path;
    if let Stage::Up(session) = &mut association.stage {
        session.ways.in_udp.leave();
    }
    let (owner, esp) = (association.owner(), association.esp_path(path, around));
    if matches!(association.stage, Stage::I1Sent(_) | Stage::Solving(_) | Stage::I2Sent(_)) {
        initiate::again(association, around);
        return Fate::Lives;
    }
    let Stage::Up(session) = &mut association.stage else { return Fate::Lives };
    if around.peers.quirks(association.peer).has(Quirk::KnownParametersOnly) {
        return close::begin(association, around, "the peer cannot learn our new address");
    }
    session.place.ours = OurAddress::Announced;
    session.place.candidate = session
        .place
        .candidate
        .take()
        .map(|c| Candidate { path: Path { local: path.local, ..c.path }, ..c })
        .filter(|c| c.path.local.is_ipv4() == c.path.remote.is_ipv4());
    // By another address of the directory than that where it was last found, or a rendezvous server, the peer is asked; ESP waits for its own
    // answer. A relay takes ESP for it.
    let elsewhere =
        session.place.esp_stays.map_or(path.remote != before.0, |stays| stays.remote != esp.remote);
    let waits = elsewhere && !around.peers.is_relay_of(association.peer, path.remote.ip());
    session.place.esp_stays = waits.then_some(before.1);
    if !waits {
        around.order(ChildSa::Remap { owner, path: esp });
    }
    update::send(association, None, around);
    keepalive::begin(association, around);
    Fate::Lives
}

/// A relay of ours knows us at another of its addresses, which is at the end of this path: the peer behind it is asked there, if data goes by it.
pub(crate) fn relay_is_at(association: &mut Association, path: Path, around: &mut Around<'_>) -> Fate {
    let Some(relay) = &mut association.relay else { return Fate::Lives };
    let before = core::mem::replace(&mut relay.server, path.remote);
    around.outbox.set_via(Some(*relay));
    if let Stage::Up(session) = &mut association.stage
        && let Some(ice) = session.ways.ice.as_mut().filter(|ice| ice.relay.remote == before)
    {
        ice.relay = path;
    }
    if association.path.remote == before { moved(association, path, around) } else { Fate::Lives }
}

/// What we announce: the address that we send from.
/// "Hosts MUST NOT announce broadcast or multicast addresses in LOCATOR_SETs." (RFC 8046 section 5.2)
/// "[...] the SPI MUST match that of the ESP_INFO." (RFC 8046 section 5.2)
/// "[...] the SPI MUST match that of the NEW SPI in the ESP_INFO." (RFC 8046 section 5.2)
/// "The preferred bit SHOULD be set" (RFC 8046 section 5.2)
/// "Each locator MUST have a non-zero lifetime." (RFC 8046 section 4)
pub(crate) fn ours(path: Path, spi: u32, around: &Around<'_>) -> Vec<Locator> {
    let address = mapped(path.local.ip());
    let value = LocatorValue::Esp { spi, address };
    let mut locators = vec![Locator { traffic: 0, preferred: true, lifetime: LIFETIME, value }];
    locators.extend(multihome::announced(path, LIFETIME, around));
    locators
}

/// The address of a locator, if it is for HIP and of a type that we know.
pub(crate) fn address(locator: &Locator) -> Option<Ipv6Addr> {
    match locator.value {
        LocatorValue::Address(a) | LocatorValue::Esp { address: a, .. } if locator.traffic != 2 => Some(a),
        LocatorValue::Transport { address, .. } => Some(address),
        _ => None,
    }
}

/// The rendezvous server through which a packet came, told to its sender.
pub(crate) fn via_rvs(server: IpAddr) -> Param {
    Param::Addresses(ParamType::ViaRvs, vec![mapped(server)])
}

/// "A host SHOULD be prepared to receive a single LOCATOR_SET parameter in a HIP UPDATE packet." (RFC 8046 section 5.3)
/// "Once the host has processed the locators, if the LOCATOR_SET parameter contains a new preferred locator, the host SHOULD initiate a
/// change of the preferred locator." (RFC 8046 section 5.3)
/// Where the peer says that it is reached, if that is not where it is known to be. In UDP it is where the packet came from: a NAT may
/// have changed what the peer cannot see. Elsewhere it is the address that it prefers, or the source if it names that, or another that it
/// names; of a family that we can send from.
pub(crate) fn read(packet: &Packet<'_>, from: Path, known: Path) -> Option<Path> {
    let Some(Param::LocatorSet(locators)) = packet.read(ParamType::LocatorSet) else {
        // "An Initiator receiving a VIA_RVS in the UPDATE reply should initiate address reachability tests (described later in this document)
        // towards the end host's address and not towards the address included in the VIA_RVS." (RFC 8046 section 3.2.3)
        // Who moved finds a peer behind a NAT through the peer's relay again, and stays there until it knows better.
        let through = [ParamType::ViaRvs, ParamType::RelayTo, ParamType::RelayFrom];
        let through = through.into_iter().any(|kind| packet.find(kind).is_some());
        return (through && from != known).then_some(from);
    };
    let source = from.remote.ip();
    let ip = if from.carrier == Carrier::HipUdp {
        source
    } else {
        // "That is, the address MUST NOT be a broadcast or multicast address." (RFC 8046 section 5.3)
        let usable = |l: &&Locator| {
            let ip = address(l).map(|a| a.to_canonical());
            ip.is_some_and(|ip| ip.is_ipv4() == from.local.is_ipv4() && (ip == source || is_locator(ip)))
        };
        let named = |l: &&Locator| address(l).is_some_and(|a| a.to_canonical() == source);
        let mut of = locators.iter().filter(usable);
        let preferred =
            of.clone().find(|l| l.preferred).or_else(|| of.clone().find(named)).or_else(|| of.next())?;
        address(preferred)?.to_canonical()
    };
    let path = Path { remote: SocketAddr::new(ip, from.remote.port()), ..from };
    (path != known).then_some(path)
}

/// Whether the peer says that it is where it is known to be, after it has said that it is elsewhere. A way that we try ourselves is another
/// matter: its packets may come by one that ours do not pass.
/// "If the new preferred locator has an ACTIVE status, the preferred locator is changed and the procedure succeeds." (RFC 8046 section 5.5)
pub(crate) fn is_back(session: &Session, packet: &Packet<'_>, known: bool) -> bool {
    let ours = session.place.ours.is_searched();
    known && !ours && session.place.candidate.is_some() && packet.find(ParamType::LocatorSet).is_some()
}

/// Whether an UPDATE with which the peer asks where we are changes nothing, because we ask it at once. Two that ask each other by ways of which
/// neither knows the other's would each follow the other's last question for ever, or go back for it and ask again: the end with the smaller tag
/// waits for its own answer.
pub(crate) fn waits_for_its_answer(session: &Session, (ours, peer): (Hit, Hit), around: &Around<'_>) -> bool {
    let just_asked =
        session.updates.outstanding.as_ref().is_some_and(|o| !o.retry.is_repeated(&around.config.timing));
    ours < peer && session.place.candidate.is_some() && just_asked
}

/// Whether the peer can be asked from an address whether it is there.
pub(crate) fn can_verify(peer: Hit, around: &Around<'_>) -> bool {
    let quirks = around.peers.quirks(peer);
    !quirks.has(Quirk::Bare) && !quirks.has(Quirk::KnownParametersOnly)
}

/// The peer says that it moved, or a relay of ours sees it elsewhere: it is asked there whether it is so, and until it has answered nothing changes.
/// "A host MUST verify the reachability of an UNVERIFIED address." (RFC 8046 section 5.4)
/// "The status of a newly learned address MUST initially be set to UNVERIFIED" (RFC 8046 section 5.4)
pub(crate) fn take(
    association: &mut Association,
    path: Path,
    relay: Option<RelayTo>,
    around: &mut Around<'_>,
) {
    let Stage::Up(session) = &mut association.stage else { return };
    if !can_verify(association.peer, around) {
        return;
    }
    if session.place.candidate.as_ref().is_some_and(|c| (c.path, c.relay) == (path, relay)) {
        // It is being asked: a question in place of that, at both ends, would never have its answer.
        return;
    }
    let mut nonce = [0; 16];
    around.entropy.fill(&mut nonce);
    session.place.candidate = Some(Candidate { path, relay, nonce, hinted: false });
    // It goes there with the acknowledgement, in place of what waits.
    session.updates.outstanding = None;
}

/// ESP of the peer comes by this path: it is asked there, as if it had said so, because what it said may have been lost, and a NAT says
/// nothing. Not while another UPDATE of ours waits that was sent only once: so there is one question in that time. What waits for a
/// peer that sleeps was not sent, and goes there too.
pub(crate) fn observed(association: &mut Association, esp: Path, around: &mut Around<'_>) {
    let known = association.path;
    let always = around.peers.quirks(association.peer).has(Quirk::EspInUdp);
    let Stage::Up(session) = &mut association.stage else { return };
    let in_udp = known.carrier == Carrier::RawHip && (always || session.ways.in_udp.may_come());
    let path = match esp.carrier {
        Carrier::HipUdp if in_udp => esp.with_ports(Carrier::RawHip, 0, 0),
        Carrier::RawEsp if !always => esp.with_ports(Carrier::RawHip, 0, 0),
        _ => esp,
    };
    if path == known
        || path.carrier != known.carrier
        || session.updates.outstanding.as_ref().is_some_and(|o| !o.retry.is_repeated(&around.config.timing))
            && !session.dormancy.peer_sleeps()
        || !can_verify(association.peer, around)
    {
        return;
    }
    // Where it is being asked because it has said so itself, this is no hint.
    let hinted =
        session.place.candidate.as_ref().is_none_or(|c| (c.path, c.relay) != (path, None) || c.hinted);
    take(association, path, None, around);
    if let Stage::Up(session) = &mut association.stage
        && let Some(candidate) = &mut session.place.candidate
    {
        candidate.hinted = hinted;
    }
    update::send(association, None, around);
}

/// An UPDATE of the peer has come by the way in use: a hint that it is elsewhere was wrong, or a replay.
pub(crate) fn refutes(session: &Session, by_the_way_in_use: bool) -> bool {
    by_the_way_in_use && session.place.candidate.as_ref().is_some_and(|candidate| candidate.hinted)
}

/// The peer has acknowledged an UPDATE, by this path: if ESP waits for that, it goes by the way in use. An answer by another way leads to a
/// question there, if the peer can be asked one.
pub(crate) fn answered(association: &mut Association, path: Path, around: &mut Around<'_>) {
    let (owner, in_use) = (association.owner(), association.path);
    let asks = path != in_use && can_verify(association.peer, around);
    let Stage::Up(session) = &mut association.stage else { return };
    if session.place.esp_stays.is_none() || session.place.candidate.is_some() {
        return;
    }
    if !asks {
        session.place.esp_stays = None;
        let path = association.esp_path(in_use, around);
        around.order(ChildSa::Remap { owner, path });
    } else if session.updates.outstanding.is_none() {
        take(association, path, around.seen.map(|seen| seen.relay), around);
        update::send(association, None, around);
    }
}

/// The UPDATE with our question was acknowledged: if the nonce is with it, the peer is where it said.
pub(crate) fn verified(association: &mut Association, packet: &Packet<'_>, around: &mut Around<'_>) {
    let owner = association.owner();
    let Stage::Up(session) = &mut association.stage else { return };
    let echoed = packet.find(ParamType::EchoResponseSigned).map(|p| p.contents);
    let Some(candidate) = session.place.candidate.take() else { return };
    // What was said again to where the peer was before is answered from there.
    let elsewhere = candidate.relay.is_some() && candidate.relay != around.seen.map(|seen| seen.relay);
    if echoed != Some(candidate.nonce.as_slice()) || elsewhere {
        return;
    }
    session.ways.in_udp.leave();
    session.place.esp_stays = None;
    association.path = candidate.path;
    association.relay = candidate.relay.or(association.relay);
    let path = association.esp_path(candidate.path, around);
    around.order(ChildSa::Remap { owner, path });
    ice::again(association, around);
    in_udp::begin(association, around);
    keepalive::begin(association, around);
}
