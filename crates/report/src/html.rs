//! A document as one self-contained HTML page: nothing from anywhere else.

use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::{Block, Document, Part, Table};

const STYLE: &str = include_str!("style.css");

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
        Block::Chart(chart) => {
            let svg = PreEscaped(chart.svg()?);
            figure([&chart.id, &chart.title, &chart.caption], &chart.csv(), html! { .wide { (svg) } })
        }
        Block::Bars(bars) => figure([&bars.id, &bars.title, &bars.caption], &bars.csv(), bars.markup()),
        Block::Tracks(of) => figure([&of.id, &of.title, &of.caption], &of.csv(), of.markup()),
    })
}

fn part(part: &Part) -> Markup {
    match part {
        Part::Text(text) => html! { p { (text) } },
        Part::List(lines) => html! { ul { @for line in lines { li { (line) } } } },
        Part::Table(table) => self::table(table),
        Part::Terms(terms) => html! {
            dl { @for (term, words) in terms { dt { (term) } dd { (words) } } }
        },
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
                        tr class=[(sum == Some(n)).then_some("total")] {
                            @for (cell, head) in row.iter().zip(&table.head) {
                                td data-head=[table.words.then_some(head)] { (cell) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What is drawn, with its data to download.
fn figure([id, title, caption]: [&str; 3], csv: &str, drawn: Markup) -> Markup {
    html! {
        figure id=(id) {
            a.csv download={ (id) ".csv" } href={ "data:text/csv;charset=utf-8," (encode(csv)) } { "CSV" }
            h2 { (title) }
            figcaption { (caption) }
            (drawn)
        }
    }
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
