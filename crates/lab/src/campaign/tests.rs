//! The engine with a small real subject: bytes that are hashed, whose cost is measured, and a directory that must be removed again.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;

use anyhow::bail;
use serde::{Deserialize, Serialize};

use super::*;
use crate::results::provenance::Provenance;

/// So many bytes, hashed by so many passes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Hashed {
    bytes: usize,
    passes: u32,
}

impl Point for Hashed {
    const EXPERIMENT: &'static str = "test";
    const QUANTITIES: &'static [(&'static str, &'static str)] = &[("cpu", "s"), ("digest", "value")];

    fn label(&self) -> String {
        format!("{} B {} times", self.bytes, self.passes)
    }

    fn may_be_absent(&self) -> bool {
        self.passes == 2
    }
}

/// Keeps what is hashed in a file of its own directory.
struct Hasher {
    dir: PathBuf,
    /// What was measured, in its order.
    seen: RefCell<Vec<(u32, Hashed)>>,
    /// The directory cannot be removed while another file is in it.
    stranger: bool,
}

impl Hasher {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("dormouse-hasher-{name}-{}", std::process::id()));
        Self { dir, seen: RefCell::default(), stranger: false }
    }

    fn file(&self) -> PathBuf {
        self.dir.join("data")
    }
}

impl Subject for Hasher {
    type Point = Hashed;
    type Stage = ();
    type Group = usize;

    fn stage(_: &Hashed) {}

    fn group(point: &Hashed) -> usize {
        point.bytes
    }

    fn prepare(&mut self, point: &Hashed) -> Result<()> {
        fs::create_dir_all(&self.dir)?;
        fs::write(self.file(), vec![7; point.bytes])?;
        if self.stranger {
            fs::write(self.dir.join("stranger"), "")?;
        }
        Ok(())
    }

    fn measure(&mut self, point: &Hashed, round: u32) -> Result<Figures> {
        let data = fs::read(self.file())?;
        if data.len() == 13 || (data.len() == 17 && round == 2) {
            bail!("{} bytes cannot be hashed", data.len());
        }
        let before = cpu::thread();
        let mut digest = 0u32;
        for _ in 0..point.passes {
            digest = data.iter().fold(digest, |d, b| d.rotate_left(5) ^ u32::from(*b));
        }
        let cpu = (cpu::thread() - before).as_secs_f64();
        self.seen.borrow_mut().push((round, point.clone()));
        Ok(Figures::default().with("cpu", cpu).with("digest", f64::from(digest)))
    }

    fn clear(&mut self) -> Result<()> {
        if !self.dir.exists() {
            return Ok(());
        }
        fs::remove_file(self.file())?;
        fs::remove_dir(&self.dir).with_context(|| self.dir.display().to_string())
    }
}

impl Drop for Hasher {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn plan(sizes: &[usize], seed: u64) -> Plan<Hashed> {
    let points = sizes.iter().flat_map(|bytes| [1, 2].map(|passes| Hashed { bytes: *bytes, passes }));
    Plan {
        name: "test".into(),
        points: points.collect(),
        rounds: 3,
        seed,
        settings: serde_json::json!({ "depth": 3 }),
        skipped: Vec::new(),
    }
}

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("dormouse-campaign-{name}-{}.json", std::process::id()))
}

