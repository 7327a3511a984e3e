//! Shares of the clairvoyant saving on recordings in a plain CSV: `client,time,direction,bytes,sport,dport,proto`, sorted by
//! time for each client (`o` or `i` for the direction). One argument per file; a number is a break-even time in seconds.

#![expect(clippy::print_stdout, reason = "an example's output")]

use std::collections::BTreeMap;

use dormouse_energy::account::{Ledger, Settings};
use dormouse_energy::model::SleepCost;
use dormouse_energy::schedule::Policy;
use dormouse_energy::{Direction, PacketInfo};
use dormouse_sansio::Instant;

const POLICIES: [Policy; 4] = [Policy::Never, Policy::BreakEven, Policy::PAPER, Policy::Dormouse];

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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut break_even = 22.3;
    let mut blind = false;
    let mut clients: BTreeMap<String, Ledger> = BTreeMap::new();
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
            let ledger = clients.entry(client.to_owned()).or_insert_with(|| {
                let policies = POLICIES.map(|p| p.scheduler(break_even)).into();
                Ledger::new(Settings::new(SleepCost::constant(break_even)), policies)
            });
            ledger.packet(at, &if blind { PacketInfo::default() } else { info });
        }
    }
    print!("{:20}{:>10}{:>10}", "client", "periods", "best");
    POLICIES.iter().for_each(|p| print!("{:>12}", p.name()));
    println!();
    let (mut sums, mut count) = ([0.0; POLICIES.len()], 0.0);
    for (client, ledger) in clients {
        let report = ledger.finish();
        let best = report.policy("clairvoyant").map_or(0.0, |t| t.saved_fraction(report.idle_seconds));
        print!("{client:20}{:>10}{best:>10.4}", report.idle_periods);
        for (sum, policy) in sums.iter_mut().zip(POLICIES) {
            let share = report.share_of_clairvoyant(policy.name()).unwrap_or(f64::NAN);
            *sum += share;
            print!("{share:>12.4}");
        }
        count += 1.0;
        println!();
    }
    print!("{:40}", "mean");
    sums.iter().for_each(|s| print!("{:>12.4}", s / count));
    println!();
    Ok(())
}
