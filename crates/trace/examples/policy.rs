//! What each constant of the policy does, and how much is to be had at all: the tables of `docs/policy.md`.
//!
//! `cargo run --release -p dormouse-trace --example policy [CLIENTS [FIRST_SEED [CONSTANT...]]]`: twenty populations of so many clients, every
//! packet waking, and only the client's own; with names, the rows of these constants alone, which are the same and take less time.
//! `... --example policy FILE...`: the policies on recordings, client by client. The same arguments give the same tables.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use dormouse_energy::WakeOn;
use dormouse_energy::account::{ClientReport, Ledger, SESSION, Settings};
use dormouse_energy::cost::SleepCost;
use dormouse_energy::schedule::{Dormouse, MIN_IDLE, Policy, Scheduler, TIME_OUTS, Tuning};
use dormouse_sansio::{Entropy as _, Instant, Seeded};
use dormouse_trace::analyse::{Options, analyse};
use dormouse_trace::facts::Limits;
use dormouse_trace::flow::Spread;
use dormouse_trace::fold::Sessions;
use dormouse_trace::generate::{Population, Recipe};
use dormouse_trace::input::Input;
use dormouse_trace::seen::ClientPacket;

/// MOBIKE with paper 000's laptop, in seconds.
const BREAK_EVEN: f64 = 22.3;
const SEEDS: u64 = 20;
/// The populations from which the law is learned are others.
const LAW: u64 = 1_000_000;
/// Times that clients are drawn for an interval.
const DRAWS: usize = 1_000;
const RULES: [(WakeOn, &str); 2] =
    [(WakeOn::All, "Every packet wakes"), (WakeOn::Outgoing, "Only what the client sends wakes")];

fn recipe(clients: u32, seed: u64) -> Recipe {
    Recipe { clients, days: 1, seed, start: 1_700_006_400 }
}

fn settings(wake_on: WakeOn) -> Settings {
    Settings { session: Some(SESSION), wake_on, ..Settings::new(SleepCost::constant(BREAK_EVEN)) }
}

/// Each constant halved and doubled, or what comes nearest; of those named alone, if any are.
fn variants(named: &[String]) -> Vec<(String, Tuning)> {
    let mut all = all_variants();
    if !named.is_empty() {
        let is_named = |row: &str| named.iter().any(|name| row.contains(&format!("`{name}`")));
        all.retain(|(row, tuning)| *tuning == Tuning::SHIPPED || is_named(row));
    }
    all
}

fn all_variants() -> Vec<(String, Tuning)> {
    type Change = fn(&mut Tuning, f64);
    const CONSTANTS: [(&str, Change); 23] = [
        ("prior", |t, f| t.prior *= f as f32),
        ("memory", |t, f| t.memory *= f as f32),
        ("learning_rate", |t, f| t.learning_rate *= f as f32),
        ("loss_memory", |t, f| t.loss_memory *= f),
        ("longest", |t, f| t.longest *= f),
        ("late", |t, f| t.late *= f),
        ("proof", |t, f| t.proof *= f),
        ("contexts", |t, f| t.contexts = (t.contexts as f64 * f) as usize),
        ("allowance", |t, f| t.allowance *= f),
        ("reserve", |t, f| t.reserve *= f),
        ("open", |t, f| t.open = (t.open as f64 * f) as usize),
        ("kinds", |t, f| t.kinds = (t.kinds as f64 * f) as usize),
        ("tolerance", |t, f| t.tolerance *= f as f32),
        ("same_event", |t, f| t.same_event *= f as f32),
        ("follow", |t, f| t.follow *= f as f32),
        ("lateness", |t, f| t.lateness *= f),
        ("stopped", |t, f| t.stopped *= f),
        ("stale", |t, f| t.stale *= f),
        ("idle_steps", |t, f| t.idle_steps *= f),
        ("due_steps", |t, f| t.due_steps *= f),
        ("since_steps", |t, f| t.since_steps *= f),
        ("burst", |t, f| t.burst = (f64::from(t.burst) * f) as u8),
        ("trusted` and `certain", |t, f| {
            t.trusted = (f64::from(t.trusted) * f) as u8;
            t.certain = (f64::from(t.certain) * f) as u8;
        }),
    ];
    let mut all = vec![("as shipped".to_owned(), Tuning::SHIPPED)];
    for (name, change) in CONSTANTS {
        for (factor, word) in [(0.5, "half"), (2.0, "twice")] {
            let mut tuning = Tuning::SHIPPED;
            change(&mut tuning, factor);
            all.push((format!("{word} `{name}`"), tuning));
        }
    }
    for ratio in [1.2, 1.35] {
        let longest = 0.25 * f64::powi(ratio, 30);
        all.push((format!("`ratio` {ratio} (to {longest:.0} s)"), Tuning { ratio, ..Tuning::SHIPPED }));
    }
    all.extend([0.8, 0.95].map(|wear| (format!("`wear` {wear}"), Tuning { wear, ..Tuning::SHIPPED })));
    all
}

