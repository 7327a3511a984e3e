use std::sync::atomic::AtomicBool;

use super::*;
use crate::results::format::Round;

fn request() -> Request {
    Request {
        parts: vec![Part::Crypto],
        suites: vec!["chacha20poly1305".into(), "none".into()],
        sizes: vec![180],
        cores: vec![1],
        rounds: 2,
        quick: true,
        seed: 5,
        ..Request::default()
    }
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("dormouse-campaign-{name}-{}.json", std::process::id()))
}

/// Without the masked process: there is no such program in a unit test.
fn campaign(out: Option<PathBuf>) -> Campaign {
    let here = crate::results::format::Machine { flags: Vec::new(), ..machine::describe(Path::new("/")) };
    let plan = request().plan(&here, false).unwrap();
    let mut results = Results::new(machine::describe(Path::new("/")));
    results.versions = versions();
    results.rounds = plan.rounds;
    results.samples = plan.samples;
    results.seed = 5;
    let times = Times::of(&request());
    results.milliseconds = [("crypto", 2), ("path", 2), ("stream", 2)].map(|(n, t)| (n.to_owned(), t)).into();
    Campaign {
        results,
        times: Times { crypto: Duration::from_millis(2), ..times },
        profile: None,
        out,
        far: None,
    }
}

#[test]
fn an_interrupted_campaign_is_continued_where_it_stopped() {
    let path = file("resume");
    let mut first = campaign(Some(path.clone()));
    let stop = AtomicBool::new(false);
    // Four points: stop in the middle of the second round that counts.
    let ended =
        first.run(&stop, &mut |p| stop.store(p.round == 2 && p.done == 10, Ordering::Relaxed)).unwrap();
    assert_eq!(ended, Ended::Interrupted);
    let mut second = Campaign::resume(&path, None).unwrap();
    let kept: usize = second.results.samples.iter().map(|s| s.rounds.len()).sum();
    assert!((4..8).contains(&kept), "{kept} rounds are kept");
    assert!(second.results.finished.is_none());
    let before = second.results.samples.clone();
    assert_eq!(second.run(&AtomicBool::new(false), &mut |_| ()).unwrap(), Ended::Finished);
    let done = Results::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(done.finished.is_some());
    for (sample, was) in done.samples.iter().zip(&before) {
        assert!(sample.verified, "{sample:?}");
        let mut rounds: Vec<u32> = sample.rounds.iter().map(|r| r.round).collect();
        rounds.sort_unstable();
        assert_eq!(rounds, [1, 2]);
        assert!(
            was.rounds.iter().all(|r| sample.rounds.contains(r)),
            "what was measured is not measured again"
        );
    }
}

#[test]
fn rounds_are_interleaved_and_their_order_differs() {
    let mut campaign = campaign(None);
    let mut seen = Vec::new();
    campaign.run(&AtomicBool::new(false), &mut |p| seen.push((p.round, p.next.to_owned()))).unwrap();
    let of = |round: u32| -> Vec<String> {
        seen.iter().filter(|(r, _)| *r == round).map(|(_, n)| n.clone()).collect()
    };
    assert!(seen.is_sorted_by_key(|(round, _)| *round), "no point has its next turn before all had this one");
    assert_eq!((of(0).len(), of(1).len(), of(2).len()), (4, 4, 4));
    let fresh = super::tests::campaign(None);
    let orders: Vec<_> = (0..8).map(|round| fresh.order(round)).collect();
    assert!(orders.iter().any(|o| *o != orders[0]), "{orders:?}");
}

#[test]
fn only_what_is_missing_takes_time() {
    let mut campaign = campaign(None);
    let path = |bytes| Sample::new(What::Path, "none", bytes, 1);
    campaign.results.samples = vec![path(180), path(1_400)];
    let round = |round| Round { round, ..Round::default() };
    let all = campaign.expected();
    let times = campaign.times;
    assert_eq!(all, (times.expected(&path(180)) * 2 + times.setup) * 3, "two rounds and one that warms up");
    // The last point of a tunnel does not speak for all of it.
    campaign.results.samples[1].rounds = vec![round(1), round(2)];
    assert_eq!(campaign.expected(), (times.expected(&path(180)) + times.setup) * 3);
    campaign.results.samples[0].rounds = vec![round(1), round(2)];
    assert_eq!(campaign.expected(), Duration::ZERO);
}

