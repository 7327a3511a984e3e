//! One self-contained HTML page: tables and charts, nothing from anywhere else. Owns the page's words and style.

use std::fmt::Write as _;

use super::chart::Chart;
use super::json::{Report, Row};
use super::table::{duration, percent};

/// Clients in the page's table.
const SHOWN: usize = 200;

const STYLE: &str = "\
:root{--ink:#1f2430;--soft:#5c6370;--line:#e3e6ec;--accent:#0072b2;--paper:#fff;--ground:#f5f6f9}\
*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\
main{max-width:980px;margin:0 auto;padding:32px 20px 64px}h1{font-size:1.9rem;margin:0 0 4px}h2{font-size:1.15rem;margin:0 0 4px}\
.lead{color:var(--soft);margin:0 0 24px}.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin:0 0 24px}\
.card,figure,section{background:var(--paper);border:1px solid var(--line);border-radius:10px}.card{padding:14px 16px}\
.card b{display:block;font-size:1.6rem;line-height:1.2}.card span{color:var(--soft);font-size:.85rem}\
figure,section{margin:0 0 20px;padding:18px 20px}figcaption,section p{color:var(--soft);font-size:.92rem;margin:2px 0 8px}\
.csv{float:right;font-size:.85rem;color:var(--accent);text-decoration:none;border:1px solid var(--line);border-radius:6px;padding:2px 8px}\
table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}th,td{text-align:right;padding:5px 8px;border-bottom:1px solid var(--line);white-space:nowrap}\
th:first-child,td:first-child{text-align:left}thead th{color:var(--soft);font-weight:600}tr.total td{font-weight:600;border-top:2px solid var(--line)}\
.wide{overflow-x:auto}.warn{background:#fff4e0;border:1px solid #f0c36d;border-radius:10px;padding:12px 16px;margin:0 0 20px;font-weight:600}\
.bad{color:#b3261e}svg{display:block;width:100%;height:auto}table.words td{white-space:normal;text-align:left;vertical-align:top}table.words th{text-align:left}footer{color:var(--soft);font-size:.85rem}";

const ORDER: [&str; 6] = ["never", "timeout", "break-even", "paper", "dormouse", "clairvoyant"];

/// The page.
///
/// # Errors
/// When a chart cannot be drawn, which would be a defect.
pub fn render(report: &Report, charts: &[Chart], about: &str) -> Result<String, String> {
    let mut out = String::with_capacity(1 << 20);
    cards(&mut out, report);
    if !report.lost.is_empty() {
        losses(&mut out, report);
    }
    policies(&mut out, report);
    for chart in charts {
        figure(&mut out, chart)?;
    }
    clients(&mut out, report);
    inputs(&mut out, report);
    Ok(page("What would sleeping save?", &lead(report), report.synthetic, &out, about))
}

/// A page around a body that is HTML already; everything else is text.
#[must_use]
pub fn page(title: &str, lead: &str, synthetic: bool, body: &str, about: &str) -> String {
    let (title, lead, about) = (escape(title), escape(lead), escape(about));
    let warning = if synthetic {
        "<p class=\"warn\">Synthetic traffic: made by a model, not recorded from anybody.</p>\n"
    } else {
        ""
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title><style>{STYLE}</style></head>\
         <body><main>\n<h1>{title}</h1>\n<p class=\"lead\">{lead}</p>\n{warning}{body}<footer>{about}</footer>\n</main></body></html>\n"
    )
}

fn lead(report: &Report) -> String {
    let span = duration(report.total.last - report.total.first);
    format!(
        "{} client{} ({}), {} packets in {span}. Break-even time {:.1} s; {}; a silence is an idle period from {:.2} s on.",
        report.clients.len(),
        if report.clients.len() == 1 { "" } else { "s" },
        report.rule,
        thousands(report.total.packets),
        report.break_even,
        if report.wake_on == "all" {
            "every packet wakes the radio"
        } else {
            "only the client's own packets wake the radio"
        },
        report.min_idle
    )
}

fn cards(out: &mut String, report: &Report) {
    let of = |name: &str| report.total.policies.get(name);
    let mut cards = vec![(duration(report.total.idle_seconds), "idle time of all clients")];
    if let Some(p) = of("clairvoyant") {
        cards.push((percent(p.saved_fraction), "of the idle energy could be saved"));
    }
    if let Some(p) = of("dormouse") {
        cards.push((percent(p.saved_fraction), "is saved by the scheduler “dormouse”"));
        let share = p.mean_share_of_clairvoyant.map_or_else(|| "–".to_owned(), percent);
        cards.push((share, "of the possible saving, mean over clients"));
    }
    out.push_str("<div class=\"cards\">");
    for (value, label) in cards {
        let _ =
            write!(out, "<div class=\"card\"><b>{}</b><span>{}</span></div>", escape(&value), escape(label));
    }
    out.push_str("</div>\n");
}

