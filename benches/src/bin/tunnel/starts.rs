//! TCP through one subject against others, all started anew several times. Owns what decides between subjects that are equal to a few percent:
//! a daemon keeps for its whole life the luck of where its memory and its threads came to lie, so that one start is one sample,
//! however often it is measured.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use dormouse_benches::{Measured, Work, ratio};
use dormouse_lab::judge::stats::{Bootstrap, Measured as Figure, NEGLIGIBLE};
use dormouse_testbed::Testbed;

use crate::measure::{self, Tcp};
use crate::row;
use crate::subjects::{Kind, Subject};

/// Measurements of each subject after a start, besides one that does not count.
const ROUNDS: u32 = 2;

/// Ratios of the throughput of the first subject, by the other's name and the congestion control.
type Ratios = BTreeMap<(&'static str, String), Vec<f64>>;

/// Measures the first of `kinds` against each other one after so many starts, with one stream by each congestion control of `ways`, and prints
/// a verdict on each: the first carries at least as much. A start that fails is said on standard error. The raw data of each start go to `out` when
/// it ends, two rounds after those of the start before.
///
/// # Errors
/// If `out` cannot be written.
pub(crate) fn compare(kinds: &[Kind], ways: &[Tcp], starts: u32, out: Option<&Path>) -> Result<()> {
    let Some((first, others)) = kinds.split_first() else { return Ok(()) };
    let ways = ways.iter().filter(|how| how.streams == 1 && !how.back);
    let ways: Vec<Tcp> = ways.cloned().collect();
    let mut ratios: Ratios = others
        .iter()
        .flat_map(|other| ways.iter().map(|how| ((other.name(), how.congestion.clone()), Vec::new())))
        .collect();
    let (mut all, mut failed) = (None::<Measured>, Vec::new());
    for start in 1..=starts {
        eprintln!("start {start} of {starts}");
        match once(*first, others, &ways, &mut ratios) {
            Ok(measured) => match &mut all {
                None => all = Some(crate::with_daemon(measured).kept_in(out)),
                Some(all) => all.append(measured),
            },
            Err(error) => {
                eprintln!("start {start}: {error:#}");
                failed.push((format!("start {start}"), format!("{error:#}")));
            }
        }
        if let Some(all) = &mut all {
            failed.drain(..).for_each(|(what, why)| all.skip(&what, &why));
            all.keep()?;
        }
    }
    conclude(*first, starts, &ratios);
    Ok(())
}

/// Prints the verdicts.
fn conclude(first: Kind, starts: u32, ratios: &Ratios) {
    println!("TCP, one stream, in {starts} starts of each subject: median of the ratios [interval of 95 %].");
    println!(
        "\"At least as much\" is missed if the interval ends below 1, met if it begins above {} and does not, and else undecided.",
        1.0 - NEGLIGIBLE
    );
    for ((other, congestion), ratios) in ratios {
        let pairs: Vec<(f64, f64)> = ratios.iter().map(|r| (*r, 1.0)).collect();
        let figure = Bootstrap::new(1).paired(&pairs).map(|c| Figure::from(c.ratio)).filter(Figure::is_told);
        let met = match figure {
            None => "not measured",
            Some(Figure { high, .. }) if high < 1.0 => "MISSED",
            Some(Figure { low, .. }) if low > 1.0 - NEGLIGIBLE => "met",
            Some(_) => "undecided",
        };
        let what = format!("TCP ({congestion}) through {} / {other}", first.name());
        let figure = figure.map_or_else(|| "NaN".to_owned(), |figure| figure.words(3));
        println!("target: {what:<66} {figure} >= 1 {met}");
    }
}

/// Starts all subjects, and measures them in turns.
fn once(first: Kind, others: &[Kind], ways: &[Tcp], ratios: &mut Ratios) -> Result<Measured> {
    let mut bed = Testbed::new()?;
    let kinds = [&[first], others].concat();
    let subjects: Vec<Subject> =
        kinds.into_iter().map(|kind| Subject::start(&mut bed, kind)).collect::<Result<_>>()?;
    subjects.iter().try_for_each(measure::verify)?;
    let rows = subjects.iter().flat_map(|subject| {
        ways.iter().map(move |how| -> (String, Work<'_>) {
            (row(subject.kind, how), Box::new(move || measure::tcp(subject, how)))
        })
    });
    let measured = Measured::of(rows.collect(), ROUNDS, crate::settings(ROUNDS), None)?;
    for how in ways {
        let rate = |kind| measured.figure(&row(kind, how), "rate");
        for other in others {
            let of = ratio(&rate(first), &rate(*other));
            if let Some(ratios) =
                ratios.get_mut(&(other.name(), how.congestion.clone())).filter(|_| of.is_finite())
            {
                ratios.push(of);
            }
        }
    }
    Ok(measured)
}
