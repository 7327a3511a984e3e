//! What other gateways have sent for devices that are not known here: they are on record as this gateway's, which was told before they came, or has
//! been started again since. Owns these packets until their device comes, is heard of elsewhere, or their time is over; must never tell
//! whether it will come.

use crate::connections::ConnectionId;
use crate::handover::{Handover, Whose};
use dormouse_ike::ticket::lineage::Name;
use dormouse_sansio::Instant;
use dormouse_standin::Waiting;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes of packets for such devices at most; the oldest go first.
const BYTES_MOST: usize = 8 << 20;
/// And this many parcels: each is looked at when a device comes.
const PARCELS_MOST: usize = 1_024;
/// Nothing is kept for longer. It is what the table of parcels keeps one for.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// One of them.
#[derive(Debug)]
struct Parcel {
    came: Instant,
    connection: ConnectionId,
    handover: Handover,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    /// Oldest first.
    parcels: VecDeque<Parcel>,
    bytes: usize,
}

impl Unclaimed {
    pub(super) fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }

    /// Keeps what waits for a device that has not come. `connection`: its own.
    pub(super) fn keep(&mut self, now: Instant, connection: ConnectionId, handover: Handover) {
        if handover.waiting.is_empty() {
            return;
        }
        self.bytes += size(&handover);
        self.parcels.push_back(Parcel { came: now, connection, handover });
        let is_late = |first: &Parcel| now.saturating_since(first.came) >= LONGEST;
        while self.parcels.len() > PARCELS_MOST
            || self.bytes > BYTES_MOST
            || self.parcels.front().is_some_and(is_late)
        {
            let Some(gone) = self.parcels.pop_front() else { break };
            self.bytes -= size(&gone.handover);
        }
    }

    /// The lineages of these devices.
    pub(super) fn lineages(&self) -> impl Iterator<Item = Name> {
        self.parcels.iter().map(|parcel| parcel.handover.lineage)
    }

    /// Takes what waits for the device of this lineage, as one parcel.
    pub(super) fn take(&mut self, now: Instant, lineage: Name) -> Option<Handover> {
        let mut taken = self.take_if(now, |parcel| parcel.handover.lineage == lineage).into_iter();
        let mut first = taken.next()?;
        first.waiting.extend(taken.flat_map(|handover| handover.waiting));
        Some(first)
    }

    /// Takes what waits for a device that has come: of this lineage, or by whose it is, as a login begins another one.
    pub(super) fn take_of(
        &mut self,
        now: Instant,
        lineage: Option<Name>,
        is_theirs: impl Fn(ConnectionId, &Whose) -> bool,
    ) -> Vec<Waiting> {
        let theirs = |Parcel { connection, handover, .. }: &Parcel| {
            Some(handover.lineage) == lineage || is_theirs(*connection, &handover.whose)
        };
        self.take_if(now, theirs).into_iter().flat_map(|handover| handover.waiting).collect()
    }

    fn take_if(&mut self, now: Instant, theirs: impl Fn(&Parcel) -> bool) -> Vec<Handover> {
        let (taken, rest): (VecDeque<Parcel>, VecDeque<Parcel>) =
            std::mem::take(&mut self.parcels).into_iter().partition(theirs);
        self.parcels = rest;
        self.bytes = self.parcels.iter().map(|parcel| size(&parcel.handover)).sum();
        let as_now = |Parcel { came, handover, .. }: Parcel| {
            let waited = now.saturating_since(came);
            let left = |w: Waiting| Waiting { left: w.left.saturating_sub(waited), ..w };
            let waiting: Vec<Waiting> = handover.waiting.into_iter().map(left).collect();
            (waited < LONGEST).then_some(Handover { waiting, ..handover })
        };
        taken.into_iter().filter_map(as_now).collect()
    }
}

fn size(handover: &Handover) -> usize {
    handover.waiting.iter().map(|waiting| waiting.packet.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFICE: ConnectionId = ConnectionId(0);

    fn parcel(lineage: u8, bytes: usize) -> Handover {
        let (identity, assigned) = ((2, vec![lineage]), Vec::new());
        let whose = Whose { connection: "office".to_owned(), identity, assigned };
        let left = Duration::from_secs(60);
        let waiting = vec![Waiting { left, packet: vec![lineage; bytes].into_boxed_slice() }];
        Handover { lineage: Name([lineage; 16]), whose, sleeper: None, waiting }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_device_that_comes_gets_all_that_was_sent_for_it_with_the_time_that_is_left() {
        let mut unclaimed = Unclaimed::default();
        [parcel(1, 3), parcel(2, 4), parcel(1, 5)].into_iter().for_each(|p| unclaimed.keep(at(0), OFFICE, p));
        let taken = unclaimed.take(at(20), Name([1; 16])).expect("two parcels");
        let of = |w: &Waiting| (w.left.as_secs(), w.packet.len());
        assert_eq!(taken.waiting.iter().map(of).collect::<Vec<_>>(), [(40, 3), (40, 5)]);
        assert!(unclaimed.take(at(20), Name([1; 16])).is_none());
        let theirs = unclaimed.take_of(at(90), None, |of, whose| of == OFFICE && whose.identity.1 == [2]);
        assert_eq!(theirs.iter().map(of).collect::<Vec<_>>(), [(0, 4)]);
        assert!(unclaimed.is_empty() && unclaimed.bytes == 0);
    }

    #[test]
    fn what_no_device_comes_for_has_a_bound_and_an_end() {
        let mut unclaimed = Unclaimed::default();
        (0..3 * PARCELS_MOST).for_each(|_| unclaimed.keep(at(0), OFFICE, parcel(1, 1)));
        assert_eq!(unclaimed.parcels.len(), PARCELS_MOST);
        (0..20).for_each(|_| unclaimed.keep(at(1), OFFICE, parcel(2, 1 << 20)));
        assert!(unclaimed.bytes <= BYTES_MOST && unclaimed.lineages().all(|name| name == Name([2; 16])));
        unclaimed.keep(at(1) + LONGEST, OFFICE, parcel(3, 1));
        assert_eq!(unclaimed.lineages().collect::<Vec<_>>(), [Name([3; 16])]);
    }
}
