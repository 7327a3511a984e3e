//! What a connection is configured to be with zones (multi-layered IPsec), and what a router takes and gives. Owns the words; who holds
//! which keys is [`crate::mlike`]'s.

use core::net::IpAddr;

use dormouse_crypto::cert::Identity;
use dormouse_keying::ZoneMap;
use ipnet::IpNet;

use super::{Connection, IdentityPattern};

/// A CHILD SA whose packets have zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZonePolicy {
    /// The zones; both ends must have the same.
    pub map: ZoneMap,
    /// Whether there is no such CHILD SA with a peer that does not want these zones. Otherwise it is made without, and protected whole.
    pub required: bool,
    /// At the gateway: routers that may have the keys of the first zone.
    pub routers: Vec<RouterRule>,
    /// At the gateway: the neighbours of the device's router get the keys before the device comes. Otherwise a router gets them when the
    /// device is there, and new ones are made when it has them from another router.
    pub proactive: bool,
    /// At the gateway: new keys are made when more routers than this have had the present ones.
    pub most_routers: usize,
}

impl Default for ZonePolicy {
    /// Two zones, the first one ending with the headers; required, and no router has the keys.
    fn default() -> Self {
        Self {
            map: ZoneMap::default(),
            required: true,
            routers: Vec::new(),
            proactive: true,
            most_routers: 4,
        }
    }
}

impl ZonePolicy {
    /// The rule for the router that serves this outer address of a device, if one is configured to.
    pub(crate) fn serving(&self, from: IpAddr) -> Option<&RouterRule> {
        self.routers.iter().find(|rule| rule.serves.iter().any(|net| net.contains(&from)))
    }

    /// The rule for this router.
    pub(crate) fn rule(&self, router: &Identity) -> Option<&RouterRule> {
        self.routers.iter().find(|rule| rule.id.is_same_as(router))
    }
}

/// A router that may have keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouterRule {
    /// Who it is, on a connection without children.
    pub id: Identity,
    /// Outer addresses of devices that are behind it. Empty: addresses do not tell, and the router itself says which devices are there, of
    /// those whose address no other router serves.
    pub serves: Vec<IpNet>,
    /// Routers to which a device may move from it, besides those that it tells itself.
    pub neighbours: Vec<Identity>,
}

/// What an access router takes and gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouterPolicy {
    /// Gateways that may give it keys, and take them back.
    pub gateways: Vec<IdentityPattern>,
    /// The routers next to it: the gateway learns of them, and they may get keys from it and give it keys when a device moves.
    pub neighbours: Vec<Identity>,
    /// Most devices whose keys it holds.
    pub most: usize,
}

impl Default for RouterPolicy {
    /// It takes keys from no gateway.
    fn default() -> Self {
        Self { gateways: Vec::new(), neighbours: Vec::new(), most: 4_096 }
    }
}

impl Connection {
    /// Whether the vendor id of [`dormouse_wire::ike::mlike`] is sent.
    pub(crate) fn has_zones(&self) -> bool {
        self.is_childless() || self.children.iter().any(|child| child.zones.is_some())
    }
}
