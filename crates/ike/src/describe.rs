//! What an established SA looks like at one moment: for people, and for drivers that plan around its deadlines. Owns plain data;
//! changes nothing.

use core::time::Duration;

use dormouse_sansio::{Deadline, Instant};

use crate::child::Child;
use crate::endpoint::Endpoint;
use crate::handshake::Slot;
use crate::mlike::gateway::KeyHolder;
use crate::natd;
use dormouse_keying::{ChildId, SaId, ZoneMap};

/// An established IKE SA.
#[derive(Clone, PartialEq, Debug)]
pub struct Description {
    /// Its algorithms, in the words of the configuration.
    pub suite: String,
    /// New keys are made then.
    pub rekey_at: Option<Instant>,
    /// It ends then, if that failed.
    pub expires_at: Option<Instant>,
    /// What NAT detection found.
    pub nat: natd::Detection,
    /// The silence after which a NAT keepalive is sent; `None` if none is.
    pub keepalive: Option<Duration>,
    /// Its CHILD SAs.
    pub children: Vec<ChildDescription>,
    /// Every deadline that it has, in no order.
    pub timers: Vec<Deadline>,
}

/// A CHILD SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildDescription {
    /// Which.
    pub id: ChildId,
    /// New keys are made then.
    pub rekey_at: Option<Instant>,
    /// It ends then, if that failed.
    pub expires_at: Option<Instant>,
    /// How many zones its packets have; 1: it is protected whole.
    pub zones: usize,
    /// Gateway: routers that have, had or are to have the keys of the first zone.
    pub routers: Vec<KeyHolder>,
}

impl Endpoint {
    /// What an established SA looks like; `None` if it is none.
    #[must_use]
    pub fn describe(&self, sa: SaId) -> Option<Description> {
        let Slot::Established(ike) = self.slots.get(&sa)? else { return None };
        let child = |c: &Child| ChildDescription {
            id: c.id,
            rekey_at: c.rekey_at,
            expires_at: c.expire_at,
            zones: c.zones.as_ref().map_or(1, ZoneMap::zones),
            routers: self.shared.header.distribution.holders(c.id).to_vec(),
        };
        Some(Description {
            suite: ike.core.channel.suite.to_string(),
            rekey_at: ike.rekeying.rekey_at(),
            expires_at: ike.rekeying.expire_at(),
            nat: ike.mobility.nat(),
            keepalive: ike.mobility.keepalive_interval(&ike.core.link),
            children: ike.children.iter().map(child).collect(),
            timers: ike.deadlines(),
        })
    }
}
