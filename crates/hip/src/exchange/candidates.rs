//! Where a host may be reached, as it tells a peer in the base exchange through a relay (RFC 9028 sections 4.2 to 4.5). Owns the mode that is
//! negotiated, and the candidates of both ends in their packets; must never take one where no host can be.

use core::net::SocketAddr;
use core::time::Duration;

use dormouse_sansio::{Carrier, Path};
use dormouse_wire::hip::{Draft, Locator, LocatorValue, Packet, Param, ParamType, Version, parse_params};

use crate::address::mapped;
use crate::association::Agreed;
use crate::exchange::Around;
use crate::keymat::HipKeys;
use crate::limits::{MAX_OTHER_ADDRESSES, PACING, SLOWEST_PACING};
use crate::quirks::Quirk;
use crate::relay;

/// The mode of this module, and that of two ends that reach each other in UDP without it (RFC 9028 section 5.4).
const ICE_HIP_UDP: u16 = 3;
const UDP_ENCAPSULATION: u16 = 1;
/// Modes of one parameter that are looked at.
/// "[...] accepting the first six Mode IDs and dropping the rest." (RFC 9028 section 5.4)
const MODES: usize = 6;
/// How long a locator is said to be good, in seconds.
const LIFETIME: u32 = 3_600;
/// Kinds of candidates.
pub(crate) const HOST: u8 = 0;
pub(crate) const REFLEXIVE: u8 = 1;
pub(crate) const RELAYED: u8 = 3;
/// What a candidate's kind is worth (RFC 9028 section 4.2): host, server reflexive, peer reflexive, relayed.
const PREFERENCES: [u32; 4] = [126, 100, 110, 0];

/// What an initiator has learned from an R1 that came through a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offered {
    /// We, as the relay sees us.
    reflexive: SocketAddr,
    pub(crate) pacing: Duration,
}

// ---- negotiation --------------------------------------------------------------------------------------------------------------

/// What our R1 says if we can be reached through a relay.
pub(crate) fn offer() -> [Param; 2] {
    let pacing = u32::try_from(PACING.as_millis()).unwrap_or(u32::MAX);
    [
        Param::Suites(ParamType::NatTraversalMode, vec![ICE_HIP_UDP]),
        Param::Number(ParamType::TransactionPacing, pacing),
    ]
}

/// What the R1 of a relay says to its clients, and their I2 to it: they reach each other in UDP.
/// "[...] the Relay Server SHOULD propose the UDP-ENCAPSULATION mode as the preferred or only mode." (RFC 9028 section 4.3)
/// "Implementations conforming to this specification MUST implement UDP-ENCAPSULATION" (RFC 9028 section 5.4)
pub(crate) fn encapsulation() -> Param {
    Param::Suites(ParamType::NatTraversalMode, vec![UDP_ENCAPSULATION])
}

/// Whether this module's mode is among those of a packet.
pub(crate) fn is_in(packet: &Packet<'_>) -> bool {
    has(packet, ICE_HIP_UDP)
}

fn has(packet: &Packet<'_>, mode: u16) -> bool {
    let modes = packet.read(ParamType::NatTraversalMode);
    matches!(modes, Some(Param::Suites(_, modes)) if modes.iter().take(MODES).any(|m| *m == mode))
}

/// Whether an R1 that came in UDP from the responder itself offers to go on like this.
pub(crate) fn encapsulates(packet: &Packet<'_>, path: Path) -> bool {
    path.carrier == Carrier::HipUdp
        && packet.find(ParamType::RelayTo).is_none()
        && has(packet, UDP_ENCAPSULATION)
}

/// "The value that is used by both of the hosts is the higher of the two offered values." (RFC 9028 section 4.4)
pub(crate) fn pacing(packet: &Packet<'_>) -> Duration {
    match packet.read(ParamType::TransactionPacing) {
        Some(Param::Number(_, ms)) => Duration::from_millis(ms.into()).clamp(PACING, SLOWEST_PACING),
        _ => PACING,
    }
}

/// What an R1 offers, if it came through the responder's relay.
pub(crate) fn offered(packet: &Packet<'_>, path: Path, around: &Around<'_>) -> Option<Offered> {
    let quirks = around.peers.quirks(packet.header.sender);
    let usable = path.carrier == Carrier::HipUdp
        && !quirks.has(Quirk::KnownParametersOnly)
        && !quirks.has(Quirk::Bare);
    let Some(Param::Transport(_, to)) = packet.read(ParamType::RelayTo).filter(|_| usable && is_in(packet))
    else {
        return None;
    };
    Some(Offered { reflexive: relay::read(to)?, pacing: pacing(packet) })
}

/// What an I2 says of our choice.
pub(crate) fn chosen(offered: Offered) -> [Param; 2] {
    let [mode, _] = offer();
    let pacing = u32::try_from(offered.pacing.as_millis()).unwrap_or(u32::MAX);
    [mode, Param::Number(ParamType::TransactionPacing, pacing)]
}

