//! Where a key manager gets inbound SPIs. Owns the interface, and its use without a data plane; must never install anything.

use std::collections::BTreeSet;

use dormouse_sansio::Entropy;

use crate::name::ChildId;

/// Gives out inbound SPIs, so that no two key managers, proposals or installed SAs of a node have the same one.
///
/// A key manager reserves one when it proposes or answers. Then either nothing comes of it, and the key manager releases it; or
/// it is installed ([`crate::ChildSa::Install`]), and the data plane takes it back when the SA ends.
pub trait SpiSource: Send {
    /// An SPI that is not in use, drawn from `entropy`; never one of those below 256, which are reserved.
    /// "The SPI value of zero (0) is reserved for local, implementation-specific use and MUST NOT be sent on the wire." (RFC
    /// 4303 section 2.1)
    /// "The SPI field in the ESP header MUST NOT be a zero value." (RFC 3948 section 2.1)
    fn reserve(&mut self, entropy: &mut dyn Entropy) -> ChildId;

    /// Marks this SPI as reserved; false if it is in use. For an SA that was another machine's.
    fn claim(&mut self, spi: ChildId) -> bool;

    /// Nothing came of a reserved SPI: it may be given out again.
    fn release(&mut self, spi: ChildId);
}

/// The SPIs in use: by itself, a source for key managers that have no data plane (tests and measurements).
impl SpiSource for BTreeSet<ChildId> {
    fn reserve(&mut self, entropy: &mut dyn Entropy) -> ChildId {
        loop {
            let mut bytes = [0; 4];
            entropy.fill(&mut bytes);
            let spi = ChildId::new(u32::from_be_bytes(bytes));
            if spi.spi() > 255 && self.insert(spi) {
                return spi;
            }
        }
    }

    fn claim(&mut self, spi: ChildId) -> bool {
        self.insert(spi)
    }

    fn release(&mut self, spi: ChildId) {
        self.remove(&spi);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Draws(Vec<u32>);

    impl Entropy for Draws {
        fn fill(&mut self, out: &mut [u8]) {
            out.copy_from_slice(&self.0.remove(0).to_be_bytes());
        }
    }

    #[test]
    fn a_reserved_value_and_one_in_use_are_drawn_again() {
        let mut spis = BTreeSet::new();
        let mut draws = Draws(vec![0, 255, 256, 256, 7, 257, 256]);
        let mut next = |spis: &mut BTreeSet<ChildId>| spis.reserve(&mut draws).spi();
        assert_eq!(next(&mut spis), 256);
        assert_eq!(next(&mut spis), 257);
        spis.release(ChildId::new(256));
        assert_eq!(next(&mut spis), 256);
    }
}
