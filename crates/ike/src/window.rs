//! Message ids, retransmission and the answers kept for repeated requests (RFC 7296 sections 2.1 to 2.3). Owns the two
//! halves of the window of one IKE SA; must never look inside a message: it keeps finished datagrams.
//!
//! Timers: a request is sent again after a wait that the caller draws from its retransmission policy, until the tries
//! are used up or the exchange's own deadline has passed. Answers are never sent by a timer: only a repeated request
//! causes them.

use core::time::Duration;

use dormouse_sansio::{Class, Instant};

use crate::few::Few;

/// The largest window that we grant or use, also if the peer offers more: each open request costs memory at both ends.
pub const MAX_WINDOW: u32 = 8;

/// Ids that are left when the SA is rekeyed for want of more.
const IDS_LEFT: u32 = 1 << 16;

/// A request under way.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    /// What it is for.
    pub(crate) exchange: T,
    /// The datagrams of the request (more than one if fragmented), ready to be sent again.
    pub(crate) datagrams: Vec<Vec<u8>>,
    /// How urgent.
    pub(crate) class: Class,
    /// When it was first sent.
    pub(crate) since: Instant,
    /// When it gives up, even with tries left.
    pub(crate) until: Instant,
    /// How often it has been sent.
    pub(crate) tries: u32,
    /// When it is sent next, or given up.
    pub(crate) due: Instant,
}

/// Our requests.
/// "The initiator MUST remember each request until it receives the corresponding response." (RFC 7296 section 2.1)
#[derive(Debug)]
pub(crate) struct Outgoing<T> {
    next: u32,
    /// What the peer accepts at once (SET_WINDOW_SIZE); 1 until it says otherwise.
    window: u32,
    flights: Few<u32, Flight<T>>,
}

/// What a timer of [`Outgoing`] asks for.
#[derive(Debug)]
pub(crate) enum Due<T> {
    /// Send these datagrams again.
    Again(Vec<Vec<u8>>, Class),
    /// No answer came: the exchange of this id has failed.
    GaveUp(u32, Flight<T>),
}

impl<T> Outgoing<T> {
    pub(crate) fn new(next: u32) -> Self {
        Self { next, window: 1, flights: Few::default() }
    }

    /// The same with a window that the peer has granted before.
    pub(crate) fn begin(next: u32, window: u32) -> Self {
        let mut outgoing = Self::new(next);
        outgoing.set_window(window);
        outgoing
    }

    /// What the peer accepts at once.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// The peer has said how many requests it can take at once. What a smaller value than before means "is not defined" (RFC 7296
    /// section 2.3): it is honoured for new requests.
    pub(crate) fn set_window(&mut self, size: u32) {
        self.window = size.clamp(1, MAX_WINDOW);
    }

    /// The id that the next request gets.
    pub(crate) fn next_id(&self) -> u32 {
        self.next
    }

    /// The lowest id whose answer may still come.
    pub(crate) fn oldest(&self) -> u32 {
        self.flights.keys().next().unwrap_or(self.next)
    }

    /// Whether a request may be sent now.
    ///
    /// RFC 7296 section 2.3: "An IKE endpoint MUST NOT exceed the peer's stated window size for transmitted IKE
    /// requests."
    /// "An IKE endpoint MUST wait for a response to each of its messages before sending a subsequent message unless it has
    /// received a SET_WINDOW_SIZE Notify message" (RFC 7296 section 2.3)
    pub(crate) fn has_room(&self) -> bool {
        let oldest = self.flights.keys().next().unwrap_or(self.next);
        self.next.wrapping_sub(oldest) < self.window && self.next < u32::MAX
    }

    /// "In the unlikely event that Message IDs grow too large to fit in 32 bits, the IKE SA MUST be closed or rekeyed." (RFC 7296
    /// section 2.2)
    pub(crate) fn ids_run_out(&self) -> bool {
        self.next >= u32::MAX - IDS_LEFT
    }

