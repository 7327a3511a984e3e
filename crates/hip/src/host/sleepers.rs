//! Sleep, of a host as a whole. Owns which associations are asked after a sleep of ours; what is said is [`crate::exchange::sleep`]'s.

use dormouse_keying::{Owner, SaId};
use dormouse_sansio::Instant;

use super::Host;
use crate::association::{Association, Stage};
use crate::exchange::{Around, Fate, sleep};

impl Host {
    /// Does something about the sleep of either end of an association. `None` if there is none.
    pub(super) fn at_sleep<T>(
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

    /// Our addresses are known: the peers that could not be asked after a sleep of ours are.
    pub(super) fn revive(&mut self, now: Instant) {
        let waits = |a: &&Association| matches!(&a.stage, Stage::Up(s) if s.dormancy.revives());
        let waiting: Vec<SaId> = self.associations.values().filter(waits).map(|a| a.id).collect();
        for id in waiting {
            self.at_sleep(now, Owner::Hip(id), sleep::revive);
        }
    }
}
