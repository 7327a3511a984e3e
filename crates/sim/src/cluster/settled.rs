//! What must be true once the faults of a story of several gateways have stopped, and what the books say then. Owns how long that may take.
//!
//! Within four minutes each device that is not refused has traffic both ways, by one gateway alone, with an address that the store does not
//! say is another's; who is refused has nothing. Where sessions are limited, a thief who can log in as a device may be served in its place; then
//! it stays so. Five minutes later no gateway has anything left of a session that another one has.

use super::ends::identity;
use super::laws::holder;
use super::world::World;
use crate::machine::Machine;
use crate::settings::LIVENESS;
use dormouse_node::ladder::State;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// How often a rekeying may be under way.
const RETRIES: usize = 5;

impl World {
    /// See the module's documentation.
    ///
    /// # Panics
    /// With the seed, if something of this is not true.
    pub fn settle_and_check(&mut self) {
        self.calm();
        self.run(Duration::from_secs(150));
        let served = self.served();
        for n in &served {
            self.send_up(*n);
        }
        self.run(Duration::from_secs(90));
        for n in &served {
            self.send_up(*n);
        }
        self.run(Duration::from_secs(15));
        self.check_traffic(&served);
        self.check_kept();
        let rivals = self.rivals_up();
        self.run(Duration::from_secs(2 * u64::from(LIVENESS.0 + LIVENESS.1) + 60));
        for _ in 0..RETRIES {
            if self.disagreement(&served).is_none() {
                break;
            }
            self.run(Duration::from_millis(2_300));
        }
        self.check_rivals(rivals);
        let (seed, why) = (self.seed, self.disagreement(&served));
        assert!(why.is_none(), "{}; seed {seed}", why.unwrap_or_default());
    }

    /// The devices that are not refused, nor have to share with a thief who is there.
    fn served(&self) -> Vec<usize> {
        (0..self.devices.len()).filter(|n| !self.is_refused(*n) && self.rival() != Some(*n)).collect()
    }

    fn is_refused(&self, n: usize) -> bool {
        self.database.borrow().tables.denials.iter().any(|denied| denied.whom == identity(n))
    }

    /// The device whose thief is there, where sessions are limited.
    fn rival(&self) -> Option<usize> {
        let thief = self.thief.as_ref().filter(|_| self.settings.limit > 0)?;
        self.net.machine(thief.id).host().is_some().then_some(thief.of)
    }

    /// Which of the thief and its victim are served.
    fn rivals_up(&self) -> Option<[bool; 2]> {
        let (of, thief) = (self.rival()?, self.thief.as_ref()?.id);
        let theirs = self.at_gateways(of);
        let up = |machine: &Machine| {
            let ours = self.children(machine);
            !ours.is_empty() && theirs.iter().any(|(_, children)| *children == ours)
        };
        Some([up(self.device(of)), up(self.net.machine(thief))])
    }

    /// Who was there first stays there, and no other comes in beside.
    fn check_rivals(&self, before: Option<[bool; 2]>) {
        let (seed, now) = (self.seed, self.rivals_up());
        let (Some(of), Some(before), Some(now)) = (self.rival(), before, now) else { return };
        if self.is_refused(of) {
            return;
        }
        let count = |up: [bool; 2]| up.iter().filter(|up| **up).count();
        let most = usize::from(self.settings.limit).min(2);
        assert!(
            count(now) == most,
            "not as many sessions of an identity as it may have; seed {seed}: {now:?} of {of} and its thief; {:?}, {:?}",
            self.at_gateways(of),
            self.database.borrow().tables.sessions
        );
        if count(before) == most {
            assert!(before == now, "who was there first did not stay; seed {seed}: {before:?}, {now:?}");
        }
    }

