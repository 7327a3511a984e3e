//! What was learned in each context: a hash table of fixed size. Must never grow.
//!
//! A context is a 64-bit key. Each key has two places; a new context takes over the one with less experience, and every
//! attempt on a place costs its tenant a little, so that contexts that no longer occur make room.

use super::grid::{Costs, K};

/// Number of contexts remembered.
pub(super) const SLOTS: usize = 512;
const _: () = assert!(SLOTS.is_power_of_two() && SLOTS >= 2);

/// The experience in one context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Which context: upper bits of its key.
    pub(super) tag: u32,
    /// How many idle periods, older ones counting less; 0 for an empty slot.
    pub(super) seen: f32,
    /// The sum of their costs, likewise.
    pub(super) costs: Costs,
}

impl Slot {
    pub(super) const EMPTY: Self = Self { tag: 0, seen: 0.0, costs: [0.0; K] };

    /// Adds one idle period; what was there counts `keep` times as much from now on.
    pub(super) fn add(&mut self, costs: &Costs, keep: f32) {
        self.seen = self.seen.mul_add(keep, 1.0);
        for (sum, cost) in self.costs.iter_mut().zip(costs) {
            *sum = sum.mul_add(keep, *cost);
        }
    }
}

/// All contexts of a client.
#[derive(Clone, Debug)]
pub(super) struct Table {
    slots: Box<[Slot; SLOTS]>,
}

/// The two places of a key, and its tag.
fn places(key: u64) -> (usize, usize, u32) {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = mixed ^ (mixed >> 29);
    let mask = SLOTS as u64 - 1;
    let first = usize::try_from(mixed & mask).unwrap_or(0);
    let tag = u32::try_from(mixed >> 32).unwrap_or(0);
    (first, first ^ 1, tag)
}

impl Table {
    pub(super) fn new() -> Self {
        Self { slots: Box::new([Slot::EMPTY; SLOTS]) }
    }

    /// The experience in a context, if there is any.
    pub(super) fn get(&self, key: u64) -> Option<&Slot> {
        let (a, b, tag) = places(key);
        [a, b].into_iter().map(|i| &self.slots[i]).find(|s| s.seen > 0.0 && s.tag == tag)
    }

    /// The slot of a context, to be added to.
    pub(super) fn entry(&mut self, key: u64) -> &mut Slot {
        let (a, b, tag) = places(key);
        let known = [a, b].into_iter().find(|i| self.slots[*i].seen > 0.0 && self.slots[*i].tag == tag);
        let place = known.unwrap_or_else(|| {
            let weaker = if self.slots[a].seen <= self.slots[b].seen { a } else { b };
            let stronger = weaker ^ 1;
            self.slots[stronger].seen *= 0.98;
            self.slots[stronger].costs.iter_mut().for_each(|c| *c *= 0.98);
            self.slots[weaker] = Slot { tag, ..Slot::EMPTY };
            weaker
        });
        &mut self.slots[place]
    }

    pub(super) fn slots(&self) -> &[Slot; SLOTS] {
        &self.slots
    }

    pub(super) fn slots_mut(&mut self) -> &mut [Slot; SLOTS] {
        &mut self.slots
    }
}
