//! What a gateway has for its store and was not written yet: operations on lineages in their order, the last change of each lease, and what is
//! shared besides. Owns its bounds, and what comes back into it when the store fails; must never wait.

use super::Errand;
use super::takeovers::{self, Leaving};
use crate::pool::{Change, Lessee};
use dormouse_ike::takeover::Takeover;
use dormouse_ike::ticket::lineage::{Name, Operation, Row};
use dormouse_sansio::UnixTime;
use std::collections::{BTreeMap, BTreeSet};

/// Operations of one transaction at most.
pub const BATCH: usize = 1_024;
/// Operations that wait for a store that is slow or fails. Beyond, new sessions are not written down, and if more is to be ended than fits,
/// all is: a row that is lost costs only a full exchange.
const WAITING_MOST: usize = 65_536;

/// Changes of leases that are not written yet, the last of each holder, and the number of the last of all.
#[derive(Debug, Default)]
pub struct Changes {
    by_holder: BTreeMap<Lessee, (UnixTime, Change)>,
    last: u64,
}

impl Changes {
    /// One more, at this time.
    pub fn put(&mut self, now: UnixTime, number: u64, change: Change) {
        let (Change::Lease { holder, .. } | Change::Evict { holder }) = &change;
        self.last = number;
        self.by_holder.insert(holder.clone(), (now, change));
    }

    /// There is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_holder.is_empty()
    }

    /// The number of the last one.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The changes, without their times.
    #[must_use]
    pub fn into_changes(self) -> Vec<(Lessee, Change)> {
        self.by_holder.into_iter().map(|(holder, (_, change))| (holder, change)).collect()
    }

    /// The changes, each with its time.
    pub fn into_timed(self) -> impl Iterator<Item = (UnixTime, Change)> {
        self.by_holder.into_values()
    }
}

/// What is done in one go.
#[derive(Debug)]
pub struct Batch {
    /// In their order.
    pub operations: Vec<Operation>,
    /// The last of each holder.
    pub leases: Changes,
    /// In their order.
    pub errands: Vec<Errand>,
    /// With it everything before this mark is done, of which it was not said yet.
    pub mark: Option<u64>,
    /// Nothing more will come.
    pub closed: bool,
}

impl Batch {
    /// There is nothing to do or to say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { operations, leases, errands, mark, closed: _ } = self;
        operations.is_empty() && leases.is_empty() && errands.is_empty() && mark.is_none()
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Waiting {
    operations: Vec<Operation>,
    leases: Changes,
    errands: Vec<Errand>,
    /// What is left of IKE SAs, the last word of each.
    leaving: Leaving,
    /// Something has come since the last look.
    fresh: bool,
    /// The last mark, and the last up to which everything is written.
    marked: u64,
    written: u64,
    closed: bool,
}

impl Waiting {
    /// An operation on a lineage.
    pub fn put(&mut self, operation: Operation) {
        self.fresh = true;
        keep(&mut self.operations, operation);
    }

    /// A change of a lease, at this time.
    pub fn lease(&mut self, now: UnixTime, number: u64, change: Change) {
        self.fresh = true;
        self.leases.put(now, number, change);
    }

    /// Something that is shared besides.
    pub fn run(&mut self, errand: Errand) {
        self.fresh = true;
        // They are all our sessions each time: the last say it.
        match errand {
            Errand::Again(_) => self.errands.retain(|waiting| !matches!(waiting, Errand::Again(_))),
            Errand::Takeover(Takeover::Forget(lineage)) => {
                return takeovers::note(&mut self.leaving, lineage, None);
            }
            Errand::Takeover(Takeover::Keep(record)) => {
                return takeovers::note(&mut self.leaving, record.left.lineage, Some(record));
            }
            _ => {}
        }
        if self.errands.len() < WAITING_MOST {
            self.errands.push(errand);
        }
    }

    /// A mark: [`Batch::mark`] is this, or a later one, when all that was handed over so far is done with that batch.
    pub fn mark(&mut self) -> u64 {
        self.fresh = true;
        self.marked += 1;
        self.marked
    }

    /// Nothing more will come.
    pub fn close(&mut self) {
        self.fresh = true;
        self.closed = true;
    }

    /// Something was handed over since the last [`Waiting::take`].
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// There is something to do, or nothing more will come. What is shared with other gateways besides is not looked at.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        !self.operations.is_empty() || !self.leases.is_empty() || self.marked != self.written || self.closed
    }