#[test]
fn a_broken_suite_is_taken_out_and_said() {
    let here = machine::describe(Path::new("/"));
    let mut plan = request().plan(&here, false).unwrap();
    let all = plan.samples.len();
    let broken = without_the_broken(&mut plan, |suite| {
        if suite.to_string() == "none" {
            Err("none is broken: another ciphertext than FIPS 81".into())
        } else {
            Ok(())
        }
    });
    assert_eq!(broken.len(), 1);
    assert_eq!((broken[0].subject.as_str(), broken[0].reason.contains("broken")), ("none", true));
    assert_eq!(plan.samples.len(), all / 2);
    assert!(plan.samples.iter().all(|s| s.suite == "chacha20poly1305"));
}

#[test]
fn what_fails_at_first_is_skipped_and_what_fails_later_keeps_its_rounds() {
    let mut campaign = campaign(None);
    let labels: Vec<String> = campaign.results.samples.iter().map(Sample::label).collect();
    // In the order in which they were measured, which is no order of theirs.
    campaign.without_the_failed(0, vec![(2, "no such device".into()), (0, "no such device".into())]);
    let left: Vec<String> = campaign.results.samples.iter().map(Sample::label).collect();
    assert_eq!(left, [labels[1].as_str(), &labels[3]]);
    let skipped: Vec<&str> = campaign.results.skipped.iter().map(|s| s.subject.as_str()).collect();
    assert_eq!(skipped, [&labels[2], &labels[0]]);
    campaign.results.samples[0].rounds.push(Round { round: 1, ..Round::default() });
    campaign.without_the_failed(2, vec![(0, "lost".into())]);
    assert_eq!(campaign.results.samples.len(), 2);
    assert_eq!(campaign.results.samples[0].remark.as_deref(), Some("round 2 failed: lost"));
}

#[test]
fn a_file_of_another_machine_or_without_a_plan_is_not_continued() {
    let path = file("other");
    let mut other = campaign(Some(path.clone()));
    other.results.machine.cpu = "Z80".into();
    other.save().unwrap();
    let error = Campaign::resume(&path, None).unwrap_err().to_string();
    assert!(error.contains("measured on another processor: Z80"), "{error}");
    let mut older = campaign(Some(path.clone()));
    older.results.versions.insert("build".into(), "another".into());
    older.save().unwrap();
    let error = Campaign::resume(&path, None).unwrap_err().to_string();
    assert!(error.contains("measured by build another, and this is "), "{error}");
    let mut vague = campaign(Some(path.clone()));
    vague.results.rounds = 0;
    vague.save().unwrap();
    assert!(Campaign::resume(&path, None).unwrap_err().to_string().contains("how many rounds"));
    std::fs::write(&path, "{}").unwrap();
    assert!(
        format!("{:#}", Campaign::resume(&path, None).unwrap_err()).contains("no result of dormouse bench")
    );
    std::fs::remove_file(&path).unwrap();
    assert!(Campaign::resume(&path, None).is_err());
}

#[test]
fn a_place_that_cannot_be_written_is_known_before_the_work() {
    let lost = campaign(Some("/nonexistent/results.json".into()));
    let error = format!("{:#}", lost.save().unwrap_err());
    assert!(error.contains("/nonexistent/results.json"), "{error}");
    let full = campaign(Some("/dev/full/x".into()));
    assert!(full.save().is_err());
}

#[test]
fn results_say_with_which_libraries() {
    let versions = versions();
    for library in ["dormouse", "kernel", "build", "aws-lc-rs", "rustls"] {
        assert!(versions.get(library).is_some_and(|v| !v.is_empty()), "{library}: {versions:?}");
    }
    assert!(versions["rustls"].starts_with("0."), "{versions:?}");
    assert_eq!(locked("no-such-library"), None);
}
