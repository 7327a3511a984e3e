//! What was learned in each context: a hash table that grows on demand to a fixed size. Must never grow beyond it.
//!
//! A context is a 64-bit key. Each key has two places. While the table may grow, it doubles when both are taken; then a new
//! context takes over the one with less experience, and every attempt on a place wears its other tenant a little, so that
//! contexts that no longer occur make room.

use super::grid::Sums;

const FEWEST: usize = 16;
const _: () = assert!(FEWEST.is_power_of_two() && FEWEST >= 2);

/// The experience in one context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Which context: half of its mixed key. Its lower bits give the place.
    pub(super) tag: u32,
    /// How many idle periods, older ones counting less; 0 for an empty slot.
    pub(super) seen: f32,
    /// What they add up to, likewise.
    pub(super) sums: Sums,
}

impl Slot {
    pub(super) const EMPTY: Self = Self { tag: 0, seen: 0.0, sums: Sums::NONE };

    /// Adds one idle period; what was there counts `keep` times as much from now on.
    pub(super) fn add(&mut self, period: &Sums, keep: f32) {
        self.seen = self.seen * keep + 1.0;
        self.sums.add(period, keep);
    }

    fn wear(&mut self, keep: f32) {
        self.seen *= keep;
        self.sums.wear(keep);
    }
}

/// All contexts of a client.
#[derive(Clone, Debug)]
pub(super) struct Table {
    slots: Vec<Slot>,
    /// It grows to so many slots at most, a power of two.
    most: usize,
    /// What remains of a place's experience after another context has asked for it.
    wear: f32,
}

/// Half of the mixed key: equal contexts have equal tags, different ones collide with probability 2^-32.
fn tag_of(key: u64) -> u32 {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u32::try_from((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32).unwrap_or(0)
}

impl Table {
    pub(super) fn new(most: usize, wear: f32) -> Self {
        Self { slots: vec![Slot::EMPTY; FEWEST], most, wear }
    }

    /// The two places of a tag.
    fn places(&self, tag: u32) -> [usize; 2] {
        let first = usize::try_from(tag).unwrap_or(0) & (self.slots.len() - 1);
        [first, first ^ 1]
    }

    fn find(&self, tag: u32) -> Option<usize> {
        self.places(tag).into_iter().find(|i| self.slots[*i].seen > 0.0 && self.slots[*i].tag == tag)
    }

    /// The experience in a context, if there is any.
    pub(super) fn get(&self, key: u64) -> Option<&Slot> {
        self.find(tag_of(key)).map(|i| &self.slots[i])
    }

    /// The slot of a context, to be added to.
    pub(super) fn entry(&mut self, key: u64) -> &mut Slot {
        let tag = tag_of(key);
        let place = self.find(tag).unwrap_or_else(|| self.settle(tag));
        &mut self.slots[place]
    }

    /// Makes room for a new context.
    fn settle(&mut self, tag: u32) -> usize {
        let free = |table: &Self| table.places(tag).into_iter().find(|i| table.slots[*i].seen <= 0.0);
        while free(self).is_none() && self.slots.len() < self.most {
            self.grow();
        }
        let place = free(self).unwrap_or_else(|| {
            let [a, b] = self.places(tag);
            let (weaker, stronger) = if self.slots[a].seen <= self.slots[b].seen { (a, b) } else { (b, a) };
            self.slots[stronger].wear(self.wear);
            weaker
        });
        self.slots[place] = Slot { tag, ..Slot::EMPTY };
        place
    }

    /// Twice the size. A pair of places splits into two pairs, so every context finds one.
    fn grow(&mut self) {
        let larger = vec![Slot::EMPTY; self.slots.len() * 2];
        for slot in core::mem::replace(&mut self.slots, larger) {
            self.place(slot);
        }
    }

    /// Puts a slot where its tag says, if it is not empty and there is room. Whether it did.
    fn place(&mut self, slot: Slot) -> bool {
        let room = self.places(slot.tag).into_iter().find(|i| self.slots[*i].seen <= 0.0);
        match room {
            Some(i) if slot.seen > 0.0 => {
                self.slots[i] = slot;
                true
            }
            _ => false,
        }
    }

    /// The contexts with experience.
    pub(super) fn tenants(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|s| s.seen > 0.0)
    }

    /// Takes in a saved context. Whether there was room and no other of its tag.
    pub(super) fn restore(&mut self, slot: Slot) -> bool {
        if self.find(slot.tag).is_some() {
            return false;
        }
        while !self.place(slot) {
            if slot.seen <= 0.0 || self.slots.len() >= self.most {
                return false;
            }
            self.grow();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::TIME_OUTS;

    fn period() -> Sums {
        Sums::of(&TIME_OUTS, 10.0, 10.0)
    }

    #[test]
    fn contexts_survive_growth_and_the_table_stays_bounded() {
        let mut table = Table::new(512, 0.9);
        for key in 0..40 {
            table.entry(key).add(&period(), 1.0);
        }
        assert!((0..40).all(|key| table.get(key).is_some_and(|s| s.seen == 1.0)));
        for key in 0..100_000 {
            table.entry(key).add(&period(), 1.0);
        }
        assert_eq!(table.slots.len(), 512);
    }

    #[test]
    fn a_frequent_context_outlives_passing_ones() {
        let mut table = Table::new(512, 0.9);
        for key in 0..10_000 {
            table.entry(7).add(&period(), 0.99);
            table.entry(1_000_000 + key).add(&period(), 0.99);
        }
        assert!(table.get(7).is_some_and(|s| s.seen > 20.0));
    }
}
