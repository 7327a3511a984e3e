//! What each policy costs on one client's traffic, in one pass. Owns the accounting; must never decide anything itself.
//!
//! The unit of cost is one second of idle radio. An idle period of length `g` costs `g` if the radio stays on, and `t + B` if
//! it is switched off after `t`, where `B` is the break-even time ([`SleepCost`], which also knows radios with more states). A
//! silence shorter than [`Settings::min_idle`] is no idle period and costs nothing under any policy.
//!
//! Between two idle periods no policy has a choice, so a packet inside a burst touches only the policies that look at packets
//! ([`Scheduler::observes`]).
//!
//! Under [`WakeOn::Outgoing`] a packet that arrives while the radio is off does not wake it: it is lost, or answered by the
//! gateway in the client's place. The sleep then lasts until the client sends; the silences in between cost nothing more.
//!
//! The unit is the **session**: a silence longer than [`Settings::session`] is absence, not idle time. The session ends with the packet
//! before it and the next begins with the packet after it; the silence is charged to no policy, saved by none and learned by none. What a
//! policy has learned lives on. A recording ends with its last packet: what came after is unknown and is not counted.

use core::time::Duration;

use crate::cost::SleepCost;
use crate::packet::{PacketInfo, WakeOn};
use crate::schedule::{MIN_IDLE, Scheduler};
use dormouse_sansio::Instant;

/// The silence that ends a session unless configured otherwise. Networks forget a station after minutes to an hour without a frame, and
/// no timer of a device that is present is rarer.
pub const SESSION: Duration = Duration::from_secs(3_600);

/// What the gateway answers in the place of a sleeping client.
pub type Proxy = fn(&PacketInfo) -> bool;

/// The proxy of paper 000, section 3.5: DHCP, DNS and MICROSOFT-DS (port 445).
#[must_use]
pub fn paper_proxy(packet: &PacketInfo) -> bool {
    [packet.local_port, packet.remote_port].iter().any(|p| matches!(p, 53 | 67 | 68 | 445))
}

/// How to account.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What a sleep costs.
    pub cost: SleepCost,
    /// Shortest silence that counts as an idle period.
    pub min_idle: Duration,
    /// The silence that ends a session; `None`: none does, and the unit is the client for as long as it was recorded.
    pub session: Option<Duration>,
    /// Which packets wake.
    pub wake_on: WakeOn,
    /// Which arriving packets the gateway answers for a sleeping client; they are counted apart from the lost ones.
    pub proxy: Option<Proxy>,
}

impl Settings {
    /// Every packet wakes, idle periods from 0.25 s, no end of sessions, no proxy.
    #[must_use]
    pub const fn new(cost: SleepCost) -> Self {
        Self { cost, min_idle: MIN_IDLE, session: None, wake_on: WakeOn::All, proxy: None }
    }
}

/// What the policy is called that knows all idle periods beforehand.
pub const CLAIRVOYANT: &str = "clairvoyant";

/// What one policy did on one client's traffic.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Totals {
    /// Cost in seconds of idle radio.
    pub cost: f64,
    /// How often the radio was switched off and on again.
    pub cycles: u64,
    /// Seconds with the radio off, the time to reconnect included.
    pub off_seconds: f64,
    /// Idle periods longer than the break-even time in which the radio stayed on (the paper's "false positives").
    pub missed_opportunities: u64,
    /// Packets that arrived while the radio was off and that the proxy did not answer (the paper's "false negatives").
    pub packets_lost: u64,
    /// Packets that arrived while the radio was off and that the gateway answered.
    pub packets_proxied: u64,
}

impl Totals {
    /// Part of the idle energy of a radio that never sleeps that was saved: 1 at best, negative if the policy costs energy;
    /// 0 for a client that was never idle. `idle_cost` is what that radio pays ([`ClientReport::idle_cost`]).
    #[must_use]
    pub fn saved_fraction(&self, idle_cost: f64) -> f64 {
        if idle_cost > 0.0 { (idle_cost - self.cost) / idle_cost } else { 0.0 }
    }

