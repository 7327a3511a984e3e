//! TCP through one subject against others, all started anew several times. Owns what decides between subjects that are equal to a few percent:
//! a daemon keeps for its whole life the luck of where its memory and its threads came to lie, so that one start is one sample,
//! however often it is measured.

use std::collections::BTreeMap;

use anyhow::Result;
use dormouse_benches::{Measured, Work, ratio};
use dormouse_lab::judge::stats::{Bootstrap, Measured as Figure};
use dormouse_testbed::Testbed;

use crate::measure::{self, Tcp};
use crate::row;
use crate::subjects::{Kind, Subject};

/// Measurements of each subject after a start, besides one that does not count.
const ROUNDS: u32 = 2;
/// A ratio from here on is no less that matters: two starts of one subject differ by more.
const ENOUGH: f64 = 0.97;

/// Measures the first of `kinds` against each other one after so many starts, with one stream by each congestion control of `ways`, and prints
/// a verdict on each: the first carries at least as much.
///
/// # Errors
/// If a subject does not come up, or does not carry a known stream unchanged.
pub(crate) fn compare(kinds: &[Kind], ways: &[Tcp], starts: u32) -> Result<()> {
    let ways: Vec<&Tcp> = ways.iter().filter(|how| how.streams == 1 && !how.back).collect();
    let Some((first, others)) = kinds.split_first() else { return Ok(()) };
    let mut ratios: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for start in 1..=starts {
        eprintln!("start {start} of {starts}");
        let mut bed = Testbed::new()?;
        let subjects: Vec<Subject> =
            kinds.iter().map(|kind| Subject::start(&mut bed, *kind)).collect::<Result<_>>()?;
        subjects.iter().try_for_each(measure::verify)?;
        let rows = subjects.iter().flat_map(|subject| {
            ways.iter().map(move |how| -> (String, Work<'_>) {
                (row(subject.kind, how), Box::new(move || measure::tcp(subject, how)))
            })
        });
        let measured = Measured::of(rows.collect(), ROUNDS)?;
        for how in &ways {
            let rate = |kind| measured.figure(&row(kind, how), "rate");
            for other in others {
                let of = ratios.entry((other.name(), &how.congestion)).or_default();
                of.push(ratio(&rate(*first), &rate(*other)));
            }
        }
    }
    println!("TCP, one stream, in {starts} starts of each subject: median of the ratios [interval of 95 %].");
    println!(
        "\"At least as much\" is missed if the interval ends below 1, and met if it begins above {ENOUGH} and does not."
    );
    for ((other, congestion), ratios) in ratios {
        let pairs: Vec<(f64, f64)> = ratios.iter().map(|r| (*r, 1.0)).collect();
        let Some(figure) = Bootstrap::new(1).paired(&pairs).map(|c| Figure::from(c.ratio)) else { continue };
        let met = match figure {
            _ if !figure.is_told() => "not measured",
            Figure { high, .. } if high < 1.0 => "MISSED",
            Figure { low, .. } if low >= ENOUGH => "met",
            _ => "undecided",
        };
        let what = format!("TCP ({congestion}) through {} / {other}", first.name());
        println!("target: {what:<66} {} >= 1 {met}", figure.words(3));
    }
    Ok(())
}
