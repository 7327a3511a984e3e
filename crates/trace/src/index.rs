//! Tables that are looked up for every packet. Owns their hashes, which are the same in every run.

/// A table in the order in which its keys came.
pub type Table<K, V> = indexmap::IndexMap<K, V, foldhash::fast::FixedState>;

/// Names in the order in which they came.
pub type Names = indexmap::IndexSet<String, foldhash::fast::FixedState>;

/// One round of mixing (the finaliser of SplitMix64).
#[inline]
#[must_use]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