    /// Nothing more will come.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The next batch.
    pub fn take(&mut self) -> Batch {
        self.fresh = false;
        // What follows a question for room may depend on the answer: a login that is refused ends nothing.
        let enters = |o: &Operation| matches!(o, Operation::Enter { .. });
        let first = self.operations.iter().position(enters).unwrap_or(self.operations.len());
        let others = self.operations.iter().skip(first).position(|o| !enters(o));
        let count = others.map_or(self.operations.len(), |others| first + others).min(BATCH);
        let operations: Vec<Operation> = self.operations.drain(..count).collect();
        let mark = Some(self.marked).filter(|marked| self.operations.is_empty() && *marked > self.written);
        let (leases, mut errands) = (std::mem::take(&mut self.leases), std::mem::take(&mut self.errands));
        errands.extend(takeovers::errands(std::mem::take(&mut self.leaving)));
        Batch { operations, leases, errands, mark, closed: self.closed }
    }

    /// Everything before this mark is done.
    pub fn written(&mut self, mark: u64) {
        self.written = mark;
    }

    /// A batch could not be done. Returns what is not tried again, of it and of what has come since, in its order: who asked whether a ticket
    /// counts, or whether there is room, does not wait for the next attempt; and which sessions there are is said as a whole then.
    #[must_use = "who asked is told"]
    pub fn put_back(&mut self, batch: Vec<Operation>) -> Vec<Operation> {
        self.operations.splice(0..0, batch);
        let passes = |o: &Operation| {
            matches!(o, Operation::Confirm { .. } | Operation::Enter { .. } | Operation::Leave { .. })
        };
        let (passed, kept) = std::mem::take(&mut self.operations).into_iter().partition(passes);
        self.operations = kept;
        passed
    }

    /// Sessions that wait to be written down, and began instead of all others of their holders; each with the end of its last ticket. Beside
    /// them the lineages that they name as their former ones.
    #[must_use]
    pub fn logins(&self) -> (Vec<Row>, Vec<Name>) {
        let (mut alone, mut began) = (BTreeSet::new(), BTreeMap::<Name, Row>::new());
        let mut former = Vec::new();
        for operation in &self.operations {
            match *operation {
                Operation::EndAll { holder } => _ = alone.insert(holder),
                Operation::Insert(row) if alone.remove(&row.holder) => _ = began.insert(row.id, row),
                Operation::EndFormer { lineage, .. } => former.push(lineage),
                Operation::Advance { lineage, ends, .. } => {
                    began.entry(lineage).and_modify(|row| row.ends = row.ends.max(ends));
                }
                _ => {}
            }
        }
        (began.into_values().collect(), former)
    }

    /// These of [`Waiting::logins`] are not written down, and end no other session.
    pub fn leave_out(&mut self, lineages: &BTreeSet<Name>) {
        let mut kept: Vec<Operation> = Vec::with_capacity(self.operations.len());
        for operation in self.operations.drain(..) {
            match operation {
                Operation::Insert(row) if lineages.contains(&row.id) => {
                    let ends = |o: &Operation| *o == Operation::EndAll { holder: row.holder };
                    if let Some(at) = kept.iter().rposition(ends) {
                        kept.remove(at);
                    }
                }
                Operation::Advance { lineage, .. } if lineages.contains(&lineage) => {}
                _ => kept.push(operation),
            }
        }
        self.operations = kept;
    }

    /// The sessions of these lineages are another gateway's, or over. They must not begin again by an insertion that is repeated, because it
    /// was not known whether it had been done; nor may what was to end before it, all of its holder, be ended once more: the session that
    /// another gateway has by now would be.
    pub fn forget(&mut self, gone: &[Name]) {
        let mut over = BTreeSet::new();
        let mut goes = |operation: &Operation| match operation {
            Operation::Insert(row) if gone.contains(&row.id) => {
                over.insert(row.holder);
                true
            }
            Operation::EndAll { holder } => over.contains(holder),
            _ => false,
        };
        let mut kept: Vec<Operation> = self.operations.drain(..).rev().filter(|o| !goes(o)).collect();
        kept.reverse();
        self.operations = kept;
    }

    /// The store has forgotten what was done to lineages. A login that waits may have been written before, and its ticket used since: written again,
    /// that ticket would count once more.
    pub fn forget_logins(&mut self) {
        self.operations.retain(|operation| !matches!(operation, Operation::Insert(_)));
    }

