//! Power over time: `W = ∫ v·i dt` (paper 001, section 5.1) by the trapezoid rule. Owns the sum and how far it may be off; must
//! never count energy for time that ran backwards.

/// The integral of a power that is known at single moments.
///
/// ```
/// let mut energy = dormouse_energy::meter::integral::Integral::default();
/// for (seconds, watts) in [(0.0, 10.0), (2.0, 14.0), (3.0, 14.0)] {
///     energy.push(seconds, watts);
/// }
/// assert_eq!(energy.joules(), 24.0 + 14.0);
/// assert_eq!(energy.uncertainty(), 4.0); // between 0 s and 2 s it may have been 10 W or 14 W throughout
/// ```
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Integral {
    last: Option<(f64, f64)>,
    joules: f64,
    uncertainty: f64,
    longest: f64,
}

impl Integral {
    /// The power at a time, in watts and in seconds of any origin. Ignored, and false returned, if either is not finite or the time
    /// lies before the last one.
    pub fn push(&mut self, seconds: f64, watts: f64) -> bool {
        if !(seconds.is_finite() && watts.is_finite()) {
            return false;
        }
        if let Some((then, before)) = self.last {
            let passed = seconds - then;
            if passed < 0.0 {
                return false;
            }
            let joules = 0.5 * (watts + before) * passed;
            if !joules.is_finite() {
                return false;
            }
            self.joules += joules;
            self.uncertainty += 0.5 * (watts - before).abs() * passed;
            self.longest = self.longest.max(passed);
        }
        self.last = Some((seconds, watts));
        true
    }

    /// Forgets the last moment: the time until the next one is not counted.
    pub const fn interrupt(&mut self) {
        self.last = None;
    }

    /// The last moment and its power.
    #[must_use]
    pub const fn last(&self) -> Option<(f64, f64)> {
        self.last
    }

    /// Energy so far, in joules.
    #[must_use]
    pub const fn joules(&self) -> f64 {
        self.joules
    }

    /// How far it may be off if the power only ever moved between the values that were seen, in joules.
    #[must_use]
    pub const fn uncertainty(&self) -> f64 {
        self.uncertainty
    }

    /// The longest pause between two moments, in seconds.
    #[must_use]
    pub const fn longest_pause(&self) -> f64 {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_runs_backwards_and_nonsense_are_refused() {
        let mut energy = Integral::default();
        assert!(energy.push(1.0, 5.0));
        for (t, w) in [(0.5, 5.0), (f64::NAN, 5.0), (2.0, f64::INFINITY), (f64::MAX, f64::MAX)] {
            assert!(!energy.push(t, w), "{t} {w}");
        }
        assert!(energy.push(2.0, 5.0));
        assert_eq!(energy.joules(), 5.0);
    }

    #[test]
    fn an_interruption_is_not_counted() {
        let mut energy = Integral::default();
        energy.push(0.0, 5.0);
        energy.push(1.0, 5.0);
        energy.interrupt();
        energy.push(100.0, 5.0);
        energy.push(101.0, 5.0);
        assert_eq!((energy.joules(), energy.longest_pause()), (10.0, 1.0));
    }

    #[test]
    fn a_sine_is_integrated_to_its_closed_form() {
        // p = 3 + 2 sin(2 pi t) over 10 periods: 30 J.
        let mut energy = Integral::default();
        for i in 0..=10_000_u32 {
            let t = f64::from(i) / 1000.0;
            energy.push(t, 3.0 + 2.0 * (core::f64::consts::TAU * t).sin());
        }
        assert!((energy.joules() - 30.0).abs() < 1e-6, "{}", energy.joules());
        assert!(energy.uncertainty() > 0.0 && energy.uncertainty() < 0.1, "{}", energy.uncertainty());
    }
}
