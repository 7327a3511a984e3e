//! The sleeper against a reference: a radio, a gateway and traffic drawn from a seed, and the invariants of every run.

use dormouse_energy::Direction;
use dormouse_energy::model::Resumption;
use dormouse_energy::profile::Profile;
use dormouse_energy::schedule::Policy;
use dormouse_node::ladder::Rung;
use dormouse_node::sleeper::clock::PolicyTime;
use dormouse_node::sleeper::{Action, Cause, Event, Mode, Reason, Seen, Settings, Sleeper, State, limits};
use dormouse_sansio::{Entropy, Seeded};
use dormouse_wire::ip::Flow;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

fn settings(mode: Mode, policy: Policy) -> Settings {
    Settings {
        mode,
        policy,
        min_idle: Duration::from_millis(250),
        wake_every: None,
        renew: false,
        latency: Duration::from_millis(1500),
        lost_per_hour: 20,
        model: Profile::shipped("laptop-000").and_then(|p| p.model().ok()).expect("it ships"),
        profile: "laptop-000".into(),
        resumption: Resumption::MobikeThenTicket,
    }
}

fn flow(port: u16) -> Flow {
    Flow {
        src: [10, 55, 0, 2].into(),
        dst: [10, 99, 0, 2].into(),
        protocol: 17,
        src_port: Some(40_000),
        dst_port: Some(port),
    }
}

/// A device around a sleeper: a radio that takes its time and sometimes fails, and a session that comes back.
struct Device {
    now: PolicyTime,
    sleeper: Sleeper,
    radio: bool,
    /// What is under way, by when it is done.
    todo: Vec<(PolicyTime, Todo)>,
    held: u64,
    delivered: u64,
    /// Reasons to be woken that the world knows of since the last sleep.
    causes: Vec<Cause>,
    wakes: BTreeMap<Cause, u64>,
    log: Vec<(PolicyTime, Action)>,
    events: Vec<Event>,
    rng: Seeded,
    fails: bool,
    /// The last thing asked of the radio was a repetition of what had failed.
    repeat: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Todo {
    Announced,
    Off,
    On,
    Fails,
    Flows,
}

impl Device {
    fn new(seed: u64, settings: Settings, fails: bool) -> Self {
        let mut sleeper = Sleeper::new(PolicyTime::ZERO, settings, true);
        sleeper.wanted(PolicyTime::ZERO, true);
        sleeper.up(PolicyTime::ZERO, true);
        Self {
            now: PolicyTime::ZERO,
            sleeper,
            radio: true,
            todo: Vec::new(),
            held: 0,
            delivered: 0,
            causes: Vec::new(),
            wakes: BTreeMap::new(),
            log: Vec::new(),
            events: Vec::new(),
            rng: Seeded::new(seed),
            fails,
            repeat: false,
        }
    }

    fn soon(&mut self, most_ms: u64) -> PolicyTime {
        self.now + Duration::from_millis(1 + self.rng.below(most_ms))
    }

    fn drain(&mut self) {
        while let Some(event) = self.sleeper.poll_event() {
            match &event {
                Event::Waking(woke) => {
                    *self.wakes.entry(woke.cause).or_default() += 1;
                    let known = match woke.cause {
                        // The sleeper's own clock: that they come when they should has tests of its own.
                        Cause::Schedule | Cause::Deadline => true,
                        Cause::Refused => self.fails,
                        cause => self.causes.contains(&cause),
                    };
                    assert!(known, "woken by {:?}, which did not happen", woke.cause);
                    assert_eq!(woke.flow.is_some(), woke.cause == Cause::Traffic);
                    self.causes.clear();
                }
                Event::RadioFailed { .. } => self.repeat = true,
                _ => {}
            }
            self.events.push(event);
        }
        while let Some(action) = self.sleeper.poll_action() {
            self.log.push((self.now, action));
            let fails = self.fails && self.rng.below(4) == 0;
            // Some answers never come.
            let lost = self.fails && self.rng.below(10) == 0;
            let (at, what) = match action {
                Action::Announce { expected, longest } => {
                    assert!(expected <= longest);
                    (self.soon(5000), Todo::Announced)
                }
                Action::SuspendSession => continue,
                Action::RadioOff => (self.soon(500), if fails { Todo::Fails } else { Todo::Off }),
                Action::RadioOn => {
                    let cause = self.events.iter().rev().any(|e| matches!(e, Event::Waking(_)));
                    assert!(cause || self.repeat, "switched on without a cause");
                    (self.soon(4000), if fails { Todo::Fails } else { Todo::On })
                }
                Action::WakeSession { .. } => (self.soon(300), Todo::Flows),
            };
            // A session comes back some time: the ladder does not give up.
            if !lost || matches!(what, Todo::Flows) {
                self.todo.push((at, what));
            }
        }
    }

