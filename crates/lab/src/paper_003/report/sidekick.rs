//! Repair without headers elsewhere: Sidekick's published rates, and ours over a path of the same kind. Owns the published figures.

use dormouse_report::Table;

use super::{Exhibit, Point, Writer};
use crate::paper_003::campaign::{SIDEKICK_LINES, SIDEKICK_LOSSES, SIDEKICK_STACKS};

/// What Sidekick's authors published, in Mbit/s, by the losses of [`SIDEKICK_LOSSES`].
const PUBLISHED: [(&str, [&str; 4]); 4] = [
    ("QUIC", ["8.6", "2.3", "1.7", "1.0"]),
    ("TCP", ["8.8", "3.2", "2.2", "1.0"]),
    ("QUIC with Sidekick", ["8.5", "8.5", "8.4", "5.1"]),
    ("a proxy that splits TCP's connection", ["8.7", "8.7", "8.7", "8.5"]),
];

impl Writer<'_> {
    /// The table, if anything was measured for it.
    pub(super) fn sidekick(&self) -> Option<Exhibit<Table>> {
        self.results.samples.iter().find(|s| s.loss.is_some())?;
        let mut head = vec!["what".to_owned(), "whose figures".to_owned()];
        head.extend(SIDEKICK_LOSSES.map(|loss| format!("{loss} % lost, Mbit/s")));
        let mut table = Table::new(head);
        table.title = "Throughput by lost packets, 10 Mbit/s and 25 ms behind a lossy hop".to_owned();
        for (what, rates) in PUBLISHED {
            table.row([what, "published, not measured here"].into_iter().chain(rates).map(str::to_owned));
        }
        for stack in SIDEKICK_STACKS {
            for line in SIDEKICK_LINES {
                let mut row =
                    vec![format!("{}, {}", line.words(), stack.words()), "measured here".to_owned()];
                row.extend(SIDEKICK_LOSSES.map(|loss| {
                    self.rate(&Point::sidekick(line, stack, loss)).map_or_else(
                        || "–".to_owned(),
                        |e| format!("{:.2} [{:.2}, {:.2}]", e.median, e.low, e.high),
                    )
                }));
                table.row(row);
            }
        }
        Some(Exhibit::new("not in the paper", table))
    }
}
