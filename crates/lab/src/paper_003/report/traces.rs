//! How far senders were over time (Figures 15 and 16). Owns these charts.

use dormouse_report::{Chart, Mark};

use super::{Exhibit, Line, Point, Stack, Writer, errors};
use crate::paper_003::campaign::TRACED;

impl Writer<'_> {
    /// Bytes acknowledged, and the congestion window, of the first round; nothing where there is no trace.
    pub(super) fn traces(&self, stack: Stack) -> Vec<Exhibit<Chart>> {
        let charts = [
            ("Fig. 15", "acked", "sequence", "Bytes acknowledged", "MB", 1e-6),
            ("Fig. 16", "window", "window", "Congestion window", "segments", 1.0),
        ];
        let charts = charts.map(|(place, of, id, title, unit, scale)| {
            let title = format!("{title} over time at {}: {}", errors(TRACED), stack.words());
            let id = format!("{id}-{}", stack.congestion());
            let mut chart = Chart::new(&id, &title, "s", unit);
            chart.caption = "Of the first round, every 100 ms.".to_owned();
            for (colour, line) in Line::ALL.into_iter().enumerate() {
                let points = self.over_time(&Point::new(line, stack, TRACED), of, scale);
                if !points.is_empty() {
                    chart.add(line.words(), colour, Mark::Line, points);
                }
            }
            Exhibit::new(place, chart)
        });
        charts.into_iter().filter(|exhibit| !exhibit.shown.is_empty()).collect()
    }

    /// Seconds and a quantity of the first round of a point. What no claim would take for want of rounds is not drawn either.
    fn over_time(&self, point: &Point, of: &str, scale: f64) -> Vec<(f64, f64)> {
        let windows = self.values(point, "mean_window");
        if self.bootstrap.median(&windows).is_none_or(|e| !e.is_enough()) {
            return Vec::new();
        }
        let sample = self.results.at(point);
        let first = sample.and_then(|s| s.rounds.iter().find(|r| r.round == 1));
        let Some(first) = first else { return Vec::new() };
        let times = first.figures.all("at").iter().copied();
        times.zip(first.figures.all(of).iter().map(|v| v * scale)).collect()
    }
}
