//! Invented raw data, where it is known what follows.

use super::{doubling, of};
use crate::judge::{Claim, Finding};
use crate::paper_002::campaign::{Carrier, Link, PAPER, Point};
use crate::paper_002::key_pairs::Algorithm;
use crate::paper_002::pair::{Key, STAGES};
use crate::results::format::Machine;
use crate::results::{Figures, Results, Sample};

const ROUNDS: u32 = 5;

/// A point with these figures, a little more in each round.
fn sample(point: Point, figures: &[(&str, f64)]) -> Sample<Point> {
    let mut sample = Sample { verified: true, ..Sample::from(point) };
    for round in 1..=ROUNDS {
        let of = |figures: Figures, (name, value): &(&str, f64)| {
            figures.with_all(name, [0.9, 1.0, 1.1].map(|part| part * value * (1.0 + 1e-3 * f64::from(round))))
        };
        sample.push(round, figures.iter().fold(Figures::default(), of));
    }
    sample
}

/// The phone is 356 times slower: its exchange with a server takes 1.4 s, and a responder's part of it is as long as the initiator's.
fn measured(each: f64, kilobytes: f64) -> Results<Point> {
    let mut results = Results::new(Machine::default());
    let stages = STAGES.map(|name| (name, if matches!(name, "t2" | "t3") { 4.0 } else { 0.0 }));
    let many = |associations: u32, each: f64| [("responder", each * f64::from(associations))];
    let stored = 1e3 * kilobytes * 10_000.0;
    let daemon = [("responder", 1e4), ("associated", 3e4), ("held_memory", stored)];
    results.samples = vec![
        sample(Point::BaseExchange { key: Key::Rsa1024V1, group: PAPER.0, k: PAPER.1 }, &stages),
        sample(
            Point::KeyPair { algorithm: Algorithm::Rsa, bits: 1_024 },
            &[("created", 11.0), ("started", 1.0)],
        ),
        sample(Point::Responder { key: Key::Rsa1024V1, associations: 100 }, &many(100, 4.0)),
        sample(Point::Responder { key: Key::P256, associations: 100 }, &many(100, 1.0)),
        sample(Point::Responder { key: Key::P256, associations: 10_000 }, &many(10_000, each)),
        sample(Point::Server { associations: 10_000 }, &daemon),
    ];
    results
}

fn claim(results: &Results<Point>, words: &str) -> Claim {
    let claims = of(results).unwrap().claims;
    claims.into_iter().find(|c| c.claim.contains(words)).unwrap_or_else(|| panic!("no claim of {words}"))
}

#[test]
fn what_is_too_heavy_follows_from_the_limits() {
    let (light, heavy) = (measured(1.0, 4.0), measured(6.0, 40.0));
    for (words, of_light, of_heavy) in [
        ("too heavy between two phones", Finding::Confirmed, Finding::Confirmed),
        ("at a phone, with the paper's keys", Finding::Confirmed, Finding::Confirmed),
        ("at a phone, with ECDSA P-256", Finding::Contradicted, Finding::Confirmed),
        ("each costs the more", Finding::Contradicted, Finding::Confirmed),
        ("in memory", Finding::Contradicted, Finding::Confirmed),
        ("more than an hour", Finding::Contradicted, Finding::Contradicted),
        // One number of associations shows no growth.
        ("the same of the shipped daemon", Finding::NotMeasurable, Finding::NotMeasurable),
    ] {
        assert_eq!(claim(&light, words).finding, Some(of_light), "{words}");
        assert_eq!(claim(&heavy, words).finding, Some(of_heavy), "{words}");
    }
    let reason = claim(&light, "at a phone, with ECDSA P-256").why;
    assert!(reason.contains("4.01 ms of a responder here with the paper's keys"), "{reason}");
    assert_eq!(claim(&heavy, "in memory").why, "");
}

#[test]
fn who_begins_and_how_long_it_takes_is_judged_by_column() {
    let results = measured(1.0, 4.0);
    for (words, finding) in [
        ("phone to server: as long", Finding::Confirmed),
        ("server to phone: as long", Finding::Confirmed),
        ("phone to phone: as long", Finding::Confirmed),
        ("no difference whether phone or server", Finding::Confirmed),
        ("between two phones, or tablets", Finding::Confirmed),
        ("an active phone", Finding::NotMeasurable),
        ("OpenHIP", Finding::NotMeasurable),
    ] {
        assert_eq!(claim(&results, words).finding, Some(finding), "{words}");
    }
    assert!(claim(&results, "an active phone").why.contains("no phone"));
}

#[test]
fn what_was_not_checked_or_is_no_number_decides_nothing_and_is_not_drawn() {
    let mut results = measured(1.0, 4.0);
    results.samples.iter_mut().for_each(|s| s.verified = false);
    let report = of(&results).unwrap();
    assert!(report.claims.iter().all(|c| c.finding == Some(Finding::NotMeasurable)), "{:?}", report.claims);
    let drawn = report.figures.iter().flat_map(|f| &f.shown.series).map(|s| s.points.len()).sum::<usize>();
    assert_eq!(drawn, 0);
    // A round that lacks a figure does not count, and four do not suffice.
    let mut results = measured(1.0, 4.0);
    assert_eq!(claim(&results, "in memory").figures[0].ours.unwrap().n, 5);
    results.samples[5].rounds.pop();
    let fewer = claim(&results, "in memory");
    assert_eq!((fewer.figures[0].ours.unwrap().n, fewer.finding), (4, Some(Finding::NotMeasurable)));
}

#[test]
fn the_papers_throughput_is_compared_with_its_carrier() {
    let mut results = measured(1.0, 4.0);
    let link = Link { encrypted: false, limited: false };
    for (hip, rate) in [(None, 1e8), (Some(Carrier::Ip), 0.67e8), (Some(Carrier::Udp), 0.2e8)] {
        results.samples.push(sample(Point::Transfer { hip, link }, &[("throughput", rate)]));
    }
    let third = claim(&results, "a third of TCP's");
    assert_eq!(third.finding, Some(Finding::Confirmed), "{}", third.ours);
    let energy = claim(&results, "more energy for a byte");
    assert_eq!(energy.finding, Some(Finding::Confirmed), "{}", energy.ours);
}

#[test]
fn what_doubles_with_each_bit_has_a_slope_of_one() {
    let t2: Vec<(f64, f64)> =
        (0..=20).map(|k| (f64::from(k), 5.0 + f64::from(1 << k) * 1e-3 - 1e-3)).collect();
    assert!((doubling(&t2) - 1.0).abs() < 1e-3);
    let flat: Vec<(f64, f64)> = (0..=20).map(|k| (f64::from(k), 5.0 + f64::from(k))).collect();
    assert!(doubling(&flat) < 0.2);
    // One point is no line, and a hard puzzle that takes less than none is noise.
    assert!(doubling(&t2[..1]).is_nan() && doubling(&t2[..13]).is_nan());
    let noise: Vec<(f64, f64)> = [0.0, 12.0, 14.0].map(|k| (k, 5.0 - k)).to_vec();
    assert!(doubling(&noise).is_nan());
}