/// What the populations of other seeds teach, one client after the other.
fn law(clients: u32, seed: u64, wake_on: WakeOn) -> Arc<Dormouse> {
    let mut law = Dormouse::with(BREAK_EVEN, Tuning { contexts: 1 << 17, memory: 1e7, ..Tuning::SHIPPED });
    law.wakes_on(wake_on);
    for seed in seed + LAW..seed + LAW + SEEDS {
        let mut packets: Vec<Vec<ClientPacket>> = (0..clients).map(|_| Vec::new()).collect();
        Population::new(recipe(clients, seed)).for_each(|p| packets[p.client as usize].push(p));
        for client in packets {
            let mut last = client.first().map_or(0, |p| p.at);
            for packet in client {
                let idle = Duration::from_nanos(packet.at - last);
                if idle >= MIN_IDLE && idle <= SESSION {
                    law.learn(idle);
                }
                law.observe(Instant::from_nanos(packet.at), &packet.info);
                last = packet.at;
            }
            law = law.next_client();
        }
    }
    Arc::new(law)
}

/// What a policy came to: for each client its saving and the clairvoyant's, in seconds of idle radio, and over all sessions.
struct Outcome {
    clients: Vec<(f64, f64)>,
    /// Percent saved, mean over sessions, and the session that saved least.
    mean: f64,
    worst: f64,
    sessions: usize,
}

impl Outcome {
    /// Of the policy with this number, the clairvoyant being the last.
    fn of(clients: &[Vec<ClientReport>], policy: usize) -> Self {
        let saving = |c: &Vec<ClientReport>| {
            let saved =
                |s: &ClientReport, n: usize| s.policies.get(n).map_or(0.0, |p| s.idle_cost - p.1.cost);
            let best = |s: &ClientReport| saved(s, s.policies.len() - 1);
            c.iter().fold((0.0, 0.0), |sum, s| (sum.0 + saved(s, policy), sum.1 + best(s)))
        };
        let sessions = clients.iter().flatten().filter(|s| s.idle_cost > 0.0);
        let saved: Vec<f64> =
            sessions.map(|s| 100.0 * s.policies[policy].1.saved_fraction(s.idle_cost)).collect();
        Self {
            clients: clients.iter().map(saving).collect(),
            mean: saved.iter().sum::<f64>() / saved.len() as f64,
            worst: saved.iter().copied().fold(f64::INFINITY, f64::min),
            sessions: saved.len(),
        }
    }

    /// The part of the clairvoyant's saving, in percent, over clients that may occur more than once.
    fn share(&self, drawn: impl Iterator<Item = usize>) -> f64 {
        let (saved, best) = drawn.map(|n| self.clients[n]).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
        100.0 * saved / best
    }

    fn whole(&self) -> f64 {
        self.share(0..self.clients.len())
    }

    /// Clients that pay for sleeping.
    fn pay(&self) -> usize {
        self.clients.iter().filter(|(saved, _)| *saved < -1e-6).count()
    }
}

/// Clients drawn anew from all, again and again: the same draws for every policy.
fn draws(clients: usize) -> Vec<Vec<usize>> {
    let mut random = Seeded::new(1);
    let mut one = || usize::try_from(random.below(clients as u64)).unwrap_or(0);
    (0..DRAWS).map(|_| (0..clients).map(|_| one()).collect()).collect()
}

/// Between which ends 95 of 100 of the values are.
fn interval(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |part: f64| values[(part * (values.len() - 1) as f64).round() as usize];
    (at(0.025), at(0.975))
}

