//! The hour as a document: the table, and the timeline of each policy. Owns the look; computes nothing.

use super::{Frame, PROFILE, traffic};
use crate::demo::Point;
use crate::judge::stats::quantile;
use crate::results::{Figures, Results};
use dormouse_report::{Block, Chart, Document, Mark, Part, Table, percent};

/// The document of the hour, if it was lived through; `timelines` for a page.
#[must_use]
pub fn document(results: &Results<Point>, timelines: bool) -> Option<Document> {
    let frame: Frame = serde_json::from_value(results.settings.clone()).ok()?;
    let of =
        |s: &'_ crate::results::Sample<Point>| Some((s.policy.clone()?, s.rounds.first()?.figures.clone()));
    let policies: Vec<(String, Figures)> = results.samples.iter().filter_map(of).collect();
    let mut document = Document {
        title: "A device's working hour".to_owned(),
        lead: format!(
            "{}, replayed {} times as fast between real daemons in network namespaces. Joules are reckoned with the profile {PROFILE}, not measured.",
            frame.traffic, frame.speed
        ),
        synthetic: true,
        about: "dormouse demo".to_owned(),
        ..Document::default()
    };
    document.section("policies", "Policies", [Part::Table(table(&policies)), Part::Text(notes(&frame))]);
    let charts = policies.iter().filter(|_| timelines).map(|(policy, figures)| timeline(policy, figures));
    document.blocks.extend(charts.map(Block::Chart));
    Some(document)
}

fn notes(frame: &Frame) -> String {
    format!(
        "{}. Packets later than {:.0} ms count as delayed. The radio and the exchanges run at their own speed: {} times faster traffic makes \
         their latency weigh as much more. The policies know this device from the night and morning before, rehearsed in virtual time.",
        frame.joules_from, frame.late_ms, frame.speed
    )
}

fn table(policies: &[(String, Figures)]) -> Table {
    let mut table = Table::new([
        "policy",
        "joules",
        "of always on",
        "radio on",
        "sleeps",
        "wakes",
        "rungs",
        "lost",
        "delayed",
        "proxied",
        "packets",
        "median ms",
        "95 % ms",
        "most ms",
    ]);
    for (policy, figures) in policies {
        let of = |name| figures.one(name).unwrap_or(f64::NAN);
        let count = |name| of(name).to_string();
        let list = |kind| figures.by(kind).map(|(k, n)| format!("{k} {n}")).collect::<Vec<_>>().join(", ");
        let latency =
            |q| quantile(figures.all("latency"), q).map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        table.row([
            policy.clone(),
            format!("{:.0}", of("joules")),
            percent(of("joules") / of("always_on_joules")),
            percent(of("radio_on")),
            count("sleeps"),
            list("wakes"),
            list("rung"),
            count("lost"),
            count("delayed"),
            count("proxied"),
            count("packets"),
            latency(0.5),
            latency(0.95),
            latency(1.0),
        ]);
    }
    table
}

fn timeline(policy: &str, figures: &Figures) -> Chart {
    let title = format!("Radio under {policy}");
    let mut chart = Chart::new(&format!("timeline-{policy}"), &title, "minute", "radio on; packets");
    chart.caption =
        "Bars: the radio is on. Long strokes: packets that the device sends; short ones: packets that come for it; the lowest: packets that were lost.".into();
    let minutes = |seconds: f64| seconds / 60.0;
    chart.x_range = Some((0.0, minutes(traffic::HOUR as f64)));
    chart.y_range = Some((0.0, 1.1));
    let mut on = vec![(0.0, 1.0)];
    for (since, until) in figures.all("off_since").iter().zip(figures.all("off_until")) {
        on.extend([(minutes(*since), 0.0), (minutes(*until), 1.0)]);
    }
    on.push((minutes(traffic::HOUR as f64), on.last().map_or(1.0, |last| last.1)));
    chart.add("radio", 4, Mark::Steps, on);
    for (name, colour, height, times) in [
        ("sent", 0, 0.6, figures.all("sent_out").to_vec()),
        ("for the device", 1, 0.3, figures.all("sent_in").to_vec()),
        ("lost", 2, 0.15, [figures.all("lost_out"), figures.all("lost_in")].concat()),
    ] {
        chart.add(name, colour, Mark::Stems, times.into_iter().map(|at| (minutes(at), height)).collect());
    }
    chart
}