    /// Lets time pass until `end`.
    fn run(&mut self, end: PolicyTime) {
        for _ in 0..100_000 {
            self.drain();
            let due = self.sleeper.poll_timeout().map(|d| d.at);
            let next = self
                .todo
                .iter()
                .map(|(at, _)| *at)
                .chain(due)
                .min()
                .unwrap_or(PolicyTime::from_nanos(u64::MAX))
                .max(self.now);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            self.todo.sort_by_key(|(at, _)| *at);
            if let Some(at) = self.todo.iter().position(|(at, _)| *at <= next) {
                let (_, what) = self.todo.remove(at);
                self.happens(what);
            } else {
                self.sleeper.handle_timeout(next);
            }
        }
        panic!("it spins at {:?}: {:?}", self.now, self.sleeper);
    }

    fn happens(&mut self, what: Todo) {
        let now = self.now;
        match what {
            Todo::Announced => self.sleeper.announced(now),
            Todo::Off => {
                self.radio = false;
                self.sleeper.radio_off(now);
            }
            Todo::On => {
                self.radio = true;
                self.sleeper.radio_on(now);
            }
            Todo::Fails => self.sleeper.radio_failed(now, "of the test"),
            Todo::Flows => {
                if self.radio {
                    self.delivered += std::mem::take(&mut self.held);
                    self.sleeper.came_up(now, Rung::Held);
                }
            }
        }
    }

