//! Leases of inner addresses on the disk, written beside the loop (`keeper.rs` has the thread). Owns what waits, one entry for each
//! holder, and a connection of its own to the gateway's database; must never be asked by the loop to wait.

use dormouse_io::store::{Database, Error, StoredLease, StoredLessee};
use dormouse_node::pool::{Addresses, Change, Lessee};
use dormouse_sansio::UnixTime;
use std::collections::BTreeMap;

/// Changes that are not written yet, the last of each holder, and the number of the last of all.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    by_holder: BTreeMap<Lessee, (UnixTime, Change)>,
    last: u64,
}

impl Changes {
    /// One more, at this time.
    pub(crate) fn put(&mut self, now: UnixTime, number: u64, change: Change) {
        let (Change::Lease { holder, .. } | Change::Evict { holder }) = &change;
        self.last = number;
        self.by_holder.insert(holder.clone(), (now, change));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_holder.is_empty()
    }

    /// The number of the last one.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// The changes, without their times.
    pub(crate) fn into_changes(self) -> Vec<(Lessee, Change)> {
        self.by_holder.into_iter().map(|(holder, (_, change))| (holder, change)).collect()
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Leases(pub(crate) Database);

impl Leases {
    /// Writes these and what could not be written before, in one transaction. Returns the number of the last change.
    ///
    /// # Errors
    /// Names the file, beside that number; nothing is lost, the next call tries again.
    pub(crate) fn write(&mut self, changes: Changes) -> (u64, Result<(), Error>) {
        for (now, change) in changes.by_holder.into_values() {
            match change {
                Change::Lease { holder, addresses: Addresses { v4, v6 } } => {
                    self.0.record(StoredLease { holder: stored(holder), v4, v6, used: now });
                }
                Change::Evict { holder } => self.0.forget(stored(holder)),
            }
        }
        (changes.last, self.0.flush())
    }
}

fn stored(Lessee { connection, identity, device, .. }: Lessee) -> StoredLessee {
    StoredLessee { connection, identity, device }
}
