//! Numbers that go from the loop to the other gateways, and from the database to the loop: neither waits for the other. Owns how many tickets a minute has
//! had.
#![cfg_attr(
    not(feature = "cluster"),
    expect(dead_code, reason = "without a database there are no others to tell")
)]

#[cfg(feature = "cluster")]
use dormouse_cluster::{Beat, Load};
use dormouse_node::config::Same;
use dormouse_sansio::Instant;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What [`Load::spent`] counts.
const MINUTE: Duration = Duration::from_secs(60);

/// What the others are told of this gateway, as the loop last counted it, and what the last heartbeat said.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    sessions: AtomicU64,
    sleepers: AtomicU64,
    draining: AtomicBool,
    /// How long a session takes, in microseconds; 0 while that is not known.
    session_time: AtomicU64,
    spent: Mutex<Spent>,
    round_trip: AtomicU64,
    heard: AtomicU64,
    gateways: AtomicU64,
    /// What must be the same at all gateways, as it is in force here.
    settings: Mutex<Same>,
}

/// What the last heartbeat said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Heard {
    /// To the database and back.
    pub(crate) round_trip: Duration,
    /// Gateways that were heard lately, this one among them.
    pub(crate) heard: u64,
    /// Gateways that have joined, and were not heard lately.
    pub(crate) silent: u64,
}

impl Counts {
    /// So many sessions, and devices that sleep; and how long a session takes, if that is known.
    pub(crate) fn set(&self, sessions: usize, sleepers: usize, session_time: Option<Duration>) {
        let micros =
            session_time.map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1));
        self.session_time.store(micros, Ordering::Relaxed);
        self.sessions.store(sessions as u64, Ordering::Relaxed);
        self.sleepers.store(sleepers as u64, Ordering::Relaxed);
    }

    /// What must be the same at all gateways, as the daemon began with it.
    pub(crate) fn begin(&self, settings: Same) {
        *self.settings() = settings;
    }

    /// The configuration was read again: the others are told with the next heartbeat. What a start takes stays.
    pub(crate) fn reload(&self, settings: Same) {
        self.settings().with_reload = settings.with_reload;
    }

    /// See [`Same::text`].
    pub(super) fn settings_text(&self) -> String {
        self.settings().text()
    }

    fn settings(&self) -> MutexGuard<'_, Same> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on no other gateway gives this one devices, or they may again.
    pub(crate) fn drain(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
    }

    /// So many more tickets were taken.
    pub(super) fn took(&self, tickets: usize) {
        self.spent().add(tickets);
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of the next heartbeat.
    #[cfg(feature = "cluster")]
    pub(super) fn load(&self, now: Instant) -> Load {
        Load {
            sessions: self.sessions.load(Ordering::Relaxed),
            sleepers: self.sleepers.load(Ordering::Relaxed),
            draining: self.draining.load(Ordering::Relaxed),
            spent: self.spent().in_a_minute(now),
            session_time: Some(self.session_time.load(Ordering::Relaxed))
                .filter(|micros| *micros > 0)
                .map(Duration::from_micros),
        }
    }

    /// A heartbeat has been written.
    #[cfg(feature = "cluster")]
    pub(super) fn beat(&self, beat: &Beat) {
        let micros = u64::try_from(beat.round_trip.as_micros()).unwrap_or(u64::MAX);
        self.round_trip.store(micros, Ordering::Relaxed);
        self.heard.store(beat.heard, Ordering::Relaxed);
        self.gateways.store(beat.gateways, Ordering::Relaxed);
    }

    /// What the last one said; `None` before the first.
    pub(crate) fn heard(&self) -> Option<Heard> {
        let heard = self.heard.load(Ordering::Relaxed);
        (heard > 0).then(|| Heard {
            round_trip: Duration::from_micros(self.round_trip.load(Ordering::Relaxed)),
            heard,
            silent: self.gateways.load(Ordering::Relaxed).saturating_sub(heard),
        })
    }
}

/// Tickets that were taken.
#[derive(Debug, Default)]
struct Spent {
    total: u64,
    /// How many there were at heartbeats, the oldest a minute ago.
    before: VecDeque<(Instant, u64)>,
}

impl Spent {
    /// So many more.
    fn add(&mut self, tickets: usize) {
        self.total = self.total.saturating_add(tickets as u64);
    }

    /// At a heartbeat: how many the last minute has had.
    fn in_a_minute(&mut self, now: Instant) -> u64 {
        if self.before.is_empty() {
            // What came before the first heartbeat is of this minute too.
            self.before.push_back((now, 0));
        }
        while self.before.get(1).is_some_and(|(at, _)| now - *at >= MINUTE) {
            self.before.pop_front();
        }
        let first = self.before.front().map_or(0, |(_, total)| *total);
        self.before.push_back((now, self.total));
        self.total.saturating_sub(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minutes_tickets_are_those_since_the_heartbeat_a_minute_ago() {
        let (mut spent, begun) = (Spent::default(), Instant::ZERO);
        let mut at = |seconds: u64, tickets: usize| {
            spent.add(tickets);
            let now = spent.in_a_minute(begun + Duration::from_secs(seconds));
            assert!(spent.before.len() < 16);
            now
        };
        assert_eq!([at(0, 3), at(5, 2), at(60, 1)], [3, 5, 3]);
        assert_eq!([at(65, 0), at(70, 4)], [1, 5], "what is older does not count");
        (14..200).for_each(|n| assert!(at(n * 5 + 60, 1) <= 13));
        assert_eq!(at(10_000, 0), 0);
    }

    #[test]
    fn what_a_heartbeat_says_is_there_after_the_first() {
        let counts = Counts::default();
        assert_eq!(counts.heard(), None);
        let round_trip = Duration::from_micros(310);
        counts.beat(&Beat { number: 1, round_trip, heard: 2, gateways: 3 });
        assert_eq!(counts.heard(), Some(Heard { round_trip, heard: 2, silent: 1 }));
        let session_time = Some(Duration::from_micros(12_500));
        counts.set(4, 5, session_time);
        counts.took(6);
        counts.drain(true);
        let load = Load { sessions: 4, sleepers: 5, draining: true, spent: 6, session_time };
        assert_eq!(counts.load(Instant::ZERO), load);
        counts.set(4, 5, None);
        assert_eq!(counts.load(Instant::ZERO).session_time, None);
    }
}
