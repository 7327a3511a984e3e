//! A client's end of the repair of its radio (`docs/wire/esp-arq.md`): CHILD SAs in zones whose packets are reported to an access router, and put in order
//! again once opened. Owns these reporters; when one reports, and for how long it holds a packet, is decided by [`dormouse_snoop::arq`].

use crate::node::Node;
use dormouse_keying::{ChildId, Install, Protection};
use dormouse_sansio::{Deadline, Instant, Path};
use dormouse_snoop::arq::{Limits, Reporter};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a message that ESP packets never have in this place: a number of 0.
const NO_NUMBER: [u8; 4] = [0; 4];

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    of: BTreeMap<ChildId, Reporter>,
    /// Packets to be delivered: those in order, and those that removed SAs had buffered.
    ready: VecDeque<Vec<u8>>,
}

impl Repairs {
    pub(crate) fn timers(&self) -> impl Iterator<Item = Deadline> {
        self.of.values().flat_map(Reporter::timers)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.of.values_mut().for_each(|reporter| reporter.handle_timeout(now));
    }

    /// An ESP packet came. Whether it is the answer of a router.
    pub(crate) fn answered(&mut self, esp: &[u8]) -> bool {
        if esp.get(4..8) != Some(&NO_NUMBER[..]) {
            return false;
        }
        let spi = esp.first_chunk().map(|spi| ChildId::new(u32::from_be_bytes(*spi)));
        let Some((id, reporter)) = spi.and_then(|id| Some((id, self.of.get_mut(&id)?))) else { return false };
        let before = reporter.is_repaired();
        let answered = reporter.answer(esp);
        if answered && !before {
            tracing::info!(child = %id, "an access router repairs the radio");
        }
        answered
    }

    /// The way of this child is another one.
    pub(crate) fn leave(&mut self, now: Instant, id: ChildId) {
        if let Some(reporter) = self.of.get_mut(&id) {
            reporter.leave(now);
        }
    }

    /// The radio goes off.
    pub(crate) fn leave_all(&mut self, now: Instant) {
        self.of.values_mut().for_each(|reporter| reporter.leave(now));
    }

    /// The CHILD SA is removed: its buffered packets are delivered.
    pub(crate) fn remove(&mut self, now: Instant, id: ChildId) {
        if let Some(mut reporter) = self.of.remove(&id) {
            reporter.leave(now);
            self.ready.extend(std::iter::from_fn(|| reporter.poll_deliver()));
        }
    }
}

impl Node {
    /// A CHILD SA is installed: if it is a client's, in zones, and its configuration wants it, what comes is reported.
    pub(crate) fn report_from(&mut self, now: Instant, install: &Install) {
        let session = self.sessions.get(install.owner);
        let client = session.and_then(|session| self.connections.client(session.connection));
        let wanted = client.is_some_and(|client| client.config.reports);
        if wanted && matches!(install.protection, Protection::Zoned(_)) {
            let (id, own) = (install.child, install.spi_out);
            let reporter = Reporter::new(now, &install.keymat_in, id.spi(), own, Limits::default());
            self.repairs.of.insert(id, reporter);
        }
    }

    /// Whether the packet of this number, which was opened, is to be handed to [`Self::reorder`]; otherwise it is delivered at once.
    pub(crate) fn reorders(&mut self, now: Instant, id: ChildId, seq: u64) -> bool {
        self.repairs.of.get_mut(&id).is_some_and(|reporter| reporter.takes(now, seq))
    }

    /// It is delivered in its turn ([`Self::poll_reordered`]).
    pub(crate) fn reorder(&mut self, now: Instant, id: ChildId, seq: u64, packet: Vec<u8>) {
        if let Some(reporter) = self.repairs.of.get_mut(&id) {
            reporter.arrive(now, seq, packet);
        }
    }

    /// The next packet for the inner side.
    pub(crate) fn poll_reordered(&mut self) -> Option<Vec<u8>> {
        let repairs = &mut self.repairs;
        repairs.ready.pop_front().or_else(|| repairs.of.values_mut().find_map(Reporter::poll_deliver))
    }

    /// Appends a report, to be sent as ESP over this path.
    pub(crate) fn poll_report(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Path> {
        let sad = &self.sad;
        self.repairs.of.iter_mut().find_map(|(id, reporter)| {
            let path = sad.get(*id)?.path;
            reporter.poll_report(now, out).then_some(path)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_crypto::Secret;

    #[test]
    fn every_timer_of_every_reporter_is_listed() {
        let mut repairs = Repairs::default();
        let now = Instant::ZERO;
        for spi in [1, 2] {
            let mut reporter = Reporter::new(now, &Secret::from([7; 20]), spi, spi + 100, Limits::default());
            assert!(!reporter.takes(now, 1), "it only asks for a router");
            repairs.of.insert(ChildId::new(spi), reporter);
        }
        let whys: Vec<_> = repairs.timers().map(|timer| timer.why).collect();
        assert_eq!(whys, ["a report of what came"; 2]);
    }
}