    /// Saving over the clairvoyant's saving; `None` if even the clairvoyant saves nothing.
    #[must_use]
    pub fn share_of(&self, clairvoyant: &Self, idle_cost: f64) -> Option<f64> {
        let best = idle_cost - clairvoyant.cost;
        (best > 0.0).then(|| (idle_cost - self.cost) / best)
    }

    /// Adds another client's totals.
    pub fn add(&mut self, other: &Self) {
        self.cost += other.cost;
        self.cycles = self.cycles.saturating_add(other.cycles);
        self.off_seconds += other.off_seconds;
        self.missed_opportunities = self.missed_opportunities.saturating_add(other.missed_opportunities);
        self.packets_lost = self.packets_lost.saturating_add(other.packets_lost);
        self.packets_proxied = self.packets_proxied.saturating_add(other.packets_proxied);
    }
}

/// A sleep that has not ended: when its idle period began, and after how many seconds the radio went off.
#[derive(Clone, Copy, Debug)]
struct OpenSleep {
    idle_since: Instant,
    after: f64,
}

/// One policy on one client.
struct PolicyRun {
    scheduler: Box<dyn Scheduler>,
    totals: Totals,
    asleep: Option<OpenSleep>,
}

/// A packet on its way through the runs, and the silence before it.
struct Arrival<'a> {
    at: Instant,
    packet: &'a PacketInfo,
    /// The packet before it, and the idle period between the two, if it was one.
    idle: Option<(Instant, Duration)>,
}

impl PolicyRun {
    /// Whether the radio is off behind this packet.
    fn packet(&mut self, settings: &Settings, arrival: &Arrival<'_>) -> bool {
        if self.asleep.is_none()
            && let Some((since, idle)) = arrival.idle
        {
            self.idle(settings, since, idle);
        }
        if let Some(asleep) = self.asleep {
            if settings.wake_on == WakeOn::Outgoing && !arrival.packet.is_outgoing() {
                let proxied = settings.proxy.is_some_and(|answers| answers(arrival.packet));
                *if proxied { &mut self.totals.packets_proxied } else { &mut self.totals.packets_lost } += 1;
                return true;
            }
            self.wake(settings, asleep, arrival.at);
        }
        self.scheduler.observe(arrival.at, arrival.packet);
        false
    }

    /// An idle period of the awake radio: slept through from some point on, or waited out.
    fn idle(&mut self, settings: &Settings, since: Instant, idle: Duration) {
        let (off_after, length) = (self.scheduler.decide().seconds(), idle.as_secs_f64());
        if off_after < length {
            self.asleep = Some(OpenSleep { idle_since: since, after: off_after });
            return;
        }
        let awake = settings.cost.awake(length);
        self.totals.cost += awake;
        self.totals.missed_opportunities += u64::from(awake > settings.cost.asleep(length, 0.0));
        self.scheduler.learn(idle);
    }

    fn wake(&mut self, settings: &Settings, asleep: OpenSleep, at: Instant) {
        let idle = at.saturating_since(asleep.idle_since);
        self.charge(settings, asleep, idle);
        self.scheduler.learn(idle);
        self.asleep = None;
    }

    fn charge(&mut self, settings: &Settings, asleep: OpenSleep, idle: Duration) {
        let length = idle.as_secs_f64();
        self.totals.cost += settings.cost.asleep(length, asleep.after);
        self.totals.cycles += 1;
        self.totals.off_seconds += length - asleep.after;
    }

    /// The session is over: what it came to.
    fn finish(&mut self, settings: &Settings, end: Instant) -> Totals {
        if let Some(asleep) = self.asleep.take() {
            self.charge(settings, asleep, end.saturating_since(asleep.idle_since));
        }
        core::mem::take(&mut self.totals)
    }
}

/// The bound that no online policy beats: it knows each idle period's length when it begins and sleeps at once if that pays.
#[derive(Default)]
struct Clairvoyant {
    totals: Totals,
    /// The current stretch between two packets that wake: when it began, what its idle periods cost with the radio on, the
    /// packets that would be missed.
    since: Option<Instant>,
    awake: f64,
    missed: [u64; 2],
}

