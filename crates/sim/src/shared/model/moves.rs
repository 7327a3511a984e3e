//! Devices and IKE SAs that go from one gateway to another. Owns nothing; see [`Database`].

use super::{Database, Tables};
use dormouse_ike::takeover::{Given, Left, Record};
use dormouse_ike::ticket::lineage::{Name, Operation, Row};
use dormouse_node::handover::Handover;
use dormouse_node::shared::{ArrivedParcel, Other, Parcel, SILENT};
use dormouse_sansio::{Instant, UnixTime};
use std::collections::BTreeSet;
use std::time::Duration;

/// A gateway that was not heard for so long is not given devices.
const GONE: Duration = Duration::from_secs(15);

/// An IKE SA that can be taken over.
#[derive(Clone, Debug)]
pub(super) struct LeftSa {
    /// The gateway that has it.
    at: usize,
    /// How many have had it before.
    owners: u16,
    record: Record,
}

impl Database {
    /// As `crates/cluster/src/handover.rs` does it. A gateway's name is its number.
    pub(crate) fn hand_over(&mut self, now: Instant, gateway: usize, parcels: &[Parcel]) -> Vec<bool> {
        let told = parcels.iter().map(|parcel| self.tell_of(gateway, parcel)).collect();
        self.committed(now);
        told
    }

    fn tell_of(&mut self, gateway: usize, Parcel { handover, to }: &Parcel) -> bool {
        let lineage = self.session_of(gateway, handover);
        let tables = &mut self.tables;
        let Some(owner) = tables.owners.get_mut(&lineage) else { return false };
        if *owner == gateway {
            let to = to.as_ref().and_then(|name| name.parse().ok());
            let Some(to) = to.filter(|to| tables.beats.contains_key(to)) else { return false };
            *owner = to;
        }
        let to = *owner;
        tables.handovers.insert(tables.next_number, (to, lineage, handover.clone()));
        tables.next_number += 1;
        self.ring(to);
        true
    }

    /// Of which session a device is now: where its lineage is over, of the last one of its holder at another gateway.
    fn session_of(&self, gateway: usize, handover: &Handover) -> Name {
        let Tables { lineages, owners, .. } = &self.tables;
        let holder = handover.whose.holder().filter(|_| !owners.contains_key(&handover.lineage));
        let elsewhere = |row: &&Row| owners.get(&row.id).is_some_and(|owner| *owner != gateway);
        let theirs = lineages.rows().filter(|row| Some(row.holder) == holder).filter(elsewhere);
        theirs.max_by_key(|row| (row.ends, row.id)).map_or(handover.lineage, |row| row.id)
    }

    /// What this gateway was told, of devices that are there, or whose sessions are over; what is for one that has moved on follows it.
    pub(crate) fn handovers(&mut self, gateway: usize) -> Vec<ArrivedParcel> {
        let Tables { handovers, owners, .. } = &mut self.tables;
        for (of, lineage, _) in handovers.values_mut().filter(|(of, ..)| *of == gateway) {
            *of = owners.get(lineage).copied().unwrap_or(gateway);
            if let Some(session) = self.sessions.get_mut(of).filter(|_| *of != gateway) {
                session.orders = true;
                self.rung = true;
            }
        }
        let own = handovers.iter().filter(|(_, (of, ..))| *of == gateway);
        let parcel = |(number, (_, lineage, handover)): (&i64, &(usize, Name, Handover))| ArrivedParcel {
            number: *number,
            lineage: *lineage,
            over: !owners.contains_key(lineage),
            handover: Some(handover.clone()),
        };
        own.map(parcel).collect()
    }

    pub(crate) fn taken(&mut self, now: Instant, gateway: usize, numbers: &[i64]) {
        self.tables.handovers.retain(|number, (of, ..)| *of != gateway || !numbers.contains(number));
        self.committed(now);
    }

    /// The others that were heard lately and do not go themselves. How many devices each has is not said: all are loaded alike.
    pub(crate) fn others(&self, now: Instant, gateway: usize) -> Vec<Other> {
        let Tables { heard, addresses, draining, .. } = &self.tables;
        let there = |(of, heard): &(&usize, &Instant)| {
            **of != gateway && !draining.contains(of) && **heard + GONE >= now
        };
        let other = |(of, _): (&usize, &Instant)| Other {
            name: of.to_string(),
            address: addresses.get(of).cloned().unwrap_or_default(),
            devices: 0,
            session: None,
        };
        heard.iter().filter(there).map(other).collect()
    }

    // ---- IKE SAs that outlive their gateway, as `crates/cluster/src/takeover.rs` has them --------------------------

    pub(crate) fn leave(&mut self, now: Instant, gateway: usize, records: &[&Record], over: &[Name]) {
        let left = &mut self.tables.left;
        for record in records {
            if left.get(&record.left.lineage).is_none_or(|sa| sa.at == gateway) {
                let sa = LeftSa { at: gateway, owners: record.owners, record: (*record).clone() };
                left.insert(record.left.lineage, sa);
            }
        }
        left.retain(|lineage, sa| sa.at != gateway || !over.contains(lineage));
        self.committed(now);
    }

    fn is_silent(&self, now: Instant, gateway: usize) -> bool {
        self.tables.heard.get(&gateway).is_some_and(|heard| *heard + SILENT < now)
    }

    pub(crate) fn silent(&self, now: Instant, gateway: usize) -> Vec<String> {
        let others: BTreeSet<usize> = self.tables.left.values().map(|sa| sa.at).collect();
        let silent = others.into_iter().filter(|other| *other != gateway && self.is_silent(now, *other));
        silent.map(|other| other.to_string()).collect()
    }

    pub(crate) fn left_by(&self, gateway: usize, of: Option<&str>) -> Vec<Left> {
        let of = of.map_or(Some(gateway), |name| name.parse().ok());
        let theirs = self.tables.left.values().filter(|sa| Some(sa.at) == of);
        theirs.map(|sa| sa.record.left.clone()).collect()
    }

    pub(crate) fn claim(&mut self, now: Instant, gateway: usize, lineage: Name) -> Option<Given> {
        let former = self.tables.left.get(&lineage)?.at;
        if former != gateway && !self.is_silent(now, former) {
            return None;
        }
        let tables = &mut self.tables;
        let sa = tables.left.get_mut(&lineage)?;
        (sa.at, sa.owners) = (gateway, sa.owners.checked_add(1)?);
        let given = Given { owners: sa.owners, content: sa.record.content.clone() };
        // It is on record as the former gateway's: who has it now writes that anew.
        let row = tables.lineages.rows().find(|row| row.id == lineage).copied();
        if let Some(Row { holder, .. }) = row {
            tables.lineages.apply(UnixTime(0), &Operation::End { sa: None, lineage, holder });
        }
        tables.owners.remove(&lineage);
        tables.orders.retain(|_, order| *order != (gateway, lineage));
        if former != gateway {
            self.order(former, lineage);
        }
        self.taken_over[usize::from(former != gateway)] += 1;
        self.committed(now);
        Some(given)
    }
}
