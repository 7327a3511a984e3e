//! Names and SPIs that are unique within an endpoint. Owns their drawing and what is in use.

use crate::shared::Shared;
use dormouse_keying::{ChildId, SaId};

impl Shared {
    fn name(&mut self) -> u64 {
        self.next_name += 1;
        self.next_name
    }

    pub(crate) fn new_sa(&mut self) -> SaId {
        SaId::new(self.name())
    }

    /// A fresh IKE SPI of ours, registered for `id`.
    /// "[...] MUST choose them so as to be unique identifiers of an IKE SA" (RFC 7296 section 2.6)
    pub(crate) fn new_spi(&mut self, id: SaId) -> u64 {
        loop {
            let spi = self.entropy.next_u64();
            if spi != 0 && !self.by_spi.contains_key(&spi) {
                self.by_spi.insert(spi, id);
                return spi;
            }
        }
    }

    /// An inbound ESP SPI for a CHILD SA to be: installed, or released.
    pub(crate) fn new_esp_spi(&mut self) -> u32 {
        self.config.spis.reserve(&mut self.entropy).spi()
    }

    /// Nothing came of the CHILD SA that was to have this SPI.
    pub(crate) fn free_esp_spi(&mut self, spi: u32) {
        self.config.spis.release(ChildId::new(spi));
    }
}
