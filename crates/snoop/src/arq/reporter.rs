//! The device's end of one SA, behind the SA itself: what comes here has been opened, so that nothing forged counts. Owns the order of the packets inside, and
//! whether a router repairs; must never hold a packet while none does, nor for longer than its bound.

use std::collections::VecDeque;

use core::time::Duration;

use dormouse_crypto::{PrfKey, Secret};
use dormouse_sansio::{Deadline, Instant};

use super::device::Order;
use super::{Answer, Limits, beside, message, reports_key};

/// Reports without an answer for so long: no router repairs, or no longer.
const UNANSWERED: Duration = Duration::from_millis(1_500);
/// Where a router may be, a report asks for it, and asks again after each of these times: either way may lose one, and keys may come to the router
/// after the device. A router answers once in half a second, so one of them comes later than that.
const ASK_AGAIN: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(400), Duration::from_millis(800)];
/// Where none has answered, a report asks so often.
const PROBE: Duration = Duration::from_secs(30);

/// Whether a router repairs what this SA carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// None is known. The device asks then, if packets come; it has asked so often before.
    Alone { ask: Instant, asked: usize },
    /// One does. `unanswered`: the first and the last report since it has answered.
    Repaired { unanswered: Option<(Instant, Instant)> },
}

/// See the module.
#[derive(Debug)]
pub struct Reporter {
    key: PrfKey,
    limits: Limits,
    /// What the device receives, and what it sends.
    spis: [u32; 2],
    number: u64,
    /// Of the report that was answered last.
    answered: u64,
    state: State,
    order: Order,
    ready: VecDeque<Vec<u8>>,
}

impl Reporter {
    /// Of an SA whose first zone has this keying material for what the device receives, by the SPIs of what it receives and sends.
    #[must_use]
    pub fn new(now: Instant, keymat: &Secret, spi_in: u32, spi_out: u32, limits: Limits) -> Self {
        Self {
            key: reports_key(keymat),
            limits,
            spis: [spi_in, spi_out],
            number: 0,
            answered: 0,
            state: State::Alone { ask: now, asked: 0 },
            order: Order::new(now, 1),
            ready: VecDeque::new(),
        }
    }

    /// A packet of this number was opened. Whether it is to be handed to [`Self::arrive`]; otherwise it is delivered at once.
    pub fn takes(&mut self, now: Instant, sequence: u64) -> bool {
        match self.state {
            State::Repaired { .. } => true,
            State::Alone { ask, asked } => {
                let next = (sequence as u32).wrapping_add(1);
                if !crate::sequence::before(next, self.order.next) {
                    self.order.next = next;
                }
                if now >= ask {
                    let pause = ASK_AGAIN.get(asked).copied().unwrap_or(PROBE);
                    self.state = State::Alone { ask: now + pause, asked: asked.saturating_add(1) };
                    self.order.report_at = Some(now);
                }
                false
            }
        }
    }

    /// It is put in order.
    pub fn arrive(&mut self, now: Instant, sequence: u64, packet: Vec<u8>) {
        self.order.arrive(now, sequence as u32, packet, &self.limits, &mut self.ready);
    }

    /// The next packet for the device itself, in order.
    pub fn poll_deliver(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    /// Appends a report, to be sent as an ESP packet of this SA; false if none is due.
    pub fn poll_report(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if self.order.report_at.is_none_or(|at| now < at) {
            return false;
        }
        let [spi, own] = self.spis;
        self.number += 1;
        let report = self.order.report(spi, self.number);
        out.extend(beside(own, &report.seal(&self.key)));
        if let State::Repaired { unanswered } = &mut self.state {
            // After a silence it has its time again.
            let row = unanswered.filter(|(_, last)| now < *last + UNANSWERED);
            *unanswered = Some((row.map_or(now, |(first, _)| first), now));
        }
        true
    }

    /// An ESP packet of this SA that none has sent, by its number. Whether a router said by it that it repairs.
    pub fn answer(&mut self, esp: &[u8]) -> bool {
        let answer = message(esp).filter(|(spi, _)| *spi == self.spis[0]);
        let answer = answer.and_then(|(_, answer)| Answer::open(&self.key, answer));
        // One for each report: none is of use twice.
        let Some(answer) = answer.filter(|a| a.number > self.answered && a.number <= self.number) else {
            return false;
        };
        self.answered = answer.number;
        self.state = State::Repaired { unanswered: None };
        true
    }

    /// The way to the gateway is another one, or the radio sleeps: the router that was is not there any more. All that is held is delivered.
    pub fn leave(&mut self, now: Instant) {
        self.state = State::Alone { ask: now, asked: 0 };
        self.order.release(usize::MAX, &mut self.ready);
        self.order.report_at = None;
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        Deadline::earliest(self.timers())
    }

    /// Every timer that runs.
    pub fn timers(&self) -> impl Iterator<Item = Deadline> {
        self.order.timers(&self.limits)
    }

    /// Time has passed. Call [`Self::poll_deliver`] and [`Self::poll_report`] afterwards.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let State::Repaired { unanswered: Some((first, last)) } = self.state
            && last >= first + UNANSWERED
        {
            self.leave(now);
            self.state = State::Alone { ask: now + PROBE, asked: ASK_AGAIN.len() };
        }
        self.order.expire(now, &self.limits, &mut self.ready);
    }

    /// Whether a router repairs.
    #[must_use]
    pub const fn is_repaired(&self) -> bool {
        matches!(self.state, State::Repaired { .. })
    }

    /// Packets that are held, and their bytes.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        self.order.held()
    }
}
