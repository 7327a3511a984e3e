//! What a host does with one association, or with all, at the word of its node. Owns which associations are asked after a sleep of ours;
//! what is said is [`crate::exchange::sleep`]'s.

use dormouse_keying::{Owner, SaId};
use dormouse_sansio::Instant;

use super::Host;
use crate::association::{Association, Stage};
use crate::exchange::{Around, Fate, sleep};

impl Host {
    /// Does something with an association that goes on. `None` if there is none.
    pub(super) fn on<T>(
        &mut self,
        now: Instant,
        owner: Owner,
        act: impl FnOnce(&mut Association, &mut Around<'_>) -> T,
    ) -> Option<T> {
        let Owner::Hip(id) = owner else { return None };
        let mut result = None;
        self.change(now, id, |association, around| {
            result = Some(act(association, around));
            Ok(Fate::Lives)
        })
        .ok()?;
        result
    }

    /// Does something with every association.
    pub(super) fn all(&mut self, now: Instant, act: impl Fn(&mut Association, &mut Around<'_>)) {
        let ids: Vec<SaId> = self.associations.keys().copied().collect();
        for id in ids {
            self.on(now, Owner::Hip(id), &act);
        }
    }

    /// Our addresses are known: the peers that could not be asked after a sleep of ours are.
    pub(super) fn revive(&mut self, now: Instant) {
        let waits = |a: &&Association| matches!(&a.stage, Stage::Up(s) if s.dormancy.revives());
        let waiting: Vec<SaId> = self.associations.values().filter(waits).map(|a| a.id).collect();
        for id in waiting {
            self.on(now, Owner::Hip(id), sleep::revive);
        }
    }
}
