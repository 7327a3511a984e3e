//! The way between a fixed host and a device over a radio, in virtual time:
//!
//! ```text
//!   fixed host ──► wire ──► router's queue ──► repair ──► radio ──► device
//!              ◄── wire ◄───────────────────── repair ◄── radio ◄──
//! ```
//!
//! Owns every packet between the two; must never read a clock.

use std::collections::VecDeque;
use std::time::Duration;

use dormouse_netem::{Link, LinkConfig, LinkStats};
use dormouse_sansio::{Deadline, Entropy as _, Instant, Seeded};
use dormouse_snoop::{Repair, Verdict, arq};

/// What lies between the two.
#[derive(Debug, Default)]
pub struct Settings {
    /// From the fixed host to the router and back, each way. The wire has any rate and loses nothing.
    pub wire_delay: Duration,
    /// The radio, the same each way. Its queue towards the device is the router's.
    pub radio: LinkConfig,
    /// Of all that the radio draws. Each direction has its own draws.
    pub seed: u64,
    /// What the router does against the radio's losses.
    pub repair: Repair,
    /// What the device does about them, where the repair needs that.
    pub restore: Option<Box<arq::Device>>,
}

/// An end of the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The fixed host.
    Fixed,
    /// The device.
    Device,
}

/// See the module.
#[derive(Debug)]
pub struct Hop {
    wire: [Link<()>; 2],
    /// Towards the device, and back.
    radio: [Link<()>; 2],
    queue: VecDeque<Vec<u8>>,
    queued: usize,
    /// What the queue holds at most, in bytes.
    bound: usize,
    /// Packets that did not fit the queue.
    refused: u64,
    /// What could not be taken at either end, towards the device and back.
    lost: [u64; 2],
    /// Until when all has happened.
    stepped: Instant,
    repair: Repair,
    restore: Option<Box<arq::Device>>,
}

impl Hop {
    /// A way on which nothing is.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let wire = LinkConfig { delay: settings.wire_delay, ..LinkConfig::default() };
        let mut seeds = Seeded::new(settings.seed);
        let mut radio = |queue| Link::new(LinkConfig { queue, ..settings.radio }, seeds.next_u64());
        Self {
            wire: [Link::new(wire, 0), Link::new(wire, 0)],
            // Towards the device the queue is before the repair: nothing waits behind it.
            radio: [radio(usize::MAX), radio(settings.radio.queue)],
            queue: VecDeque::new(),
            queued: 0,
            bound: settings.radio.queue,
            refused: 0,
            lost: [0; 2],
            stepped: Instant::ZERO,
            repair: settings.repair,
            restore: settings.restore,
        }
    }

    /// An end sends a packet.
    pub fn send(&mut self, now: Instant, from: End, packet: Vec<u8>) {
        // What does not fit is counted by the link.
        let _ = match from {
            End::Fixed => self.wire[0].enqueue(now, (), packet),
            End::Device => self.radio[1].enqueue(now, (), packet),
        };
    }

    /// An end has sent something that could not be taken: it counts as lost.
    pub const fn lose(&mut self, from: End) {
        self.lost[if matches!(from, End::Fixed) { 0 } else { 1 }] += 1;
    }

    /// When [`Self::advance`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let links = self.wire.iter().chain(&self.radio).filter_map(Link::poll_timeout);
        let idle = self.radio[0].idle_at();
        let turn = (idle > self.stepped).then_some(idle);
        let turn = turn.map(|at| Deadline::strict(at, "the radio is free for the next packet"));
        let restore = self.restore.as_ref().and_then(|device| device.poll_timeout());
        links.chain(turn).chain(self.repair.poll_timeout()).chain(restore).min_by_key(|deadline| deadline.at)
    }

    /// Lets time pass until `now`, and hands out what arrives. However late this is called, everything happens at its own time.
    pub fn advance(&mut self, now: Instant, arrive: &mut impl FnMut(End, &[u8])) {
        while let Some(deadline) = self.poll_timeout().filter(|deadline| deadline.at <= now) {
            self.step(deadline.at, arrive);
        }
    }

    fn step(&mut self, now: Instant, arrive: &mut impl FnMut(End, &[u8])) {
        self.stepped = now;
        while let Some(((), packet)) = self.wire[0].poll_deliver(now) {
            if packet.len() > self.bound.saturating_sub(self.queued) {
                self.refused += 1;
                continue;
            }
            self.queued += packet.len();
            self.queue.push_back(packet);
        }
        while let Some(((), packet)) = self.radio[1].poll_deliver(now) {
            if self.repair.from_device(now, &packet) == Verdict::Forward {
                let _ = self.wire[1].enqueue(now, (), packet);
            }
        }
        self.repair.handle_timeout(now);
        while self.radio[0].idle_at() <= now {
            let mut packet = Vec::new();
            if !self.repair.poll_transmit(now, &mut packet) {
                let Some(next) = self.queue.pop_front() else { break };
                self.queued -= next.len();
                self.repair.to_device(now, &next);
                packet = next;
            }
            let _ = self.radio[0].enqueue(now, (), packet);
        }
        while let Some(((), packet)) = self.radio[0].poll_deliver(now) {
            match &mut self.restore {
                None => arrive(End::Device, &packet),
                Some(device) => device.arrive(now, packet),
            }
        }
        if let Some(device) = &mut self.restore {
            device.handle_timeout(now);
            while let Some(packet) = device.poll_deliver() {
                arrive(End::Device, &packet);
            }
            let mut report = Vec::new();
            while device.poll_report(now, &mut report) {
                let _ = self.radio[1].enqueue(now, (), std::mem::take(&mut report));
            }
        }
        while let Some(((), packet)) = self.wire[1].poll_deliver(now) {
            arrive(End::Fixed, &packet);
        }
    }

    /// What the radio did towards the device, with what did not fit the queue, and back; with what was lost before it.
    #[must_use]
    pub fn stats(&self) -> [LinkStats; 2] {
        let mut both = [*self.radio[0].stats(), *self.radio[1].stats()];
        for (stats, lost) in both.iter_mut().zip(self.lost) {
            (stats.offered, stats.lost) = (stats.offered + lost, stats.lost + lost);
        }
        let [down, _] = &mut both;
        (down.offered, down.refused_full) = (down.offered + self.refused, down.refused_full + self.refused);
        both
    }

    /// The repair, and what it did.
    #[must_use]
    pub const fn repair(&self) -> &Repair {
        &self.repair
    }
}
