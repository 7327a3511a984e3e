//! Shares of the clairvoyant saving on recordings in a plain CSV: `client,time,direction,bytes,sport,dport,proto`, sorted by
//! time for each client (`o` or `i` for the direction; the time with a fraction).
//!
//! Arguments: files; `--blind` hides everything but the times; a number is the break-even time in seconds.
//! Beside the shipped policies stand two for comparison: follow-the-leader over 26 time-outs, and the best fixed time-out
//! in hindsight.

#![expect(clippy::disallowed_methods, reason = "an example reads the files that it is given")]
#![expect(clippy::print_stdout, reason = "an example's output")]

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_energy::account::{Ledger, Settings};
use dormouse_energy::model::SleepCost;
use dormouse_energy::schedule::{Decision, Policy, Scheduler, StateError};
use dormouse_energy::{Direction, PacketInfo};
use dormouse_sansio::Instant;

const POLICIES: [Policy; 3] = [Policy::BreakEven, Policy::PAPER, Policy::Dormouse];
const LEADERS: usize = 26;

/// Follow the leader: the time-out that would have been cheapest so far.
struct Leader {
    break_even: f64,
    costs: [f64; LEADERS],
}

fn time_out(i: usize) -> f64 {
    if i + 1 == LEADERS { f64::INFINITY } else { 0.25 * 1.3f64.powf(i as f64) }
}

impl Leader {
    fn best(&self) -> usize {
        (0..LEADERS).min_by(|a, b| self.costs[*a].total_cmp(&self.costs[*b])).unwrap_or(0)
    }
}

impl Scheduler for Leader {
    fn name(&self) -> &'static str {
        "leader"
    }
    fn observe(&mut self, _at: Instant, _packet: &PacketInfo) {}
    fn decide(&mut self) -> Decision {
        Decision::after_seconds(time_out(self.best()))
    }
    fn learn(&mut self, idle: Duration) {
        let idle = idle.as_secs_f64();
        for (i, cost) in self.costs.iter_mut().enumerate() {
            *cost += if idle > time_out(i) { time_out(i) + self.break_even } else { idle };
        }
    }
    fn set_break_even(&mut self, seconds: f64) {
        self.break_even = seconds;
    }
    fn state_bytes(&self) -> usize {
        size_of::<Self>()
    }
    fn save(&self, _out: &mut Vec<u8>) {}
    fn restore(&mut self, _state: &[u8]) -> Result<(), StateError> {
        Ok(())
    }
}

fn parse(line: &str) -> Option<(&str, Instant, PacketInfo)> {
    let mut fields = line.split(',');
    let client = fields.next()?;
    let (seconds, fraction) = fields.next()?.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let nanos: u64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let outgoing = fields.next()? == "o";
    let size = fields.next()?.parse().ok()?;
    let source = fields.next()?.parse().ok()?;
    let target = fields.next()?.parse().ok()?;
    let (local_port, remote_port) = if outgoing { (source, target) } else { (target, source) };
    let info = PacketInfo {
        direction: if outgoing { Direction::Outgoing } else { Direction::Incoming },
        protocol: fields.next()?.parse().ok()?,
        local_port,
        remote_port,
        size,
        time_of_day: u32::try_from(seconds % 86_400).ok(),
    };
    Some((client, Instant::from_nanos(seconds * 1_000_000_000 + nanos), info))
}

/// One client: its ledger, and its idle periods for the best fixed time-out.
struct Client {
    ledger: Ledger,
    last: Instant,
    periods: Vec<f64>,
}

impl Client {
    fn new(break_even: f64, at: Instant) -> Self {
        let mut policies: Vec<Box<dyn Scheduler>> = POLICIES.map(|p| p.scheduler(break_even)).into();
        policies.push(Box::new(Leader { break_even, costs: [0.0; LEADERS] }));
        let ledger = Ledger::new(Settings::new(SleepCost::constant(break_even)), policies);
        Self { ledger, last: at, periods: Vec::new() }
    }

    fn packet(&mut self, at: Instant, info: &PacketInfo) {
        let idle = at.saturating_since(self.last).as_secs_f64();
        if idle >= 0.25 {
            self.periods.push(idle);
        }
        self.last = at;
        self.ledger.packet(at, info);
    }

    fn best_fixed(&self, break_even: f64) -> f64 {
        let cost = |t: f64| -> f64 {
            self.periods.iter().map(|g| if *g > t { t + break_even } else { *g }).sum::<f64>()
        };
        (0..LEADERS).map(|i| cost(time_out(i))).fold(f64::INFINITY, f64::min)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut break_even = 22.3;
    let mut blind = false;
    let mut clients: BTreeMap<String, Client> = BTreeMap::new();
    for argument in std::env::args().skip(1) {
        if let Ok(seconds) = argument.parse() {
            break_even = seconds;
            continue;
        }
        if argument == "--blind" {
            blind = true;
            continue;
        }
        for (client, at, info) in std::fs::read_to_string(&argument)?.lines().filter_map(parse) {
            let client = clients.entry(client.to_owned()).or_insert_with(|| Client::new(break_even, at));
            client.packet(at, &if blind { PacketInfo::default() } else { info });
        }
    }
    let names = ["break-even", "paper", "dormouse", "leader"];
    print!("{:20}{:>9}{:>8}", "client", "periods", "best");
    names.iter().for_each(|name| print!("{name:>11}"));
    println!("{:>11}", "best fixed");
    let (mut sums, mut count) = ([0.0; 5], 0.0);
    for (name, client) in clients {
        let fixed = client.best_fixed(break_even);
        let report = client.ledger.finish();
        let best = report.policy("clairvoyant").copied().unwrap_or_default();
        print!("{name:20}{:>9}{:>8.4}", report.idle_periods, best.saved_fraction(report.idle_seconds));
        let mut shares = names.map(|n| report.share_of_clairvoyant(n).unwrap_or(f64::NAN)).to_vec();
        shares.push((report.idle_seconds - fixed) / (report.idle_seconds - best.cost));
        shares.iter().for_each(|s| print!("{s:>11.4}"));
        println!();
        if shares.iter().all(|s| s.is_finite()) {
            count += 1.0;
            sums.iter_mut().zip(shares).for_each(|(sum, s)| *sum += s);
        }
    }
    print!("{:37}", "mean");
    sums.iter().for_each(|s| print!("{:>11.4}", s / count));
    println!();
    Ok(())
}