// ---- candidates ---------------------------------------------------------------------------------------------------------------

/// "priority = (2^24)*(type preference) + (2^8)*(local preference) + (2^0)*(256 - component ID)" (RFC 9028 section 4.2)
pub(crate) fn priority(kind: u8, place: usize) -> u32 {
    let preference = PREFERENCES.get(usize::from(kind)).copied().unwrap_or(0);
    let local = 65_535u32.saturating_sub(u32::try_from(place).unwrap_or(u32::MAX));
    preference << 24 | local << 8 | 255
}

/// Where we may be reached: at our addresses, where a relay sees us, and through our relay.
/// "The LSIs and HITs of the local virtual interfaces MUST be excluded in the candidate gathering phase" (RFC 9028 section 4.2)
pub(crate) fn ours(offered: Option<Offered>, spi: u32, around: &Around<'_>) -> Vec<Locator> {
    let port = around.config.udp_port;
    let here = around.peers.ours().iter().map(|ip| SocketAddr::new(*ip, port));
    let here: Vec<SocketAddr> = here.filter_map(relay::usable).take(MAX_OTHER_ADDRESSES).collect();
    let seen = around.seen;
    let reflexive = offered.map(|o| o.reflexive).or(seen.and_then(|s| s.reflexive));
    let reflexive = reflexive.filter(|at| !here.contains(at));
    let locator = |traffic, kind, place, at: SocketAddr| {
        let (port, protocol, address) = (at.port(), 17, mapped(at.ip()));
        let value =
            LocatorValue::Transport { port, protocol, kind, priority: priority(kind, place), spi, address };
        Locator { traffic, preferred: false, lifetime: LIFETIME, value }
    };
    let mut all: Vec<Locator> = here.iter().enumerate().map(|(n, at)| locator(0, HOST, n, *at)).collect();
    all.extend(reflexive.map(|at| locator(0, REFLEXIVE, 0, at)));
    if let Some(seen) = seen {
        let relayed = seen.relayed.into_iter().flatten().enumerate();
        all.extend(relayed.map(|(n, at)| locator(0, RELAYED, n, at)));
        // "The traffic type of these addresses MUST be [...]" (RFC 9028 section 4.5): that of HIP itself.
        all.push(locator(1, RELAYED, seen.relayed.len(), seen.relay.server));
    }
    all
}

/// LOCATOR_SET as it stands in I2 and R2: "the LOCATOR_SET parameter MUST be encapsulated within an ENCRYPTED parameter" (RFC 9028 section
/// 4.3).
pub(crate) fn sealed(locators: Vec<Locator>, agreed: &HipKeys, around: &mut Around<'_>) -> Option<Param> {
    let mut bare = Draft::bare(Version::V2);
    bare.add(&Param::LocatorSet(locators));
    let plain = bare.params().ok()?;
    Some(Param::Encrypted(agreed.cipher.encrypt(agreed.encrypt_out.as_bytes(), &plain, around.entropy)?))
}

/// The peer's candidates in an R2.
pub(crate) fn opened(packet: &Packet<'_>, agreed: &Agreed) -> Option<Vec<Locator>> {
    let Some(Param::Encrypted(sealed)) = packet.read(ParamType::Encrypted) else { return None };
    let keys = &agreed.keys;
    locators(&keys.cipher.decrypt(keys.encrypt_in.as_bytes(), &sealed).ok()?)
}

/// The candidates among parameters that were encrypted.
pub(crate) fn locators(params: &[u8]) -> Option<Vec<Locator>> {
    let params = parse_params(params, 0).ok()?;
    let set = params.iter().find(|p| p.kind == ParamType::LocatorSet)?;
    match set.read(Version::V2) {
        Ok(Param::LocatorSet(locators)) => Some(locators),
        _ => None,
    }
}

/// Address, worth and kind of a candidate for data.
pub(crate) fn candidate(locator: &Locator) -> Option<(SocketAddr, u32, u8)> {
    let LocatorValue::Transport { port, protocol: 17, kind, priority, address, .. } = locator.value else {
        return None;
    };
    let at = relay::usable(SocketAddr::new(address.to_canonical(), port))?;
    (locator.traffic != 1).then_some((at, priority, kind))
}

/// Whether data reaches the peer where its base exchange was relayed.
/// "The address of the Control Relay Server MUST NOT be used as a destination for data plane traffic unless the server also supports Data
/// Relay Server functionality, and the Client has successfully registered to use it." (RFC 9028 section 4.6)
pub(crate) fn takes_data(locators: &[Locator], relay: Path) -> bool {
    locators.iter().filter_map(candidate).any(|(at, _, kind)| kind == RELAYED && at == relay.remote)
}
