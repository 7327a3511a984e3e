//! One direction of a link. Owns datagrams between `enqueue` and `poll_deliver`; must never look inside them.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use dormouse_sansio::{Deadline, Entropy, Instant, Seeded};

use crate::{BitErrors, Bursts, GilbertElliott};

/// What the link does to a datagram in which a bit has flipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Corruption {
    /// Drops it, as a link layer with a frame check sequence does.
    #[default]
    Drop,
    /// Delivers it with the bits flipped, unless one of the overhead's bits is: then the headers are broken and it is dropped.
    Deliver,
}

/// The properties of a link. The default is perfect: any rate, no delay, nothing lost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkConfig {
    /// Bits per second; `None` for no limit. 0 means that nothing ever gets through: use [`Link::set_up`] instead.
    pub rate: Option<u64>,
    /// Time from the last bit sent to the last bit received.
    pub delay: Duration,
    /// Additional delay, uniform from 0 to this for each datagram. Alone it never lets one datagram overtake another.
    pub jitter: Duration,
    /// Most bytes, overhead included, that wait for the line or are being sent. A datagram that does not fit is dropped.
    /// Without a rate nothing waits, and only a datagram larger than the whole queue is dropped.
    pub queue: usize,
    /// Bytes that the layers below add to each datagram: they take time on the line and their bits can flip.
    pub overhead: usize,
    /// Probability that a datagram is lost after it was sent.
    pub loss: f64,
    /// Losses that come in bursts, besides; of a copy and its original together.
    pub bursts: Option<GilbertElliott>,
    /// Probability that a datagram arrives twice. The copy takes no time on the line; it has its own jitter and errors.
    pub duplication: f64,
    /// Probability that a datagram is held back by up to `reordering_delay`, so that later ones overtake it.
    pub reordering: f64,
    /// Longest time that a reordered datagram is held back; uniform from 0.
    pub reordering_delay: Duration,
    /// Probability that a bit flips, independently for each bit.
    pub bit_error_rate: f64,
    /// What happens to datagrams with flipped bits.
    pub corruption: Corruption,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            queue: usize::MAX,
            overhead: 0,
            loss: 0.0,
            bursts: None,
            duplication: 0.0,
            reordering: 0.0,
            reordering_delay: Duration::from_millis(10),
            bit_error_rate: 0.0,
            corruption: Corruption::Drop,
        }
    }
}

/// Why a datagram was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// The queue is full.
    QueueFull {
        /// Bytes waiting or being sent.
        queued: usize,
        /// Bytes that the datagram needs, overhead included.
        needed: usize,
    },
    /// The link is down.
    Down,
}

/// What a link has done so far, in datagrams unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// Handed in.
    pub offered: u64,
    /// Not taken because the link was down.
    pub refused_down: u64,
    /// Not taken because the queue was full.
    pub refused_full: u64,
    /// Bytes put on the line, overhead included.
    pub sent_bytes: u64,
    /// Lost at random, or under way when the link went down.
    pub lost: u64,
    /// Dropped because of bit errors.
    pub corrupted: u64,
    /// Bits flipped in datagrams that were delivered.
    pub flipped_bits: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
    /// Handed out, copies included.
    pub delivered: u64,
}

/// One direction of a link, carrying datagrams with a tag `T` of the caller (a path, a destination).
///
/// # Driving it
/// Call [`Self::enqueue`] for each datagram sent. Call [`Self::poll_deliver`] until it returns `None` whenever the time of
/// [`Self::poll_timeout`] is reached. Times handed in must not go back.
///
/// The fate of a datagram is drawn when it is handed in, with the same number of draws in every configuration, so that
/// runs with one seed and different settings see the same luck wherever the settings do not differ.
#[derive(Clone, Debug)]
pub struct Link<T> {
    config: LinkConfig,
    entropy: Seeded,
    errors: BitErrors,
    bursts: Bursts,
    up: bool,
    /// When the line is free again.
    free_at: Instant,
    /// End of transmission and size of what waits or is being sent.
    sending: VecDeque<(Instant, usize)>,
    queued: usize,
    /// By time of arrival, then by order of sending.
    under_way: BTreeMap<(Instant, u64), (T, Vec<u8>)>,
    serial: u64,
    /// Arrival of the latest datagram that was not held back: none may arrive before it.
    latest_arrival: Instant,
    stats: LinkStats,
}

/// What was drawn for one datagram.
struct Fate {
    lost: bool,
    duplicated: bool,
    held_back: Option<Duration>,
    jitter: [Duration; 2],
}

