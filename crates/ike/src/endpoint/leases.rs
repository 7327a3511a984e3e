//! Answers that wait until the address that they give is on the disk. Owns when they are asked for again; which lease is written down the
//! pool knows, and the datagrams wait in the outbox.

use super::Endpoint;

impl Endpoint {
    /// Gateway: leases have been written down, or cannot be: the pool says which ([`AddressPool::is_unwritten`]). What waited for them may go.
    ///
    /// [`AddressPool::is_unwritten`]: crate::config_payload::AddressPool::is_unwritten
    pub fn leases_written(&mut self) {
        let pool = self.shared.config.pool.as_deref();
        self.shared.out.release(|lease| pool.is_none_or(|pool| !pool.is_unwritten(lease)));
    }
}
