//! Gateways that are drained in a world of several. Owns when one is stopped that has given its devices away; how it does that is what ships
//! ([`dormouse_node::shared::Drain`]).
//!
//! Of a story in which nothing goes wrong besides: what a gateway keeps for a device that sleeps comes to the device, wherever that wakes.

use super::ends::identity;
use super::script::Step;
use super::world::World;
use crate::machine::Machine;
use dormouse_keying::SleepVerdict;
use dormouse_node::StandInInfo;
use dormouse_node::shared::DrainEnd;
use dormouse_sansio::Instant;
use dormouse_standin::Class;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What reaches a gateway so shortly before its device wakes may be on its way to where the device was.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// A packet that a gateway keeps.
#[derive(Clone, Copy, Debug)]
struct KeptPacket {
    of: usize,
    since: Instant,
    /// The sleep is given up then, or the packet is too old.
    until: Instant,
}

/// Packets that are kept for devices that sleep.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Nothing goes wrong in this story.
    calm: bool,
    packets: BTreeMap<u64, KeptPacket>,
    /// Devices that have announced a sleep, are not awake again, and have sent nothing since.
    announced: BTreeSet<usize>,
    /// So often a gateway had given its devices away.
    drained: usize,
}

/// The gateway has given its devices away.
pub(crate) fn is_drained(machine: &Machine) -> bool {
    let end = machine.shared.as_ref().and_then(|member| member.drained);
    matches!(end, Some(DrainEnd::Drained { .. }))
}

impl World {
    /// What happens in this story.
    pub(crate) fn note_story(&mut self, steps: &[Step]) {
        self.kept.calm = steps.iter().all(Step::is_calm);
    }

    pub(crate) fn drain(&mut self, n: usize, within: Duration, away: Duration) {
        let now = self.net.now;
        self.gateways[n].away = away;
        self.net.machine_mut(self.gateways[n].id).drain(now, within);
    }

    /// Gateways that have been drained stop, and are back later. False if there was none.
    pub(crate) fn stop_drained(&mut self) -> bool {
        let drained: Vec<usize> = (0..self.gateways.len()).filter(|n| is_drained(self.gateway(*n))).collect();
        self.kept.drained += drained.len();
        for n in &drained {
            let end = self.gateway(*n).shared.as_ref().and_then(|member| member.drained);
            if let (true, Some(DrainEnd::Drained { kept, .. })) = (self.kept.calm, end) {
                assert!(
                    kept == 0,
                    "a device that sleeps was not handed over; seed {}: {end:?} of {n}",
                    self.seed
                );
            }
            self.kill_gateway(*n, self.gateways[*n].away, true);
        }
        !drained.is_empty()
    }

    /// So often a gateway has given its devices away and ended.
    #[must_use]
    pub fn drained(&self) -> usize {
        self.kept.drained
    }

    /// Packets that were kept for devices that sleep, and those of them that have not come to their devices.
    #[must_use]
    pub fn kept(&self) -> [usize; 2] {
        let missing = self.kept.packets.keys().filter(|number| !self.laws.arrived.contains(number));
        [self.kept.packets.len(), missing.count()]
    }

    /// A packet for a device is handed to a gateway, which keeps it if the device sleeps there. Not counted if the device is off without the
    /// gateway's consent: what it has sent before may still arrive, and its gateway takes it for awake and sends.
    pub(crate) fn note_packet(&mut self, number: u64, of: usize, gateway: usize) {
        if !self.devices[of].asleep || !self.agreed(of) {
            return;
        }
        if let Some(until) = self.sleep_at(of, gateway) {
            let since = self.now();
            let until = until.min(since + Class::Datagram.max_age());
            self.kept.packets.insert(number, KeptPacket { of, since, until });
        }
    }

    /// Until when a device sleeps that this gateway stands in for.
    fn sleep_at(&self, n: usize, gateway: usize) -> Option<Instant> {
        let (node, who) = (self.gateway(gateway).node()?, identity(n));
        let sessions = node.gateway_sessions(self.now());
        let held = sessions.into_iter().filter(|session| session.peer == who).filter_map(|s| s.stand_in);
        let absent = node.absent_devices().into_iter().filter(|device| device.peer == who);
        let mut infos = held.chain(absent.map(|device| device.stand_in));
        infos.find_map(|info: StandInInfo| info.asleep).map(|sleep| sleep.until)
    }

    /// A device is about to announce a sleep, or to end one. What was agreed before is over.
    pub(crate) fn note_announcement(&mut self, n: usize, sleeps: bool) {
        self.net.machine_mut(self.devices[n].id).sleep = None;
        self.kept.announced.remove(&n);
        self.kept.announced.extend(sleeps.then_some(n));
    }

    /// A device goes to sleep. If its gateway has not agreed, it takes the device for awake and sends what it has kept.
    pub(crate) fn note_sleep(&mut self, n: usize) {
        if !self.agreed(n) {
            self.stays_awake(n);
        }
    }

    /// Its gateway has agreed to the device's sleep, and has heard nothing since.
    fn agreed(&self, n: usize) -> bool {
        self.kept.announced.contains(&n)
            && matches!(self.device(n).sleep, Some(SleepVerdict::Held { .. } | SleepVerdict::Released))
    }

    /// A device is about to send. If it has announced a sleep and is not off yet, its gateway takes it for awake, whenever it answers.
    pub(crate) fn note_traffic(&mut self, n: usize) {
        if !self.devices[n].asleep && self.kept.announced.remove(&n) {
            self.stays_awake(n);
        }
    }

    /// What its gateway keeps for a device that takes itself for awake may be sent while it is off, or wait until it is heard.
    pub(crate) fn stays_awake(&mut self, n: usize) {
        self.kept.packets.retain(|_, kept| kept.of != n);
    }

    /// A device is about to wake up.
    pub(crate) fn note_wake(&mut self, n: usize) {
        let now = self.now();
        let counts = |kept: &KeptPacket| kept.of != n || kept.until > now && kept.since + ON_ITS_WAY <= now;
        self.kept.packets.retain(|_, kept| counts(kept));
    }

    pub(crate) fn check_kept(&self) {
        let lost = |(number, _): &(&u64, &KeptPacket)| !self.laws.arrived.contains(number);
        let Some((number, kept)) = self.kept.packets.iter().find(lost).filter(|_| self.kept.calm) else {
            return;
        };
        let books =
            |n: usize| self.gateway(n).node().and_then(|node| node.stand_in_totals()).map(|(books, _)| books);
        let books: Vec<_> = (0..self.gateways.len()).map(books).collect();
        panic!(
            "a packet that was kept for a device that sleeps did not come to it; seed {}: {number} {kept:?}; {:#?} {books:?}",
            self.seed,
            self.device(kept.of).changes
        );
    }
}