    /// As [`Waiting::put_back`], of what is shared besides.
    pub fn put_back_errands(&mut self, errands: Vec<Errand>) {
        let errands = takeovers::put_back(&mut self.leaving, errands);
        self.errands.splice(0..0, errands);
    }
}

/// Keeps an operation within [`WAITING_MOST`]. The end of a session is never left out.
fn keep(waiting: &mut Vec<Operation>, new: Operation) {
    let ends = matches!(
        new,
        Operation::End { .. }
            | Operation::EndFormer { .. }
            | Operation::EndAll { .. }
            | Operation::EndEvery
            | Operation::Leave { .. }
    );
    if waiting.len() >= WAITING_MOST && ends {
        make_room(waiting);
    }
    if waiting.len() < WAITING_MOST {
        waiting.push(new);
    }
}

/// Of the same end the last order stays. Where that makes too little room, all tickets end.
fn make_room(waiting: &mut Vec<Operation>) {
    let mut seen = BTreeSet::new();
    let mut first = |operation: &Operation| match *operation {
        Operation::End { lineage, holder, .. } | Operation::EndFormer { lineage, holder } => {
            seen.insert((Some(lineage), holder))
        }
        Operation::EndAll { holder } => seen.insert((None, holder)),
        _ => true,
    };
    let leaves = |operation: &Operation| matches!(operation, Operation::Leave { .. });
    let mut kept: Vec<Operation> = waiting.drain(..).rev().filter(|operation| first(operation)).collect();
    kept.reverse();
    if kept.len() > WAITING_MOST / 2 {
        tracing::error!("too many pending session ends while the store fails: all tickets are revoked");
        // Who has left would be counted for good.
        kept.retain(leaves);
        kept.push(Operation::EndEvery);
    }
    *waiting = kept;
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_ike::ticket::counted::Counted;
    use dormouse_ike::ticket::lineage::{Memory, Row, TicketHolder};
    use dormouse_keying::SaId;

    #[test]
    fn what_waits_for_a_store_that_fails_has_a_bound_and_no_end_is_lost() {
        let name = |n: usize| {
            let mut name = [0; 16];
            name[..8].copy_from_slice(&n.to_be_bytes());
            Name(name)
        };
        let holder = TicketHolder([1; 32]);
        let row = |n: usize| Row { id: name(n), holder, tip: name(n), ends: UnixTime(u64::from(u32::MAX)) };
        let mut waiting = Vec::new();
        // The same two ends, again and again.
        for n in 0..3 * WAITING_MOST {
            let new = if n % 2 == 0 {
                Operation::EndAll { holder }
            } else {
                Operation::End { sa: None, lineage: name(1), holder }
            };
            keep(&mut waiting, new);
            assert!(waiting.len() <= WAITING_MOST);
        }
        assert!(!waiting.contains(&Operation::EndEvery), "they are two");
        // More ends than there is room for: every row is gone afterwards that would be, and no later one.
        (0..2 * WAITING_MOST)
            .for_each(|n| keep(&mut waiting, Operation::End { sa: None, lineage: name(n), holder }));
        assert!(waiting.len() <= WAITING_MOST && waiting.contains(&Operation::EndEvery));
        waiting.truncate(WAITING_MOST - 1);
        keep(&mut waiting, Operation::Insert(row(7)));
        let mut rules = Memory::default();
        for n in 0..20 {
            rules.apply(UnixTime(0), &Operation::Insert(row(n)));
        }
        for operation in &waiting {
            rules.apply(UnixTime(0), operation);
        }
        assert!(rules.rows().map(|r| r.id).eq([name(7)]));
    }

    #[test]
    fn a_login_that_another_gateway_overtook_ends_nothing_and_what_was_ordered_besides_stays() {
        let mut queue = Waiting::default();
        let row = |lineage: u8, holder: u8, ends: u64| Row {
            id: Name([lineage; 16]),
            holder: TicketHolder([holder; 32]),
            tip: Name([100; 16]),
            ends: UnixTime(ends),
        };
        let all = |holder: u8| Operation::EndAll { holder: TicketHolder([holder; 32]) };
        let former = |lineage: u8| Operation::EndFormer {
            lineage: Name([lineage; 16]),
            holder: TicketHolder([1; 32]),
        };
        let again = |lineage: u8, ends: u64| Operation::Advance {
            lineage: Name([lineage; 16]),
            from: Name([100; 16]),
            to: Name([100; 16]),
            ends: UnixTime(ends),
        };
        // An administrator ends all of the first one, who logs in; the second one is one of several devices, and ends nobody's session.
        let ordered = [
            all(1),
            all(1),
            former(9),
            Operation::Insert(row(1, 1, 50)),
            Operation::Insert(row(2, 2, 60)),
            again(1, 70),
            again(2, 80),
        ];
        ordered.into_iter().for_each(|operation| queue.put(operation));
        assert_eq!(queue.logins(), (vec![row(1, 1, 70)], vec![Name([9; 16])]));
        queue.leave_out(&BTreeSet::from([Name([1; 16])]));
        assert_eq!(
            queue.take().operations,
            [all(1), former(9), Operation::Insert(row(2, 2, 60)), again(2, 80)]
        );
        // Denied after the login: nothing began.
        [all(1), Operation::Insert(row(1, 1, 50)), all(1)].into_iter().for_each(|o| queue.put(o));
        queue.leave_out(&BTreeSet::from([Name([1; 16])]));
        assert_eq!(queue.take().operations, [all(1)]);
    }

    #[test]
    fn a_login_whose_session_has_gone_on_elsewhere_is_not_written_again() {
        let (name, of) = (|n| Name([n; 16]), |n| TicketHolder([n; 32]));
        let row = |n| Row { id: name(n), holder: of(n), tip: name(n), ends: UnixTime(9) };
        let (ends, begins) = (|n| Operation::EndAll { holder: of(n) }, |n| Operation::Insert(row(n)));
        let mut waiting = Waiting::default();
        // The first one is refused afterwards.
        let all = [ends(1), begins(1), ends(2), begins(2), ends(1)];
        assert_eq!(waiting.put_back(all.to_vec()), []);
        waiting.forget(&[name(1)]);
        assert_eq!(waiting.take().operations, [ends(2), begins(2), ends(1)]);
    }

    #[test]
    fn a_login_that_waits_is_not_written_into_a_store_that_has_forgotten() {
        let holder = TicketHolder([1; 32]);
        let row = Row { id: Name([1; 16]), holder, tip: Name([1; 16]), ends: UnixTime(9) };
        let mut waiting = Waiting::default();
        assert_eq!(waiting.put_back(vec![Operation::EndAll { holder }, Operation::Insert(row)]), []);
        waiting.forget_logins();
        assert_eq!(waiting.take().operations, [Operation::EndAll { holder }]);
    }

    fn asks(sa: u64) -> Operation {
        let name = Name([u8::try_from(sa).unwrap(); 16]);
        Operation::Confirm {
            sa: SaId::new(sa),
            lineage: name,
            own: name,
            before: name,
            next: name,
            ends: UnixTime(9),
        }
    }

    fn enters(sa: u64, lineage: u8) -> Operation {
        let (lineage, holder) = (Name([lineage; 16]), TicketHolder([1; 32]));
        let (from, former, began) = (None, None, UnixTime(1));
        let session = Counted { lineage, holder, from, most: 1, login: true, former, began };
        Operation::Enter { sa: Some(SaId::new(sa)), session }
    }

    #[test]
    fn who_asks_while_a_batch_fails_is_not_forgotten() {
        let ends = Operation::EndAll { holder: TicketHolder([1; 32]) };
        let left = Operation::Leave { lineage: Name([3; 16]) };
        let mut waiting = Waiting::default();
        [asks(1), ends].into_iter().for_each(|operation| waiting.put(operation));
        let batch = waiting.take().operations;
        [enters(2, 3), left, asks(4), ends].into_iter().for_each(|operation| waiting.put(operation));
        assert_eq!(waiting.put_back(batch), [asks(1), enters(2, 3), left, asks(4)]);
        assert_eq!(waiting.take().operations, [ends, ends]);
    }

    #[test]
    fn what_follows_a_question_for_room_waits_for_the_answer() {
        let ends = Operation::EndAll { holder: TicketHolder([1; 32]) };
        let mut waiting = Waiting::default();
        let all = [asks(1), enters(2, 1), enters(3, 2), ends, asks(4), enters(5, 3), ends];
        all.into_iter().for_each(|operation| waiting.put(operation));
        let mark = waiting.mark();
        let batches: Vec<(Vec<Operation>, Option<u64>)> = (0..3)
            .map(|_| {
                let batch = waiting.take();
                (batch.operations, batch.mark)
            })
            .collect();
        assert_eq!(
            batches,
            [(all[..3].to_vec(), None), (all[3..6].to_vec(), None), (all[6..].to_vec(), Some(mark))]
        );
    }
}
