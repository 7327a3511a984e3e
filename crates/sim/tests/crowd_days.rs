//! Days of many devices at one gateway: each with a radio that its own sleeper switches, traffic of its own and whims of its own;
//! some behind NATs. Every packet towards them and every promise to them is accounted for, without faults and with all of them
//! at once: the gateway killed and restarted, devices killed in their sleep, clocks set, NATs that forget, a sleeper flooded, the
//! stand-in's room overrun.
//!
//! `DORMOUSE_CROWD=N` lets N devices live (thousands before a release), `DORMOUSE_CROWD_DAYS=D` for D days, `DORMOUSE_SEED=S`
//! by seed S.

mod common;

use common::{number, whims};
use dormouse_ike::config::HoldPolicy;
use dormouse_node::sleeper::clock::PolicyTime;
use dormouse_node::sleeper::{Cause, Event, Mode, Report};
use dormouse_node::{Limits, SleepFlags};
use dormouse_sansio::{Entropy, Instant, Seeded};
use dormouse_sim::{Crowd, Ledger, Machine, Radio, Setting, day};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const BOTH: SleepFlags = SleepFlags { stand_in: true, buffering: true };
/// After a fault it takes at most so long until nothing is its fault any more: the ladder's whole patience.
const AFTERMATH: Duration = Duration::from_secs(60);

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fault {
    /// The gateway's process dies and is back at once.
    Restart,
    /// A device that sleeps loses its battery, and gets another one after so many minutes.
    Kill(u64),
    /// All clocks are set by so many hours.
    Clocks(i64),
    /// All NATs forget, also those before sleeping devices.
    NatsForget,
    /// A correspondent sends three thousand packets to one device that sleeps.
    Flood,
    /// Everybody who sleeps is sent more than there is room for, all at once.
    Overrun,
}

/// The faults of one day.
fn faults(rng: &mut Seeded, begin: Instant, devices: usize) -> Vec<(Instant, Fault)> {
    let mut list: Vec<Fault> = vec![Fault::Restart, Fault::Restart, Fault::Overrun, Fault::Overrun];
    list.extend([1, -1, 30 * 24, -30 * 24].map(Fault::Clocks));
    list.extend([Fault::NatsForget; 4]);
    list.extend([Fault::Flood; 4]);
    list.extend((0..devices.div_ceil(4)).map(|_| Fault::Kill(1 + rng.below(600))));
    let mut timed: Vec<(Instant, Fault)> =
        list.into_iter().map(|f| (begin + Duration::from_millis(rng.below(86_400_000)), f)).collect();
    timed.sort_unstable();
    timed
}

/// A packet that a device sent while its session was with the present gateway.
struct Owed {
    number: u64,
    at: Instant,
    device: usize,
    /// It was held while the radio was off or coming back.
    held: bool,
}

struct Life {
    seed: u64,
    crowd: Crowd,
    rng: Seeded,
    owed: Vec<Owed>,
    restarts: Vec<Instant>,
    kills: Vec<(Instant, usize)>,
    revivals: BTreeSet<(Instant, usize)>,
    happened: BTreeMap<&'static str, u64>,
    timeline: Vec<(Instant, Fault)>,
}

fn give_radio(n: usize) -> impl FnOnce(Instant, &mut Machine) {
    move |now, machine| machine.let_sleep(now, whims(n as u64), 1, BOTH)
}

impl Life {
    /// Everybody connected, with radios that may sleep from now on.
    fn begin(seed: u64, count: usize, limits: Limits) -> Self {
        let hold = HoldPolicy { services: BOTH, most: count, ..HoldPolicy::default() };
        let setting = Setting { hold, stand_in: Some((limits, 2 * DAY)), natted: 3, ..Setting::default() };
        let mut crowd = Crowd::in_setting(seed, count, setting);
        crowd.run(MINUTE);
        assert_eq!(crowd.sessions(), count, "seed {seed}");
        for n in 0..count {
            crowd.with_machine(n, give_radio(n));
        }
        Self {
            seed,
            crowd,
            rng: Seeded::new(seed ^ 0xfa17),
            owed: Vec::new(),
            restarts: Vec::new(),
            kills: Vec::new(),
            revivals: BTreeSet::new(),
            happened: BTreeMap::new(),
            timeline: Vec::new(),
        }
    }

