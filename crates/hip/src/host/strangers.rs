//! Associations with peers that no configuration names: there may be as many as there are keys. Owns which of them end, because they are
//! not used or another peer needs the room; must never end one of a configured peer.

use core::time::Duration;

use dormouse_keying::SaId;
use dormouse_sansio::{Deadline, Instant};
use dormouse_wire::hip::Hit;

use super::Host;
use crate::limits::BUSY_FOR;
use crate::peers::is_configured;

/// Those that are ending come before this one.
const NOT_ENDING: (Instant, SaId) = (Instant::from_nanos(1), SaId::new(0));

impl Host {
    /// Whether the configuration names this peer.
    pub(super) fn is_configured(&self, peer: Hit) -> bool {
        is_configured(&self.config, &self.peers, peer)
    }

    /// The configuration of a peer, or of all, has changed.
    pub(super) fn sort_again(&mut self, peer: Option<Hit>) {
        let ids: Vec<SaId> = match peer {
            Some(peer) => self.tags().filter_map(|ours| self.by_tags.get(&(ours, peer)).copied()).collect(),
            None => self.associations.keys().copied().collect(),
        };
        for id in ids {
            if let Some(association) = self.take(id) {
                self.keep(association);
            }
        }
    }

    /// The one that is unused the longest, and may give way to an association with this peer.
    fn gives_way(&self, now: Instant, peer: Hit) -> Option<SaId> {
        let (since, id) = self.strangers.first()?;
        (self.is_configured(peer) || *since + BUSY_FOR <= now).then_some(*id)
    }

    /// Whether there is room for an association with this peer, or can be made.
    pub(super) fn has_room(&self, now: Instant, peer: Hit) -> bool {
        self.associations.len() < self.config.max_associations || self.gives_way(now, peer).is_some()
    }

    /// Ends the association that gives way to one with this peer, if there is no room.
    pub(super) fn make_room(&mut self, now: Instant, peer: Hit) {
        if self.associations.len() >= self.config.max_associations
            && let Some(id) = self.gives_way(now, peer)
        {
            self.end(now, id, "another peer needs its place");
            self.forget(id);
        }
    }

    /// When each ends because it is not used, the next one first: late does no harm.
    pub(super) fn unused(&self) -> impl Iterator<Item = Deadline> {
        let (slack, why) = (Duration::from_secs(60), "HIP: an association is not used");
        let ends = self.strangers.range(NOT_ENDING..).map(|(since, _)| *since + self.config.unused);
        ends.filter(|at| *at < Instant::FAR_FUTURE).map(move |at| Deadline { at, slack, why })
    }

    /// Ends those that were not used.
    /// "no packet sent/received for UAL min, send CLOSE" (RFC 7401 section 4.4.4)
    pub(super) fn end_unused(&mut self, now: Instant) {
        while let Some((since, id)) = self.strangers.range(NOT_ENDING..).next().copied()
            && since + self.config.unused <= now
        {
            self.end(now, id, "it was not used");
        }
    }
}
