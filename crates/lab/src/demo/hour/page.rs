//! The hour as one self-contained page: the table, and the timeline of each policy. Owns the look; computes nothing.

use super::{Hour, PROFILE, Row, traffic};
use anyhow::{Result, anyhow};
use dormouse_trace::report::chart::{Chart, Mark};
use dormouse_trace::report::html::{escape, figure, page};
use std::fmt::Write;

/// The page.
///
/// # Errors
/// If a chart cannot be drawn, which would be a defect.
pub fn html(hour: &Hour) -> Result<String> {
    let mut body = String::new();
    table(&mut body, hour);
    for row in &hour.policies {
        figure(&mut body, &timeline(row)).map_err(|e| anyhow!(e))?;
    }
    let lead = format!(
        "{}, replayed {} times as fast between real daemons in network namespaces. Joules are reckoned with the profile {PROFILE}, not measured.",
        hour.traffic, hour.speed
    );
    Ok(page("A device's working hour", &lead, true, &body, "dormouse demo"))
}

fn table(out: &mut String, hour: &Hour) {
    out.push_str(
        "<section><h2>Policies</h2><div class=\"wide\"><table><thead><tr><th>policy</th><th>joules</th><th>always on</th><th>radio on</th>\
         <th>sleeps</th><th>wakes</th><th>rungs</th><th>lost</th><th>delayed</th><th>proxied</th><th>packets</th><th>median ms</th>\
         <th>95 % ms</th><th>most ms</th></tr></thead><tbody>",
    );
    for row in &hour.policies {
        let list = |map: &std::collections::BTreeMap<String, u64>| {
            map.iter().map(|(k, n)| format!("{k} {n}")).collect::<Vec<_>>().join(", ")
        };
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{:.0}</td><td>{:.0}</td><td>{:.0} %</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td></tr>",
            escape(&row.policy),
            row.joules,
            row.always_on_joules,
            100.0 * row.radio_on,
            row.sleeps,
            escape(&list(&row.wakes)),
            escape(&list(&row.rungs)),
            row.lost,
            row.delayed,
            row.proxied,
            row.packets,
            row.latency_ms[0],
            row.latency_ms[1],
            row.latency_ms[2],
        );
    }
    out.push_str("</tbody></table></div></section>\n");
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
