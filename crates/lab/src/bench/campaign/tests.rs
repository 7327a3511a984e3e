use super::*;
use crate::results::Round;

fn request() -> Request {
    Request {
        parts: vec![What::Crypto],
        suites: vec!["chacha20poly1305".into(), "none".into()],
        sizes: vec![180],
        cores: vec![1],
        rounds: 2,
        quick: true,
        seed: 5,
        ..Request::default()
    }
}

/// Without the masked process: there is no such program in a unit test.
fn plan() -> Plan {
    let here = crate::results::format::Machine { flags: Vec::new(), ..machine::describe(Path::new("/")) };
    request().plan(&here, false).unwrap()
}

fn bench() -> Bench {
    let times = Times { crypto: Duration::from_millis(2), ..Times::of(&request()) };
    Bench { campaign: campaign::Campaign::new(plan(), None).unwrap(), times, far: None }
}

#[test]
fn a_plan_has_the_name_of_its_experiments_or_of_what_was_chosen() {
    let plain = |quick| Request { quick, ..Request::default() };
    let names = [plain(true), plain(false), request(), Request { name: "full", ..request() }];
    assert_eq!(names.map(|r| plan_name(&r)), ["quick", "full", "chosen", "full"]);
}

#[test]
fn its_points_are_measured() {
    let mut bench = bench();
    assert_eq!(bench.run(&AtomicBool::new(false), &mut |_| ()).unwrap(), Ended::Finished);
    let samples = &bench.campaign.results.samples;
    assert_eq!(samples.len(), 4);
    assert!(samples.iter().all(|s| s.verified && s.rounds.len() == 2), "{samples:?}");
    bench.campaign.results.check().unwrap();
}

#[test]
fn only_what_is_missing_takes_time() {
    let mut bench = bench();
    let path = |bytes| Point::new(What::Path, "none", bytes, 1);
    bench.campaign.results.samples = vec![path(180).into(), path(1_400).into()];
    let round = |round| Round { round, ..Round::default() };
    let [warm, each] = [0, 1].map(|round| bench.times.expected(&path(180), round));
    assert!(warm < each);
    let all = warm + each * 2;
    assert_eq!(bench.expected(), all * 2 + Times::SETUP * 3, "two rounds and one that warms up");
    // The last point of a tunnel does not speak for all of it.
    bench.campaign.results.samples[1].rounds = vec![round(1), round(2)];
    assert_eq!(bench.expected(), all + Times::SETUP * 3);
    bench.campaign.results.samples[0].rounds = vec![round(1), round(2)];
    assert_eq!(bench.expected(), Duration::ZERO);
}

#[test]
fn a_broken_suite_is_taken_out_and_said() {
    let mut plan = plan();
    let all = plan.points.len();
    let broken = without_the_broken(&mut plan, |suite| {
        if suite.to_string() == "none" {
            Err("none is broken: another ciphertext than FIPS 81".into())
        } else {
            Ok(())
        }
    });
    assert_eq!(broken.len(), 1);
    assert_eq!((broken[0].subject.as_str(), broken[0].reason.contains("broken")), ("none", true));
    assert_eq!(plan.points.len(), all / 2);
    assert!(plan.points.iter().all(|p| p.suite == "chacha20poly1305"));
}
