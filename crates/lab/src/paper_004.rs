//! Paper 004: "Recommendations for IPsec Configuration on Homenet and M2M Devices" (Migault and others): its rules, Tables 1
//! and 2, and Figures 1 to 11 beside ours. Owns the comparison; the rules themselves are tested by the adviser. The paper's
//! figures are lost as data: what is drawn as the paper's are the ratios that its text states.

mod explain;
mod figures;

use anyhow::Result;
use dormouse_report::Table;

use crate::advise::rules::{self, ANY, Differ, Mode, Pick, Test};
use crate::bench::Request;
use crate::experiment::{Context, Exhibit, Experiment, Report, Source, Takes};
use crate::judge::Claim;
use crate::judge::stats::{Bootstrap, Verdict, geometric_mean};
use crate::measured;
use crate::results::Results;
use crate::results::esp::{Metric, What};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paper-004",
    title: "Paper 004: which IPsec settings suit a device (Tables 1 and 2, Figures 1 to 11, recommendations)",
    source: Source::Campaign { root: true },
    takes: [Takes::measured(450), Takes::measured(1_542)],
    lacks: || None,
    run,
};

/// AES in software, and by the processor's instructions.
const SOFT: Pick = Pick { aes: Some(false), ..ANY };
const HARD: Pick = Pick { aes: Some(true), ..ANY };
const MODES: [(&str, Mode); 4] =
    [("CBC", Mode::Cbc), ("CTR", Mode::Ctr), ("CCM", Mode::Ccm), ("GCM", Mode::Gcm)];
/// Where the paper's comparison is looked for, the nearest to its downloads first.
const ORDER: [What; 3] = [What::Download, What::Path, What::Crypto];

/// The paper's four modes and its baselines, at four of its packet sizes, on one core and all. The full form measures each for longer, in more rounds.
#[must_use]
pub fn needs(short: bool, seed: u64) -> Request {
    let names = ["aes128-sha1", "aes128ctr-sha1", "aes128ccm16", "aes128gcm16", "null-sha1", "none"];
    Request {
        name: if short { "quick" } else { "full" },
        parts: vec![What::Crypto, What::Path, What::Download, What::Tls],
        suites: names.map(str::to_owned).to_vec(),
        sizes: vec![180, 400, 1_024, 1_400],
        cores: cores(),
        files: vec![50_000, 16_000_000],
        rounds: if short { 5 } else { 11 },
        quick: short,
        compare_governors: true,
        seed,
        ..Request::default()
    }
}

/// One, and all that there are.
fn cores() -> Vec<u32> {
    let all = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
    if all > 1 { vec![1, all] } else { vec![1] }
}

fn run(context: &Context) -> Result<Report> {
    Ok(report(&measured::results(context, &needs(context.short, context.seed))?))
}

/// The report on measurements.
#[must_use]
pub fn report(results: &Results) -> Report {
    let bootstrap = Bootstrap::new(results.seed);
    Report {
        name: EXPERIMENT.name,
        title: EXPERIMENT.title,
        synthetic: false,
        traffic: measured::obtained_on(results),
        claims: claims(results, &bootstrap),
        tables: vec![modes(results), winners(results, &bootstrap)],
        figures: figures::all(results, &bootstrap),
        notes: [
            "The paper's devices: a laptop (i5 at 2.53 GHz with AES instructions), a netbook (Atom at 1.6 GHz), a Raspberry Pi (ARMv6 at 700 MHz); the Linux kernel's IPsec of 2015, downloads over HTTP.",
            "Ours is ESP in user space on this machine, so the cost of entering the kernel for each packet is larger, and cryptography a smaller part of the whole, than in the paper.",
            "ESP in UDP leaves this machine in batches that the kernel divides (segmentation offload of UDP); ESP as IP protocol 50 has none, so that each packet passes the kernel alone. What UDP encapsulation gains here over tunnel and transport mode is of that too, and not measured apart.",
            "The paper's CPU time is that of `time`, which misses what the kernel does outside of the process (softirq); ours has the rest of the system from /proc/stat.",
            "The paper's recommendation of SHA1 is not ours: RFC 8221, section 6, has HMAC-SHA1-96 at MUST-, on its way out.",
        ]
        .map(str::to_owned)
        .to_vec(),
        provenance: results.into(),
    }
}

fn claims(results: &Results, bootstrap: &Bootstrap) -> Vec<Claim> {
    rules::check(results, bootstrap)
        .into_iter()
        .map(|rule| Claim {
            why: explain::why(results, bootstrap, rule.id),
            ..Claim::new(rule.place, rule.rule, rule.paper, rule.ours).decided(rule.figures)
        })
        .collect()
}

