//! Leases of inner addresses on their way to the disk. Owns when they are ordered and who hears that they are there; must never wait for it:
//! an answer that gives an address waits in `dormouse_ike`, all other messages and all packets go on.

use super::{Host, Order};
use dormouse_sansio::Instant;

impl Host {
    /// Gateway: every [`Order::Lease`] up to this number is on the disk, or cannot be written for now. What gives these addresses
    /// leaves with the next [`Host::poll`].
    pub fn leased(&mut self, now: Instant, number: u64) {
        if let Some(pool) = &self.pool {
            pool.written(number);
            self.node.leases_written(now);
        }
    }

    pub(super) fn order_leases(&mut self) {
        let Some(pool) = &self.pool else { return };
        while let Some((number, change)) = pool.poll_change() {
            self.outputs.push_order(Order::Lease { number, change });
        }
    }
}