#[test]
fn an_interrupted_campaign_goes_on_with_the_same_plan_and_keeps_what_was_measured() {
    let path = file("resume");
    let mut first = Campaign::new(plan(&[10, 20, 30], 5), Some(path.clone())).unwrap();
    let stop = never();
    let mut hasher = Hasher::new("first");
    let mut tell = |p: &Progress<'_>| stop.store(p.round == 2 && p.done == 14, Ordering::Relaxed);
    assert_eq!(first.run(&mut hasher, &stop, &mut tell).unwrap(), Ended::Interrupted);
    assert!(!hasher.dir.exists(), "an interrupted campaign is cleared as well");

    let mut second = Campaign::<Hashed>::resume(&path).unwrap();
    assert_eq!(second.results, first.results);
    assert_eq!(second.results.settings["depth"], 3);
    let kept: usize = second.results.samples.iter().map(|s| s.rounds.len()).sum();
    assert!((9..12).contains(&kept), "{kept} rounds are kept");
    let mut hasher = Hasher::new("second");
    assert_eq!(second.run(&mut hasher, &never(), &mut |_| ()).unwrap(), Ended::Finished);
    let counted = hasher.seen.borrow().iter().filter(|(round, _)| *round > 0).count();
    assert_eq!(counted, 18 - kept, "what was measured is not measured again");

    let done = Results::<Hashed>::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(done.finished.is_some() && done == second.results);
    for (sample, was) in done.samples.iter().zip(&first.results.samples) {
        assert_eq!(sample.point, was.point);
        assert!(was.rounds.iter().all(|r| sample.rounds.contains(r)));
        let rounds: BTreeSet<u32> = sample.rounds.iter().map(|r| r.round).collect();
        assert_eq!(rounds, BTreeSet::from([1, 2, 3]));
    }
}

#[test]
fn the_order_is_mixed_by_the_seed_and_groups_stay_together() {
    let order = |seed: u64| {
        let mut hasher = Hasher::new(&format!("order-{seed}"));
        let mut campaign = Campaign::new(plan(&[10, 20, 30, 40], seed), None).unwrap();
        campaign.run(&mut hasher, &never(), &mut |_| ()).unwrap();
        hasher.seen.take()
    };
    let (first, again) = (order(1), order(1));
    assert_eq!(first, again, "the same seed gives the same order");
    assert!((2..6).any(|seed| order(seed) != first), "another seed gives another");
    assert!(
        first.is_sorted_by_key(|(round, _)| *round),
        "no point has its next turn before all had this one"
    );
    let of = |round| -> Vec<&Hashed> { first.iter().filter(|s| s.0 == round).map(|s| &s.1).collect() };
    assert!((1..4).any(|round| of(round) != of(0)), "each round has an order of its own");
    for round in (0..4).map(of) {
        assert_eq!(round.len(), 8);
        assert!(round.chunks(2).all(|pair| pair[0].bytes == pair[1].bytes), "{round:?}");
    }
}

#[test]
fn a_failed_round_is_discarded_with_its_reason_and_a_hopeless_point_is_skipped() {
    let mut campaign = Campaign::new(plan(&[10, 13, 17], 5), None).unwrap();
    let mut hasher = Hasher::new("failing");
    assert_eq!(campaign.run(&mut hasher, &never(), &mut |_| ()).unwrap(), Ended::Finished);
    let results = &campaign.results;
    let skipped: BTreeSet<&str> = results.skipped.iter().map(|s| s.subject.as_str()).collect();
    assert_eq!(skipped, BTreeSet::from(["13 B 1 times", "13 B 2 times"]));
    assert_eq!(results.skipped[0].reason, "13 bytes cannot be hashed");
    let [failed, may_be] = [|s: &Skipped| s.failed, |s: &Skipped| s.subject.ends_with("1 times")]
        .map(|of| results.skipped.iter().map(of).collect::<Vec<bool>>());
    assert_eq!(failed, may_be, "what may be absent has not failed: {:?}", results.skipped);
    // The reader's first page: what was given up once, without its rounds, then the rounds of what is there.
    let missing = Provenance::from(results).missing();
    let beginnings = [
        "not measured: 13 B",
        "not measured: 13 B",
        "discarded: round 2 of 17 B",
        "discarded: round 2 of 17 B",
    ];
    assert!(
        missing.len() == 4 && missing.iter().zip(beginnings).all(|(m, b)| m.starts_with(b)),
        "{missing:?}"
    );
    assert_eq!(Provenance::from(results).failures(), missing[..1], "the first of both");
    let rounds =
        |bytes: usize| results.samples.iter().filter(move |s| s.bytes == bytes).map(|s| s.rounds.len());
    assert_eq!(rounds(10).collect::<Vec<_>>(), [3, 3]);
    assert_eq!(rounds(17).collect::<Vec<_>>(), [2, 2], "what failed once keeps its other rounds");
    let later: Vec<_> = results.discarded.iter().filter(|d| d.round > 0).collect();
    assert_eq!(later.len(), 2);
    assert!(later.iter().all(|d| d.round == 2 && d.reason.starts_with("17 bytes")), "{later:?}");
}