/// Table 1, with what stands for each mode here.
fn modes(results: &Results) -> Exhibit<Table> {
    let integrity = rules::integrity(results);
    let row = |mode: &str, paper: &str, here: String| vec![mode.to_owned(), paper.to_owned(), here];
    let rows = [
        row("CTR", "AES-CTR, HMAC-SHA1-96", format!("aes128ctr-{integrity}, aes256ctr-{integrity}")),
        row("CBC", "AES-CBC, HMAC-SHA1-96", format!("aes128-{integrity}, aes256-{integrity}")),
        row(
            "CCM",
            "AES-CTR, CBC-MAC",
            "aes128ccm16, aes256ccm16 (made of the library's CTR and CBC)".to_owned(),
        ),
        row("GCM", "AES-CTR, GMAC", "aes128gcm16, aes256gcm16".to_owned()),
    ];
    let title = "Encryption and authentication of each mode";
    Exhibit::new("Table 1", Table::titled(title, ["mode", "paper", "here"], rows))
}

/// Table 2: the best mode by packet size.
fn winners(results: &Results, bootstrap: &Bootstrap) -> Exhibit<Table> {
    let classes =
        [("180 B", (1u32, 199u32)), ("200 to 1,000 B", (200, 999)), ("1,000 to 1,500 B", (1_000, 1_500))];
    let mut rows = Vec::new();
    for (name, aes, metric, paper) in [
        ("AES in software, time", SOFT, Metric::Throughput, ["CBC", "CTR", "CBC"]),
        ("AES in software, CPU", SOFT, Metric::Cpu, ["CBC", "CTR", "CBC"]),
        ("AES instructions, time", HARD, Metric::Throughput, ["CBC", "CTR", "CTR"]),
        ("AES instructions, CPU", HARD, Metric::Cpu, ["CBC", "CBC", "CBC"]),
    ] {
        for ((class, sizes), paper) in classes.iter().zip(paper) {
            let ours = winner(results, bootstrap, aes, metric, *sizes);
            rows.push(vec![name.to_owned(), (*class).to_owned(), paper.to_owned(), ours]);
        }
    }
    let head = ["what", "packets", "paper", "ours"];
    Exhibit::new("Table 2", Table::titled("Best mode by packet size", head, rows))
}

const fn against(first: Mode, second: Mode, aes: Pick, metric: Metric, sizes: (u32, u32)) -> Test {
    Test::new(aes.mode(first), aes.mode(second), Differ::Suite, metric).at(sizes)
}

/// The mode with the best ratio to CBC, and those that tie with it.
fn winner(results: &Results, bootstrap: &Bootstrap, aes: Pick, metric: Metric, sizes: (u32, u32)) -> String {
    for what in ORDER {
        let pairs = |a, b| rules::pairs(results, bootstrap, &against(a, b, aes, metric, sizes), Some(what));
        let over_cbc = |mode: Mode| {
            if mode == Mode::Cbc {
                return Some(1.0);
            }
            geometric_mean(pairs(mode, Mode::Cbc).iter().map(|p| p.comparison.ratio.median))
        };
        let all: Vec<(&str, Mode, f64)> =
            MODES.into_iter().filter_map(|(name, mode)| Some((name, mode, over_cbc(mode)?))).collect();
        let worth = |r: f64| if metric.more_is_better() { r } else { -r };
        let best = all.iter().max_by(|a, b| worth(a.2).total_cmp(&worth(b.2)));
        let Some((name, mode, ratio)) = best.filter(|_| all.len() > 1) else { continue };
        let ties: Vec<&str> = all
            .iter()
            .filter(|o| o.1 != *mode)
            .filter(|o| {
                let pairs = pairs(*mode, o.1);
                !pairs.is_empty()
                    && pairs.iter().all(|p| matches!(p.comparison.verdict, Verdict::Tie | Verdict::Open))
            })
            .map(|o| o.0)
            .collect();
        let ties = if ties.is_empty() {
            String::new()
        } else {
            format!(", not told apart from {}", ties.join(" and "))
        };
        let measure = if metric.more_is_better() { "as fast as CBC" } else { "the CPU of CBC" };
        let missing: Vec<&str> =
            MODES.iter().filter(|m| all.iter().all(|a| a.0 != m.0)).map(|m| m.0).collect();
        let missing =
            if missing.is_empty() { String::new() } else { format!("; without {}", missing.join(", ")) };
        return format!("{name} ({ratio:.2} times {measure}{ties}{missing}), {}", what.words());
    }
    "not measured".to_owned()
}
