//! What the benchmarks share: rows that are measured in turn by the lab's campaign engine, clocks, and the verdict on a target. Owns the
//! clocks of the benchmarks. Every figure that they print is a ratio of two things measured in one run, and every output is verified
//! before it is timed; a benchmark never fails because something was slow.

pub mod endpoints;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use dormouse_lab::bench::rate;
use dormouse_lab::campaign::{Campaign, Plan, Subject};
use dormouse_lab::judge::stats::Bootstrap;
pub use dormouse_lab::judge::stats::Summary;
use dormouse_lab::results::format::paired;
use dormouse_lab::results::{self, Figures, Results};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A row of a benchmark's table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    row: String,
}

impl results::Point for Row {
    const EXPERIMENT: &'static str = "benchmark";
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[
        // CPU time of each end of an exchange; what has one end alone stands in the gateway's.
        ("client", "us"),
        ("gateway", "us"),
        ("messages", "count"),
        ("trips", "count"),
        ("bytes", "B"),
        // Of a packet.
        ("packet", "ns"),
        // Of a TCP stream: received payload, and CPU time of the daemons in percent of one core.
        ("rate", "Mbit/s"),
        ("busy", "%"),
    ];

    fn label(&self) -> String {
        self.row.clone()
    }
}

/// What a row does in a round, and what that gives.
pub type Work<'a> = Box<dyn FnMut() -> Result<Figures> + 'a>;

struct Rows<'a>(BTreeMap<String, Work<'a>>);

impl Subject for Rows<'_> {
    type Point = Row;
    type Stage = ();
    type Group = String;

    fn stage(_: &Row) {}

    fn group(point: &Row) -> String {
        point.row.clone()
    }

    fn prepare(&mut self, _: &Row) -> Result<()> {
        Ok(())
    }

    fn measure(&mut self, point: &Row, _: u32) -> Result<Figures> {
        self.0.get_mut(&point.row).context("no such row")?()
    }

    fn clear(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What was measured of each row.
pub struct Measured(Results<Row>);

/// A figure of each round.
pub type ByRound = BTreeMap<u32, f64>;

impl Measured {
    /// Measures rows of different names in so many rounds, after one that does not count.
    ///
    /// # Errors
    /// If none of them can be measured; one that fails is said on standard error.
    pub fn of<'a>(rows: Vec<(String, Work<'a>)>, rounds: u32) -> Result<Self> {
        let plan = Plan {
            name: "full".to_owned(),
            points: rows.iter().map(|(row, _)| Row { row: row.clone() }).collect(),
            rounds,
            seed: 1,
            settings: serde_json::Value::Null,
            skipped: Vec::new(),
        };
        let mut campaign = Campaign::new(plan, None)?;
        campaign.run(&mut Rows(rows.into_iter().collect()), &AtomicBool::new(false), &mut |_| ())?;
        for failed in &campaign.results.discarded {
            eprintln!("{}, round {}: {}", failed.subject, failed.round, failed.reason);
        }
        Ok(Self(campaign.results))
    }

    /// The rows of which there is something, in their order.
    pub fn rows(&self) -> impl Iterator<Item = &str> {
        self.0.samples.iter().map(|sample| sample.row.as_str())
    }

    /// A figure of a row; none where it was not measured.
    #[must_use]
    pub fn figure(&self, row: &str, name: &str) -> ByRound {
        let rounds = self.0.samples.iter().filter(|s| s.row == row).flat_map(|s| &s.rounds);
        rounds.filter_map(|r| Some((r.round, r.figures.one(name)?))).collect()
    }
}

/// The ratio of two figures, round by round, as the lab's claims have it: what slows the machine down for a while slows both down, and leaves
/// the ratio alone. NaN of none, or where one is not above 0.
#[must_use]
pub fn ratio(above: &ByRound, below: &ByRound) -> f64 {
    Bootstrap::new(1).paired(&paired(above, below)).map_or(f64::NAN, |compared| compared.ratio.median)
}

/// The sum of two figures by round.
#[must_use]
pub fn sum(a: &ByRound, b: &ByRound) -> ByRound {
    a.iter().filter_map(|(round, a)| Some((*round, a + b.get(round)?))).collect()
}

