//! What the benchmarks share: clocks, interleaved repetitions, medians, and the verdict on a target. Owns the clocks of the
//! benchmarks. Every figure that they print is a ratio of two things measured in one run, and every output is verified before
//! it is timed; a benchmark never fails because something was slow.

pub mod endpoints;

use std::time::Duration;

use dormouse_lab::judge::stats::quantile;
use nix::time::{ClockId, clock_gettime};

/// The median of some samples, and their whole spread. The unit is the caller's, mostly nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Median; of an even number of samples, the mean of the middle two.
    pub median: f64,
    /// Least.
    pub least: f64,
    /// Most.
    pub most: f64,
}

impl Summary {
    /// Of any number of samples; all NaN of none.
    #[must_use]
    pub fn of(samples: Vec<f64>) -> Self {
        let at = |q| quantile(&samples, q).unwrap_or(f64::NAN);
        Self { median: at(0.5), least: at(0.0), most: at(1.0) }
    }

    /// Of the ratios of two rows of samples that were taken in turn: what slows the machine down for a while slows both down,
    /// and leaves the ratio alone.
    #[must_use]
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Self {
        Self::of(above.iter().zip(below).map(|(a, b)| a / b).collect())
    }

    /// Half of the spread as a percentage of the median: how much the machine was at peace.
    #[must_use]
    pub fn percent(&self) -> f64 {
        50.0 * (self.most - self.least) / self.median
    }
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
        (0..READINGS).for_each(|_| _ = std::hint::black_box(thread_cpu()));
        (thread_cpu() - start) / READINGS
    };
    (0..20).map(|_| once()).min().unwrap_or_default()
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
    fn a_summary_is_the_middle_and_the_ends() {
        let of = |samples: &[f64]| Summary::of(samples.to_vec());
        assert_eq!(of(&[3.0, 1.0, 2.0]), Summary { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(of(&[7.0]).percent(), 0.0);
        assert!(of(&[]).median.is_nan());
    }

    #[test]
    fn what_was_not_measured_meets_no_target() {
        assert!(Target::AtLeast(7.0).met(7.0) && !Target::AtLeast(7.0).met(6.9));
        assert!(Target::AtMost(1.25).met(1.25) && !Target::AtMost(1.25).met(1.3));
        assert!(!Target::AtLeast(0.0).met(f64::NAN) && !Target::AtMost(9.0).met(f64::NAN));
    }
}
