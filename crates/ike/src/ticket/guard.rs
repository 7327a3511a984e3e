//! The memory of spent tickets: each is accepted once. And of revocations: when an operator ends a peer's session, none of the
//! tickets that it was given until then is accepted. Owns the bounded set and the records that carry it over a restart; must never
//! decide whether a ticket is otherwise good.
//!
//! A revocation is a record like any other, under a name that no ticket has: half of it stands for the holder, half is the time of
//! the revocation. It counts until every ticket that it concerns has expired.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_sansio::UnixTime;

use super::TicketRefusal;
use super::content::{Holder, TicketContent, TicketId};
use crate::limits::TICKETS_SPENT_MAX;

/// Bytes of one record: ticket id, expiry.
const RECORD: usize = 16 + 8;

/// The fact that a ticket was used, as bytes to append to a file. The driver makes it durable before the answer that
/// completes the resumption is sent; then a crash can cost a client its ticket, but never lets one be used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpentRecord([u8; RECORD]);

impl SpentRecord {
    /// The bytes; records are simply put one after the other.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Remembers used tickets until they expire.
/// "A reused ticket SHOULD be rejected by a gateway." (RFC 5723 section 4.3.1)
#[derive(Default)]
pub struct TicketGuard {
    spent: BTreeMap<TicketId, UnixTime>,
    by_expiry: BTreeSet<(UnixTime, TicketId)>,
}

impl core::fmt::Debug for TicketGuard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "TicketGuard({} spent)", self.spent.len())
    }
}

impl TicketGuard {
    /// Nothing spent yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What an earlier run recorded. Expired records are left out, and so are the bytes of a last record that was cut short by a
    /// crash: its resumption was never answered.
    #[must_use]
    pub fn load(records: &[u8], now: UnixTime) -> Self {
        let mut guard = Self::new();
        for record in records.chunks_exact(RECORD) {
            let Some((id, expires)) = record.split_first_chunk::<16>() else { continue };
            let Ok(expires) = <[u8; 8]>::try_from(expires) else { continue };
            let expires = UnixTime(u64::from_be_bytes(expires));
            if expires > now && guard.spent.len() < TICKETS_SPENT_MAX {
                guard.insert(TicketId(*id), expires);
            }
        }
        guard
    }

    /// All records that still matter: to rewrite the file when it has grown.
    #[must_use]
    pub fn export(&self) -> Vec<u8> {
        self.spent.iter().flat_map(|(&id, &expires)| record(id, expires).0).collect()
    }

    /// How many tickets are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spent.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spent.is_empty()
    }

    /// Whether a presented ticket may go on to IKE_AUTH.
    ///
    /// # Errors
    /// [`TicketRefusal::Spent`], [`TicketRefusal::Revoked`] or [`TicketRefusal::MemoryFull`].
    pub fn check(&self, content: &TicketContent, now: UnixTime) -> Result<(), TicketRefusal> {
        if self.spent.contains_key(&content.id) {
            return Err(TicketRefusal::Spent);
        }
        // A peer that has authenticated fully since then is not concerned.
        let (holder, began) = (content.holder(), content.authenticated.0);
        let after = |time: u64| revocation(&holder, UnixTime(time));
        if self.spent.range(after(began.saturating_add(1))..=after(u64::MAX)).next().is_some() {
            return Err(TicketRefusal::Revoked);
        }
        self.room(now)
    }

    fn room(&self, now: UnixTime) -> Result<(), TicketRefusal> {
        let earliest = self.by_expiry.first().map_or(UnixTime(u64::MAX), |&(expires, _)| expires);
        if self.spent.len() >= TICKETS_SPENT_MAX && earliest > now {
            return Err(TicketRefusal::MemoryFull(TICKETS_SPENT_MAX));
        }
        Ok(())
    }

    /// Spends a ticket, after IKE_AUTH has proved that its owner presented it. Two resumptions may have been let through by
    /// [`TicketGuard::check`]: the second fails here.
    ///
    /// # Errors
    /// As [`TicketGuard::check`].
    pub fn spend(&mut self, content: &TicketContent, now: UnixTime) -> Result<SpentRecord, TicketRefusal> {
        self.forget_expired(now);
        self.check(content, now)?;
        self.insert(content.id, content.expires);
        Ok(record(content.id, content.expires))
    }

    /// Revokes every ticket whose chain of resumptions began with an authentication of `holder` before `before`. `until`: when the
    /// last of them expires.
    ///
    /// # Errors
    /// [`TicketRefusal::MemoryFull`]: no ticket is accepted then, until the first record expires.
    pub(crate) fn revoke(
        &mut self,
        holder: &Holder,
        now: UnixTime,
        before: UnixTime,
        until: UnixTime,
    ) -> Result<SpentRecord, TicketRefusal> {
        self.forget_expired(now);
        self.room(now)?;
        let id = revocation(holder, before);
        self.insert(id, until);
        Ok(record(id, until))
    }

    fn insert(&mut self, id: TicketId, expires: UnixTime) {
        if let Some(old) = self.spent.insert(id, expires) {
            self.by_expiry.remove(&(old, id));
        }
        self.by_expiry.insert((expires, id));
    }

    fn forget_expired(&mut self, now: UnixTime) {
        while let Some(&(expires, id)) = self.by_expiry.first().filter(|(expires, _)| *expires <= now) {
            self.by_expiry.remove(&(expires, id));
            self.spent.remove(&id);
        }
    }
}

/// The name under which a revocation is remembered. Names of one holder are in the order of their times.
fn revocation(holder: &Holder, at: UnixTime) -> TicketId {
    let mut id = [0; 16];
    let (head, tail) = id.split_at_mut(8);
    head.copy_from_slice(&holder.0);
    tail.copy_from_slice(&at.0.to_be_bytes());
    TicketId(id)
}

fn record(id: TicketId, expires: UnixTime) -> SpentRecord {
    let mut bytes = [0; RECORD];
    let (head, tail) = bytes.split_at_mut(16);
    head.copy_from_slice(&id.0);
    tail.copy_from_slice(&expires.0.to_be_bytes());
    SpentRecord(bytes)
}
