//! An operator ends the session of one peer, or one CHILD SA of it. Owns who is meant by a name; must never touch a client's own
//! session, which [`Node::down`] ends.

use crate::node::Node;
use crate::sessions::{Session, Who};
use dormouse_crypto::cert::Identity;
use dormouse_ike::admission::{Credential, Denial};
use dormouse_keying::{ChildId, Owner, SaId};
use dormouse_sansio::Instant;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What a denial has met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Met {
    /// Sessions that it ended.
    pub sessions: usize,
    /// Whether a session, a device that sleeps or a lease is of one who is denied. If not, the name may be misspelt.
    pub known: bool,
}

/// Why nothing was done about a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotDone {
    /// The connection has no peer that is called so.
    Unknown,
    /// It sleeps: it hears nothing.
    Away,
    /// It has no such CHILD SA.
    NoChild,
}

/// A peer as it is displayed, and its identity as [`Who`] has it.
type Called = (String, (u8, Vec<u8>));

impl Node {
    /// Gateway: ends every session of a peer of `connection`, awake or asleep, and what the stand-in does for its device. `peer` is the
    /// identity that it has proved, as it is displayed, or an inner address of it. Returns the identities that were meant: none
    /// if none.
    ///
    /// A peer that is awake gets a deletion. All of its tickets are refused from now on; what is left to it is a full exchange, which its
    /// credentials and the configuration decide. It keeps its claim to its inner addresses, like any peer that has left.
    pub fn remove_peer(&mut self, now: Instant, connection: &str, peer: &str) -> BTreeSet<String> {
        let meant = self.peers_called(connection, peer);
        for (_, identity) in &meant {
            if let Ok(identity) = Identity::from_ike(identity.0, &identity.1) {
                self.ike.revoke_tickets(now, connection, &identity);
            }
            let Some(id) = self.connections.id(connection) else { continue };
            let of_it = |c, who: &Who| c == id && who.identity == *identity;
            self.with_devices(|d, around| _ = d.dismiss(|c, who, _| of_it(c, who), around));
            let theirs = |s: &Session| of_it(s.connection, &s.who);
            let sessions: Vec<(Option<SaId>, bool)> = self
                .sessions
                .iter()
                .filter(|(_, s)| theirs(s))
                .map(|(owner, s)| (owner.ike(), s.hears()))
                .collect();
            for (sa, hears) in sessions {
                let Some(sa) = sa else { continue };
                if hears {
                    self.ike.close(now, sa);
                } else {
                    // It finds out when it wakes.
                    self.ike.forget(now, sa);
                }
            }
            self.drain_ike(now);
        }
        meant.into_iter().map(|(peer, _)| peer).collect()
    }

    /// Gateway: deletes one CHILD SA of a peer, which `peer` means as in [`Node::remove_peer`]. `spi`: that of what we receive. The session
    /// goes on; a client of ours asks in a while for a CHILD SA that it misses.
    ///
    /// # Errors
    /// Every [`NotDone`].
    pub fn remove_child(
        &mut self,
        now: Instant,
        connection: &str,
        peer: &str,
        spi: u32,
    ) -> Result<(), NotDone> {
        let child = ChildId::new(spi);
        let sas = self.sas_called(connection, peer)?;
        let theirs = sas.into_iter().any(|sa| self.sad.of(Owner::Ike(sa)).contains(&child));
        // One that was replaced may still receive what is late.
        let there = theirs && self.ike.delete_child(now, child);
        self.drain_ike(now);
        if there { Ok(()) } else { Err(NotDone::NoChild) }
    }

    /// The IKE SAs of the peers of a gateway's connection that `peer` means, of those that hear: one at least.
    pub(crate) fn sas_called(&self, connection: &str, peer: &str) -> Result<Vec<SaId>, NotDone> {
        let meant = self.peers_called(connection, peer);
        let id = self.connections.id(connection).filter(|_| !meant.is_empty()).ok_or(NotDone::Unknown)?;
        let is_meant = |s: &Session| meant.iter().any(|(_, identity)| s.who.identity == *identity);
        let theirs = self.sessions.iter().filter(|(_, s)| s.connection == id && s.hears() && is_meant(s));
        let sas: Vec<SaId> = theirs.filter_map(|(owner, _)| owner.ike()).collect();
        if sas.is_empty() { Err(NotDone::Away) } else { Ok(sas) }
    }

