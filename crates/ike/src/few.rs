//! A map of a few entries: one vector, sorted by key, that is no longer than what it holds. Owns the order; must never be used where the
//! number of entries is a peer's to choose.
//!
//! Every session has several such maps, with one entry or none almost always. A `BTreeMap` allocates room for eleven with the first one.

/// The map.
#[derive(Debug)]
pub(crate) struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord + Copy, V> Few<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let at = self.find(key).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.find(key).ok()?;
        self.0.get_mut(at).map(|(_, value)| value)
    }

    /// In place of what the key had.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.find(&key) {
            Ok(at) => {
                if let Some(entry) = self.0.get_mut(at) {
                    entry.1 = value;
                }
            }
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (key, value));
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.find(key).ok()?;
        let (_, value) = self.0.remove(at);
        self.0.shrink_to_fit();
        Some(value)
    }

    /// Forgets what is below `key`.
    pub(crate) fn forget_below(&mut self, key: &K) {
        self.0.retain(|(k, _)| k >= key);
        self.0.shrink_to_fit();
    }

    /// In ascending order, as [`Self::values`].
    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = K> {
        self.0.iter().map(|&(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (*key, value))
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(k, _)| k.cmp(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sorted_and_no_longer_than_what_it_holds() {
        let mut few = Few::default();
        for (key, value) in [(3, 'c'), (1, 'a'), (2, 'x'), (2, 'b')] {
            few.insert(key, value);
        }
        assert_eq!(few.keys().zip(few.values().copied()).collect::<Vec<_>>(), [(1, 'a'), (2, 'b'), (3, 'c')]);
        assert_eq!((few.remove(&4), few.remove(&2)), (None, Some('b')));
        assert_eq!((few.get(&2), few.get(&3), few.contains_key(&1)), (None, Some(&'c'), true));
        few.forget_below(&3);
        assert_eq!((few.len(), few.0.capacity()), (1, 1));
        assert_eq!((few.remove(&3), few.is_empty(), few.0.capacity()), (Some('c'), true, 0));
    }
}
