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

/// Mean and standard deviation over rounds, as the papers give them: `2.08 ± 0.01`.
pub(crate) fn mean(sample: Option<&Sample>, metric: Metric, factor: f64) -> String {
    let values = sample.map(|s| s.values(metric)).unwrap_or_default();
    Mean::of(&values).map_or_else(
        || "not measured".to_owned(),
        |m| format!("{} ± {}", digits(m.mean * factor), digits(m.deviation * factor)),
    )
}

/// A change in percent from the ratio of two samples, with its interval: `-33 % [-35, -31]`; the interval alone where it is wider than the
/// ratio.
pub(crate) fn change(
    a: Option<&Sample>,
    b: Option<&Sample>,
    metric: Metric,
    bootstrap: &Bootstrap,
) -> String {
    let compared = a.zip(b).and_then(|(a, b)| bootstrap.compare(a, b, metric));
    compared.map_or_else(
        || "not measured".to_owned(),
        |c| {
            let percent = |r: f64| 100.0 * (r - 1.0);
            let r = Measured::from(c.ratio);
            if r.is_resolved() {
                format!("{:+.0} % [{:+.0}, {:+.0}]", percent(r.value), percent(r.low), percent(r.high))
            } else {
                r.resolved(|ratio| format!("{:+.0} %", percent(ratio)))
            }
        },
    )
}
