//! How much is to be had at all on synthetic traffic: a policy that knows the law by which it is made, and of each client what it cannot see from
//! outside ([`Standing`]). It does not know what is drawn later. Since what a policy does changes no packet, each silence is decided by itself: at the
//! time that is cheapest on average, given the law. No policy that sees packets alone can save more, but for luck. Owns that law and the choice; what
//! it pays is counted like any other.

use core::time::Duration;

use dormouse_energy::WakeOn;
use dormouse_energy::account::SESSION;
use dormouse_energy::cost::SleepCost;
use dormouse_energy::schedule::MIN_IDLE;
use dormouse_trace::generate::{FLOW_GAP, LONGEST_GAP, Population, Standing, TIMER_JITTER, Timer};
use dormouse_trace::seen::ClientPacket;
use statrs::distribution::{ContinuousCDF as _, Normal};

use super::idle::{Sessions, Stretch};
use super::shares::{Clients, Rule, Saved, live};

/// Its row in the tables.
pub(super) const NAME: &str = "a policy that knows the law and the client";
/// From one time at which the radio may go off to the next.
const RATIO: f64 = 1.05;

/// When the radio may go off, in seconds of a silence: from the shortest that counts up to the longest of a session.
pub(super) fn ages() -> Vec<f64> {
    let (first, last) = (MIN_IDLE.as_secs_f64(), SESSION.as_secs_f64());
    std::iter::successors(Some(first), |age| Some(age * RATIO))
        .take_while(|age| *age < last)
        .chain([last])
        .collect()
}

/// For one silence the numbers of the ages at which the radio goes off, with every packet waking and with only what the client sends; one beyond
/// the last: never.
pub(super) type Chosen = [u16; 2];

/// Chooses.
pub(super) struct Law {
    ages: Vec<f64>,
    cost: SleepCost,
    normal: Normal,
}

impl Law {
    pub(super) fn new(cost: SleepCost) -> Self {
        Self { ages: ages(), cost, normal: Normal::standard() }
    }

    /// For the silence that begins, in both rules.
    pub(super) fn choose(&self, standing: &Standing) -> Chosen {
        [WakeOn::All, WakeOn::Outgoing]
            .map(|wake_on| u16::try_from(self.best(standing, wake_on)).unwrap_or(u16::MAX))
    }

    /// How likely the radio, once off, is not woken within so many seconds of the silence.
    pub(super) fn lasts(&self, s: &Standing, wake_on: WakeOn, x: f64) -> f64 {
        if s.begun[usize::from(wake_on == WakeOn::Outgoing)].is_some_and(|at| at <= x) {
            return 0.0;
        }
        let present = x.min(s.left.max(0.0));
        let mut lasts = s.since_flow.map_or(1.0, |since| self.no_flow(s.pace, since, x));
        for timer in s.timers.iter().flatten() {
            lasts *= self.not_fired(timer, present);
        }
        if wake_on == WakeOn::All {
            lasts *= (-present / s.noise).exp();
        }
        if let Some(within) = s.next.map(|next| x - next).filter(|within| *within > 0.0) {
            lasts *= self.no_flow(s.pace, 0.0, within);
            lasts *= s.timers.iter().flatten().map(|t| (1.0 - within / t.period).max(0.0)).product::<f64>();
            if wake_on == WakeOn::All {
                lasts *= (-within / s.noise).exp();
            }
        }
        lasts
    }

    /// That no flow begins within `x` seconds, when the last one began `since` seconds ago.
    fn no_flow(&self, pace: f64, since: f64, x: f64) -> f64 {
        if since + x >= LONGEST_GAP {
            return 0.0;
        }
        let (mu, sigma) = FLOW_GAP;
        let beyond =
            |gap: f64| if gap > 0.0 { self.normal.sf(((gap / pace).ln() - mu) / sigma) } else { 1.0 };
        ratio(beyond(since + x), beyond(since))
    }

    /// That a timer does not fire within `x` seconds.
    fn not_fired(&self, timer: &Timer, x: f64) -> f64 {
        let Timer { period, since, first } = *timer;
        if first {
            // Its phase is drawn with the session.
            return ratio((period - since - x).max(0.0), (period - since).max(0.0));
        }
        let deviation = TIMER_JITTER * period;
        let late = (since + x - period) / deviation;
        // Far from the time at which it is due nothing has to be computed.
        match late {
            ..-8.0 => 1.0,
            8.0.. => 0.0,
            _ => ratio(self.normal.sf(late), self.normal.sf((since - period) / deviation)),
        }
    }

