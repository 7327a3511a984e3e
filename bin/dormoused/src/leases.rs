//! Leases of inner addresses on the disk, written beside the loop (`keeper.rs` has the thread). Owns a
//! connection of its own to the gateway's database; must never be asked by the loop to wait.

use dormouse_io::store::{Database, Error, StoredLease, StoredLessee};
use dormouse_node::pool::{Addresses, Change, Lessee};
use dormouse_node::shared::Changes;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Leases(pub(crate) Database);

impl Leases {
    /// Writes these and what could not be written before, in one transaction. Returns the number of the last change.
    ///
    /// # Errors
    /// Names the file, beside that number; nothing is lost, the next call tries again.
    pub(crate) fn write(&mut self, changes: Changes) -> (u64, Result<(), Error>) {
        let last = changes.last();
        for (now, change) in changes.into_timed() {
            match change {
                Change::Lease { holder, addresses: Addresses { v4, v6 } } => {
                    self.0.record(StoredLease { holder: stored(holder), v4, v6, used: now });
                }
                Change::Evict { holder } => self.0.forget(stored(holder)),
            }
        }
        (last, self.0.flush())
    }
}

fn stored(Lessee { connection, identity, device, .. }: Lessee) -> StoredLessee {
    StoredLessee { connection, identity, device }
}
