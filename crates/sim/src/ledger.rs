//! The books of a crowd: what became of every packet from the server, and of every promise. Owns the sum; the crowd writes it.

use std::collections::BTreeMap;

/// What became of packets and promises. The sum of all fates of packets from the server is how many were sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Packets that the server sent towards a device with an address.
    pub sent: u64,
    /// Arrived.
    pub arrived: u64,
    /// Sealed for a device whose radio was off without the gateway's knowledge, or that was dead.
    pub deaf: u64,
    /// Stopped by a NAT that had forgotten.
    pub stopped: u64,
    /// Arrived at a device that no longer had the keys.
    pub refused: u64,
    /// The gateway had no way to the device.
    pub nowhere: u64,
    /// Dropped by the stand-in, by its reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Waited at a gateway that was killed.
    pub died: u64,
    /// Wait at the gateway.
    pub waiting: u64,
    /// Wakes that were promised a held session, and found it.
    pub kept_promises: u64,
}

impl Ledger {
    /// The sum of all fates.
    #[must_use]
    pub fn fates(&self) -> u64 {
        self.arrived
            + self.deaf
            + self.stopped
            + self.refused
            + self.nowhere
            + self.dropped.values().sum::<u64>()
            + self.died
            + self.waiting
    }
}
