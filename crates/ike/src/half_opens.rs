//! Which SAs are half-open: begun by a caller that has not shown yet that it is there. Owns their number, in all and for each
//! address, and the look-up of repeated first messages.

use std::collections::BTreeMap;

use core::net::{IpAddr, SocketAddr};

use dormouse_keying::SaId;

/// What names a first message: the initiator's SPI, and where it came from.
type First = (u64, SocketAddr);

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct HalfOpens {
    by_first: BTreeMap<First, SaId>,
    first_of: BTreeMap<SaId, First>,
    by_address: BTreeMap<IpAddr, usize>,
}

impl HalfOpens {
    pub(crate) fn enter(&mut self, id: SaId, spi_i: u64, from: SocketAddr) {
        self.by_first.insert((spi_i, from), id);
        self.first_of.insert(id, (spi_i, from));
        *self.by_address.entry(from.ip()).or_default() += 1;
    }

    /// It is half-open no longer, or gone. Does nothing if it was not.
    pub(crate) fn leave(&mut self, id: SaId) {
        let Some(first) = self.first_of.remove(&id) else { return };
        self.by_first.remove(&first);
        let address = first.1.ip();
        if let Some(n) = self.by_address.get_mut(&address) {
            *n -= 1;
            if *n == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    /// The SA that this first message has begun.
    pub(crate) fn begun_by(&self, spi_i: u64, from: SocketAddr) -> Option<SaId> {
        self.by_first.get(&(spi_i, from)).copied()
    }

    pub(crate) fn from(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).copied().unwrap_or(0)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = SaId> {
        self.first_of.keys().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.first_of.len()
    }
}
