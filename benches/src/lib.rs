//! What the benchmarks share: rows that are measured in turn by the lab's campaign engine, the file of raw data, arguments, clocks, and the verdict on a target. Owns the
//! clocks of the benchmarks. Every figure that they print is a ratio of two things measured in one run, and every output is verified
//! before it is timed; a benchmark never fails because something was slow.

mod arguments;
pub mod endpoints;

pub use arguments::{arguments, wrong};

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use dormouse_lab::bench::rate;
use dormouse_lab::campaign::{Campaign, Plan, Subject};
use dormouse_lab::judge::stats::Bootstrap;
pub use dormouse_lab::judge::stats::Summary;
use dormouse_lab::results::format::{Input, Skipped, paired};
use dormouse_lab::results::{self, Figures, Results, Sample};
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
        // Of a tunnel, once, after the streams. Round trips of each ping, on the idle tunnel and beside a stream.
        ("ping", "us"),
        ("ping_loaded", "us"),
        // The most datagrams that pass in a second, by their bytes of payload; processor time of both daemons for each; whether the sender offers no more.
        ("datagrams", "1/s"),
        ("datagram", "ns"),
        ("sender_is_the_limit", "count"),
        // Of both daemons: system calls for each segment of a stream, and memory.
        ("calls", "count"),
        ("memory", "MB"),
        // Of a storm of handshakes, `all` of them and the first 99 of a hundred: from the first message until their sessions are up. How many are, and how
        // many failed.
        ("storm", "ms"),
        ("sessions", "count"),
        // Processor time that a process or thread used meanwhile.
        ("cpu", "ms"),
        // By the clock: until all sessions are there, of a status, of a start.
        ("took", "ms"),
        // Of a device that wakes by ticket: from its request until the first answer through the tunnel.
        ("wake", "ms"),
        // Of the database that gateways share: transactions that wrote, and bytes of its log. Used tickets that were tried again and refused.
        ("transactions", "count"),
        ("wal", "B"),
        ("refused", "count"),
        // Pings that were not answered, IKE messages that were sent again, datagrams that did not fit into a socket.
        ("lost", "count"),
        ("repeated", "count"),
        ("overruns", "count"),
        // The longest time in which nothing of a stream arrived.
        ("stall", "ms"),
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

/// What was measured of each row, with where it came from: version, commit, command, machine, governor, congestion control and conditions. Kept in
/// a file of the form that `docs/results.md` has, if one is asked for.
pub struct Measured {
    results: Results<Row>,
    out: Option<PathBuf>,
}

/// A figure of each round.
pub type ByRound = BTreeMap<u32, f64>;

impl Measured {
    /// Measures rows of different names in so many rounds, after one that does not count. `settings` say what rows share: durations, sizes. Raw
    /// data and provenance go to `out` after every round.
    ///
    /// # Errors
    /// If none of them can be measured, or `out` cannot be written; a row that fails is said on standard error.
    pub fn of<'a>(
        rows: Vec<(String, Work<'a>)>,
        rounds: u32,
        settings: serde_json::Value,
        out: Option<&Path>,
    ) -> Result<Self> {
        let plan = Plan {
            name: "full".to_owned(),
            points: rows.iter().map(|(row, _)| Row { row: row.clone() }).collect(),
            rounds,
            seed: 1,
            settings,
            skipped: Vec::new(),
        };
        let mut campaign = Campaign::new(plan, out.map(Path::to_owned))?;
        // A place that cannot be written is known before the work.
        campaign.save()?;
        campaign.run(&mut Rows(rows.into_iter().collect()), &AtomicBool::new(false), &mut |_| ())?;
        for failed in &campaign.results.discarded {
            eprintln!("{}, round {}: {}", failed.subject, failed.round, failed.reason);
        }
        Ok(Self { results: campaign.results, out: out.map(Path::to_owned) })
    }

    /// With what was measured once of a row, outside the rounds.
    pub fn add(&mut self, row: &str, figures: Figures) {
        let mut sample = Sample::from(Row { row: row.to_owned() });
        sample.verified = true;
        sample.push(1, figures);
        self.results.samples.push(sample);
    }

    /// With a reason why something was not measured.
    pub fn skip(&mut self, what: &str, reason: &str) {
        self.results.skipped.push(Skipped::new(what, reason));
    }