impl<T: Clone> Link<T> {
    /// A link that is up and empty.
    #[must_use]
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let mut entropy = Seeded::new(seed);
        let errors = BitErrors::new(config.bit_error_rate, entropy.fork());
        Self {
            config,
            entropy,
            errors,
            bursts: Bursts::new(seed),
            up: true,
            free_at: Instant::ZERO,
            sending: VecDeque::new(),
            queued: 0,
            under_way: BTreeMap::new(),
            serial: 0,
            latest_arrival: Instant::ZERO,
            stats: LinkStats::default(),
        }
    }

    /// The properties in force.
    #[must_use]
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Changes the properties for the datagrams to come; those already handed in keep their fate.
    pub fn set_config(&mut self, config: LinkConfig) {
        self.errors.set_rate(config.bit_error_rate);
        self.config = config;
    }

    /// Takes the link down or up. What is under way when it goes down is lost.
    pub fn set_up(&mut self, up: bool) {
        if self.up && !up {
            self.stats.lost += self.under_way.len() as u64;
            self.under_way.clear();
            self.sending.clear();
            self.queued = 0;
            self.free_at = Instant::ZERO;
            self.latest_arrival = Instant::ZERO;
        }
        self.up = up;
    }

    /// What the link has done so far.
    #[must_use]
    pub const fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// Bytes that wait for the line or are being sent, overhead included.
    pub fn queued(&mut self, now: Instant) -> usize {
        while let Some((_, size)) = self.sending.front().filter(|(end, _)| *end <= now) {
            self.queued -= size;
            self.sending.pop_front();
        }
        self.queued
    }

    /// When the line has sent all that was handed in: a queue of the caller's own hands in the next datagram then.
    #[must_use]
    pub const fn idle_at(&self) -> Instant {
        self.free_at
    }

    /// Sends a datagram. One that is taken may still be lost on the way, which its sender cannot see.
    ///
    /// # Errors
    /// [`Dropped`] if the link is down or the queue is full: what a sender can see, as a full socket buffer.
    pub fn enqueue(&mut self, now: Instant, tag: T, datagram: Vec<u8>) -> Result<(), Dropped> {
        self.stats.offered += 1;
        let fate = self.draw();
        if !self.up {
            self.stats.refused_down += 1;
            return Err(Dropped::Down);
        }
        let needed = datagram.len().saturating_add(self.config.overhead);
        let queued = self.queued(now);
        if needed > self.config.queue.saturating_sub(queued) {
            self.stats.refused_full += 1;
            return Err(Dropped::QueueFull { queued, needed });
        }
        let sent = self.transmit(now, needed);
        if self.config.bursts.is_some_and(|chain| self.bursts.next_is_lost(&chain)) {
            self.stats.lost += 1;
            return Ok(());
        }
        let copy = fate.duplicated.then(|| (tag.clone(), datagram.clone()));
        if fate.lost {
            self.stats.lost += 1;
        } else {
            self.arrive(sent, &fate, 0, tag, datagram);
        }
        if let Some((tag, datagram)) = copy {
            self.stats.duplicated += 1;
            self.arrive(sent, &fate, 1, tag, datagram);
        }
        Ok(())
    }

    /// The next datagram that has arrived by `now`.
    pub fn poll_deliver(&mut self, now: Instant) -> Option<(T, Vec<u8>)> {
        let first = self.under_way.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        self.stats.delivered += 1;
        Some(first.remove())
    }

    /// When the next datagram arrives.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let (at, _) = self.under_way.first_key_value()?.0;
        Some(Deadline::strict(*at, "a datagram arrives over the link"))
    }

    /// Puts `size` bytes on the line behind all others, and returns when the last bit is sent.
    fn transmit(&mut self, now: Instant, size: usize) -> Instant {
        self.stats.sent_bytes += size as u64;
        let end = self.free_at.max(now) + self.time_on_line(size);
        if end > now {
            self.sending.push_back((end, size));
            self.queued += size;
        }
        self.free_at = end;
        end
    }

    /// Rounded up to a nanosecond, so that the rate is never exceeded.
    fn time_on_line(&self, size: usize) -> Duration {
        let Some(rate) = self.config.rate else { return Duration::ZERO };
        let bits = size as u128 * 8 * 1_000_000_000;
        match bits.checked_div(rate.into()) {
            Some(floor) => {
                let nanos = floor + u128::from(floor * u128::from(rate) != bits);
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
            None => Duration::MAX,
        }
    }

    /// Lets one copy cross the link.
    fn arrive(&mut self, sent: Instant, fate: &Fate, copy: usize, tag: T, mut datagram: Vec<u8>) {
        if !self.survives_bit_errors(&mut datagram) {
            self.stats.corrupted += 1;
            return;
        }
        let jitter = fate.jitter.get(copy).copied().unwrap_or_default();
        let mut at = (sent + self.config.delay + jitter).max(self.latest_arrival);
        match fate.held_back {
            Some(extra) => {
                self.stats.reordered += 1;
                at += extra;
            }
            None => self.latest_arrival = at,
        }
        self.serial += 1;
        self.under_way.insert((at, self.serial), (tag, datagram));
    }

    fn survives_bit_errors(&mut self, datagram: &mut [u8]) -> bool {
        let overhead = self.config.overhead as u64 * 8;
        let deliver = self.config.corruption == Corruption::Deliver;
        let (mut survives, mut flipped) = (true, 0);
        self.errors.pass(overhead + datagram.len() as u64 * 8, |bit| {
            let byte = bit.checked_sub(overhead).and_then(|bit| usize::try_from(bit / 8).ok());
            match byte.and_then(|at| datagram.get_mut(at)) {
                Some(byte) if deliver => {
                    *byte ^= 0x80 >> (bit % 8);
                    flipped += 1;
                }
                _ => survives = false,
            }
        });
        self.stats.flipped_bits += if survives { flipped } else { 0 };
        survives
    }

    /// Draws all that may be needed, in an order that does not depend on the configuration.
    fn draw(&mut self) -> Fate {
        let c = self.config;
        let lost = self.chance(c.loss);
        let duplicated = self.chance(c.duplication);
        let reordered = self.chance(c.reordering);
        let held_back = self.uniform(c.reordering_delay);
        let jitter = [self.uniform(c.jitter), self.uniform(c.jitter)];
        Fate { lost, duplicated, held_back: reordered.then_some(held_back), jitter }
    }

    fn chance(&mut self, probability: f64) -> bool {
        let uniform = (self.entropy.next_u64() >> 11) as f64 * (-53_f64).exp2();
        uniform < probability
    }

    fn uniform(&mut self, longest: Duration) -> Duration {
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.entropy.below(nanos.saturating_add(1)))
    }
}
