//! A client of a relay (RFC 9028) and the relay's side of what it asks for: how the relay sees it, and whose data the relay lets through to
//! it. Owns REG_FROM, RELAYED_ADDRESS and PEER_PERMISSION; whom a relay lets through in all is [`crate::relay::Forwards`]'.

use std::collections::BTreeMap;

use core::net::SocketAddr;

use dormouse_keying::{Discard, SaId};
use dormouse_sansio::{Carrier, Instant, Path};
use dormouse_wire::hip::{Packet, Param, ParamType, PeerPermission, RawParam, Version};

use crate::address::mapped;
use crate::association::{Association, Session, Stage};
use crate::exchange::register::{self, Served};
use crate::exchange::{Around, update};
use crate::limits::{MAX_PERMITS_AT_ONCE, PERMIT_RENEWED};
use crate::peers::Peers;
use crate::relay::{self, Relayed};

/// What we know as a client of this relay.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// We, as it sees us.
    pub(crate) reflexive: Option<SocketAddr>,
    /// Where it takes data for us.
    pub(crate) relayed: Relayed,
    /// Whose data it is to let through, by their associations.
    permits: BTreeMap<SaId, (Permit, Stands)>,
}

/// A peer whose data is to pass: where the relay sees it, what we send, and what we receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permit {
    pub(crate) peer: SocketAddr,
    pub(crate) spi_out: u32,
    pub(crate) spi_in: u32,
}

/// How far a permission is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stands {
    Unsent,
    /// In an UPDATE that is not acknowledged.
    Sent,
    /// It is asked for once more at this time.
    Until(Instant),
}

impl Client {
    /// Whether an UPDATE is to ask for something: not while it is unknown where data is relayed, since nothing can be asked for then.
    pub(crate) fn wants(&self) -> bool {
        self.takes_data() && self.permits.values().any(|(_, stands)| *stands == Stands::Unsent)
    }

    fn takes_data(&self) -> bool {
        self.relayed.iter().any(Option::is_some)
    }

    /// Whether another peer than this one has this SPI behind the relay, which could not tell our data for the two apart.
    pub(crate) fn is_taken(&self, spi_out: u32, of: Option<SaId>) -> bool {
        self.permits.iter().any(|(other, (permit, _))| permit.spi_out == spi_out && Some(*other) != of)
    }

    /// When a permission is to be asked for once more.
    pub(crate) fn due(&self) -> Option<Instant> {
        let at = |(_, stands): &(Permit, Stands)| match stands {
            Stands::Until(at) => Some(*at),
            Stands::Unsent | Stands::Sent => None,
        };
        self.permits.values().filter_map(at).min()
    }

    /// What an UPDATE of ours asks for: all that is not acknowledged.
    /// "[...] the Control Relay Client MUST send an UPDATE message to the Data Relay Server containing a PEER_PERMISSION parameter" (RFC 9028
    /// section 4.12.1)
    pub(crate) fn ask(&mut self) -> Vec<Param> {
        let Some(any) = self.relayed.into_iter().flatten().next() else { return Vec::new() };
        let of_family = self.relayed;
        let wanted = self.permits.values_mut().filter(|(_, stands)| !matches!(stands, Stands::Until(_)));
        let param = |(permit, stands): &mut (Permit, Stands)| {
            *stands = Stands::Sent;
            let relayed = of_family[relay::family(permit.peer)].unwrap_or(any);
            Param::PeerPermission(PeerPermission {
                relay_port: relayed.port(),
                peer_port: permit.peer.port(),
                protocol: 17,
                relay_address: mapped(relayed.ip()),
                peer_address: mapped(permit.peer.ip()),
                spi_out: permit.spi_out,
                spi_in: permit.spi_in,
            })
        };
        wanted.take(MAX_PERMITS_AT_ONCE).map(param).collect()
    }

    /// What was asked for is acknowledged.
    pub(crate) fn acknowledged(&mut self, now: Instant) {
        let sent = self.permits.values_mut().filter(|(_, stands)| *stands == Stands::Sent);
        sent.for_each(|(_, stands)| *stands = Stands::Until(now + PERMIT_RENEWED));
    }
}

/// Learns how the relay sees us, from its R2 or UPDATE. Where data is relayed is where we speak with the relay, or where the configuration
/// says that it is: an address that only the relay names is given to no peer.
pub(crate) fn learn(session: &mut Session, packet: &Packet<'_>, path: Path, around: &Around<'_>) {
    let server = session.agreed.identity.hit();
    let client = &mut session.services.relay;
    let read = |p: &RawParam<'_>| match p.read(Version::V2) {
        Ok(Param::Transport(_, written)) => relay::read(written),
        _ => None,
    };
    client.reflexive = packet.find(ParamType::RegFrom).as_ref().and_then(read).or(client.reflexive);
    let told = packet.params().iter().filter(|p| p.kind == ParamType::RelayedAddress);
    for at in told.take(client.relayed.len()).filter_map(read) {
        if at == path.remote || at.port() == path.remote.port() && around.peers.is_known_at(server, at.ip()) {
            client.relayed[relay::family(at)] = Some(at);
        } else {
            tracing::warn!(relay = %path.remote, %at, "a relay takes data where it is not known to be: none goes there");
        }
    }
}