fn populations(clients: u32, seed: u64, named: &[String], out: &mut impl Write) -> std::io::Result<()> {
    let (variants, whole) = (variants(named), named.is_empty());
    for (wake_on, words) in RULES {
        // What depends on no constant is in the whole table alone.
        let law = whole.then(|| law(clients, seed, wake_on));
        let ledger = || {
            let mut policies: Vec<Box<dyn Scheduler>> = Vec::new();
            policies.extend(
                variants.iter().map(|v| Box::new(Dormouse::with(BREAK_EVEN, v.1)) as Box<dyn Scheduler>),
            );
            if let Some(law) = &law {
                policies.push(Policy::PAPER.scheduler(BREAK_EVEN));
                policies.push(Policy::BreakEven.scheduler(BREAK_EVEN));
                policies.push(Box::new(Dormouse::knowing(law.clone())));
                policies.extend(TIME_OUTS.map(|t| Policy::Timeout(t).scheduler(BREAK_EVEN)));
            }
            Ledger::new(settings(wake_on), policies)
        };
        let mut all = Vec::new();
        for seed in seed..seed + SEEDS {
            let mut ledgers: Vec<Ledger> = (0..clients).map(|_| ledger()).collect();
            for p in Population::new(recipe(clients, seed)) {
                ledgers[p.client as usize].packet(Instant::from_nanos(p.at), &p.info);
            }
            all.extend(ledgers.into_iter().map(Ledger::sessions));
        }
        let mut names: Vec<(usize, String)> = variants.iter().map(|v| v.0.clone()).enumerate().collect();
        let clairvoyant = variants.len() + if whole { 3 + TIME_OUTS.len() } else { 0 };
        if whole {
            names.extend(beside(&all, variants.len()));
        }
        let (shipped, most) = (Outcome::of(&all, 0), Outcome::of(&all, clairvoyant).mean);
        let draws = draws(all.len());
        let of_shipped: Vec<f64> = draws.iter().map(|d| shipped.share(d.iter().copied())).collect();
        writeln!(
            out,
            "| {words} | of the clairvoyant's saving, % | points beyond shipped, 95 % | saved, mean % of {} sessions | of the maximum, % | \
             the worst session moves the mean by | clients that pay, of {} |",
            shipped.sessions,
            all.len()
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|")?;
        for (policy, name) in names {
            let outcome = Outcome::of(&all, policy);
            let shares = draws.iter().map(|d| outcome.share(d.iter().copied()));
            let (low, high) = if policy == 0 {
                interval(shares)
            } else {
                interval(shares.zip(&of_shipped).map(|(a, b)| a - b))
            };
            let (low, high) = if policy == 0 {
                (format!("(its own: {low:.1}"), format!("{high:.1})"))
            } else {
                (format!("{low:+.2}"), format!("{high:+.2}"))
            };
            writeln!(
                out,
                "| {name} | {:.2} | {low} to {high} | {:.2} | {:.1} | {:+.2} | {} |",
                outcome.whole(),
                outcome.mean,
                100.0 * outcome.mean / most,
                outcome.worst / outcome.sessions as f64,
                outcome.pay()
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The rows behind those of the constants, of which there are `variants`: each policy's number and name.
fn beside(all: &[Vec<ClientReport>], variants: usize) -> [(usize, String); 5] {
    let first = variants + 3;
    let time_outs = first..first + TIME_OUTS.len();
    let share = |policy: usize| Outcome::of(all, policy).whole();
    let best = time_outs.clone().max_by(|a, b| share(*a).total_cmp(&share(*b))).unwrap_or(first);
    [
        (variants, "the paper's rule".to_owned()),
        (variants + 1, "break-even".to_owned()),
        (best, format!("best fixed time-out in hindsight, {:.2} s", TIME_OUTS[best - first])),
        (variants + 2, "a policy taught by other populations".to_owned()),
        (time_outs.end, "clairvoyant".to_owned()),
    ]
}

/// One client of recordings, or all of them: the share of each policy, and of the clairvoyant that goes off only when a silence counts as
/// idle, as any device must.
fn shares(report: &ClientReport) -> Option<[f64; 4]> {
    let best = report.policy("clairvoyant")?;
    let late = MIN_IDLE.as_secs_f64() * best.cycles as f64;
    let can = report.idle_cost - best.cost;
    let share = |name: &str| report.share_of_clairvoyant(name).map(|s| 100.0 * s);
    Some([share("dormouse")?, share("paper")?, share("break-even")?, 100.0 * (can - late) / can])
}

fn recordings(files: &[String], out: &mut impl Write) -> std::io::Result<()> {
    let inputs: Vec<Input> = files.iter().map(|f| Input::file(f.as_ref())).collect();
    for (wake_on, words) in RULES {
        let options = Options {
            wanted: Vec::new(),
            format: None,
            spread: Spread::Even,
            settings: settings(wake_on),
            sessions: Sessions::Silence,
            limits: Limits::default(),
            policies: Options::policies(60.0),
            threads: 1,
        };
        let analysis = analyse(&inputs, &options, &|_, _| (), &|_| ())?;
        writeln!(
            out,
            "| {words} | idle, h | clairvoyant saves, % | dormouse | the paper's rule | break-even | with foresight, off at 0.25 s |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|")?;
        let one = |c: &dormouse_trace::analyse::ClientResult<()>| {
            let file = c.client.site.rsplit('/').next().unwrap_or_default().to_owned();
            (format!("{file}, {}", c.client.name), c.report())
        };
        let each: Vec<(String, ClientReport)> = analysis.clients.iter().map(one).collect();
        let all = ("all".to_owned(), ClientReport::sum(each.iter().map(|c| &c.1)));
        for (name, report) in each.iter().chain([&all]) {
            let saved = report.policy("clairvoyant").map_or(0.0, |p| p.saved_fraction(report.idle_cost));
            write!(out, "| {name} | {:.1} | {:.1} |", report.idle_seconds / 3600.0, 100.0 * saved)?;
            match shares(report) {
                Some(shares) => shares.iter().try_for_each(|share| write!(out, " {share:.2} |"))?,
                None => write!(out, " – | – | – | – |")?,
            }
            writeln!(out)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments.iter().map_while(|a| a.parse().ok()).collect();
    let mut out = std::io::stdout().lock();
    let (clients, seed, named) = match numbers.as_slice() {
        [] if !arguments.is_empty() => return recordings(&arguments, &mut out),
        [] => (150, 1, 0),
        [clients] => (*clients, 1, 1),
        [clients, seed, ..] => (*clients, *seed, 2),
    };
    populations(u32::try_from(clients).unwrap_or(150), seed, &arguments[named..], &mut out)
}
