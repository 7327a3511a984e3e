//! What each constant of the policy does, and how much is to be had at all: the tables of `docs/policy.md`.
//!
//! `cargo run --release -p dormouse-trace --example policy [CLIENTS [FIRST_SEED]]`: twenty populations of so many clients, every packet waking,
//! and only the client's own. The same arguments give the same tables.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use dormouse_energy::account::{ClientReport, Ledger, SESSION, Settings, WakeOn};
use dormouse_energy::cost::SleepCost;
use dormouse_energy::schedule::{Dormouse, MIN_IDLE, Policy, Scheduler, TIME_OUTS, Tuning};
use dormouse_sansio::Instant;
use dormouse_trace::generate::{Population, Recipe};
use dormouse_trace::seen::ClientPacket;

/// MOBIKE with paper 000's laptop, in seconds.
const BREAK_EVEN: f64 = 22.3;
const SEEDS: u64 = 20;
/// The populations from which the law is learned are others.
const LAW: u64 = 1_000_000;

fn recipe(clients: u32, seed: u64) -> Recipe {
    Recipe { clients, days: 1, seed, start: 1_700_006_400 }
}

/// Each constant halved and doubled.
fn variants() -> Vec<(String, Tuning)> {
    type Change = fn(&mut Tuning, f64);
    const CONSTANTS: [(&str, Change); 8] = [
        ("prior", |t, f| t.prior *= f as f32),
        ("memory", |t, f| t.memory *= f as f32),
        ("learning_rate", |t, f| t.learning_rate *= f as f32),
        ("loss_memory", |t, f| t.loss_memory *= f),
        ("longest", |t, f| t.longest *= f),
        ("late", |t, f| t.late *= f),
        ("proof", |t, f| t.proof *= f),
        ("contexts", |t, f| t.contexts = (t.contexts as f64 * f) as usize),
    ];
    let mut all = vec![("as shipped".to_owned(), Tuning::SHIPPED)];
    for (name, change) in CONSTANTS {
        for (factor, word) in [(0.5, "half"), (2.0, "twice")] {
            let mut tuning = Tuning::SHIPPED;
            change(&mut tuning, factor);
            all.push((format!("{word} `{name}`"), tuning));
        }
    }
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

/// Mean percent saved over sessions, and clients that pay for sleeping, of the policy with this number.
fn figures(clients: &[Vec<ClientReport>], policy: usize) -> (f64, usize) {
    let sessions = || clients.iter().flatten().filter(|s| s.idle_cost > 0.0);
    let saved = |s: &ClientReport| s.policies[policy].1.saved_fraction(s.idle_cost);
    let over = |c: &&Vec<ClientReport>| {
        c.iter().map(|s| s.policies[policy].1.cost - s.idle_cost).sum::<f64>() > 1e-6
    };
    (
        100.0 * sessions().map(saved).sum::<f64>() / sessions().count() as f64,
        clients.iter().filter(over).count(),
    )
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse().ok());
    let clients = arguments.next().and_then(|n| u32::try_from(n).ok()).unwrap_or(150);
    let seed: u64 = arguments.next().unwrap_or(1);
    let mut out = std::io::stdout().lock();
    let variants = variants();
    for (wake_on, words) in
        [(WakeOn::All, "Every packet wakes"), (WakeOn::Outgoing, "Only what the client sends wakes")]
    {
        let settings =
            Settings { session: Some(SESSION), wake_on, ..Settings::new(SleepCost::constant(BREAK_EVEN)) };
        let law = law(clients, seed, wake_on);
        let ledger = || {
            let mut policies: Vec<Box<dyn Scheduler>> = Vec::new();
            policies.extend(
                variants.iter().map(|v| Box::new(Dormouse::with(BREAK_EVEN, v.1)) as Box<dyn Scheduler>),
            );
            policies.push(Policy::PAPER.scheduler(BREAK_EVEN));
            policies.push(Policy::BreakEven.scheduler(BREAK_EVEN));
            policies.push(Box::new(Dormouse::knowing(law.clone())));
            policies.extend(TIME_OUTS.map(|t| Policy::Timeout(t).scheduler(BREAK_EVEN)));
            Ledger::new(settings, policies)
        };
        let mut all = Vec::new();
        for seed in seed..seed + SEEDS {
            let mut ledgers: Vec<Ledger> = (0..clients).map(|_| ledger()).collect();
            for p in Population::new(recipe(clients, seed)) {
                ledgers[p.client as usize].packet(Instant::from_nanos(p.at), &p.info);
            }
            all.extend(ledgers.into_iter().map(Ledger::sessions));
        }
        let first = variants.len() + 3;
        let time_outs = first..first + TIME_OUTS.len();
        let best = time_outs.clone().max_by(|a, b| figures(&all, *a).0.total_cmp(&figures(&all, *b).0));
        let best = best.unwrap_or(first);
        let names = variants.iter().map(|v| v.0.clone()).enumerate().chain([
            (variants.len(), "the paper's rule".to_owned()),
            (variants.len() + 1, "break-even".to_owned()),
            (best, format!("best fixed time-out in hindsight, {:.2} s", TIME_OUTS[best - first])),
            (variants.len() + 2, "a policy that knows the law".to_owned()),
            (time_outs.end, "clairvoyant".to_owned()),
        ]);
        let most = figures(&all, time_outs.end).0;
        writeln!(
            out,
            "| {words} | saved, mean % | of the maximum, % | clients that pay, of {} |",
            all.len()
        )?;
        writeln!(out, "|---|---|---|---|")?;
        for (policy, name) in names {
            let (saved, pay) = figures(&all, policy);
            writeln!(out, "| {name} | {saved:.2} | {:.1} | {pay} |", 100.0 * saved / most)?;
        }
        writeln!(out)?;
    }
    Ok(())
}
