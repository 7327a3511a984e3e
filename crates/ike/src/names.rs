//! Names and SPIs that are unique within an endpoint. Owns their drawing and what is in use.

use crate::event::{ChildId, SaId};
use crate::shared::Shared;

impl Shared {
    fn name(&mut self) -> u64 {
        self.next_name += 1;
        self.next_name
    }

    pub(crate) fn new_sa(&mut self) -> SaId {
        SaId(self.name())
    }

    pub(crate) fn new_child(&mut self) -> ChildId {
        ChildId(self.name())
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

    /// A fresh inbound ESP SPI. The values below 256 are reserved (RFC 4303 section 2.1).
    /// "The SPI value of zero (0) is reserved for local, implementation-specific use and MUST NOT be sent on the wire." (RFC
    /// 4303 section 2.1)
    /// "The SPI field in the ESP header MUST NOT be a zero value." (RFC 3948 section 2.1)
    pub(crate) fn new_esp_spi(&mut self) -> u32 {
        loop {
            let mut bytes = [0; 4];
            self.entropy.fill(&mut bytes);
            let spi = u32::from_be_bytes(bytes);
            if spi >= 256 && self.esp_spis.insert(spi) {
                return spi;
            }
        }
    }

    pub(crate) fn free_esp_spi(&mut self, spi: u32) {
        self.esp_spis.remove(&spi);
    }
}