    /// Gateway: whom `denial` means is not admitted from now on ([`dormouse_ike::Endpoint::deny`]): its sessions end, and what waits for
    /// its devices is dropped.
    pub fn deny(&mut self, now: Instant, denial: Denial) -> Met {
        let meant = |_, Who { identity: (kind, data), .. }: &Who, credential: Option<&Credential>| {
            Identity::from_ike(*kind, data).is_ok_and(|peer| denial.means(&peer, credential))
        };
        let mut devices = 0;
        self.with_devices(|d, around| devices = d.dismiss(meant, around));
        let theirs = self.sessions.iter().filter(|(_, s)| {
            self.connections.client(s.connection).is_none()
                && meant(s.connection, &s.who, s.credential.as_ref())
        });
        let owners: Vec<Owner> = theirs.map(|(owner, _)| owner).collect();
        let sessions = self.ike.deny(now, denial.clone());
        self.drain_ike(now);
        // What was on its way is not taken either.
        owners.into_iter().for_each(|owner| self.sad.end_draining_of(owner));
        Met { sessions, known: sessions + devices > 0 }
    }

    /// What waits for the device of this peer of the key manager beside IKE is dropped: the peer is denied, or not known any more.
    pub fn dismiss_beside(&mut self, peer: &str) {
        let Some((id, _)) = self.manager.as_ref() else { return };
        let id = *id;
        let meant = |c, who: &Who, _: Option<&Credential>| c == id && who.identity.1 == peer.as_bytes();
        self.with_devices(|d, around| _ = d.dismiss(meant, around));
    }

    /// Gateway: see [`dormouse_ike::Endpoint::forget_tickets`].
    pub fn forget_tickets(&mut self, now: Instant) {
        self.ike.forget_tickets(now);
        self.drain_ike(now);
    }

    /// Gateway: takes a denial back. False if there was none.
    pub fn allow(&mut self, denial: &Denial) -> bool {
        self.ike.allow(denial)
    }

    /// Gateway: the peers of a connection, with a session or asleep without one.
    #[must_use]
    pub fn peers_of(&self, connection: &str) -> BTreeSet<String> {
        self.places(connection).into_iter().map(|((peer, _), _)| peer).collect()
    }

    /// Gateway: who was given this inner address, by its connection, and has a session now.
    #[must_use]
    pub fn holder_of(&self, address: IpAddr) -> Option<(&str, &str)> {
        let session = self.sessions.of_address(address)?;
        let client = self.connections.client(session.connection).is_some();
        (!client).then(|| (self.connections.name(session.connection), session.peer.as_str()))
    }

    /// An identity means its own peer; an address the peer with the narrowest prefix that holds it.
    fn peers_called(&self, connection: &str, name: &str) -> BTreeSet<Called> {
        let places = self.places(connection);
        let named: BTreeSet<Called> =
            places.iter().filter(|((peer, _), _)| peer == name).map(|(called, _)| called.clone()).collect();
        if !named.is_empty() {
            return named;
        }
        let Ok(address) = name.parse::<IpAddr>() else { return BTreeSet::new() };
        let holds = |net: &IpNet| net.contains(&address).then(|| net.prefix_len());
        let width = |nets: &[IpNet]| nets.iter().filter_map(holds).max();
        let narrowest = places.iter().filter_map(|(_, nets)| width(nets)).max();
        let meant = places.iter().filter(|(_, nets)| narrowest.is_some() && width(nets) == narrowest);
        meant.map(|(called, _)| called.clone()).collect()
    }

    /// Every peer of a gateway's connection with the prefixes where it is reached.
    fn places(&self, connection: &str) -> Vec<(Called, Vec<IpNet>)> {
        let Some(id) = self.connections.id(connection) else { return Vec::new() };
        if self.connections.client(id).is_some() {
            return Vec::new();
        }
        let ours = self.sessions.iter().map(|(_, s)| s).filter(|s| s.connection == id && !s.is_tentative());
        let sessions = ours.map(|s| {
            let leased = s.assigned.addresses().into_iter().map(IpNet::from);
            ((s.peer.clone(), s.who.identity.clone()), leased.chain(s.routes().iter().copied()).collect())
        });
        let absent = self.absent_devices().into_iter().filter(|d| d.connection == connection);
        sessions.chain(absent.map(|d| ((d.peer, d.identity), d.routes))).collect()
    }
}
