//! The directory of peers as a host uses it: where they are, what is odd about them, and exchanges that begin because of it. Owns when that
//! is; the directory itself is [`crate::peers`]. Must never begin an exchange with a peer that is not in it.

use core::net::IpAddr;
use core::time::Duration;

use dormouse_sansio::{Class, Instant, Path};
use dormouse_wire::hip::Hit;

use super::{ConnectError, Description, Host};
use crate::association::Stage;
use crate::config::Peer;
use crate::hit::{HitSuite, speak_alike};
use crate::limits::LOST_AGAIN;
use crate::quirks::Quirks;

impl Host {
    /// Where the peer with this tag is found; `None` forgets it. What there is with it stays.
    pub fn set_peer(&mut self, tag: Hit, peer: Option<Peer>) {
        if peer.is_none() {
            self.lost.remove(&tag);
        }
        self.peers.set(tag, peer);
        self.sort_again(Some(tag));
    }

    /// The ways to a peer of the directory, the best first; none if it is not known, or no address of ours is of a family of its.
    #[must_use]
    pub fn ways(&self, peer: Hit) -> Vec<Path> {
        self.peers.ways(peer, self.config.udp_port)
    }

    /// Where the rendezvous servers of the peer with this tag are found: they send on what asks for it. `None` forgets them.
    pub fn set_rendezvous_of(&mut self, tag: Hit, servers: Option<Peer>) {
        self.peers.set_servers(tag, servers);
        self.sort_again(Some(tag));
    }

    /// Where the relays of the peer with this tag are found, by UDP: it is behind a NAT. None forgets them.
    pub fn set_relays_of(&mut self, tag: Hit, addresses: Vec<IpAddr>) {
        self.peers.set_relays(tag, addresses);
        self.sort_again(Some(tag));
    }

    /// The peer with this tag is called by this identity of ours from now on; `None`: by the first of its version. What there is with it stays.
    pub fn set_identity_for(&mut self, tag: Hit, ours: Option<Hit>) {
        self.peers.set_identity(tag, ours);
    }

    /// By which tag of ours a peer is called: the one that was chosen for it, or the first of the version of the protocol that it speaks.
    #[must_use]
    pub fn tag_towards(&self, peer: Hit) -> Option<Hit> {
        let fits = |ours: &Hit| speak_alike(*ours, peer);
        let chosen = self.peers.identity(peer).filter(|ours| self.local(*ours).is_some() && fits(ours));
        chosen.or_else(|| self.tags().find(fits))
    }

    /// Which tag of ours answers this host, which has named none: the one that was chosen for it; else one of its own HIT suite, which it can verify; else
    /// one of the suite that all hosts have; else the first of its version.
    /// "[...] the Responder SHOULD select its HIT from the same HIT Suite as the Initiator's HIT" (RFC 7401 section 4.1.8)
    /// "[...] it SHOULD select a REQUIRED HIT Suite from Section 5.2.10" (RFC 7401 section 6.7)
    pub(super) fn tag_for_any(&self, peer: Hit) -> Option<Hit> {
        let chosen = self.peers.identity(peer).filter(|ours| self.local(*ours).is_some());
        let of = |suite: Option<HitSuite>| {
            self.tags().find(|ours| speak_alike(*ours, peer) && HitSuite::of(*ours) == suite)
        };
        let chosen = chosen.filter(|ours| speak_alike(*ours, peer));
        let same = || of(HitSuite::of(peer));
        chosen.or_else(same).or_else(|| of(Some(HitSuite::RsaSha256))).or_else(|| self.tag_towards(peer))
    }

    /// So long after its base exchange each association with this peer ends, those that begin from now on: it must be begun anew, which asks again whether
    /// the peer is denied or admitted. `None`: it does not end for this.
    pub fn set_lifetime_of(&mut self, tag: Hit, lifetime: Option<Duration>) {
        self.peers.set_lifetime(tag, lifetime);
    }

    /// In which ways the peer with this tag departs from the RFCs, from the next packet on.
    pub fn set_quirks(&mut self, tag: Hit, quirks: Quirks) {
        self.peers.set_quirks(tag, quirks);
    }

    /// Calls a peer of the directory, as a command does: an association begins, if there is none. One that is being established and that the
    /// peer says it refuses is given up for it: what it was refused for may have been mended. False if there is one already.
    ///
    /// # Errors
    /// As [`ConnectError`] says; nothing is begun then.
    pub fn call(&mut self, now: Instant, peer: Hit) -> Result<bool, ConnectError> {
        let ours = self.tag_towards(peer).ok_or(ConnectError::OtherVersion(peer))?;
        let ways = self.ways(peer);
        match self.connect(now, ours, peer, &ways) {
            Err(ConnectError::Exists(_)) => {
                let is_refused = |d: &Description| (d.ours, d.peer) == (ours, peer) && d.refusal.is_some();
                let Some(refused) = self.describe().find(is_refused) else { return Ok(false) };
                self.close(now, refused.id);
                self.connect(now, ours, peer, &ways).map(|_| true)
            }
            begun => begun.map(|_| true),
        }
    }

    /// A packet from this address is for a peer of the directory: the identity of ours that has the address begins an association with it, if there
    /// is none; where none has it, the one by which the peer is called.
    pub(super) fn want(&mut self, now: Instant, from: IpAddr, peer: Hit) -> bool {
        let named = match from {
            IpAddr::V6(address) => Some(Hit(address)),
            IpAddr::V4(_) => None,
        };
        let named = named.filter(|ours| self.local(*ours).is_some() && speak_alike(*ours, peer));
        let Some(ours) = named.or_else(|| self.tag_towards(peer)) else { return false };
        match self.stage(ours, peer) {
            Some(Stage::I1Sent(_) | Stage::Solving(_) | Stage::I2Sent(_)) => true,
            Some(Stage::Up(_)) => false,
            None | Some(Stage::Closing(_) | Stage::Closed(_) | Stage::Failed) => {
                let ways = self.ways(peer);
                !ways.is_empty() && self.connect(now, ours, peer, &ways).is_ok()
            }
        }
    }

    /// The I1 of a peer crosses ours, and is to wait for it; but the peer may have moved, so that ours finds it only where it calls from. As often as an
    /// R1 might go there.
    pub(super) fn call_there_too(&mut self, now: Instant, path: Path, peer: Hit, local: usize) {
        let Some(ours) = self.locals.get(local).map(|l| l.identity.hit()) else { return };
        if let Some(Stage::I1Sent(sent)) = self.stage(ours, peer)
            && self.seen.is_none()
            && !sent.paths.contains(&path)
        {
            let packet = sent.retry.packet.clone();
            self.with(now, local, |_, load, around| {
                load.i1(now, path.remote.ip(), &around.config.difficulty)?;
                around.outbox.push(path, Class::Urgent, &packet);
                Some(())
            });
        }
    }

    /// A peer of the directory may have an association that this host, which has started again, does not know: a new one takes its place.
    pub(super) fn find_lost(&mut self, now: Instant, from: IpAddr) {
        let lost = self.peers.at(from).and_then(|peer| Some((self.tag_towards(peer)?, peer)));
        let lost = lost.filter(|(ours, peer)| {
            let tried = self.lost.get(peer).is_some_and(|at| now < *at + LOST_AGAIN);
            !tried && self.stage(*ours, *peer).is_none()
        });
        let Some((ours, peer)) = lost else { return };
        self.lost.insert(peer, now);
        let ways = self.ways(peer);
        if let Err(error) = self.connect(now, ours, peer, &ways) {
            tracing::debug!(%error, "ESP of an association that is lost");
        }
    }
}