impl Clairvoyant {
    fn packet(&mut self, settings: &Settings, arrival: &Arrival<'_>) {
        self.awake += arrival.idle.map_or(0.0, |(_, idle)| settings.cost.best_awake(idle.as_secs_f64()));
        if settings.wake_on == WakeOn::Outgoing && !arrival.packet.is_outgoing() {
            self.missed[usize::from(settings.proxy.is_some_and(|answers| answers(arrival.packet)))] += 1;
            return;
        }
        self.close(settings, arrival.at);
        self.since = Some(arrival.at);
    }

    fn close(&mut self, settings: &Settings, at: Instant) {
        let length = self.since.map_or(0.0, |since| at.saturating_since(since).as_secs_f64());
        let price = settings.cost.asleep(length, 0.0);
        if price < self.awake {
            self.totals.cost += price;
            self.totals.cycles += 1;
            self.totals.off_seconds += length;
            self.totals.packets_lost += self.missed[0];
            self.totals.packets_proxied += self.missed[1];
        } else {
            self.totals.cost += self.awake;
        }
        (self.awake, self.missed) = (0.0, [0; 2]);
    }
}

/// All policies on one client: fed with its packets in order of time, it yields a [`ClientReport`] for each session.
pub struct Ledger {
    settings: Settings,
    runs: Vec<PolicyRun>,
    /// Those of them that look at every packet.
    observers: Vec<usize>,
    /// How many are asleep.
    asleep: usize,
    clairvoyant: Clairvoyant,
    last: Option<Instant>,
    /// The present session; its policies are in `runs`.
    session: ClientReport,
    /// Those that are over. Each ends with a silence, so that their number is bounded by the length of the recording.
    sessions: Vec<ClientReport>,
}

/// The result of one session, or the sum of several.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClientReport {
    /// Packets seen.
    pub packets: u64,
    /// Silences of at least `min_idle`.
    pub idle_periods: u64,
    /// Their sum, in seconds.
    pub idle_seconds: f64,
    /// What a radio that never sleeps pays for them: the same, unless it has states of its own to walk through.
    pub idle_cost: f64,
    /// Each policy's name and totals, in the order given, `clairvoyant` last.
    pub policies: Vec<(&'static str, Totals)>,
}

impl ClientReport {
    /// The sum of sessions that were accounted under the same policies.
    #[must_use]
    pub fn sum<'a>(sessions: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for session in sessions {
            sum.packets = sum.packets.saturating_add(session.packets);
            sum.idle_periods = sum.idle_periods.saturating_add(session.idle_periods);
            sum.idle_seconds += session.idle_seconds;
            sum.idle_cost += session.idle_cost;
            sum.policies.resize_with(session.policies.len(), Default::default);
            for (mine, (name, totals)) in sum.policies.iter_mut().zip(&session.policies) {
                mine.0 = name;
                mine.1.add(totals);
            }
        }
        sum
    }

    /// The totals of the policy called `name`.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<&Totals> {
        self.policies.iter().find(|(n, _)| *n == name).map(|(_, totals)| totals)
    }

    /// The saving of `name` over the clairvoyant's; `None` for an unknown policy or if there is nothing to save.
    #[must_use]
    pub fn share_of_clairvoyant(&self, name: &str) -> Option<f64> {
        self.policy(name)?.share_of(self.policy(CLAIRVOYANT)?, self.idle_cost)
    }
}

impl Ledger {
    /// For one client under the given policies.
    #[must_use]
    pub fn new(settings: Settings, mut policies: Vec<Box<dyn Scheduler>>) -> Self {
        policies.iter_mut().for_each(|p| p.wakes_on(settings.wake_on));
        let observers =
            policies.iter().enumerate().filter(|(_, p)| p.observes()).map(|(number, _)| number).collect();
        let run = |scheduler| PolicyRun { scheduler, totals: Totals::default(), asleep: None };
        Self {
            settings,
            runs: policies.into_iter().map(run).collect(),
            observers,
            asleep: 0,
            clairvoyant: Clairvoyant::default(),
            last: None,
            session: ClientReport::default(),
            sessions: Vec::new(),
        }
    }