    /// One day.
    fn day(&mut self, number: u64, with_faults: bool) {
        let begin = self.crowd.now();
        let count = self.crowd.count();
        let mut packets: Vec<_> = (0..count)
            .flat_map(|n| {
                let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(number * 100_000 + n as u64);
                day(seed, DAY).into_iter().map(move |p| (begin + (p.at - Instant::ZERO), n, p.up, p.port))
            })
            .collect();
        packets.sort_unstable();
        let faults = if with_faults { faults(&mut self.rng, begin, count) } else { Vec::new() };
        let mut faults = faults.into_iter().peekable();
        for (at, n, up, port) in packets {
            while let Some((when, fault)) = faults.next_if(|(when, _)| *when <= at) {
                self.until(when);
                self.happen(fault);
            }
            self.until(at);
            if up { self.send_up(n, port) } else { _ = self.crowd.send_down_to(n, port) }
        }
        self.until(begin + DAY);
    }

    fn until(&mut self, at: Instant) {
        while let Some((when, n)) = self.revivals.first().copied().filter(|(when, _)| *when <= at) {
            self.revivals.remove(&(when, n));
            self.crowd.run(when - self.crowd.now());
            self.crowd.revive(n, give_radio(n));
        }
        self.crowd.run(at - self.crowd.now());
    }

    fn send_up(&mut self, device: usize, port: u16) {
        let (books, machine) = (&self.crowd.books, self.crowd.device(device));
        let knows = books.members[device].with == books.life && !machine.inner.is_empty();
        let held = !self.crowd.listens(device) || !machine.node().is_some_and(|n| n.flows());
        let (at, number) = (self.crowd.now(), self.crowd.send_up_to(device, port));
        if knows {
            self.owed.push(Owed { number, at, device, held });
        }
    }

    /// Devices whose radio sleeps, and that the gateway knows to be asleep.
    fn sleepers(&self) -> Vec<usize> {
        let sleeps = |n: &usize| self.crowd.device(*n).is_asleep(self.crowd.now());
        (0..self.crowd.count()).filter(sleeps).collect()
    }

    fn happen(&mut self, fault: Fault) {
        let (now, sleepers) = (self.crowd.now(), self.sleepers());
        self.timeline.push((now, fault));
        let one = (!sleepers.is_empty()).then(|| sleepers[self.rng.below(sleepers.len() as u64) as usize]);
        let name = match (fault, one) {
            (Fault::Restart, _) => {
                self.crowd.restart_gateway();
                self.restarts.push(now);
                "gateway restarted"
            }
            (Fault::Clocks(hours), _) => {
                self.crowd.set_clocks(hours * 3_600);
                "clocks set"
            }
            (Fault::NatsForget, _) => {
                (0..self.crowd.count()).for_each(|n| self.crowd.forget_nat(n));
                "NATs forgot"
            }
            (Fault::Kill(minutes), Some(n)) => {
                self.crowd.kill(n);
                self.kills.push((now, n));
                self.revivals.insert((now + MINUTE * minutes as u32, n));
                "device killed asleep"
            }
            (Fault::Flood, Some(n)) => {
                for k in 0..3_000u16 {
                    self.crowd.send_down_to(n, 20_000 + k % 500);
                }
                "sleeper flooded"
            }
            (Fault::Overrun, Some(_)) => {
                for n in sleepers {
                    for k in 0..100u16 {
                        self.crowd.send_down_to(n, 30_000 + k);
                    }
                }
                "room overrun"
            }
            (Fault::Kill(_) | Fault::Flood | Fault::Overrun, None) => "no device slept",
        };
        *self.happened.entry(name).or_default() += 1;
    }