/// The data of the peer of this association is to pass, or not any more.
pub(crate) fn permit(
    association: &mut Association,
    of: SaId,
    wanted: Option<Permit>,
    around: &mut Around<'_>,
) {
    let Stage::Up(session) = &mut association.stage else { return };
    let client = &mut session.services.relay;
    match wanted {
        None => drop(client.permits.remove(&of)),
        Some(wanted) if client.permits.get(&of).is_some_and(|(there, _)| *there == wanted) => {}
        // "[...] the Data Relay Client MUST NOT include the relayed address candidate when sending its new locator set in an UPDATE to its peer if
        // it would cause an SPI conflict with another peer." (RFC 9028 section 4.12.3) None of its data goes there either.
        Some(wanted) if client.is_taken(wanted.spi_out, Some(of)) => {
            tracing::warn!(peer = %wanted.peer, "behind a relay, with the SPI of another peer there");
            client.permits.remove(&of);
        }
        Some(wanted) => {
            client.permits.insert(of, (wanted, Stands::Unsent));
            if session.services.relay.wants() {
                update::send(association, None, around);
            }
        }
    }
}

/// Permissions are asked for once more, if their time has come.
pub(crate) fn renew(association: &mut Association, around: &mut Around<'_>) {
    let Stage::Up(session) = &mut association.stage else { return };
    let mut due = false;
    for (_, stands) in session.services.relay.permits.values_mut() {
        if matches!(stands, Stands::Until(at) if *at <= around.now) {
            (*stands, due) = (Stands::Unsent, true);
        }
    }
    if due {
        update::send(association, None, around);
    }
}

// ---- the relay ----------------------------------------------------------------------------------------------------------------

/// What an answer to a client of ours says besides: how we see it and, if it asked for that, where we take data for it, in each family: a
/// peer that has only the other one reaches the client too. RFC 9028 section 4.1 lets a client have several relayed candidates.
/// "In addition to this, the Control Relay Server MUST include the REG_FROM parameter in all UPDATE responses sent to the Control Relay
/// Client." (RFC 9028 section 4.1)
pub(crate) fn tell(served: &Served, asked: bool, path: Path, ours: &Peers) -> Vec<Param> {
    if path.carrier != Carrier::HipUdp || !served.relays() {
        return Vec::new();
    }
    let from = Param::Transport(ParamType::RegFrom, relay::written(path.remote));
    let mut said = vec![from];
    if asked && served.has(register::RELAY_UDP_ESP) {
        let other = ours.ours().iter().find(|ip| ip.is_ipv4() != path.local.is_ipv4());
        let other = other.and_then(|ip| relay::usable(SocketAddr::new(*ip, path.local.port())));
        let param = |at| Param::Transport(ParamType::RelayedAddress, relay::written(at));
        said.extend([path.local].into_iter().chain(other).map(param));
    }
    said
}

/// What a client asks to be let through.
/// "When a Data Relay Server receives an UPDATE with a PEER_PERMISSION parameter, it MUST check if the sender of the UPDATE is registered
/// for data-relaying service, and drop the UPDATE if the host was not registered." (RFC 9028 section 4.12.1)
///
/// # Errors
/// If it is no client.
pub(crate) fn asked(
    session: &Session,
    packet: &Packet<'_>,
    now: Instant,
) -> Result<Vec<PeerPermission>, Discard> {
    let params = packet.params().iter().filter(|p| p.kind == ParamType::PeerPermission);
    let read = |p: &RawParam<'_>| match p.read(Version::V2) {
        Ok(Param::PeerPermission(permission)) => Some(permission),
        _ => None,
    };
    let wanted: Vec<PeerPermission> = params.take(MAX_PERMITS_AT_ONCE).filter_map(read).collect();
    if wanted.is_empty() || session.services.served.until(register::RELAY_UDP_ESP).is_some_and(|at| at > now)
    {
        Ok(wanted)
    } else {
        Err(Discard("a permission of a host for which no data is relayed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that takes the SPI of another one behind the same relay gets none of its data.
    #[test]
    fn one_spi_is_of_one_peer_at_a_relay() {
        let peer = "198.51.100.7:10500".parse().unwrap();
        let permit = |spi_out| (Permit { peer, spi_out, spi_in: 300 }, Stands::Unsent);
        let permits = BTreeMap::from([(SaId::new(1), permit(1_000)), (SaId::new(2), permit(2_000))]);
        let client = Client { permits, ..Client::default() };
        assert!(client.is_taken(1_000, None) && client.is_taken(1_000, Some(SaId::new(2))));
        assert!(!client.is_taken(1_000, Some(SaId::new(1))), "its own");
        assert!(!client.is_taken(3_000, None));
    }
}