    /// The number of the age that costs least on average; beyond the last for never.
    fn best(&self, s: &Standing, wake_on: WakeOn) -> usize {
        let never = self.ages.len();
        let break_even = self.cost.of(0.0).min(self.cost.of(f64::INFINITY));
        // What has begun goes on before a sleep could pay.
        if s.begun[usize::from(wake_on == WakeOn::Outgoing)].is_some_and(|at| at <= break_even) {
            return never;
        }
        // Where only what the client sends wakes, one who leaves without sending is charged to the last packet that arrives: to the mean of it.
        let alone = wake_on == WakeOn::Outgoing && s.since_flow.is_none();
        let gone = s.left.max(0.0);
        let last = gone - s.noise * (1.0 - (-gone / s.noise).exp());
        let ends =
            (alone && s.next.is_none_or(|next| next - last > SESSION.as_secs_f64())).then_some((gone, last));
        let lasts = |x: f64| match ends {
            Some((gone, _)) if x >= gone => 0.0,
            _ => self.lasts(s, wake_on, x),
        };
        let mut before = lasts(self.ages[0]);
        // For each step of the ages: how likely the silence ends there, and when.
        let mut steps: Vec<(f64, f64)> = Vec::with_capacity(never);
        for pair in self.ages.windows(2) {
            let after = lasts(pair[1]);
            let end = match ends {
                // The step in which it is over for good.
                Some((gone, last)) if pair[0] < gone && gone <= pair[1] => last.clamp(self.ages[0], gone),
                _ => (pair[0] + pair[1]) / 2.0,
            };
            steps.push((before - after, end));
            before = after;
        }
        // From the last age back: what a sleep costs in silences that last so long, and how many do.
        let mut costs = vec![0.0; never];
        let (mut sleeps, mut many) = (0.0, 0.0);
        for (i, (likely, end)) in steps.iter().enumerate().rev() {
            sleeps += likely * self.cost.of(*end);
            many += likely;
            costs[i] = sleeps + many * self.ages[i];
        }
        // And forwards: what those cost that were over before.
        let (mut awake, mut best) = (0.0, (f64::INFINITY, never));
        for (i, (likely, end)) in steps.iter().enumerate() {
            if awake + costs[i] < best.0 {
                best = (awake + costs[i], i);
            }
            awake += likely * self.cost.awake(*end);
        }
        if awake <= best.0 { never } else { best.1 }
    }
}

/// Chooses for one client, packet by packet.
#[derive(Default)]
pub(super) struct Chooser {
    last: Option<u64>,
    standing: Option<Standing>,
    /// For each silence that counts, in their order.
    pub(super) chosen: Vec<Chosen>,
}

impl Chooser {
    /// `packet` is the one that `made` gave last. What stood when the silence before it began is what was known.
    pub(super) fn packet(&mut self, law: &Law, made: &Population, packet: &ClientPacket) {
        let silence = self.last.map(|last| Duration::from_nanos(packet.at.saturating_sub(last)));
        if let Some(standing) = self.standing.take()
            && silence.is_some_and(|silence| (MIN_IDLE..=SESSION).contains(&silence))
        {
            self.chosen.push(law.choose(&standing));
        }
        self.last = Some(packet.at);
        let shortest = u64::try_from(MIN_IDLE.as_nanos()).unwrap_or(u64::MAX);
        if !made.follows(packet.client, shortest) {
            self.standing = made.standing(packet.client);
        }
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { (a / b).min(1.0) } else { 0.0 }
}

/// Goes off in each period of a stretch at the time that was chosen for it.
struct Chooses<'a> {
    ages: &'a [f64],
    chosen: std::slice::Iter<'a, u16>,
}

impl Rule for Chooses<'_> {
    fn off_after(&mut self) -> f64 {
        let chosen = self.chosen.next().map_or(usize::MAX, |n| usize::from(*n));
        self.ages.get(chosen).copied().unwrap_or(f64::INFINITY)
    }

    fn learn(&mut self, _: f64) {}
}