fn losses(out: &mut String, report: &Report) {
    let _ = write!(
        out,
        "<section><h2 class=\"bad\">Not everything could be read ({})</h2><ul>",
        report.lost_total
    );
    for l in &report.lost {
        let _ = write!(
            out,
            "<li>{}: byte {}, record {}: {}</li>",
            escape(&l.file),
            l.offset,
            l.record,
            escape(&l.reason)
        );
    }
    out.push_str("</ul></section>\n");
}

fn policies(out: &mut String, report: &Report) {
    out.push_str(
        "<section><h2>Policies</h2><p>Saved is the part of the idle energy of a radio that never sleeps. An idle period g costs g with the \
         radio on, and t plus the break-even time if it is switched off after t.</p><div class=\"wide\"><table><thead><tr><th>policy</th>\
         <th>saved</th><th>of the clairvoyant's</th><th>mean over clients</th><th>cycles</th><th>missed opportunities</th><th>packets lost</th></tr></thead><tbody>",
    );
    for name in ORDER {
        if let Some(p) = report.total.policies.get(name) {
            let _ = write!(
                out,
                "<tr><td>{name}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                percent(p.saved_fraction),
                p.share_of_clairvoyant.map_or_else(|| "–".to_owned(), percent),
                p.mean_share_of_clairvoyant.map_or_else(|| "–".to_owned(), percent),
                thousands(p.cycles),
                thousands(p.missed_opportunities),
                thousands(p.packets_lost)
            );
        }
    }
    out.push_str("</tbody></table></div></section>\n");
}

/// One chart with its caption and its data.
///
/// # Errors
/// When it cannot be drawn.
pub fn figure(out: &mut String, chart: &Chart) -> Result<(), String> {
    let _ = writeln!(
        out,
        "<figure id=\"{0}\"><a class=\"csv\" download=\"{0}.csv\" href=\"data:text/csv;charset=utf-8,{1}\">CSV</a><h2>{2}</h2>\
         <figcaption>{3}</figcaption>{4}</figure>",
        escape(&chart.id),
        encode(&chart.csv()),
        escape(&chart.title),
        escape(&chart.caption),
        chart.svg()?
    );
    Ok(())
}

fn clients(out: &mut String, report: &Report) {
    out.push_str("<section><h2>Clients</h2><div class=\"wide\"><table><thead><tr><th>client</th><th>packets</th><th>span</th><th>idle</th><th>periods</th>");
    for name in ORDER {
        let _ = write!(out, "<th>{name}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for row in report.clients.iter().take(SHOWN) {
        client(out, row, "");
    }
    client(out, &report.total, " class=\"total\"");
    out.push_str("</tbody></table></div>");
    if report.clients.len() > SHOWN {
        let _ = write!(out, "<p>The first {SHOWN} of {}; the JSON report has all.</p>", report.clients.len());
    }
    out.push_str("</section>\n");
}

fn client(out: &mut String, row: &Row, class: &str) {
    let _ = write!(
        out,
        "<tr{class}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
        escape(&row.client),
        thousands(row.packets),
        duration(row.last - row.first),
        duration(row.idle_seconds),
        thousands(row.idle_periods)
    );
    for name in ORDER {
        let saved = row.policies.get(name).map_or_else(|| "–".to_owned(), |p| percent(p.saved_fraction));
        let _ = write!(out, "<td>{saved}</td>");
    }
    out.push_str("</tr>");
}

fn inputs(out: &mut String, report: &Report) {
    out.push_str("<section><h2>Inputs</h2><div class=\"wide\"><table><thead><tr><th>file</th><th>format</th><th>records</th><th>out of order</th></tr></thead><tbody>");
    for f in &report.files {
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&f.file),
            f.format.unwrap_or("–"),
            thousands(f.records),
            thousands(f.out_of_order)
        );
    }
    let _ = writeln!(
        out,
        "</tbody></table></div><p>{} packets belong to no client; {} came too late to be put in their place.</p></section>",
        thousands(report.unattributed_packets),
        thousands(report.late_packets)
    );
}

/// Text as HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Text as part of a data URI inside an attribute.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for b in text.bytes() {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b',' | b'+' | b'*' => {
                out.push(char::from(b))
            }
            _ => {
                let _ = write!(out, "%{b:02X}");
            }
        }
    }
    out
}

fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}