    fn send(&mut self, port: u16) {
        self.causes.push(Cause::Traffic);
        // What a driver does: a session that sleeps holds, any other sends.
        match self.sleeper.state() {
            State::Awake if self.radio && self.held == 0 => self.delivered += 1,
            _ => self.held += 1,
        }
        self.sleeper.packet(self.now, Direction::Outgoing, &flow(port), 100);
        self.drain();
    }
}

fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

#[test]
fn silence_puts_the_radio_to_sleep_and_a_packet_wakes_it() {
    let mut d = Device::new(1, settings(Mode::Energy, Policy::Timeout(5.0)), false);
    d.send(53);
    d.run(PolicyTime::ZERO + seconds(60.0));
    assert!(matches!(d.sleeper.state(), State::Asleep { reason: Reason::Idle, .. }));
    assert!(!d.radio);
    assert_eq!(d.sleeper.poll_timeout(), None, "a sleeping radio has no deadline");
    let order: Vec<Action> = d.log.iter().map(|(_, a)| *a).collect();
    assert!(
        matches!(order[..], [Action::Announce { .. }, Action::SuspendSession, Action::RadioOff]),
        "{order:?}"
    );
    d.send(443);
    d.run(PolicyTime::ZERO + seconds(66.0));
    let report = d.sleeper.report(d.now);
    let woke = report.wakes[0];
    assert_eq!((woke.cause, woke.flow), (Cause::Traffic, Some(flow(443))));
    assert!(woke.took.is_some() && woke.rung == Some(Rung::Held));
    assert_eq!((d.held, d.delivered), (0, 2));
    assert_eq!(report.decisions[0].policy, "timeout");
    assert_eq!(report.decisions[0].time_out, Some(seconds(5.0)));
}

#[test]
fn what_the_radio_came_back_for_has_the_whole_time_out_to_be_answered() {
    // The radio takes seconds to come back, and the time-out is shorter.
    for (seed, time_out) in [(1, 0.0), (2, 0.3), (3, 0.3), (4, 1.0)] {
        let mut d = Device::new(seed, settings(Mode::Energy, Policy::Timeout(time_out)), false);
        d.send(53);
        d.run(PolicyTime::ZERO + seconds(60.0));
        assert!(!d.radio);
        d.send(443);
        let step = Duration::from_millis(5);
        while d.sleeper.state() != State::Awake {
            d.run(d.now + step);
        }
        let awake = d.now;
        assert!(awake - (PolicyTime::ZERO + seconds(60.0)) > seconds(0.3), "a slow radio");
        while d.sleeper.state() == State::Awake {
            d.run(d.now + step);
        }
        let least = seconds(time_out).max(Duration::from_millis(250));
        assert!(d.now - awake + step >= least, "seed {seed}: {:?} after it woke", d.now - awake);
    }
}

#[test]
fn a_packet_calls_a_sleep_off_before_the_radio_is_off() {
    let mut d = Device::new(1, settings(Mode::Energy, Policy::Timeout(5.0)), false);
    d.send(53);
    d.run(PolicyTime::ZERO + seconds(5.0));
    assert!(matches!(d.sleeper.state(), State::PreparingSleep { .. }), "{:?}", d.sleeper);
    d.send(53);
    assert_eq!(d.sleeper.state(), State::Awake);
    assert!(d.log.iter().any(|(_, a)| matches!(a, Action::WakeSession { .. })), "the gateway is not told");
    assert!(d.wakes.is_empty() && d.sleeper.report(d.now).counts.called_off == 1);
}

#[test]
fn switching_the_mode_acts_at_once() {
    let mut d = Device::new(2, settings(Mode::Performance, Policy::Timeout(5.0)), false);
    d.send(53);
    d.run(PolicyTime::ZERO + seconds(100.0));
    assert!(d.radio && d.log.is_empty(), "performance never sleeps");
    d.sleeper.set_mode(d.now, Mode::Energy);
    d.run(d.now + Duration::from_millis(10));
    assert!(matches!(d.sleeper.state(), State::PreparingSleep { .. }), "the silence was long enough already");
    d.run(d.now + seconds(10.0));
    assert!(!d.radio);
    d.causes.push(Cause::Mode);
    d.sleeper.set_mode(d.now, Mode::Performance);
    d.drain();
    assert!(matches!(d.sleeper.state(), State::Waking { cause: Cause::Mode }));
    d.run(d.now + seconds(500.0));
    assert!(d.radio && d.sleeper.state() == State::Awake);
}

#[test]
fn the_schedule_wakes_and_the_interrupted_sleep_goes_on() {
    let every = seconds(900.0);
    let mut d = Device::new(
        3,
        Settings { wake_every: Some(every), ..settings(Mode::Energy, Policy::Timeout(5.0)) },
        false,
    );
    d.send(53);
    d.run(PolicyTime::ZERO + seconds(4.0 * 3600.0));
    assert_eq!(d.wakes.keys().collect::<Vec<_>>(), [&Cause::Schedule]);
    let report = d.sleeper.report(d.now);
    assert!(report.wakes.iter().all(|w| w.slept >= every), "{:?}", report.wakes);
    assert!((14..=16).contains(&d.wakes[&Cause::Schedule]), "{:?}", d.wakes);
    assert!(report.energy.times.awake < seconds(60.0), "{:?}", report.energy.times);
    assert!(d.log.iter().any(|(_, a)| *a == Action::WakeSession { ask: true }), "the gateway is not asked");
}

#[test]
fn all_wakes_that_no_packet_causes_are_listed() {
    let every = Some(seconds(900.0));
    let mut d = Device::new(
        3,
        Settings { wake_every: every, renew: true, ..settings(Mode::Energy, Policy::Timeout(5.0)) },
        false,
    );
    d.send(53);
    d.sleeper.expiry(Some(PolicyTime::ZERO + seconds(3600.0)));
    d.run(PolicyTime::ZERO + seconds(60.0));
    let timers: Vec<_> = d.sleeper.timers().collect();
    assert_eq!(timers.iter().map(|t| t.why).collect::<Vec<_>>(), ["sleeper: wake_every", "sleeper: renewal"]);
    assert_eq!(d.sleeper.poll_timeout(), Some(timers[0]));
}

#[test]
fn a_session_that_expires_is_renewed_only_if_that_is_asked_for() {
    for renew in [false, true] {
        let set = Settings { renew, ..settings(Mode::Energy, Policy::Timeout(5.0)) };
        let mut d = Device::new(4, set, false);
        d.send(53);
        d.sleeper.expiry(Some(PolicyTime::ZERO + seconds(3600.0)));
        d.run(PolicyTime::ZERO + seconds(3599.0));
        assert_eq!(d.wakes.get(&Cause::Deadline).copied(), renew.then_some(1));
    }
}

#[test]
fn upkeep_that_is_close_falls_into_this_wake() {
    let mut d = Device::new(5, settings(Mode::Energy, Policy::Timeout(5.0)), false);
    d.send(53);
    let close = |now| dormouse_node::sleeper::clock::PolicyDeadline::strict(now + seconds(1.0), "rekey");
    d.sleeper.upkeep(Some(close(PolicyTime::ZERO + seconds(5.0))));
    d.run(PolicyTime::ZERO + seconds(7.0));
    assert_eq!(d.sleeper.state(), State::Awake, "it waits for what is about to be due");
    d.sleeper.upkeep(None);
    d.run(PolicyTime::ZERO + seconds(20.0));
    assert!(!d.radio);
    // What is always close is not waited for for ever.
    let mut d = Device::new(5, settings(Mode::Energy, Policy::Timeout(5.0)), false);
    d.send(53);
    d.sleeper.upkeep(Some(close(PolicyTime::ZERO)));
    d.run(PolicyTime::ZERO + seconds(5.0) + limits::COALESCE_MOST + limits::ANNOUNCE + limits::RADIO);
    assert!(!d.radio);
}

#[test]
fn a_radio_that_another_program_switches_is_left_alone() {
    let mut d = Device::new(6, settings(Mode::Energy, Policy::Timeout(5.0)), false);
    d.send(53);
    d.sleeper.suspend(d.now, Reason::Machine);
    d.run(PolicyTime::ZERO + seconds(10.0));
    assert!(matches!(d.sleeper.state(), State::Asleep { reason: Reason::Machine, .. }));
    d.send(53);
    d.run(PolicyTime::ZERO + seconds(100.0));
    assert!(matches!(d.sleeper.state(), State::Asleep { .. }), "a packet does not wake a machine");
    assert!(!d.log.iter().any(|(_, a)| *a == Action::RadioOff));
    d.causes.push(Cause::Machine);
    d.sleeper.resume(d.now, Cause::Machine);
    d.run(d.now + seconds(1.0));
    assert_eq!((d.sleeper.state(), d.held), (State::Awake, 0));
    let times = d.sleeper.report(d.now).energy.times;
    assert!(times.suspended > seconds(90.0), "{times:?}");
}

#[test]
fn a_connection_that_is_not_wanted_any_more_gives_the_radio_back() {
    let mut d = Device::new(7, settings(Mode::Energy, Policy::Timeout(5.0)), false);
    d.send(53);
    d.run(PolicyTime::ZERO + seconds(60.0));
    assert!(!d.radio);
    d.causes.push(Cause::Released);
    d.sleeper.wanted(d.now, false);
    d.run(d.now + seconds(300.0));
    assert!(d.radio);
    assert_eq!(d.sleeper.poll_timeout(), None);
}

#[test]
fn balanced_mode_backs_off_where_sleeping_hurts() {
    // Packets just after each sleep began: under `energy` every one of them hurts.
    let hurts = |mode| {
        let mut d = Device::new(8, settings(mode, Policy::Timeout(5.0)), false);
        for _ in 0..200 {
            d.send(53);
            let resume = d.now + seconds(12.0);
            d.run(resume);
        }
        d.wakes.get(&Cause::Traffic).copied().unwrap_or(0)
    };
    let (energy, balanced) = (hurts(Mode::Energy), hurts(Mode::Balanced));
    assert!(energy > 190, "{energy}");
    assert!(balanced < 10, "{balanced}");
}

#[test]
fn balanced_mode_bounds_the_packets_lost_in_an_hour() {
    let mut d = Device::new(9, settings(Mode::Balanced, Policy::Timeout(5.0)), false);
    d.send(53);
    for _ in 0..100 {
        d.run(d.now + seconds(100.0));
        // Each sleep loses nine packets.
        if !d.radio {
            d.sleeper.lost(d.now, 9);
        }
        d.send(53);
        let report = d.sleeper.report(d.now);
        assert!(report.backoff.1 <= 20 + 9, "{} lost in an hour", report.backoff.1);
    }
    assert!(d.wakes[&Cause::Traffic] >= 6, "{:?}", d.wakes);
}

#[test]
fn what_was_learned_survives_a_restart() {
    let mut d = Device::new(10, settings(Mode::Energy, Policy::Dormouse), false);
    for n in 0..300 {
        d.send(if n % 3 == 0 { 53 } else { 443 });
        d.run(d.now + seconds(if n % 3 == 0 { 120.0 } else { 0.4 }));
    }
    let mut bytes = Vec::new();
    d.sleeper.save(&mut bytes);
    let state = Policy::Dormouse.scheduler(1.0).state_bytes();
    assert!(bytes.len() <= state + 512, "{} of {state}", bytes.len());
    let mut fresh = Sleeper::new(PolicyTime::ZERO, settings(Mode::Energy, Policy::Dormouse), true);
    fresh.restore(&bytes).expect("its own bytes");
    let mut again = Vec::new();
    fresh.save(&mut again);
    assert_eq!(bytes.len(), again.len());
    bytes[20] ^= 1;
    assert!(fresh.restore(&bytes).is_err());
}

/// A whole random life: packets, modes, suspensions, failures.
fn life(seed: u64, fails: bool) -> Device {
    let mut rng = Seeded::new(seed);
    let policies = [Policy::Timeout(3.0), Policy::BreakEven, Policy::PAPER, Policy::Dormouse, Policy::Never];
    let policy = policies[usize::try_from(rng.below(5)).unwrap_or(0)];
    let modes = [Mode::Energy, Mode::Balanced, Mode::Performance];
    let mut mode = modes[usize::try_from(rng.below(2)).unwrap_or(0)];
    let wake_every = (rng.below(3) == 0).then(|| seconds(300.0));
    let mut d = Device::new(seed, Settings { wake_every, ..settings(mode, policy) }, fails);
    for _ in 0..200 {
        let pause = seconds(0.01) * u32::try_from(1 << rng.below(16)).unwrap_or(1);
        d.run(d.now + pause);
        match rng.below(40) {
            0 => {
                let next = modes[usize::try_from(rng.below(3)).unwrap_or(0)];
                if next == Mode::Performance && mode != next {
                    d.causes.push(Cause::Mode);
                }
                mode = next;
                d.sleeper.set_mode(d.now, next);
            }
            1 => {
                d.sleeper.suspend(d.now, if rng.below(2) == 0 { Reason::User } else { Reason::Machine });
                d.run(d.now + seconds(30.0));
                d.causes.push(Cause::User);
                d.sleeper.resume(d.now, Cause::User);
            }
            2 => {
                d.causes.push(Cause::Released);
                d.sleeper.wanted(d.now, false);
                d.run(d.now + seconds(5.0));
                d.sleeper.wanted(d.now, true);
            }
            3..=9 => d.sleeper.packet(d.now, Direction::Incoming, &flow(443).reversed(), 500),
            _ => d.send([53, 443, 5060][usize::try_from(rng.below(3)).unwrap_or(0)]),
        }
        d.drain();
    }
    // However it ends: a request for the radio gets it back within a bounded time, and nothing stays held.
    d.fails = false;
    d.causes.extend([Cause::Mode, Cause::User]);
    d.sleeper.set_mode(d.now, Mode::Performance);
    d.sleeper.resume(d.now, Cause::User);
    d.run(d.now + seconds(600.0));
    d
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_wake_has_a_cause_and_nothing_is_lost(seed: u64, fails: bool) {
        let d = life(seed, fails);
        prop_assert!(d.radio, "seed {seed}: the radio is off for ever");
        prop_assert_eq!(d.sleeper.state(), State::Awake);
        prop_assert_eq!(d.held, 0, "seed {}: packets are held for ever", seed);
        let report = d.sleeper.report(d.now);
        prop_assert_eq!(report.energy.times.elapsed(), d.now - PolicyTime::ZERO);
        let counted: BTreeMap<Cause, u64> = report.by_cause.into_iter().collect();
        prop_assert_eq!(&counted, &d.wakes);
        prop_assert!(report.decisions.len() <= limits::DECISIONS && report.wakes.len() <= limits::WAKES);
    }

    #[test]
    fn equal_seeds_live_equal_lives(seed: u64) {
        let (a, b) = (life(seed, true), life(seed, true));
        prop_assert_eq!(a.log, b.log);
        prop_assert_eq!(a.events, b.events);
        prop_assert_eq!(a.sleeper.report(a.now), b.sleeper.report(b.now));
    }
}

#[test]
fn what_was_rehearsed_is_known_in_the_first_hour() {
    // A packet each minute, for six hours.
    let traffic = (0..360u64).map(|minute| {
        let at = PolicyTime::ZERO + Duration::from_secs(60 * minute);
        Seen { at, direction: Direction::Outgoing, flow: flow(443), size: 100 }
    });
    let history = || {
        let mut sleeper = Sleeper::new(PolicyTime::ZERO, settings(Mode::Energy, Policy::Dormouse), false);
        sleeper.rehearse(traffic.clone());
        let mut bytes = Vec::new();
        sleeper.save(&mut bytes);
        bytes
    };
    assert_eq!(history(), history(), "a rehearsal is a function of its traffic");

    let first_sleep = |history: Option<&[u8]>| {
        let mut device = Device::new(1, settings(Mode::Energy, Policy::Dormouse), false);
        if let Some(bytes) = history {
            device.sleeper.restore(bytes).unwrap();
        }
        device.sleeper.packet(PolicyTime::ZERO, Direction::Outgoing, &flow(443), 100);
        while let Some(due) =
            device.sleeper.poll_timeout().filter(|d| d.at < PolicyTime::ZERO + Duration::from_secs(3600))
        {
            device.sleeper.handle_timeout(due.at);
            if device.sleeper.poll_action().is_some() {
                return Some(due.at);
            }
        }
        None
    };
    let (cold, warm) = (first_sleep(None), first_sleep(Some(&history())).unwrap());
    assert!(
        warm < PolicyTime::ZERO + Duration::from_secs(2),
        "the device is known to be silent for a minute: {warm:?}"
    );
    assert!(cold.is_none_or(|cold| cold > warm), "without experience the radio goes off later: {cold:?}");
}
