//! What an established SA looks like at one moment: for people, and for whoever plans around its deadlines. Owns plain data;
//! changes nothing.

use core::time::Duration;

use dormouse_sansio::Instant;

use crate::endpoint::Endpoint;
use crate::handshake::Slot;
use crate::natd;
use dormouse_keying::{ChildId, SaId};

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
}

/// A CHILD SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChildDescription {
    /// Which.
    pub id: ChildId,
    /// New keys are made then.
    pub rekey_at: Option<Instant>,
    /// It ends then, if that failed.
    pub expires_at: Option<Instant>,
}

impl Endpoint {
    /// What an established SA looks like; `None` if it is none.
    #[must_use]
    pub fn describe(&self, sa: SaId) -> Option<Description> {
        let Slot::Established(ike) = self.slots.get(&sa)? else { return None };
        let child = |c: &crate::child::Child| ChildDescription {
            id: c.id,
            rekey_at: c.rekey_at,
            expires_at: c.expire_at,
        };
        Some(Description {
            suite: ike.suite(),
            rekey_at: ike.rekey_at,
            expires_at: ike.expire_at,
            nat: ike.nat,
            keepalive: ike.keepalive_interval(),
            children: ike.children.values().map(child).collect(),
        })
    }
}
