//! A document as one self-contained HTML page: nothing from anywhere else.

use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::{Block, Chart, Document, Part, Table};

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
svg{display:block;width:100%;height:auto}table.words td{white-space:normal;text-align:left;vertical-align:top}table.words th{text-align:left}footer{color:var(--soft);font-size:.85rem}";

pub(crate) fn page(document: &Document) -> Result<String, String> {
    let blocks = document.blocks.iter().map(block).collect::<Result<Vec<_>, _>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                title { (document.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (document.title) }
                    p.lead { (document.lead) }
                    @if document.synthetic {
                        p.warn { "Synthetic traffic: made by a model, not recorded." }
                    }
                    @for block in blocks { (block) }
                    footer { (document.about) }
                }
            }
        }
    };
    Ok(page.into_string())
}

fn block(block: &Block) -> Result<Markup, String> {
    Ok(match block {
        Block::Cards(cards) => html! {
            .cards { @for (value, label) in cards { .card { b { (value) } span { (label) } } } }
        },
        Block::Section(section) => html! {
            section id=[Some(&section.id).filter(|id| !id.is_empty())] {
                h2 { (section.title) }
                @for part in &section.parts { (self::part(part)) }
            }
        },
        Block::Chart(chart) => figure(chart)?,
    })
}

fn part(part: &Part) -> Markup {
    match part {
        Part::Text(text) => html! { p { (text) } },
        Part::List(lines) => html! { ul { @for line in lines { li { (line) } } } },
        Part::Table(table) => self::table(table),
        Part::Code(code) => html! { pre { (code) } },
        Part::Files(about, files) => html! {
            p { (about) ": " @for (n, (name, place)) in files.iter().enumerate() {
                @if n > 0 { ", " } a href=(place) { (name) }
            } }
        },
    }
}

fn table(table: &Table) -> Markup {
    let sum = table.rows.len().checked_sub(1).filter(|_| table.total);
    html! {
        .wide {
            table class=[table.words.then_some("words")] {
                thead { tr { @for head in &table.head { th { (head) } } } }
                tbody {
                    @for (n, row) in table.rows.iter().enumerate() {
                        tr class=[(sum == Some(n)).then_some("total")] { @for cell in row { td { (cell) } } }
                    }
                }
            }
        }
    }
}

fn figure(chart: &Chart) -> Result<Markup, String> {
    let (svg, csv) = (PreEscaped(chart.svg()?), encode(&chart.csv()));
    Ok(html! {
        figure id=(chart.id) {
            a.csv download={ (chart.id) ".csv" } href={ "data:text/csv;charset=utf-8," (csv) } { "CSV" }
            h2 { (chart.title) }
            figcaption { (chart.caption) }
            (svg)
        }
    })
}

/// Text as part of a data URI inside an attribute.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for b in text.bytes() {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b',' | b'+' | b'*' => {
                out.push(char::from(b))
            }
            _ => _ = write!(out, "%{b:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_written_can_break_a_page() {
        let mut document = Document { title: "<b>".into(), lead: "a & \"b\"".into(), ..Document::default() };
        let mut table = Table::words(["<i>"]);
        table.row(["<script>"]);
        document.section("", "t", [Part::Table(table)]);
        let page = document.html().unwrap();
        assert!(!page.contains("<script") && !page.contains("<i>") && !page.contains("<b>"), "{page}");
        assert!(page.contains("<section><h2>t</h2>") && page.contains("&lt;script&gt;"), "{page}");
    }
}