    /// For fuzzing: an id is used up without a request of ours.
    pub(crate) fn skip_id(&mut self) {
        self.next = self.next.saturating_add(1);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// Records a request that is being sent for the first time and counts its id as used.
    pub(crate) fn start(
        &mut self,
        now: Instant,
        wait: Duration,
        until: Instant,
        datagrams: Vec<Vec<u8>>,
        class: Class,
        exchange: T,
    ) {
        let due = (now + wait).min(until);
        let flight = Flight { exchange, datagrams, class, since: now, until, tries: 1, due };
        self.flights.insert(self.next, flight);
        self.next += 1;
    }

    /// The exchange that `id` belongs to, if it is still under way.
    pub(crate) fn flight(&self, id: u32) -> Option<&Flight<T>> {
        self.flights.get(&id)
    }

    /// An authentic answer to `id` has come: ends the flight.
    pub(crate) fn answered(&mut self, id: u32) -> Option<Flight<T>> {
        self.flights.remove(&id)
    }

    pub(crate) fn flights(&self) -> impl Iterator<Item = &Flight<T>> {
        self.flights.values()
    }

    pub(crate) fn flights_mut(&mut self) -> impl Iterator<Item = &mut Flight<T>> {
        self.flights.values_mut()
    }

    /// The next moment at which [`Outgoing::due`] has something to say, with the class of that request.
    pub(crate) fn next_due(&self) -> Option<(Instant, Class)> {
        self.flights.values().map(|f| (f.due, f.class)).min_by_key(|&(due, _)| due)
    }

    /// The moments at which [`Outgoing::due`] has something to say of each request.
    pub(crate) fn all_due(&self) -> impl Iterator<Item = Instant> {
        self.flights.values().map(|f| f.due)
    }

    /// One thing that is due at `now`; call until it returns `None`. `tries` is the most transmissions of one request; this one does
    /// not count if `extra`. `wait(sent)` draws how long to wait after transmission number `sent`.
    /// "the initiator MUST retransmit a request until it either receives a corresponding response or deems the IKE SA to have
    /// failed" (RFC 7296 section 2.1)
    /// "Retransmission of a message MUST use the same Message ID as the original message." (RFC 7296 section 2.2)
    pub(crate) fn due(
        &mut self,
        now: Instant,
        tries: u32,
        extra: bool,
        wait: impl FnOnce(u32) -> Duration,
    ) -> Option<Due<T>> {
        let (id, flight) = self.flights.iter_mut().find(|(_, f)| f.due <= now)?;
        if now >= flight.until || (flight.tries >= tries && !extra) {
            return self.flights.remove(&id).map(|flight| Due::GaveUp(id, flight));
        }
        flight.tries += u32::from(!extra);
        flight.due = (now + wait(flight.tries)).min(flight.until);
        Some(Due::Again(flight.datagrams.clone(), flight.class))
    }

    /// A request that was given up is due again after `wait`, with all its patience.
    pub(crate) fn go_on(&mut self, now: Instant, wait: Duration, id: u32, flight: Flight<T>) {
        let until = now + (flight.until - flight.since);
        self.flights.insert(id, Flight { tries: 1, since: now, until, due: now + wait, ..flight });
    }

    /// Time has passed in which nothing could be sent or heard: every request under way is due now, with all its patience.
    pub(crate) fn begin_anew(&mut self, now: Instant) {
        for f in self.flights.values_mut() {
            f.tries = 1;
            f.until = now + (f.until - f.since);
            f.since = now;
            f.due = now;
        }
    }

    /// Every request under way, to be sent again at once; the wait for its answer starts anew. With `afresh`, because the path
    /// has changed, so does its patience. Without, it ends when it would have ended: a driver that asks again and again must not
    /// keep a dead exchange alive.
    pub(crate) fn resend_all(
        &mut self,
        now: Instant,
        wait: Duration,
        afresh: bool,
    ) -> Vec<(Vec<Vec<u8>>, Class)> {
        self.flights
            .values_mut()
            .map(|f| {
                if afresh {
                    f.tries = 1;
                    f.until = now + (f.until - f.since);
                    f.since = now;
                }
                f.due = (now + wait).min(f.until);
                (f.datagrams.clone(), f.class)
            })
            .collect()
    }
}

/// The peer's requests.
/// "The responder MUST never retransmit a response unless it receives a retransmission of the request." (RFC 7296 section 2.1)
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The id with which this window began.
    first: u32,
    /// The lowest id that has not been processed.
    expected: u32,
    window: u32,
    /// Answers by id: those of the last `window` requests, and those processed out of order.
    answers: Few<u32, Vec<Vec<u8>>>,
}