    /// Everybody is alive and awake again, and nothing is on its way any more.
    fn end(&mut self) {
        for (_, n) in std::mem::take(&mut self.revivals) {
            self.crowd.revive(n, give_radio(n));
        }
        for n in 0..self.crowd.count() {
            self.crowd
                .with_machine(n, |now, m| m.with(now, |host| _ = host.set_mode(now, Mode::Performance)));
        }
        self.crowd.run(3 * MINUTE);
        // A device that believes in a session that a restart took finds out by sending something.
        (0..self.crowd.count()).for_each(|n| self.send_up(n, 9));
        self.crowd.run(3 * MINUTE);
    }

    /// What must be true of every life. Returns the books.
    fn check(&mut self) -> Ledger {
        let seed = self.seed;
        self.no_packet_of_a_device_is_lost();
        self.no_wake_without_a_cause();
        assert_eq!(
            self.crowd.books.broken_peace, 0,
            "seed {seed}: the gateway disturbed devices that it knew to sleep"
        );
        let ledger = self.crowd.ledger();
        assert_eq!(ledger.fates(), ledger.sent, "seed {seed}: packets vanished: {ledger:?}");
        assert_eq!(ledger.waiting, 0, "seed {seed}: everybody is awake: {ledger:?}");
        // The stated policy for datagrams: two minutes, the bounds of the room, and the end of a sleep.
        let policy = ["expired", "full", "evicted", "overslept"];
        assert!(ledger.dropped.keys().all(|why| policy.contains(why)), "seed {seed}: {ledger:?}");
        assert!(ledger.kept_promises > 0, "seed {seed}: no promise was put to the test");
        self.crowd.check();
        assert_eq!(self.crowd.sessions(), self.crowd.count(), "seed {seed}: one session each");
        ledger
    }

    /// What was sent arrives, but in the aftermath of a restart or if its device died. A packet that is sent by an awake device
    /// may, rarely, be overtaken by the end of the SA that carries it.
    fn no_packet_of_a_device_is_lost(&self) {
        let arrived: BTreeSet<u64> = self.crowd.gateway().received.iter().copied().collect();
        let near = |fault: Instant, at: Instant| fault + AFTERMATH > at && fault < at + AFTERMATH;
        let excused = |o: &Owed| {
            self.restarts.iter().any(|r| near(*r, o.at))
                || self.kills.iter().any(|(k, n)| *n == o.device && *k >= o.at && *k < o.at + AFTERMATH)
        };
        let lost: Vec<&Owed> =
            self.owed.iter().filter(|o| !arrived.contains(&o.number) && !excused(o)).collect();
        let held: Vec<(usize, Instant)> = lost.iter().filter(|o| o.held).map(|o| (o.device, o.at)).collect();
        if let Some((device, at)) = held.first() {
            let before = self.timeline.iter().filter(|(when, _)| *when < *at + AFTERMATH);
            let faults: Vec<_> = before.rev().take(6).collect();
            let wakes = self.crowd.device(*device).radio.as_ref();
            let news = wakes.map(|s| s.news.iter().filter(|n| near_news(n, *at)).collect::<Vec<_>>());
            panic!(
                "seed {}: packets that woke their device were lost: {held:?}; {faults:?}; {news:#?}",
                self.seed
            );
        }
        let most = self.owed.len() / 1_000;
        assert!(lost.len() <= most, "seed {}: {} of {} were lost", self.seed, lost.len(), self.owed.len());
    }

