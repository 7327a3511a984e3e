//! The key management of multi-layered IPsec (`docs/wire/mlike.md`): what both ends agree on for a CHILD SA with zones, and who besides
//! them holds the keys of its first zone. Owns these facts; must never send: exchanges do ([`crate::exchange::keys`]), on IKE SAs without
//! CHILD SAs between a gateway and a router, or between two routers.
//!
//! - [`gateway`]: the composite SAs of this gateway, where their devices are, and which routers have which keys;
//! - [`router`]: the keys that this router was given;
//! - [`links`]: the IKE SAs over which keys travel;
//! - this file: zone maps and grants between their types and the wire.

pub(crate) mod gateway;
pub(crate) mod links;
pub(crate) mod router;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use core::net::IpAddr;
use core::time::Duration;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::Identity;
use dormouse_crypto::packet_key::keymat_len;
use dormouse_crypto::suites::Encr;
use dormouse_keying::{ChildId, GrantId, HeaderGrant, HeaderSa, Nodes, ZoneEnd, ZoneMap};
use dormouse_wire::ike::mlike::{self as wire, Distribute};
use dormouse_wire::ike::{NotifyType, Payload, PayloadType};
use zeroize::Zeroize;

use crate::payloads::{View, notify};
use crate::proposal::{EspProposal, EspSuite};

/// What is to be said about keys on an IKE SA between a gateway and a router, or between two routers: an exchange of [`crate::exchange::keys`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Keys {
    /// Gateway: this router gets the keys of this CHILD SA.
    Give { child: ChildId, router: Identity },
    /// Gateway: this router forgets all that it is to forget.
    Revoke { router: Identity },
    /// The same, under way.
    Revoking { router: Identity, ids: Vec<GrantId> },
    /// Router: the gateway is asked, or told.
    Ask(wire::Request),
    /// Router: the one where the device was before is asked. `registered`: the device is registered here.
    Migrate { asked: wire::Migrate, registered: bool },
    /// Router: tells the gateway that the header keys of the SA with this SPI went to the router `to`.
    Gave { spi: u32, to: Identity },
}

/// All that an endpoint knows of keys of first zones.
#[derive(Default)]
pub(crate) struct HeaderKeys {
    /// Gateway: who has the keys of which first zone.
    pub(crate) distribution: gateway::Distribution,
    /// Router: the keys that it was given.
    pub(crate) keyring: router::Keyring,
    /// The IKE SAs over which they travel.
    pub(crate) links: links::Links,
}

/// What an offer of a CHILD SA says about zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Offered {
    pub(crate) map: ZoneMap,
    /// The SA is to be refused rather than made without.
    pub(crate) required: bool,
}

impl Offered {
    pub(crate) fn wire(&self) -> wire::Map {
        wire::Map { required: self.required, ..map_to_wire(&self.map) }
    }

    /// Reads the body of a ZONE_MAP payload. `Err` says whether a map that cannot be read is required.
    pub(crate) fn read(body: &[u8]) -> Result<Self, bool> {
        let map = wire::Map::parse(body).map_err(|_| body.first().is_some_and(|flags| flags & 1 != 0))?;
        let required = map.required;
        map_from_wire(&map).map(|map| Self { map, required }).ok_or(required)
    }
}

fn map_to_wire(map: &ZoneMap) -> wire::Map {
    let end = |end: &ZoneEnd| match end {
        ZoneEnd::IpHeader => wire::End { kind: 1, at: 0 },
        ZoneEnd::TransportHeader => wire::End { kind: 2, at: 0 },
        ZoneEnd::At(at) => wire::End { kind: 3, at: *at },
    };
    wire::Map { required: false, ends: map.ends().iter().map(end).collect() }
}

fn map_from_wire(map: &wire::Map) -> Option<ZoneMap> {
    let end = |end: &wire::End| match end.kind {
        1 => Some(ZoneEnd::IpHeader),
        2 => Some(ZoneEnd::TransportHeader),
        3 => Some(ZoneEnd::At(end.at)),
        _ => None,
    };
    ZoneMap::new(map.ends.iter().map(end).collect::<Option<_>>()?)
}

/// Whether zones can be sealed with this.
pub(crate) fn can_seal(suite: &EspSuite) -> bool {
    suite.integ.is_none() && suite.encr.suits_zones()
}

