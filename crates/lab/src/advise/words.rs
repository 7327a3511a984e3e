//! Figures in words, as every rendering of an advice shares them. Owns names, units and digits; must never compute a figure.

use dormouse_report::digits;

use crate::judge::stats::{Comparison, Estimate, Measured, Verdict};
use crate::results::esp::Metric;

/// A figure's name.
#[must_use]
pub const fn metric(metric: Metric) -> &'static str {
    match metric {
        Metric::Throughput => "throughput",
        Metric::Cpu => "CPU per byte",
        Metric::Energy => "energy per byte",
        Metric::Elapsed => "time",
        Metric::Loss => "loss",
        Metric::Jitter => "jitter",
        Metric::Joules => "energy",
        Metric::Received => "packets received",
    }
}

/// Unit and factor in which a figure is shown.
const fn unit(metric: Metric) -> (&'static str, f64) {
    match metric {
        Metric::Throughput => ("MB/s", 1e-6),
        Metric::Cpu => ("ns/B", 1.0),
        Metric::Energy => ("nJ/B", 1e9),
        Metric::Elapsed => ("s", 1.0),
        Metric::Loss => ("%", 100.0),
        Metric::Jitter => ("us", 1e6),
        Metric::Joules => ("J", 1.0),
        Metric::Received => ("packets", 1.0),
    }
}

/// A figure with its interval: `213 MB/s [209, 216]`; see [`Measured::resolved`].
#[must_use]
pub fn figure(of: Metric, estimate: &Estimate) -> String {
    let (unit, factor) = unit(of);
    Measured::from(*estimate).resolved(|v| digits(v * factor), &format!(" {unit}"))
}

/// A comparison: `throughput 1.32 times [1.29, 1.35], delta +1.00`, or that it is a tie.
#[must_use]
pub fn compared(of: Metric, c: &Comparison) -> String {
    let ratio = format!("{:.2} times [{:.2}, {:.2}]", c.ratio.median, c.ratio.low, c.ratio.high);
    let verdict = match c.verdict {
        Verdict::Tie => ", a tie",
        Verdict::Open => ", undecided",
        Verdict::TooFew => ", too few rounds to conclude anything",
        Verdict::Less | Verdict::Greater => "",
    };
    format!("{} {ratio}, delta {:+.2}{verdict}", metric(of), c.delta)
}