    /// The client's next packet. A packet older than its predecessor counts as simultaneous with it.
    #[inline]
    pub fn packet(&mut self, at: Instant, packet: &PacketInfo) {
        let last = self.last.unwrap_or(at);
        let at = at.max(last);
        self.last = Some(at);
        self.session.packets += 1;
        let silence = at.saturating_since(last);
        if silence < self.settings.min_idle && self.asleep == 0 && self.settings.wake_on == WakeOn::All {
            self.clairvoyant.since = Some(at);
            for number in &self.observers {
                if let Some(run) = self.runs.get_mut(*number) {
                    run.scheduler.observe(at, packet);
                }
            }
        } else {
            self.eventful(last, silence, at, packet);
        }
    }

    /// `count` packets of one kind at one moment, as a burst's record has them: the first as any packet, the others without a silence
    /// before them. Policies look at the first alone.
    #[inline]
    pub fn packets(&mut self, at: Instant, packet: &PacketInfo, count: u64) {
        if count == 0 {
            return;
        }
        self.packet(at, packet);
        let further = count - 1;
        self.session.packets = self.session.packets.saturating_add(further);
        if further > 0 && self.settings.wake_on == WakeOn::Outgoing && !packet.is_outgoing() {
            let proxied = self.settings.proxy.is_some_and(|answers| answers(packet));
            self.clairvoyant.missed[usize::from(proxied)] += further;
            for run in self.runs.iter_mut().filter(|run| run.asleep.is_some()) {
                *if proxied { &mut run.totals.packets_proxied } else { &mut run.totals.packets_lost } +=
                    further;
            }
        }
    }

    /// Ends the session with the packet that came last, at once: the client leaves, or the next packet is of another connection, which may
    /// have begun before that packet.
    pub fn leave(&mut self) {
        if let Some(last) = self.last.take() {
            self.end_session(last);
        }
    }

    /// A packet that ends an idle period, or that not every radio may hear.
    fn eventful(&mut self, last: Instant, silence: Duration, at: Instant, packet: &PacketInfo) {
        if self.settings.session.is_some_and(|longest| silence > longest) {
            self.session.packets -= 1;
            self.end_session(last);
            self.session.packets = 1;
        }
        let idle = (silence >= self.settings.min_idle && self.session.packets > 1).then_some((last, silence));
        if idle.is_some() {
            let seconds = silence.as_secs_f64();
            self.session.idle_periods += 1;
            self.session.idle_seconds += seconds;
            self.session.idle_cost += self.settings.cost.awake(seconds);
        }
        let arrival = Arrival { at, packet, idle };
        self.clairvoyant.packet(&self.settings, &arrival);
        self.asleep = 0;
        for run in &mut self.runs {
            self.asleep += usize::from(run.packet(&self.settings, &arrival));
        }
    }

    fn end_session(&mut self, end: Instant) {
        self.clairvoyant.close(&self.settings, end);
        self.clairvoyant.since = None;
        self.asleep = 0;
        let mut session = core::mem::take(&mut self.session);
        session.policies =
            self.runs.iter_mut().map(|m| (m.scheduler.name(), m.finish(&self.settings, end))).collect();
        session.policies.push((CLAIRVOYANT, core::mem::take(&mut self.clairvoyant.totals)));
        self.sessions.push(session);
    }

    /// The recording has ended with the last packet: its sessions in order of time.
    #[must_use]
    pub fn sessions(mut self) -> Vec<ClientReport> {
        if self.last.is_some() || self.sessions.is_empty() {
            self.end_session(self.last.unwrap_or(Instant::ZERO));
        }
        self.sessions
    }

    /// The sum of all sessions.
    #[must_use]
    pub fn finish(self) -> ClientReport {
        ClientReport::sum(&self.sessions())
    }
}
