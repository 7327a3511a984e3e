//! Inbound SPIs of a node. Owns which are in use, whether reserved by a key manager or installed; must never give one out twice
//! while it is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_keying::{ChildId, SpiSource};
use dormouse_sansio::Entropy;

/// A handle on the SPIs of one [`crate::Sad`]: each key manager is handed one at its creation. Not used per packet.
#[derive(Clone, Debug, Default)]
pub struct Spis(Arc<Mutex<BTreeSet<ChildId>>>);

impl Spis {
    fn with<T>(&self, f: impl FnOnce(&mut BTreeSet<ChildId>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Marks an SPI as in use, reserved or not.
    pub(crate) fn take(&self, spi: ChildId) {
        self.with(|spis| spis.insert(spi));
    }

    /// An SPI is in use by nothing any more.
    pub(crate) fn give_back(&self, spi: ChildId) {
        self.with(|spis| spis.release(spi));
    }

    /// How many are in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.with(|spis| spis.len())
    }
}

impl SpiSource for Spis {
    fn reserve(&mut self, entropy: &mut dyn Entropy) -> ChildId {
        self.with(|spis| spis.reserve(entropy))
    }

    fn claim(&mut self, spi: ChildId) -> bool {
        self.with(|spis| spis.claim(spi))
    }

    fn release(&mut self, spi: ChildId) {
        self.give_back(spi);
    }
}
