//! Mean, spread and interval of repetitions. Pure arithmetic; must never hide how few repetitions there were.

/// What repetitions of one measurement say.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Summary {
    /// Repetitions.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Standard deviation of one repetition (n - 1); 0 for a single one.
    pub deviation: f64,
}

impl Summary {
    /// Of these values; `None` without any.
    ///
    /// ```
    /// let s = dormouse_energy::meter::statistics::Summary::of(&[1.0, 2.0, 3.0]).unwrap();
    /// assert_eq!((s.mean, s.deviation), (2.0, 1.0));
    /// assert!((s.half_interval() - 2.484).abs() < 1e-3); // 4.303 / sqrt(3)
    /// ```
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        Some(Self { count, mean, deviation })
    }

    /// Half the width of the 95 % interval of the mean (Student's t). Infinite for a single repetition.
    #[must_use]
    pub fn half_interval(&self) -> f64 {
        self.half_interval_of(self.deviation)
    }

    /// The same if one repetition is known to spread by `deviation`.
    #[must_use]
    pub fn half_interval_of(&self, deviation: f64) -> f64 {
        if self.count < 2 {
            return f64::INFINITY;
        }
        student(self.count - 1) * deviation / (self.count as f64).sqrt()
    }
}

/// The 97.5 % quantile of Student's t distribution with `freedom` degrees, to 0.002: a table where it bends, Cornish and
/// Fisher's expansion beyond.
#[must_use]
pub fn student(freedom: usize) -> f64 {
    const FIRST: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    const Z: f64 = 1.959_964;
    match freedom.checked_sub(1).map(|i| FIRST.get(i)) {
        None => f64::INFINITY,
        Some(Some(t)) => *t,
        Some(None) => {
            let n = freedom as f64;
            let first = (Z.powi(3) + Z) / 4.0;
            let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
            let third = (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0;
            Z + first / n + second / (n * n) + third / n.powi(3)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantiles_are_those_of_the_tables() {
        for (freedom, t) in
            [(1, 12.706), (5, 2.571), (7, 2.365), (10, 2.228), (11, 2.201), (24, 2.064), (100, 1.984)]
        {
            assert!((student(freedom) - t).abs() < 0.002, "{freedom}: {}", student(freedom));
        }
        assert_eq!(student(0), f64::INFINITY);
    }

    #[test]
    fn one_repetition_says_nothing_about_its_spread() {
        let one = Summary::of(&[5.0]).unwrap();
        assert_eq!((one.mean, one.deviation, one.half_interval()), (5.0, 0.0, f64::INFINITY));
        assert_eq!(Summary::of(&[]), None);
    }
}
