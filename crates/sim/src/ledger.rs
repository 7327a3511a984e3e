//! The books of a crowd: what became of every packet from the server, and of every promise. Owns what was promised: a device whose
//! session is promised to be held must find it, and the gateway sends nothing to a device whose sleep it has acknowledged.

use crate::crowd::{DELAY, listens};
use crate::topology::{MachineId, Topology};
use dormouse_node::ladder::Rung;
use dormouse_node::{Change, SleepVerdict};
use dormouse_sansio::Instant;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// A promise that ends this soon after the wake is not relied upon.
const PROMISE_MARGIN: Duration = Duration::from_secs(10);

/// What became of packets and promises. The sum of all fates of packets from the server is how many were sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Packets that the server sent towards a device with an address.
    pub sent: u64,
    /// Arrived.
    pub arrived: u64,
    /// Sealed for a device whose radio was off without the gateway's knowledge, or that was dead.
    pub deaf: u64,
    /// Stopped by a NAT that had forgotten.
    pub stopped: u64,
    /// Arrived at a device that no longer had the keys.
    pub refused: u64,
    /// The gateway had no way to the device.
    pub nowhere: u64,
    /// Dropped by the stand-in, by its reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Waited at a gateway that was killed.
    pub died: u64,
    /// Wait at the gateway.
    pub waiting: u64,
    /// Wakes that were promised a held session, and found it.
    pub kept_promises: u64,
}

impl Ledger {
    /// The sum of all fates.
    #[must_use]
    pub fn fates(&self) -> u64 {
        self.arrived
            + self.deaf
            + self.stopped
            + self.refused
            + self.nowhere
            + self.dropped.values().sum::<u64>()
            + self.died
            + self.waiting
    }
}

/// What a device was promised.
#[derive(Debug)]
pub struct Member {
    /// The gateway's life with which its session is. A hint that the session is lost is no session yet.
    pub with: u64,
    id: MachineId,
    /// The gateway's life that knows of the sleep that it is in, or going into.
    told: Option<u64>,
    /// It woke under the promise of this life of the gateway that its session is held.
    promised: Option<u64>,
    listened: bool,
    /// Changes that were looked at.
    pub(crate) seen: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Books {
    /// Datagrams that the gateway sent to a device whose radio was off.
    pub disturbed: u64,
    /// Those among them that were sent although it had told the device that it knows of its sleep.
    pub broken_peace: u64,
    /// How often the gateway was started again.
    pub life: u64,
    /// The devices.
    pub members: Vec<Member>,
    pub(crate) ledger: Ledger,
    pub(crate) seed: u64,
    gateway: MachineId,
    /// When the gateway was started.
    born: Instant,
    /// There is room for the sessions of all devices: no promise may be broken for another one.
    strict: bool,
    /// Devices by their machines and by where the gateway finds them.
    by_machine: BTreeMap<MachineId, usize>,
    by_address: BTreeMap<IpAddr, usize>,
}

impl Books {
    pub(crate) fn new(seed: u64, gateway: MachineId, strict: bool) -> Self {
        Self {
            disturbed: 0,
            broken_peace: 0,
            life: 0,
            members: Vec::new(),
            ledger: Ledger::default(),
            seed,
            gateway,
            born: Instant::ZERO,
            strict,
            by_machine: BTreeMap::new(),
            by_address: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, id: MachineId, address: IpAddr) {
        self.by_machine.insert(id, self.members.len());
        self.by_address.insert(address, self.members.len());
        self.members.push(Member { with: 0, id, told: None, promised: None, listened: true, seen: 0 });
    }

    /// The gateway is started again.
    pub(crate) fn begin_life(&mut self, now: Instant) {
        self.life += 1;
        self.born = now;
    }

    /// A device has died, and with it what it knew.
    pub(crate) fn forget(&mut self, n: usize) {
        (self.members[n].told, self.members[n].promised) = (None, None);
    }

    /// Looks at the machines to which something has happened, before they send.
    pub(crate) fn look(&mut self, net: &mut Topology) {
        for id in net.touched().collect::<Vec<_>>() {
            match self.by_machine.get(&id) {
                Some(n) => self.look_at(net, *n),
                None if id == self.gateway => self.look_at_gateway(net),
                None => {}
            }
        }
    }

    fn look_at_gateway(&mut self, net: &Topology) {
        for (path, _) in &net.machine(self.gateway).outbox {
            let device = self.by_address.get(&path.remote.ip()).map(|n| &self.members[*n]);
            let Some(device) = device.filter(|d| !listens(net, d.id)) else { continue };
            let machine = net.machine(device.id);
            self.disturbed += 1;
            let knows = device.told == Some(self.life)
                && matches!(machine.sleep, Some(SleepVerdict::Held { .. } | SleepVerdict::Released));
            self.broken_peace += u64::from(knows && machine.node().is_some());
        }
    }

    /// Notes the gateway's answer to the announcement of a sleep, and holds the gateway to it when the device is back.
    fn look_at(&mut self, net: &mut Topology, n: usize) {
        let (now, seed, life, member) = (net.now, self.seed, self.life, &mut self.members[n]);
        let awake = listens(net, member.id);
        let machine = net.machine_mut(member.id);
        if awake && !member.listened {
            let until = match machine.sleep.take() {
                Some(SleepVerdict::Held { until, .. }) => Some(until),
                _ => None,
            };
            // What ends while the device is coming back counts as no broken promise.
            let held = until.is_some_and(|until| now + PROMISE_MARGIN < until);
            member.promised = member.told.take().filter(|told| *told == life && held);
        }
        member.listened = awake;
        if machine.sleep.is_some() && member.told.is_none() {
            // What was on the wire when the gateway died is a promise of the life before.
            let on_the_wire = life > 0 && now < self.born + DELAY;
            member.told = Some(if on_the_wire { life - 1 } else { life });
        }
        for change in machine.changes.iter().skip(member.seen) {
            let Change::Up { rung, .. } = change else { continue };
            if *rung > Rung::Move {
                member.with = life;
            }
            if member.promised.take() == Some(life) && self.strict {
                assert!(
                    *rung <= Rung::Move,
                    "seed {seed}: device {n} was promised its session and came back by {rung:?}"
                );
                self.ledger.kept_promises += 1;
            }
        }
        member.seen = machine.changes.len();
    }
}