/// What a request's message id says about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Not seen yet: process it.
    New,
    /// Processed; the answer is still here ([`Incoming::answer`]).
    Repeated,
    /// Outside of the window.
    Outside,
}

impl Incoming {
    pub(crate) fn new(expected: u32, window: u32) -> Self {
        Self { first: expected, expected, window: window.clamp(1, MAX_WINDOW), answers: Few::default() }
    }

    /// "[...] it MUST ignore the request (and not, for example, attempt constructing a new response)" (RFC 7296 section 2.1)
    /// whose answer is forgotten.
    pub(crate) fn verdict(&self, id: u32) -> Verdict {
        if self.answers.contains_key(&id) {
            Verdict::Repeated
        } else if id >= self.expected && id - self.expected < self.window && id < u32::MAX {
            Verdict::New
        } else {
            Verdict::Outside
        }
    }

    /// The lowest id that may still come.
    pub(crate) fn oldest(&self) -> u32 {
        self.expected
    }

    /// The answer to an authentic repeated request. "The responder MUST remember each response until it receives a
    /// request whose sequence number is larger than or equal to the sequence number in the response plus its window
    /// size" (RFC 7296 section 2.1).
    pub(crate) fn answer(&self, id: u32) -> Option<&Vec<Vec<u8>>> {
        self.answers.get(&id)
    }

    /// The answer to a request from before this window began (IKE_AUTH), for its repetitions.
    pub(crate) fn remember(&mut self, id: u32, answer: Vec<Vec<u8>>) {
        self.answers.insert(id, answer);
    }

    /// The peer has shown that it has the answer to IKE_AUTH, which is not kept any longer: with its certificates it is the largest of all. RFC 7296
    /// section 2.1 has answers kept because they may be lost, or for minutes; who has one does not repeat its request, and a copy that was under way
    /// is ignored like any request whose answer is forgotten.
    pub(crate) fn has_begun(&mut self) {
        self.answers.forget_below(&self.first);
    }

