//! Which SAs are half-open: begun by a caller that has not shown yet that it is there. Owns their number, in all and by prefix
//! ([`crate::prefix`]), who gives way when there are too many, and the look-up of repeated first messages. Must never take an SA
//! down itself.
//!
//! # Who gives way
//! Of those whose callers have not worked more than the newcomer's, the one that has been there longest, of the prefix that has the
//! most; the newcomer itself if its own prefix has as many and nothing has had its time ([`HALF_OPEN_LEAST`]). So one prefix can fill
//! what is free, and costs the others nothing.

use std::collections::{BTreeMap, BTreeSet};

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use dormouse_keying::SaId;
use dormouse_sansio::Instant;
use ipnet::IpNet;

use crate::config::HalfOpen;
use crate::limits::{HALF_OPEN_FRESH, HALF_OPEN_LEAST, PREFIXES_LOOKED_AT, REFUSALS_LOGGED_EVERY};
use crate::prefix::prefix_of;

/// What names a first message: the initiator's SPI, and where it came from.
type First = (u64, SocketAddr);

/// How much work a caller has put into its first message: zero bits found, as far as they count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Effort(pub(crate) u8);

impl Effort {
    /// None was asked for, or none was made.
    pub(crate) const NONE: Self = Self(0);
    /// All that was asked for; or a ticket of ours: "it SHOULD prefer previously authenticated peers who present a Session Resumption
    /// ticket" (RFC 8019 section 4.5).
    pub(crate) const WHOLE: Self = Self(u8::MAX);
}

#[derive(Debug)]
struct Entry {
    first: First,
    prefix: IpNet,
    since: Instant,
    effort: Effort,
}

/// The SAs of one prefix: how many, and those that may give way, the first of them first.
#[derive(Debug, Default)]
struct Share {
    count: usize,
    queue: BTreeSet<(Effort, Instant, SaId)>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct HalfOpens {
    /// What one prefix may add to [`HalfOpens::spread`].
    fair: usize,
    by_first: BTreeMap<First, SaId>,
    entries: BTreeMap<SaId, Entry>,
    /// Those whose callers have authenticated, and wait for us: they give way to no stranger.
    proven: BTreeSet<SaId>,
    by_prefix: BTreeMap<IpNet, Share>,
    weights: BTreeSet<(usize, IpNet)>,
    /// Those that may give way, the oldest first, and those that have worked least.
    by_age: BTreeSet<(Instant, SaId)>,
    by_effort: BTreeSet<(Effort, Instant, SaId)>,
    spread: usize,
    /// Those that did not become one.
    pub(crate) refusals: Refusals,
}

impl HalfOpens {
    pub(crate) fn new(limits: &HalfOpen) -> Self {
        Self {
            fair: limits.per_prefix,
            by_first: BTreeMap::new(),
            entries: BTreeMap::new(),
            proven: BTreeSet::new(),
            by_prefix: BTreeMap::new(),
            weights: BTreeSet::new(),
            by_age: BTreeSet::new(),
            by_effort: BTreeSet::new(),
            spread: 0,
            refusals: Refusals::default(),
        }
    }

    pub(crate) fn enter(&mut self, id: SaId, now: Instant, spi_i: u64, from: SocketAddr, effort: Effort) {
        let (first, prefix) = ((spi_i, from), prefix_of(from.ip()));
        self.by_first.insert(first, id);
        self.by_age.insert((now, id));
        self.by_effort.insert((effort, now, id));
        self.weigh(prefix, |share| {
            share.count += 1;
            share.queue.insert((effort, now, id));
        });
        self.entries.insert(id, Entry { first, prefix, since: now, effort });
    }

    /// It is half-open no longer, or gone. Does nothing if it was not.
    pub(crate) fn leave(&mut self, id: SaId) {
        let Some(Entry { first, prefix, since, effort }) = self.entries.remove(&id) else { return };
        self.proven.remove(&id);
        self.by_first.remove(&first);
        self.by_age.remove(&(since, id));
        self.by_effort.remove(&(effort, since, id));
        self.weigh(prefix, |share| {
            share.count -= 1;
            share.queue.remove(&(effort, since, id));
        });
    }

    /// Its caller was refused after it had authenticated. It stays so that the refusal can be repeated, and is worth no work any more: it
    /// gives way like that of a caller who has done none. Does nothing if it was not proven.
    pub(crate) fn refuse(&mut self, id: SaId) {
        if !self.proven.remove(&id) {
            return;
        }
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.effort = Effort::NONE;
        let Entry { prefix, since, effort, .. } = *entry;
        self.by_age.insert((since, id));
        self.by_effort.insert((effort, since, id));
        self.weigh(prefix, |share| _ = share.queue.insert((effort, since, id)));
    }

    /// Its caller has authenticated: it stays until it is established or refused. Does nothing if it is not half-open.
    pub(crate) fn prove(&mut self, id: SaId) {
        let Some(&Entry { prefix, since, effort, .. }) = self.entries.get(&id) else { return };
        if !self.proven.insert(id) {
            return;
        }
        self.by_age.remove(&(since, id));
        self.by_effort.remove(&(effort, since, id));
        self.weigh(prefix, |share| _ = share.queue.remove(&(effort, since, id)));
    }