    fn no_wake_without_a_cause(&self) {
        let seed = self.seed;
        let now = self.crowd.now();
        let living = self.crowd.devices().filter_map(|m| Some((m.radio.as_ref()?, m.sleep_report(now)?)));
        let retired = self.crowd.retired.iter().map(|r| (&r.radio, r.report.clone()));
        let all: Vec<(&Radio, Report)> = living.chain(retired).collect();
        for (radio, report) in all {
            let on = radio.orders.iter().filter(|(_, on)| *on).count() as u64;
            let wakes: u64 = report.by_cause.iter().map(|(_, n)| n).sum();
            assert_eq!(on, wakes, "seed {seed}: {:?}", report.by_cause);
            for news in &radio.news {
                let Event::Waking(woke) = news else { continue };
                match woke.cause {
                    Cause::Traffic => assert!(woke.flow.is_some(), "seed {seed}"),
                    Cause::Schedule => {
                        assert!(woke.slept >= Duration::from_secs(900), "seed {seed}: {woke:?}")
                    }
                    cause => assert_eq!(cause, Cause::Mode, "seed {seed}"),
                }
            }
        }
    }
}

/// A wake that ended or began around `at`.
fn near_news(news: &Event, at: Instant) -> bool {
    let at = PolicyTime::from_nanos(at.as_nanos());
    matches!(news, Event::Waking(w) | Event::Awake(w) if w.at + AFTERMATH * 10 > at && w.at < at + AFTERMATH)
}

fn devices(usual: u64) -> usize {
    number("DORMOUSE_CROWD").unwrap_or(usual) as usize
}

fn days() -> u64 {
    number("DORMOUSE_CROWD_DAYS").unwrap_or(1)
}

#[test]
fn without_faults_nothing_is_lost_but_by_the_stated_policy() {
    let seed = number("DORMOUSE_SEED").unwrap_or(1);
    let mut life = Life::begin(seed, devices(12), Limits::default());
    (0..days()).for_each(|number| life.day(number, false));
    life.end();
    let ledger = life.check();
    println!("{ledger:?}");
    let elsewhere = (ledger.deaf, ledger.stopped, ledger.refused, ledger.nowhere, ledger.died);
    assert_eq!(elsewhere, (0, 0, 0, 0, 0), "seed {seed}: {ledger:?}");
}

/// The days of seed `seed`, with everything that can go wrong.
fn hard_days(seed: u64) {
    let count = devices(12);
    // Less room than an overrun needs.
    let limits = Limits { device_packets: 64, total_packets: 16 * count, ..Limits::default() };
    let mut life = Life::begin(seed, count, limits);
    (0..days()).for_each(|number| life.day(number, true));
    life.end();
    let ledger = life.check();
    println!("seed {seed}: {:?}\n{ledger:?}", life.happened);
    for fault in [
        "gateway restarted",
        "device killed asleep",
        "clocks set",
        "NATs forgot",
        "sleeper flooded",
        "room overrun",
    ] {
        assert!(life.happened.contains_key(fault), "seed {seed}: no {fault}: {:?}", life.happened);
    }
    let by = |reason| ledger.dropped.get(reason).copied().unwrap_or(0);
    assert!(by("evicted") + by("full") >= 2_000, "seed {seed}: the floods found room: {ledger:?}");
}

#[test]
fn with_every_fault_at_once_all_come_back_and_every_packet_is_accounted_for() {
    match number("DORMOUSE_SEED") {
        Some(seed) => hard_days(seed),
        None => (2..6).for_each(hard_days),
    }
}

#[test]
fn a_nat_that_forgets_in_the_night_costs_no_session() {
    let mut life = Life::begin(3, 9, Limits::default());
    let begun = life.crowd.now();
    for hour in 1..=6u32 {
        life.until(begun + HOUR * hour);
        life.happen(Fault::NatsForget);
        (0..9).for_each(|n| life.send_up(n, 443));
        life.until(life.crowd.now() + MINUTE);
    }
    life.end();
    let ledger = life.check();
    assert!(ledger.kept_promises >= 9, "{ledger:?}");
}
