//! The hour as a document: the table, and the timeline of each policy. Owns the look; computes nothing.

use super::{Hour, PROFILE, Row, traffic};
use dormouse_report::{Block, Chart, Document, Mark, Part, Table, percent};
use std::collections::BTreeMap;

/// The document; `timelines` for a page.
#[must_use]
pub fn document(hour: &Hour, timelines: bool) -> Document {
    let mut document = Document {
        title: "A device's working hour".to_owned(),
        lead: format!(
            "{}, replayed {} times as fast between real daemons in network namespaces. Joules are reckoned with the profile {PROFILE}, not measured.",
            hour.traffic, hour.speed
        ),
        synthetic: true,
        about: "dormouse demo".to_owned(),
        ..Document::default()
    };
    document.section("policies", "Policies", [Part::Table(table(hour)), Part::Text(notes(hour))]);
    let charts = hour.policies.iter().filter(|_| timelines).map(timeline);
    document.blocks.extend(charts.map(Block::Chart));
    document
}

fn notes(hour: &Hour) -> String {
    format!(
        "{}. Packets later than {:.0} ms count as delayed. The radio and the exchanges run at their own speed: {} times faster traffic makes \
         their latency weigh as much more. The policies know this device from the night and morning before, rehearsed in virtual time.",
        hour.joules_from, hour.late_ms, hour.speed
    )
}

fn table(hour: &Hour) -> Table {
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
    let list = |map: &BTreeMap<String, u64>| {
        map.iter().map(|(k, n)| format!("{k} {n}")).collect::<Vec<_>>().join(", ")
    };
    for row in &hour.policies {
        let [median, most_of, most] = row.latency_ms.map(|ms| format!("{ms:.1}"));
        table.row([
            row.policy.clone(),
            format!("{:.0}", row.joules),
            percent(row.joules / row.always_on_joules),
            percent(row.radio_on),
            row.sleeps.to_string(),
            list(&row.wakes),
            list(&row.rungs),
            row.lost.to_string(),
            row.delayed.to_string(),
            row.proxied.to_string(),
            row.packets.to_string(),
            median,
            most_of,
            most,
        ]);
    }
    table
}

fn timeline(row: &Row) -> Chart {
    let title = format!("Radio under {}", row.policy);
    let mut chart = Chart::new(&format!("timeline-{}", row.policy), &title, "minute", "radio on; packets");
    chart.caption =
        "Bars: the radio is on. Long strokes: packets that the device sends; short ones: packets that come for it; the lowest: packets that were lost.".into();
    let minutes = |seconds: f64| seconds / 60.0;
    chart.x_range = Some((0.0, minutes(traffic::HOUR as f64)));
    chart.y_range = Some((0.0, 1.1));
    let mut on = vec![(0.0, 1.0)];
    for (since, until) in &row.off {
        on.extend([(minutes(*since), 0.0), (minutes(*until), 1.0)]);
    }
    on.push((minutes(traffic::HOUR as f64), on.last().map_or(1.0, |last| last.1)));
    chart.add("radio", 4, Mark::Steps, on);
    let [outgoing, incoming] = &row.sent;
    chart.add("sent", 0, Mark::Stems, outgoing.iter().map(|at| (minutes(*at), 0.6)).collect());
    chart.add("for the device", 1, Mark::Stems, incoming.iter().map(|at| (minutes(*at), 0.3)).collect());
    let lost = row.lost_at.iter().flatten().map(|at| (minutes(*at), 0.15)).collect();
    chart.add("lost", 2, Mark::Stems, lost);
    chart
}
