//! The IKE SAs over which keys travel: established, without CHILD SAs, between ends that have both sent the vendor id. Owns who is at the
//! other end of each; must never know what travels.

use std::collections::BTreeMap;

use core::net::IpAddr;

use dormouse_crypto::cert::Identity;
use dormouse_keying::SaId;

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) peer: Identity,
    /// Where the peer is.
    pub(crate) from: IpAddr,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Links(BTreeMap<SaId, Link>);

impl Links {
    /// What is to be known of an SA from now on. The peer to which a link has come (true) or gone.
    pub(crate) fn note(&mut self, sa: SaId, link: Option<Link>) -> Option<(Identity, bool)> {
        if self.0.get(&sa) == link.as_ref() {
            return None;
        }
        match link {
            Some(link) => {
                let moved = self.0.insert(sa, link.clone()).is_some_and(|old| old.peer == link.peer);
                (!moved).then_some((link.peer, true))
            }
            None => self.0.remove(&sa).map(|link| (link.peer, false)),
        }
    }

    /// The newest link to this peer.
    pub(crate) fn to(&self, peer: &Identity) -> Option<SaId> {
        self.0.iter().rev().find(|(_, link)| link.peer.is_same_as(peer)).map(|(sa, _)| *sa)
    }

    /// The newest link to the peer at this address.
    pub(crate) fn at(&self, from: IpAddr) -> Option<SaId> {
        self.0.iter().rev().find(|(_, link)| link.from == from).map(|(sa, _)| *sa)
    }
}
