//! A small open-addressing index with a fixed hash, never iterated. Owns look-up speed on the packet path.

/// Something that can be looked up.
pub trait Key: Copy + Eq {
    /// A well-mixed hash.
    fn mix(&self) -> u64;
}

/// One round of mixing (the finaliser of SplitMix64).
#[inline]
#[must_use]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Key for crate::seen::Mac {
    #[inline]
    fn mix(&self) -> u64 {
        mix(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

impl Key for crate::seen::Addr {
    #[inline]
    fn mix(&self) -> u64 {
        mix(self.lo.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.hi.rotate_left(23))
    }
}

/// From keys to small numbers.
#[derive(Clone, Debug)]
pub struct Index<K> {
    slots: Vec<Option<(K, u32)>>,
    held: usize,
}

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self { slots: Vec::new(), held: 0 }
    }
}

impl<K: Key> Index<K> {
    /// Whether nothing is in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// The value of `key`.
    #[inline]
    #[must_use]
    pub fn get(&self, key: K) -> Option<u32> {
        if self.held == 0 {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut at = key.mix() as usize & mask;
        loop {
            match self.slots.get(at) {
                Some(Some((k, value))) if *k == key => return Some(*value),
                Some(Some(_)) => at = (at + 1) & mask,
                _ => return None,
            }
        }
    }

    /// Sets the value of `key`.
    pub fn insert(&mut self, key: K, value: u32) {
        if (self.held + 1) * 2 > self.slots.len() {
            let grown = vec![None; (self.slots.len() * 2).max(16)];
            let old = std::mem::replace(&mut self.slots, grown);
            self.held = 0;
            for (k, v) in old.into_iter().flatten() {
                self.place(k, v);
            }
        }
        self.place(key, value);
    }

    fn place(&mut self, key: K, value: u32) {
        let mask = self.slots.len() - 1;
        let mut at = key.mix() as usize & mask;
        while let Some(slot) = self.slots.get_mut(at) {
            match slot {
                Some((k, v)) if *k == key => {
                    *v = value;
                    return;
                }
                Some(_) => at = (at + 1) & mask,
                None => {
                    *slot = Some((key, value));
                    self.held += 1;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::Mac;

    #[test]
    fn finds_what_was_put_in_and_nothing_else() {
        let mut index = Index::default();
        assert_eq!(index.get(Mac(1)), None);
        for n in 0..1000u32 {
            index.insert(Mac(u64::from(n) * 3 + 1), n);
        }
        index.insert(Mac(4), 77);
        assert_eq!(index.get(Mac(4)), Some(77));
        assert!((2..1000u32).all(|n| index.get(Mac(u64::from(n) * 3 + 1)) == Some(n)));
        assert!((0..1000u32).all(|n| index.get(Mac(u64::from(n) * 3 + 2)).is_none()));
    }
}