    /// Bytes of answers that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.answers.values().flatten().map(Vec::len).sum()
    }

    /// `id` has been processed and answered.
    pub(crate) fn processed(&mut self, id: u32, answer: Vec<Vec<u8>>) {
        self.answers.insert(id, answer);
        while self.answers.contains_key(&self.expected) {
            self.expected += 1;
        }
        let oldest = self.answers.keys().next_back().unwrap_or(0).saturating_sub(self.window - 1);
        self.answers.forget_below(&oldest.min(self.expected));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(500);

    fn send(w: &mut Outgoing<u8>, tag: u8) {
        w.start(Instant::ZERO, WAIT, Instant::FAR_FUTURE, vec![vec![tag]], Class::Timely, tag);
    }

    #[test]
    fn one_request_at_a_time_until_the_peer_says_otherwise() {
        let mut w = Outgoing::new(2);
        assert!(w.has_room());
        send(&mut w, 0);
        assert!(!w.has_room());
        w.set_window(2);
        assert!(w.has_room());
        send(&mut w, 1);
        assert!(!w.has_room());
        // The window counts from the oldest unanswered request, not the number of those under way.
        assert_eq!(w.answered(3).map(|f| f.exchange), Some(1));
        assert!(!w.has_room());
        assert_eq!(w.answered(2).map(|f| f.exchange), Some(0));
        assert!(w.has_room() && w.answered(2).is_none());
    }

    #[test]
    fn a_request_is_repeated_and_then_given_up() {
        let mut w = Outgoing::new(0);
        send(&mut w, 7);
        assert!(w.all_due().eq(w.next_due().map(|(at, _)| at)));
        let mut sent = 1;
        loop {
            let (at, _) = w.next_due().expect("a flight has a deadline");
            match w.due(at, 3, false, |n| WAIT * n).expect("something is due") {
                Due::Again(d, _) => {
                    assert_eq!(d, vec![vec![7]]);
                    sent += 1;
                }
                Due::GaveUp(_, f) => {
                    assert_eq!(f.tries, 3);
                    break;
                }
            }
        }
        assert_eq!(sent, 3);
        assert!(w.is_idle());
    }

    #[test]
    fn an_own_deadline_ends_a_request_early() {
        let mut w = Outgoing::new(0);
        let until = Instant::ZERO + Duration::from_millis(10);
        w.start(Instant::ZERO, WAIT, until, vec![vec![1]], Class::Urgent, 1u8);
        assert_eq!(w.next_due().map(|d| d.0), Some(until));
        assert!(matches!(w.due(until, 3, false, |_| WAIT), Some(Due::GaveUp(..))));
    }

    #[test]
    fn the_answer_from_before_is_kept_until_the_peer_has_it() {
        let mut w = Incoming::new(2, 1);
        w.remember(1, vec![vec![1; 900]]);
        assert_eq!((w.verdict(1), w.kept()), (Verdict::Repeated, 900));
        w.has_begun();
        assert_eq!((w.verdict(1), w.kept()), (Verdict::Outside, 0));
        w.processed(2, vec![vec![2; 50]]);
        w.has_begun();
        assert_eq!((w.verdict(2), w.verdict(3), w.kept()), (Verdict::Repeated, Verdict::New, 50));
    }

    #[test]
    fn asking_again_does_not_prolong_a_request_but_a_new_path_does() {
        let mut w = Outgoing::new(0);
        let until = Instant::ZERO + WAIT * 4;
        w.start(Instant::ZERO, WAIT, until, vec![vec![1]], Class::Urgent, 1u8);
        for n in 1..40 {
            assert_eq!(w.resend_all(Instant::ZERO + WAIT / 10 * n, WAIT, false).len(), 1);
        }
        assert_eq!(w.next_due().map(|d| d.0), Some(until));
        w.resend_all(Instant::ZERO + WAIT * 3, WAIT, true);
        assert!(w.due(until, 9, false, |_| WAIT).is_some_and(|due| matches!(due, Due::Again(..))));
    }

    #[test]
    fn repeated_requests_find_their_answer_until_the_window_has_moved_on() {
        let mut w = Incoming::new(0, 1);
        assert_eq!(w.verdict(0), Verdict::New);
        assert_eq!(w.verdict(1), Verdict::Outside);
        w.processed(0, vec![vec![0]]);
        assert_eq!(w.verdict(0), Verdict::Repeated);
        assert_eq!(w.verdict(1), Verdict::New);
        w.processed(1, vec![vec![1]]);
        assert_eq!(w.verdict(0), Verdict::Outside);
        assert_eq!(w.answer(1), Some(&vec![vec![1]]));
    }

    #[test]
    fn a_wider_window_takes_requests_out_of_order() {
        let mut w = Incoming::new(4, 3);
        assert_eq!(w.verdict(6), Verdict::New);
        w.processed(6, vec![]);
        assert_eq!(w.verdict(6), Verdict::Repeated);
        assert_eq!(w.verdict(7), Verdict::Outside);
        assert_eq!(w.verdict(4), Verdict::New);
        w.processed(4, vec![]);
        w.processed(5, vec![]);
        assert_eq!(w.verdict(7), Verdict::New);
        assert_eq!(w.verdict(3), Verdict::Outside);
    }
}
