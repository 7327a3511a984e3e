//! What a gateway hears of its store: leases that are on the disk, for which answers wait; and, of the others with which it shares one, sessions
//! that are theirs now and the keys of tickets. Owns no state; must never tell a client whose session has gone elsewhere, where it is itself.

use super::Endpoint;
use crate::config::Unique;
use crate::event::{CloseReason, Event};
use crate::handshake::Slot;
use crate::ticket::TicketKeys;
use crate::ticket::lineage::{Name, Row, TicketHolder};
use dormouse_crypto::cert::Identity;
use dormouse_keying::SaId;
use dormouse_sansio::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// A device that sleeps without an SA, and has a session all the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Absent {
    /// Of its last SA.
    pub lineage: Name,
    /// The connection that it came in by.
    pub connection: String,
    /// Who.
    pub identity: Identity,
    /// How long it is expected to sleep at most.
    pub left: Duration,
}

impl Endpoint {
    /// Gateway: the last session of this lineage is another gateway's, or was ended there: what there is of it here goes without a word.
    /// Not a resumption about which the store is still asked. Returns the number of SAs.
    pub fn gone_elsewhere(&mut self, now: Instant, lineage: Name) -> usize {
        let here: Vec<SaId> = self.shared.callers.of_lineage(lineage).collect();
        for id in &here {
            self.end(*id, CloseReason::Elsewhere);
        }
        if !here.is_empty() {
            self.apply_effects(now);
        }
        here.len()
    }

    /// Gateway: the addresses of this SA are another's from now on. It ends, and no ticket of it counts. A peer that sleeps is not told: when it wakes
    /// it finds that the SA is not here.
    pub fn lose_lease(&mut self, now: Instant, sa: SaId) {
        if self.established(sa).is_some_and(|ike| ike.dormancy.is_asleep()) {
            self.with_sa(now, sa, |ike, shared| _ = ike.end_lineage(shared, None));
        }
        self.end_for(now, sa, CloseReason::Requested);
        self.apply_effects(now);
    }

    /// Gateway: rows by which a store that has forgotten all lineages knows again who is here, and does so by the order of the lineages' names. No
    /// ticket counts by them. Each with whether its holder has one session at most ([`Unique::Never`] is not). `absent`: devices that sleep without an
    /// SA. Any other session of theirs began later, so they are on record for no longer than they may sleep.
    pub fn sessions_on_record(&mut self, now: Instant, absent: &[Absent]) -> Vec<(Row, bool)> {
        let mut rows: BTreeMap<Name, (Row, bool)> = BTreeMap::new();
        for slot in self.slots.values() {
            let Slot::Established(ike) = slot else { continue };
            let Some(descent) = ike.core.descent.as_ref().filter(|descent| descent.recorded) else {
                continue;
            };
            let tip = Name::draw(&mut self.shared.entropy);
            let row = Row { id: descent.lineage, holder: ike.core.holder(), tip, ends: descent.ends };
            let alone = ike.core.link.conn.answering.policy.unique != Unique::Never;
            let (known, _) = rows.entry(row.id).or_insert((row, alone));
            known.ends = known.ends.max(row.ends);
        }
        for Absent { lineage, connection, identity, left } in absent {
            let Ok(conn) = self.shared.config.named(connection) else { continue };
            let alone = conn.answering.policy.unique != Unique::Never;
            let (tip, ends) = (Name::draw(&mut self.shared.entropy), self.shared.unix(now) + *left);
            let row = Row { id: *lineage, holder: TicketHolder::of(connection, identity), tip, ends };
            rows.entry(row.id).or_insert((row, alone));
        }
        rows.into_values().collect()
    }

    /// Gateway: the identity of this lineage has more sessions over all gateways than it may have, and this is one of those that are too many: it
    /// ends with a DELETE to its client. Returns the number of SAs.
    pub fn too_many(&mut self, now: Instant, lineage: Name) -> usize {
        let live: Vec<SaId> = self.shared.callers.live_of_lineage(lineage).into_iter().collect();
        for id in &live {
            self.end_for(now, *id, CloseReason::TooMany);
        }
        self.apply_effects(now);
        live.len()
    }

    /// Gateway: it has been cut off from the store for so long that it may not know any more who is denied: its sessions end, and nobody is let
    /// in until this is taken back.
    pub fn serve_nobody(&mut self, now: Instant, nobody: bool) {
        self.shared.config.serves_nobody = nobody;
        let theirs = |slot: &Slot| matches!(slot, Slot::Established(ike) if !ike.core.client);
        let ids: Vec<SaId> =
            self.slots.iter().filter(|(_, slot)| nobody && theirs(slot)).map(|(id, _)| *id).collect();
        for id in ids {
            self.end_for(now, id, CloseReason::NotAdmitted);
        }
        self.apply_effects(now);
    }

    /// Gateway: leases have been written down, or cannot be: the pool says which ([`AddressPool::is_unwritten`]). What waited for them may go.
    ///
    /// [`AddressPool::is_unwritten`]: crate::config_payload::AddressPool::is_unwritten
    pub fn leases_written(&mut self) {
        let pool = self.shared.config.pool.as_deref();
        let answered = self.shared.out.release(|lease| pool.is_none_or(|pool| !pool.is_unwritten(lease)));
        answered.into_iter().for_each(|sa| self.shared.event(Event::Answered { sa }));
    }

    /// Gateway: the ticket keys of the gateways that share a store, as it has them now.
    pub fn set_ticket_keys(&mut self, keys: TicketKeys) {
        self.shared.config.ticket_keys = Some(keys);
    }
}