    /// Changes the share of a prefix, and the sums with it.
    fn weigh(&mut self, prefix: IpNet, change: impl FnOnce(&mut Share)) {
        let share = self.by_prefix.entry(prefix).or_default();
        let before = share.count;
        change(share);
        let after = share.count;
        if after == 0 {
            self.by_prefix.remove(&prefix);
        }
        self.weights.remove(&(before, prefix));
        if after > 0 {
            self.weights.insert((after, prefix));
        }
        self.spread = self.spread - before.min(self.fair) + after.min(self.fair);
    }

    /// The SA that this first message has begun.
    pub(crate) fn begun_by(&self, spi_i: u64, from: SocketAddr) -> Option<SaId> {
        self.by_first.get(&(spi_i, from)).copied()
    }

    /// Where its first message came from.
    pub(crate) fn came_from(&self, id: SaId) -> Option<IpAddr> {
        self.entries.get(&id).map(|entry| entry.first.1.ip())
    }

    /// How many come from a prefix.
    pub(crate) fn from(&self, prefix: IpNet) -> usize {
        self.by_prefix.get(&prefix).map_or(0, |share| share.count)
    }

    /// Those whose callers have authenticated.
    pub(crate) fn proven(&self) -> impl Iterator<Item = SaId> {
        self.proven.iter().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many there are if no prefix counts for more than its fair share: a crowd behind one address is no load on the others.
    pub(crate) fn spread(&self) -> usize {
        self.spread
    }

    /// How long one is kept now.
    /// "When the system is under attack, as measured by the amount of half-open SAs, it makes sense to reduce this lifetime" (RFC
    /// 8019 section 4.1): from the number at which cookies are asked for, in equal steps.
    pub(crate) fn life(&self, limits: &HalfOpen) -> Duration {
        let least = HALF_OPEN_LEAST.min(limits.timeout);
        let (over, room) = above(self.len(), limits.cookie_threshold, limits.max);
        limits.timeout - (limits.timeout - least) * over / room
    }

    /// One that has been there for `life`, and has not authenticated.
    pub(crate) fn overdue(&self, now: Instant, life: Duration) -> Option<SaId> {
        self.by_age.first().filter(|(since, _)| now.saturating_since(*since) >= life).map(|(_, id)| *id)
    }

    /// Until when at least `enough` are on their way: begun of late, or waiting for us. `None` if there are not so many.
    pub(crate) fn fresh_until(&self, enough: usize) -> Option<Instant> {
        let Some(others) = enough.checked_sub(self.proven.len() + 1) else {
            // Until we have answered.
            return Some(Instant::FAR_FUTURE);
        };
        self.by_age.iter().rev().nth(others).map(|(since, _)| *since + HALF_OPEN_FRESH)
    }

    /// The one that gives way to a newcomer, if one does.
    pub(crate) fn gives_way(&self, now: Instant, to: IpNet, effort: Effort) -> Option<SaId> {
        let count = self.from(to) + 1;
        let may = |weight: usize, &(worked, since, id): &(Effort, Instant, SaId)| {
            let older = now.saturating_since(since) >= HALF_OPEN_LEAST;
            (worked < effort || worked == effort && (weight > count || older)).then_some(id)
        };
        let mut heaviest = self.weights.iter().rev().take(PREFIXES_LOOKED_AT);
        let of_heaviest =
            heaviest.find_map(|(weight, prefix)| may(*weight, self.by_prefix.get(prefix)?.queue.first()?));
        of_heaviest.or_else(|| may(0, self.by_effort.first()?))
    }
}

/// First messages that were refused and are not in the log yet.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    logged: Option<Instant>,
    since: u64,
}

impl Refusals {
    /// One more; the number of those that the log does not have yet, when it is time to say it.
    pub(crate) fn note(&mut self, now: Instant) -> Option<u64> {
        self.since += 1;
        if self.logged.is_some_and(|last| now.saturating_since(last) < REFUSALS_LOGGED_EVERY) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}

/// By how much `number` is above `low`, of the room up to `high`.
pub(crate) fn above(number: usize, low: usize, high: usize) -> (u32, u32) {
    let room = high.saturating_sub(low).max(1);
    let over = number.saturating_sub(low).min(room);
    (u32::try_from(over).unwrap_or(u32::MAX), u32::try_from(room).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn table(per_prefix: usize) -> HalfOpens {
        HalfOpens::new(&HalfOpen { per_prefix, ..HalfOpen::default() })
    }

    const NOW: Instant = Instant::ZERO;

    #[test]
    fn the_oldest_of_the_prefix_with_the_most_gives_way() {
        let mut table = table(2);
        for n in 0..5u16 {
            let address = format!("[2001:db8::{n}]:500");
            table.enter(
                SaId::new(n.into()),
                NOW + Duration::from_millis(n.into()),
                1,
                from(&address),
                Effort::NONE,
            );
        }
        table.enter(SaId::new(7), NOW, 1, from("192.0.2.1:500"), Effort::NONE);
        assert_eq!((table.len(), table.spread()), (6, 3));
        let (flood, other) =
            (prefix_of("2001:db8::ffff".parse().unwrap()), prefix_of("192.0.2.2".parse().unwrap()));
        assert_eq!((table.from(flood), table.from(other)), (5, 0));
        assert_eq!(table.gives_way(NOW, other, Effort::NONE), Some(SaId::new(0)));
        assert_eq!(table.gives_way(NOW, flood, Effort::NONE), None, "it would take from itself");
        assert_eq!(
            table.gives_way(NOW + HALF_OPEN_LEAST, flood, Effort::NONE),
            Some(SaId::new(0)),
            "it had its time"
        );
        assert_eq!(table.gives_way(NOW, flood, Effort::WHOLE), Some(SaId::new(0)), "it has worked");
        table.prove(SaId::new(0));
        assert_eq!(table.gives_way(NOW, other, Effort::NONE), Some(SaId::new(1)));
        table.refuse(SaId::new(0));
        assert_eq!(table.gives_way(NOW, other, Effort::NONE), Some(SaId::new(0)), "the oldest again");
        assert_eq!(table.overdue(NOW + HALF_OPEN_LEAST, HALF_OPEN_LEAST), Some(SaId::new(0)));
        table.prove(SaId::new(0));
        for n in 0..5 {
            table.leave(SaId::new(n));
            table.leave(SaId::new(n));
        }
        assert_eq!((table.len(), table.spread(), table.from(flood)), (1, 1, 0));
        assert_eq!(table.weights.len(), 1);
    }

    #[test]
    fn who_has_worked_gives_way_to_those_alone_who_have_too() {
        let mut table = table(64);
        for n in 0..4u16 {
            table.enter(SaId::new(n.into()), NOW, n.into(), from("192.0.2.1:500"), Effort::WHOLE);
        }
        let other = prefix_of("192.0.2.2".parse().unwrap());
        assert_eq!(table.gives_way(NOW, other, Effort::NONE), None);
        assert_eq!(table.gives_way(NOW, other, Effort::WHOLE), Some(SaId::new(0)));
        table.prove(SaId::new(3));
        table.refuse(SaId::new(3));
        assert_eq!(table.gives_way(NOW, other, Effort::NONE), Some(SaId::new(3)), "and was refused");
        table.leave(SaId::new(3));
        // One that has not is found behind many that have.
        for n in 0..20u8 {
            for port in 1..=2 {
                let address = SocketAddr::from(([198, 51, 100, n], port));
                table.enter(
                    SaId::new(100 + u64::from(2 * n) + u64::from(port)),
                    NOW,
                    1,
                    address,
                    Effort::WHOLE,
                );
            }
        }
        table.enter(SaId::new(99), NOW, 1, from("203.0.113.1:500"), Effort::NONE);
        let crowd = prefix_of("192.0.2.1".parse().unwrap());
        assert_eq!(table.gives_way(NOW, crowd, Effort::WHOLE), Some(SaId::new(99)));
    }

    #[test]
    fn those_are_on_their_way_that_have_begun_of_late_or_wait_for_us() {
        let mut table = table(64);
        let at = |n: u64| NOW + Duration::from_millis(100 * n);
        for n in 0..4 {
            table.enter(SaId::new(n), at(n), n, from("192.0.2.1:500"), Effort::NONE);
        }
        assert_eq!(table.fresh_until(5), None);
        assert_eq!(table.fresh_until(4), Some(at(0) + HALF_OPEN_FRESH), "the fourth newest is the first");
        assert_eq!(table.fresh_until(1), Some(at(3) + HALF_OPEN_FRESH));
        table.prove(SaId::new(0));
        assert_eq!(table.fresh_until(4), Some(at(1) + HALF_OPEN_FRESH), "it waits for us, however long");
        assert!(table.fresh_until(1).is_some_and(|until| until > at(1_000_000)));
        table.leave(SaId::new(0));
        assert_eq!(table.fresh_until(4), None);
    }

    #[test]
    fn their_life_shortens_from_the_threshold_of_cookies_on() {
        let limits = HalfOpen { cookie_threshold: 10, max: 20, ..HalfOpen::default() };
        let mut table = HalfOpens::new(&limits);
        let mut lives = Vec::new();
        for n in 0..20u8 {
            lives.push(table.life(&limits));
            table.enter(SaId::new(n.into()), NOW, n.into(), from("192.0.2.1:500"), Effort::NONE);
        }
        assert!(lives[..=10].iter().all(|life| *life == limits.timeout), "{lives:?}");
        assert!(lives[10..].windows(2).all(|two| two[1] < two[0]), "{lives:?}");
        let life = table.life(&limits);
        assert_eq!(life, HALF_OPEN_LEAST);
        assert_eq!(table.overdue(NOW, life), None);
        assert_eq!(table.overdue(NOW + life, life), Some(SaId::new(0)));
    }
}
