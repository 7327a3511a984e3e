//! Measurements in the words of the experiments about security settings. Owns their wording; must never mix two files.

use anyhow::Result;
use dormouse_report::digits;

use crate::bench::{Bench, Request};
use crate::experiment::Context;
use crate::judge::stats::{Bootstrap, Mean, Measured, levels};
use crate::results::esp::Metric;
use crate::results::format::EnergySource;
use crate::results::{Results, Sample};

/// The measurements that an experiment needs: of the file that it was given, or made now.
pub(crate) fn results(context: &Context, request: &Request) -> Result<Results> {
    context.results(|context| {
        let bench = match &context.resume {
            Some(path) => Bench::resume(path, None)?,
            None => Bench::new(request, context.out.clone(), None)?,
        };
        bench.finish(context)
    })
}

/// On what the figures were obtained.
pub(crate) fn obtained_on(results: &Results) -> Vec<String> {
    let mut how = vec![format!("plan {:?}, {} points", results.plan, results.samples.len())];
    if let Some(far) = &results.far {
        how.push(format!("over the link to {} ({} cores), {}", far.cpu, far.cores, far.kernel));
    }
    how.push(match results.energy.source {
        EnergySource::None => "no energy figures: no meter and no profile".to_owned(),
        EnergySource::Measured => format!("energy measured by {}", results.energy.name),
        EnergySource::Estimated => {
            format!("energy estimated from CPU time and the profile {}", results.energy.name)
        }
    });
    how.extend(levels(results));
    results.obtained(how)
}

/// Mean and standard deviation over rounds, as the papers give them, with the mean's interval: `2.08 ± 0.01 [2.07, 2.09]`; the interval
/// alone where it is wider than the mean.
pub(crate) fn mean(sample: Option<&Sample>, metric: Metric, factor: f64) -> String {
    let values: Vec<f64> = sample.map(|s| s.values(metric)).unwrap_or_default();
    let values: Vec<f64> = values.into_iter().map(|v| v * factor).collect();
    Mean::of(&values).map_or_else(
        || "not measured".to_owned(),
        |m| {
            // Where none of the figures is below 0, their mean cannot be.
            let least = if values.iter().all(|v| *v >= 0.0) { 0.0 } else { f64::NEG_INFINITY };
            let whole = m.measured(least);
            if whole.is_resolved() {
                let [mean, deviation, low, high] = [m.mean, m.deviation, whole.low, whole.high].map(digits);
                format!("{mean} ± {deviation} [{low}, {high}]")
            } else {
                whole.resolved(digits, "")
            }
        },
    )
}

/// A ratio in words: `2.66 times [2.61, 2.70]`.
pub(crate) fn in_times(ratio: impl Into<Measured>) -> String {
    ratio.into().resolved(|r| format!("{r:.2}"), " times")
}

/// A ratio in words, as what the first is less: `33 % [31, 35]`.
pub(crate) fn percent_less(ratio: impl Into<Measured>) -> String {
    let less = ratio.into().percent_less();
    less.resolved(|p| format!("{p:.*}", less.decimals()), " %")
}

/// A ratio in words, as what the first is more: `-33 % [-35, -31]`.
pub(crate) fn percent_more(ratio: impl Into<Measured>) -> String {
    let more = ratio.into().percent_more();
    more.resolved(|p| format!("{p:+.*}", more.decimals()), " %")
}

/// A change in percent from the ratio of two samples, with its interval; see [`percent_more`].
pub(crate) fn change(
    a: Option<&Sample>,
    b: Option<&Sample>,
    metric: Metric,
    bootstrap: &Bootstrap,
) -> String {
    let compared = a.zip(b).and_then(|(a, b)| bootstrap.compare(a, b, metric));
    compared.map_or_else(|| "not measured".to_owned(), |c| percent_more(c.ratio))
}