#[test]
fn what_cannot_be_cleared_away_ends_the_campaign_and_is_named() {
    let path = file("left");
    let mut campaign = Campaign::new(plan(&[10], 5), Some(path.clone())).unwrap();
    let mut hasher = Hasher::new("left");
    hasher.stranger = true;
    let error = campaign.run(&mut hasher, &never(), &mut |_| ()).unwrap_err();
    let left = error.downcast_ref::<Uncleared>().expect("what was left behind");
    assert!(left.0.contains(&hasher.dir.display().to_string()), "{left}");
    let kept = Results::<Hashed>::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(kept.samples.iter().all(|s| s.rounds.len() == 3), "what was measured is kept all the same");
}

#[test]
fn a_file_of_another_machine_build_or_experiment_is_not_continued() {
    let path = file("other");
    let refused = |spoil: fn(&mut Results<Hashed>)| {
        let mut campaign = Campaign::new(plan(&[10], 5), Some(path.clone())).unwrap();
        spoil(&mut campaign.results);
        campaign.save().unwrap();
        format!("{:#}", Campaign::<Hashed>::resume(&path).unwrap_err())
    };
    let error = refused(|r| r.machine.cpu = "Z80".into());
    assert!(error.contains("measured on another processor: Z80"), "{error}");
    let error = Campaign::<Hashed>::resume(&path).unwrap_err();
    assert!(error.is::<Another>(), "{error:#}");
    let error = refused(|r| _ = r.versions.insert("build".into(), "another".into()));
    assert!(error.contains("measured by build another, and this is "), "{error}");
    assert!(refused(|r| r.rounds = 0).contains("how many rounds"));
    let error = format!("{:#}", Campaign::<crate::results::esp::Point>::resume(&path).unwrap_err());
    assert!(error.contains("it is of \"test\", expected bench"), "{error}");
    fs::write(&path, "{}").unwrap();
    let error = format!("{:#}", Campaign::<Hashed>::resume(&path).unwrap_err());
    assert!(error.contains("no results file of dormouse"), "{error}");
    fs::remove_file(&path).unwrap();
    assert!(Campaign::<Hashed>::resume(&path).is_err());
}

#[test]
fn a_place_that_cannot_be_written_is_known_before_the_work() {
    let lost = Campaign::new(plan(&[10], 5), Some("/nonexistent/results.json".into())).unwrap();
    let error = format!("{:#}", lost.save().unwrap_err());
    assert!(error.contains("/nonexistent/results.json"), "{error}");
    let full = Campaign::new(plan(&[10], 5), Some("/dev/full/x".into())).unwrap();
    assert!(full.save().is_err());
}

#[test]
fn results_say_with_what_they_were_made() {
    let versions = versions();
    for what in ["dormouse", "commit", "kernel", "build", "executable", "aws-lc-rs", "rustls"] {
        assert!(versions.get(what).is_some_and(|v| !v.is_empty()), "{what}: {versions:?}");
    }
    assert!(versions["rustls"].starts_with("0."), "{versions:?}");
    assert_eq!(locked("no-such-library"), None);
    let exe = Input::of(&std::env::current_exe().unwrap()).unwrap();
    assert_eq!(versions["executable"], exe.sha256, "two modified trees are told apart");
}

#[test]
fn a_tree_that_git_does_not_know_is_not_said_to_be_unmodified() {
    for (described, told) in [
        (None, ("unknown", "unknown")),
        (Some("unknown"), ("unknown", "unknown")),
        (Some("0123abc"), ("0123abc", "no")),
        (Some("0123abc-dirty"), ("0123abc", "yes")),
    ] {
        assert_eq!(tree(described), told, "{described:?}");
    }
}