/// What came of it. `None` where nothing was chosen, as on recordings, whose law is not known.
pub(super) fn follow(idle: &[Sessions], wake_on: WakeOn, cost: SleepCost) -> Option<Clients> {
    let ages = ages();
    let which = usize::from(wake_on == WakeOn::Outgoing);
    let mut any = false;
    let mut client = |sessions: &Sessions| -> Option<Vec<Saved>> {
        let mut out = Vec::new();
        for session in sessions {
            let chosen = &session.chosen[which];
            if chosen.len() != session.periods.len() {
                return None;
            }
            any |= !chosen.is_empty();
            let (mut sum, mut at) = (Saved { idle: 0.0, paid: 0.0, best: 0.0 }, 0);
            for stretch in session.stretches(wake_on) {
                let Stretch { periods, .. } = stretch;
                let end = at + periods.len();
                let mut rule = Chooses { ages: &ages, chosen: chosen.get(at..end)?.iter() };
                live(&mut rule, cost, &stretch, &mut sum);
                at = end;
            }
            out.extend((sum.idle > 0.0).then_some(sum));
        }
        Some(out)
    };
    let all: Option<Clients> = idle.iter().map(&mut client).collect();
    all.filter(|_| any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_trace::generate::Recipe;

    const BREAK_EVEN: f64 = 22.3;

    fn law() -> Law {
        Law::new(SleepCost::constant(BREAK_EVEN))
    }

    /// A client of which nothing more is to come.
    fn nothing() -> Standing {
        Standing {
            pace: 1.0,
            noise: 1e9,
            since_flow: None,
            begun: [None; 2],
            timers: [None; 4],
            left: 1e5,
            next: None,
        }
    }

    /// When it goes off, in seconds; infinite for never.
    fn off(standing: &Standing, wake_on: WakeOn) -> f64 {
        law().ages.get(law().best(standing, wake_on)).copied().unwrap_or(f64::INFINITY)
    }

    #[test]
    fn it_sleeps_at_once_where_that_pays_and_not_where_it_does_not() {
        let timer = |since| {
            let timer = Timer { period: 59.0, since, first: false };
            Standing { timers: [Some(timer), None, None, None], ..nothing() }
        };
        let unasked = |noise| Standing { noise, ..nothing() };
        for (standing, wake_on, expected) in [
            // 59 s are more than it costs to sleep, ten are less.
            (timer(0.0), WakeOn::All, 0.25),
            (timer(49.0), WakeOn::All, f64::INFINITY),
            (timer(49.0), WakeOn::Outgoing, f64::INFINITY),
            // What arrives at random is as far away as ever, however long nothing came.
            (unasked(600.0), WakeOn::All, 0.25),
            (unasked(10.0), WakeOn::All, f64::INFINITY),
            (Standing { begun: [Some(5.0); 2], ..nothing() }, WakeOn::All, f64::INFINITY),
        ] {
            assert_eq!(off(&standing, wake_on), expected, "{standing:?}");
        }
        // Most flows follow at once, and what has lasted long lasts: it waits first.
        let flow = off(&Standing { since_flow: Some(0.0), ..nothing() }, WakeOn::Outgoing);
        assert!((1.0..BREAK_EVEN).contains(&flow), "{flow}");
    }

    /// The law is the generator's: what it gives the silences that came is spread evenly between 0 and 1.
    #[test]
    fn the_law_is_that_of_the_silences() {
        let law = law();
        for wake_on in [WakeOn::All, WakeOn::Outgoing] {
            let mut population =
                Population::new(Recipe { clients: 40, days: 3, seed: 77, start: 1_700_006_400 });
            let mut waits: Vec<Option<(u64, Standing)>> = vec![None; 40];
            let mut given = Vec::new();
            while let Some(packet) = population.next() {
                let wakes = wake_on == WakeOn::All || packet.info.is_outgoing();
                let waiting = &mut waits[packet.client as usize];
                if !wakes {
                    continue;
                }
                if let Some((since, standing)) = waiting.take() {
                    let lasted = (packet.at - since) as f64 / 1e9;
                    let of = |x| law.lasts(&standing, wake_on, x);
                    // Those of a packet that is under way are no question.
                    if lasted >= 0.25 && of(lasted) > 0.0 {
                        given.push(of(lasted) / of(0.25));
                    }
                }
                // Behind a client's last session some silences never end.
                let standing = population.standing(packet.client).filter(|standing| standing.next.is_some());
                *waiting = standing.map(|standing| (packet.at, standing));
            }
            let n = given.len() as f64;
            let mean = given.iter().sum::<f64>() / n;
            let below = |part: f64| given.iter().filter(|g| **g < part).count() as f64 / n;
            assert!(n > 3_000.0, "{n} silences");
            assert!((mean - 0.5).abs() < 0.02, "{wake_on:?}: mean {mean} of {n}");
            for part in [0.1, 0.25, 0.5, 0.75, 0.9] {
                assert!((below(part) - part).abs() < 0.03, "{wake_on:?}: {} below {part}", below(part));
            }
        }
    }
}