/// The proposals with which an SA can be made that has zones, if it must have them: what else they name is left out. All, if none fits: then
/// there is no SA, and the peer's answer says why.
pub(crate) fn fitting(proposals: &[EspProposal], required: bool) -> Cow<'_, [EspProposal]> {
    let fit = proposals.iter().filter(|proposal| proposal.integ.is_empty()).map(|proposal| {
        let encr = proposal.encr.iter().copied().filter(|encr| encr.suits_zones()).collect();
        EspProposal { encr, ..proposal.clone() }
    });
    let fit: Vec<EspProposal> = fit.filter(|proposal| required && !proposal.encr.is_empty()).collect();
    if fit.is_empty() { Cow::Borrowed(proposals) } else { Cow::Owned(fit) }
}

/// What a router is given, and how long it may use it.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) grant: HeaderGrant,
    pub(crate) gateway: IpAddr,
    /// The device is behind this router.
    pub(crate) here: bool,
    /// Whole seconds.
    pub(crate) lifetime: Duration,
}

impl Given {
    /// KEY_DISTRIBUTE, ZONE_MAP and the two SECRETs.
    pub(crate) fn payloads(&self) -> Vec<Payload> {
        let HeaderGrant { map, encr, esn, to_device, from_device, nodes } = &self.grant;
        let told = Distribute {
            here: self.here,
            esn: *esn,
            cipher: encr.id(),
            key_bits: encr.key_length().unwrap_or(0),
            seconds: u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX),
            nodes: (nodes.own(), nodes.last()),
            gateway: self.gateway,
        };
        let secret = |from_device, sa: &HeaderSa| {
            let (spi, sequence, keymat) = (sa.spi, sa.reached.highest(), sa.keymat.as_bytes());
            wire::Secret { from_device, zone: 0, spi, sequence, keymat }.payload()
        };
        vec![
            notify(NotifyType::KeyDistribute, told.emit()),
            map_to_wire(map).payload(),
            secret(false, to_device),
            secret(true, from_device),
        ]
    }

    /// Reads them.
    pub(crate) fn read(view: View<'_>) -> Result<Self, &'static str> {
        let told = view.notify(NotifyType::KeyDistribute).ok_or("no KEY_DISTRIBUTE")?;
        let told = Distribute::parse(&told.data).map_err(|_| "KEY_DISTRIBUTE cannot be read")?;
        let map = view.private(PayloadType::ZoneMap).next().ok_or("no ZONE_MAP")?;
        let map = wire::Map::parse(map).ok().as_ref().and_then(map_from_wire).ok_or("no map of zones")?;
        let encr = Encr::by_id(told.cipher, (told.key_bits > 0).then_some(told.key_bits));
        let encr = encr.filter(|encr| encr.suits_zones()).ok_or("not a cipher of zones")?;
        let nodes = Nodes::new(told.nodes.0, told.nodes.1).ok_or("no numbers for nonces")?;
        let mut secrets = [None, None];
        for body in view.private(PayloadType::Secret) {
            let secret = wire::Secret::parse(body).map_err(|_| "SECRET cannot be read")?;
            // Only the first zone's is for routers; an end point that sends another one is faulty, and its keys are refused.
            if secret.zone != 0 || secret.keymat.len() != keymat_len(encr, None) || secret.spi < 256 {
                return Err("a SECRET that is not of the first zone, or not of its cipher");
            }
            // A number that no packet can have would be ahead of all of them.
            if !told.esn && secret.sequence > u32::MAX.into() {
                return Err("a sequence number of more than 32 bits, without extended sequence numbers");
            }
            let reached = secret.sequence.into();
            let sa = HeaderSa { spi: secret.spi, keymat: Secret::from(secret.keymat), reached };
            let [to_device, from_device] = &mut secrets;
            if if secret.from_device { from_device } else { to_device }.replace(sa).is_some() {
                return Err("two SECRETs of one direction");
            }
        }
        let [Some(to_device), Some(from_device)] = secrets else {
            return Err("not a SECRET of each direction");
        };
        let grant = HeaderGrant { map, encr, esn: told.esn, to_device, from_device, nodes };
        let lifetime = Duration::from_secs(told.seconds.into());
        Ok(Self { grant, gateway: told.gateway, here: told.here, lifetime })
    }
}

pub(crate) fn name_of(id: GrantId) -> wire::Name {
    wire::Name { to_device: id.to_device, from_device: id.from_device }
}

pub(crate) fn id_of(name: wire::Name) -> GrantId {
    GrantId { to_device: name.to_device, from_device: name.from_device }
}

/// Overwrites the keys in payloads that were read or are written.
pub(crate) fn wipe(payloads: &mut [Payload]) {
    for payload in payloads {
        if let Payload::Unknown { kind: PayloadType::Secret, body, .. } = payload {
            body.zeroize();
        }
    }
}