/// CPU time of the calling thread (`CLOCK_THREAD_CPUTIME_ID`): what other processes do on the machine is not in it.
///
/// # Panics
/// If the kernel has no such clock, which no Linux lacks.
#[must_use]
pub fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has it").into()
}

/// What one reading of [`thread_cpu`] costs: the least mean of several runs.
#[must_use]
pub fn clock_cost() -> Duration {
    const READINGS: u32 = 1_000;
    let once = || {
        let start = thread_cpu();
        (0..READINGS).for_each(|_| _ = black_box(thread_cpu()));
        (thread_cpu() - start) / READINGS
    };
    (0..20).map(|_| once()).min().unwrap_or_default()
}

/// Length of a measurement of a cipher.
pub const CIPHER_TIME: Duration = Duration::from_millis(40);

/// Nanoseconds of CPU in which AES-128-GCM alone, of the library that we use, seals a packet of so many bytes. Opening costs it the same.
///
/// # Errors
/// If the library refuses.
pub fn bare_cipher(bytes: u32) -> Result<f64> {
    let key = UnboundKey::new(&AES_128_GCM, &[7; 16]).map_err(|_| anyhow!("no key of 16 bytes"))?;
    let key = LessSafeKey::new(key);
    let (mut packet, mut counter) = (vec![0x5a; usize::try_from(bytes)?], 0u64);
    let rate = rate(packet.len(), CIPHER_TIME, || {
        counter += 1;
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&counter.to_be_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from([0; 12]), &mut packet);
        let _ = black_box(tag.map_err(|_| anyhow!("the cipher refuses a packet"))?);
        Ok(())
    })?;
    Ok(1e9 * f64::from(bytes) / rate)
}

/// What a measured ratio should be.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Target {
    /// Whether `value` meets it. NaN, which is what a missing measurement gives, meets nothing.
    #[must_use]
    pub fn met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

/// Prints the verdict on one ratio, in the form that `scripts/bench` gathers for its last table.
pub fn verdict(what: &str, value: f64, target: Target) {
    let (sign, bound) = match target {
        Target::AtLeast(bound) => (">=", bound),
        Target::AtMost(bound) => ("<=", bound),
    };
    let met = if value.is_nan() {
        "not measured"
    } else if target.met(value) {
        "met"
    } else {
        "MISSED"
    };
    println!("target: {what:<66} {value:>7.2} {sign} {bound:<5} {met}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_round_by_round_and_one_that_fails_costs_no_other() {
        let row = |name: &str, gives: fn(u32) -> Result<f64>| -> (String, Work<'static>) {
            let mut runs = 0;
            let work = move || {
                runs += 1;
                Ok(Figures::default().with("packet", gives(runs)?))
            };
            (name.to_owned(), Box::new(work))
        };
        let rows = vec![
            row("a", |runs| Ok(f64::from(runs))),
            row("b", |runs| Ok(2.0 * f64::from(runs))),
            row("c", |_| anyhow::bail!("broken")),
        ];
        let measured = Measured::of(rows, 3).unwrap();
        assert_eq!(measured.rows().collect::<Vec<_>>(), ["a", "b"]);
        let of = |row| measured.figure(row, "packet");
        // The first run of each warms up.
        assert_eq!(of("a"), ByRound::from([(1, 2.0), (2, 3.0), (3, 4.0)]));
        assert!((ratio(&of("b"), &of("a")) - 2.0).abs() < 1e-12);
        assert_eq!(sum(&of("a"), &of("b"))[&3], 12.0);
        assert!(ratio(&of("a"), &of("c")).is_nan());
    }

    #[test]
    fn what_was_not_measured_meets_no_target() {
        assert!(Target::AtLeast(7.0).met(7.0) && !Target::AtLeast(7.0).met(6.9));
        assert!(Target::AtMost(1.25).met(1.25) && !Target::AtMost(1.25).met(1.3));
        assert!(!Target::AtLeast(0.0).met(f64::NAN) && !Target::AtMost(9.0).met(f64::NAN));
    }
}