    fn check_traffic(&mut self, served: &[usize]) {
        let seed = self.seed;
        for n in served {
            let changes = &self.device(*n).changes;
            let tail = changes.get(changes.len().saturating_sub(8)..).unwrap_or(changes).to_vec();
            let infos = self.device(*n).node().map(|node| node.client_infos(self.now())).unwrap_or_default();
            let state = infos.first().map(|info| info.state);
            assert!(state == Some(State::Up), "a device is not up; seed {seed}: {n} is {state:?}; {tail:#?}");
        }
        let up: Vec<u64> = served.iter().flat_map(|n| [*n, *n]).map(|n| self.send_up(n)).collect();
        self.run(Duration::from_secs(2));
        for n in served {
            let inner: Vec<IpAddr> = self.device(*n).inner.clone();
            let ways: BTreeSet<usize> = inner.iter().flat_map(|address| self.ways(*address)).collect();
            assert!(
                ways.len() == 1,
                "not one gateway has the route to a device; seed {seed}: {n}, {inner:?} at {ways:?}"
            );
        }
        let down: Vec<u64> = served.iter().flat_map(|n| [*n, *n]).map(|n| self.send_down(n)).collect();
        self.run(Duration::from_secs(2));
        for (numbers, way) in [(up, "from"), (down, "to")] {
            for number in numbers {
                assert!(
                    self.laws.arrived.contains(&number),
                    "a packet {way} a device did not arrive; seed {seed}: {number}"
                );
            }
        }
    }

    fn disagreement(&self, served: &[usize]) -> Option<String> {
        for n in 0..self.devices.len() {
            let theirs = self.at_gateways(n);
            if self.rival() == Some(n) {
                continue;
            }
            if !served.contains(&n) {
                if !theirs.is_empty() {
                    return Some(format!("who is refused is served; {n} at {theirs:?}"));
                }
                continue;
            }
            if theirs.len() != 1 {
                return Some(format!("not one session of a device; {n}: {theirs:?}"));
            }
            let ours = self.children(self.device(n));
            if theirs.first().map(|(_, children)| children) != Some(&ours) {
                return Some(format!("the two ends hold different CHILD SAs; {n}: {ours:x?} {theirs:x?}"));
            }
            if let Some(why) = self.lease_of(n) {
                return Some(why);
            }
        }
        None
    }

    /// A device's CHILD SAs, as its gateway names them.
    fn children(&self, machine: &Machine) -> BTreeSet<(u32, u32)> {
        let infos = machine.node().map(|node| node.client_infos(self.now())).unwrap_or_default();
        let children = infos.iter().filter_map(|info| info.session.as_ref()).flat_map(|s| &s.children);
        children.map(|c| (c.spi_out, c.id.spi())).collect()
    }

    /// Sessions of a device, and devices that sleep without one, at all gateways.
    fn at_gateways(&self, n: usize) -> Vec<(usize, BTreeSet<(u32, u32)>)> {
        let (now, who) = (self.now(), identity(n));
        let mut found = Vec::new();
        for at in 0..self.gateways.len() {
            let Some(node) = self.gateway(at).node() else { continue };
            for session in node.gateway_sessions(now).iter().filter(|session| session.peer == who) {
                found.push((at, session.children.iter().map(|c| (c.id.spi(), c.spi_out)).collect()));
            }
            let absent = node.absent_devices();
            found.extend(absent.iter().filter(|device| device.peer == who).map(|_| (at, BTreeSet::new())));
        }
        found
    }

    /// What is wrong with a device's lease: it has one, and no address of another's. Which of two addresses is its lease, where two gateways
    /// that could not ask the store gave it one each, is the store's to say.
    fn lease_of(&self, n: usize) -> Option<String> {
        let (database, has) = (self.database.borrow(), &self.device(n).inner);
        let leases = database.tables.leases.iter();
        let own = leases.filter(|(lessee, _)| lessee.identity.1 == identity(n).as_bytes()).count();
        let theirs =
            has.iter().filter_map(|address| holder(&database, *address)).find(|whose| *whose != identity(n));
        // Each login of one of several devices may be another device's.
        let right = if self.settings.limit > 0 && !self.settings.keep { own > 0 } else { own == 1 };
        (!right || theirs.is_some() || has.is_empty())
            .then(|| format!("not the lease of a device; {n}: {has:?}, {own} of its own, of {theirs:?}"))
    }
}