    /// With the SHA-256 of a program that takes part beside this one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn program(&mut self, name: &str, path: &Path) -> Result<()> {
        let file = Input::of(path).with_context(|| path.display().to_string())?;
        self.results.versions.insert(name.to_owned(), file.sha256);
        Ok(())
    }

    /// With the rounds of a later measurement of the same rows, numbered after those that are there. What was discarded of it names the round of its
    /// own measurement.
    pub fn append(&mut self, later: Self) {
        let (results, later) = (&mut self.results, later.results);
        for sample in later.samples {
            let rounds = sample.rounds.into_iter().map(|r| (results.rounds + r.round, r.figures));
            let at = results.samples.iter().position(|s| s.point == sample.point);
            match at.and_then(|at| results.samples.get_mut(at)) {
                Some(there) => rounds.for_each(|(round, figures)| there.push(round, figures)),
                None => {
                    let mut new = Sample::from(sample.point);
                    new.verified = sample.verified;
                    rounds.for_each(|(round, figures)| new.push(round, figures));
                    results.samples.push(new);
                }
            }
        }
        results.rounds += later.rounds;
        results.discarded.extend(later.discarded);
        results.skipped.extend(later.skipped);
        results.finished = later.finished;
        results.conditions.load_after = later.conditions.load_after;
        // The worst of both.
        results.conditions.steal =
            [results.conditions.steal, later.conditions.steal].into_iter().flatten().reduce(f64::max);
        results.conditions.yardstick.extend(later.conditions.yardstick);
    }

    /// Writes the file anew, if one was asked for.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self) -> Result<()> {
        match &self.out {
            Some(path) => self.results.write(path).context("the raw data cannot be kept"),
            None => Ok(()),
        }
    }

    /// The same in this file from now on.
    #[must_use]
    pub fn kept_in(self, out: Option<&Path>) -> Self {
        Self { out: out.map(Path::to_owned), ..self }
    }

    /// The rows of which there is something, in their order.
    pub fn rows(&self) -> impl Iterator<Item = &str> {
        self.results.samples.iter().map(|sample| sample.row.as_str())
    }

    /// All figures of a name that a row has, those of one round after those of the other.
    #[must_use]
    pub fn all(&self, row: &str, name: &str) -> Vec<f64> {
        self.results.samples.iter().filter(|s| s.row == row).flat_map(|s| s.all(name)).collect()
    }

    /// A figure of a row; none where it was not measured.
    #[must_use]
    pub fn figure(&self, row: &str, name: &str) -> ByRound {
        let rounds = self.results.samples.iter().filter(|s| s.row == row).flat_map(|s| &s.rounds);
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
        let measured = Measured::of(rows, 3, serde_json::Value::Null, None).unwrap();
        assert_eq!(measured.rows().collect::<Vec<_>>(), ["a", "b"]);
        let of = |row| measured.figure(row, "packet");
        // The first run of each warms up.
        assert_eq!(of("a"), ByRound::from([(1, 2.0), (2, 3.0), (3, 4.0)]));
        assert!((ratio(&of("b"), &of("a")) - 2.0).abs() < 1e-12);
        assert_eq!(sum(&of("a"), &of("b"))[&3], 12.0);
        assert!(ratio(&of("a"), &of("c")).is_nan());
    }

    /// A file has every round of every start, what was measured once, and where all of it comes from.
    #[test]
    fn a_file_has_all_raw_figures_and_their_provenance() {
        let out = std::env::temp_dir().join(format!("dormouse-benches-{}.json", std::process::id()));
        let measure = |out: Option<&Path>, value: f64| {
            let work = move || Ok(Figures::default().with("rate", value));
            let rows: Vec<(String, Work<'static>)> = vec![("a".to_owned(), Box::new(work))];
            Measured::of(rows, 2, serde_json::json!({ "stream_seconds": 3 }), out).unwrap()
        };
        let mut measured = measure(Some(&out), 1.0);
        let first = Results::<Row>::read(&out).unwrap();
        assert_eq!((first.samples.len(), first.samples[0].rounds.len()), (1, 2));
        measured.append(measure(None, 2.0));
        measured.add("b", Figures::default().with_all("ping", [80.0, 90.0]));
        measured.skip("c", "it did not come up");
        measured.program("another", Path::new("/proc/self/exe")).unwrap();
        measured.keep().unwrap();
        let kept = Results::<Row>::read(&out).unwrap();
        std::fs::remove_file(&out).unwrap();
        let rates = kept.samples[0].rounds.iter().map(|r| (r.round, r.figures.one("rate").unwrap()));
        assert_eq!(rates.collect::<Vec<_>>(), [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)]);
        assert_eq!(kept.rounds, 4);
        assert_eq!(kept.samples[1].all("ping").collect::<Vec<_>>(), [80.0, 90.0]);
        assert_eq!((kept.skipped.len(), kept.settings["stream_seconds"].as_u64()), (1, Some(3)));
        for version in ["dormouse", "commit", "modified", "executable", "kernel", "build"] {
            assert!(kept.versions.contains_key(version), "{version}");
        }
        assert_eq!(kept.versions["another"], kept.versions["executable"]);
        assert!(!kept.command.is_empty() && kept.machine.cores > 0 && kept.machine.kernel.contains("Linux"));
        assert!(kept.conditions.load_before.is_some() && kept.finished.is_some());
    }

    #[test]
    fn what_was_not_measured_meets_no_target() {
        assert!(Target::AtLeast(7.0).met(7.0) && !Target::AtLeast(7.0).met(6.9));
        assert!(Target::AtMost(1.25).met(1.25) && !Target::AtMost(1.25).met(1.3));
        assert!(!Target::AtLeast(0.0).met(f64::NAN) && !Target::AtMost(9.0).met(f64::NAN));
    }
}
