//! Who sleeps: the SAs that a gateway holds for devices that have announced it. Owns the bounds in number and memory and the
//! order of release; what a hold means to an SA is [`crate::exchange::sleep`]'s.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_sansio::Instant;

use crate::config::HoldPolicy;
use dormouse_keying::SaId;

#[derive(Clone, Copy, Debug)]
struct Retained {
    since: Instant,
    bytes: usize,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    held: BTreeMap<SaId, Retained>,
    by_age: BTreeSet<(Instant, SaId)>,
    bytes: usize,
}

impl Sleepers {
    /// Takes `id` in, which costs `bytes`, and says who must go for it, longest sleeper first. `None`: it does not fit even alone.
    pub(crate) fn admit(
        &mut self,
        policy: &HoldPolicy,
        now: Instant,
        id: SaId,
        bytes: usize,
    ) -> Option<Vec<SaId>> {
        self.remove(id);
        if policy.most == 0 || bytes > policy.memory {
            return None;
        }
        let mut released = Vec::new();
        while self.held.len() >= policy.most || self.bytes.saturating_add(bytes) > policy.memory {
            let Some(&(_, oldest)) = self.by_age.first() else { break };
            self.remove(oldest);
            released.push(oldest);
        }
        self.held.insert(id, Retained { since: now, bytes });
        self.by_age.insert((now, id));
        self.bytes += bytes;
        Some(released)
    }

    /// It woke up, or is gone.
    pub(crate) fn remove(&mut self, id: SaId) {
        if let Some(held) = self.held.remove(&id) {
            self.by_age.remove(&(held.since, id));
            self.bytes -= held.bytes;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn the_longest_sleeper_goes_first_and_the_counts_stay_true() {
        let policy = HoldPolicy { most: 3, memory: 100, ..HoldPolicy::default() };
        let mut sleepers = Sleepers::default();
        for n in 0..3 {
            assert_eq!(sleepers.admit(&policy, at(n), SaId::new(n), 10), Some(vec![]));
        }
        assert_eq!(sleepers.admit(&policy, at(9), SaId::new(0), 10), Some(vec![]), "again: it sleeps anew");
        assert_eq!(sleepers.admit(&policy, at(10), SaId::new(7), 10), Some(vec![SaId::new(1)]));
        assert_eq!(
            sleepers.admit(&policy, at(11), SaId::new(8), 85),
            Some(vec![SaId::new(2), SaId::new(0)]),
            "by memory"
        );
        assert_eq!((sleepers.len(), sleepers.bytes), (2, 95));
        assert_eq!(sleepers.admit(&policy, at(12), SaId::new(9), 101), None);
        sleepers.remove(SaId::new(7));
        sleepers.remove(SaId::new(7));
        sleepers.remove(SaId::new(8));
        assert_eq!((sleepers.len(), sleepers.bytes, sleepers.by_age.len()), (0, 0, 0));
    }

    #[test]
    fn a_limit_of_zero_admits_none() {
        let policy = HoldPolicy { most: 0, ..HoldPolicy::default() };
        assert_eq!(Sleepers::default().admit(&policy, at(0), SaId::new(1), 1), None);
    }
}
