//! Equation 5: kept incrementally, equal to the equation over the whole history.

use core::time::Duration;

use dormouse_energy::schedule::{AGE, AverageUser, Paper, Scheduler};
use proptest::prelude::*;

/// Equations 5 to 8 straight from the history; the ages are the only thing shared with the code under test.
fn batch(history: &[f64], average: &[f64], break_even: f64, alpha: f64, beta: f64, from: f64) -> f64 {
    let at_least = |periods: &[f64], t: f64| periods.iter().filter(|g| **g >= t).count();
    for age in AGE.into_iter().filter(|age| *age >= from) {
        let later = at_least(history, age + break_even);
        let off = if later > 0 {
            later as f64 / at_least(history, age) as f64 > alpha
        } else {
            // The average user is known at the ages only: t + B is rounded up.
            let reach = AGE.into_iter().find(|a| *a >= age + break_even).unwrap_or(f64::INFINITY);
            let now = at_least(average, age);
            now > 0 && at_least(average, reach) as f64 / now as f64 > beta
        };
        if off {
            return age;
        }
    }
    f64::INFINITY
}

fn lengths() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec((-1.5f64..9.0).prop_map(f64::exp), 0..60)
}

proptest! {
    #[test]
    fn incremental_equals_batch(
        periods in lengths(), average in lengths(),
        break_even in 1.0f64..60.0, alpha in 0.05f64..0.95, beta in 0.05f64..0.95, from in 0.0f64..30.0,
    ) {
        let average_user = AverageUser::from_periods(average.iter().copied());
        let mut paper = Paper::new(break_even, alpha, beta, average_user).first_at(from);
        let mut history = Vec::new();
        for period in periods {
            let period = Duration::from_secs_f64(period);
            let expected = batch(&history, &average, break_even, alpha, beta, from);
            let found = paper.decide().seconds();
            prop_assert!(
                (found - expected).abs() < 1e-6 || found.is_infinite() && expected.is_infinite(),
                "{found} instead of {expected} after {history:?}"
            );
            paper.learn(period);
            history.push(period.as_secs_f64());
        }
    }
}

#[test]
fn equal_periods_above_break_even_are_slept_through_at_once() {
    // Where the quantile of the bucket trick would wait until the period is over.
    let mut paper = Paper::new(22.3, 0.5, 0.8, AverageUser::from_periods([]));
    assert_eq!(paper.decide().off_after, None);
    for _ in 0..10 {
        paper.learn(Duration::from_secs(60));
    }
    assert_eq!(paper.decide().off_after, Some(Duration::from_millis(250)));
}

#[test]
fn the_average_user_decides_where_the_own_history_has_no_long_period() {
    let average = AverageUser::from_periods([1.0, 1.0, 100.0, 100.0, 100.0]);
    let mut paper = Paper::new(22.3, 0.5, 0.8, average);
    // 3 of 5 at first; all of those that outlast a second. The next age after 1 s.
    let after = AGE.into_iter().find(|a| *a > 1.0).unwrap();
    assert!((paper.decide().seconds() - after).abs() < 1e-6);
    paper.learn(Duration::from_secs(1));
    assert!((paper.decide().seconds() - after).abs() < 1e-6);
    paper.learn(Duration::from_secs(100));
    assert!((paper.decide().seconds() - after).abs() < 1e-6, "1 of 2 is not more than alpha");
    paper.learn(Duration::from_secs(100));
    assert!((paper.decide().seconds() - 0.25).abs() < 1e-6, "2 of 3 is");
}

#[test]
fn the_average_user_that_ships_is_the_published_law() {
    // S(t) = t^-1.5 from a second on: at the first age t whose S(t + B, rounded up to an age) / S(t) is above beta.
    let (b, beta) = (22.3, 0.8);
    let survival = |t: f64| t.max(1.0).powf(-1.5);
    let trusted = AGE.into_iter().find(|t| {
        let reach = AGE.into_iter().find(|a| *a >= t + b).unwrap();
        survival(reach) / survival(*t) > beta
    });
    let off_after = Paper::new(b, 0.5, beta, AverageUser::shipped()).decide().seconds();
    assert!((off_after - trusted.unwrap()).abs() < 1e-6, "{off_after} against {trusted:?}");
    assert!((100.0..200.0).contains(&off_after), "t / (t + B) above 0.8^(2/3), from 139 s on");
}

#[test]
fn history_survives_a_restart() {
    let mut paper = Paper::new(22.3, 0.5, 0.8, AverageUser::shipped());
    (1..50).for_each(|i| paper.learn(Duration::from_secs(i * i % 90)));
    let mut saved = Vec::new();
    paper.save(&mut saved);
    let mut restored = Paper::new(22.3, 0.5, 0.8, AverageUser::shipped());
    restored.restore(&saved).unwrap();
    assert_eq!(restored.decide(), paper.decide());
    assert!(restored.restore(&saved[1..]).is_err());
    saved[0] ^= 1;
    assert!(restored.restore(&saved).is_err());
    assert_eq!(restored.decide(), paper.decide());
}
