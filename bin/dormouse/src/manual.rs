//! The manual page of the configuration, dormouse.toml(5): the reference ([`crate::reference`]) as manual pages are written.

use crate::reference;
use std::fmt::Write as _;

/// The page, in the language of man(7).
pub(crate) fn configuration() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut out = format!(
        ".TH DORMOUSE.TOML 5 \"\" \"dormouse {version}\" \"File formats\"\n.SH NAME\ndormouse.toml \\- configuration of dormoused(8)\n\
         .SH DESCRIPTION\n"
    );
    for line in reference::page().lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let _ = writeln!(out, ".SH \"{}\"", title.trim_matches('`'));
        } else if let Some(row) = line.strip_prefix("| `") {
            key(&mut out, row);
        } else if line.is_empty() {
            out.push_str(".PP\n");
        } else if !line.starts_with(['#', '|']) {
            let _ = writeln!(out, "{}", text(line));
        }
    }
    out.push_str(".SH \"SEE ALSO\"\n.BR dormoused (8),\n.BR dormouse (1)\n");
    out.replace(".PP\n.SH", ".SH").replace(".SH DESCRIPTION\n.PP\n", ".SH DESCRIPTION\n")
}

/// A row of a table: key, type, default, meaning.
fn key(out: &mut String, row: &str) {
    // A bar within a cell is escaped.
    let row = row.replace("\\|", "\u{1}");
    let mut cells = row.trim_end_matches(" |").splitn(4, " | ").map(|cell| cell.trim().replace('\u{1}', "|"));
    let mut next = || cells.next().unwrap_or_default();
    let (name, kind, default, meaning) = (next(), next(), next(), next());
    let _ = write!(out, ".TP\n\\fB{}\\fR ({}", plain(name.trim_end_matches('`')), text(&kind));
    match default.as_str() {
        "" => out.push_str(")\n"),
        "required" => out.push_str("; required)\n"),
        _ => {
            let _ = writeln!(out, "; default {})", text(&default));
        }
    }
    let _ = writeln!(out, "{}", text(&meaning));
}

/// A line of text, in which what stands between backticks is bold.
fn text(line: &str) -> String {
    let mut out = String::new();
    for (i, part) in line.split('`').enumerate() {
        let part = plain(part);
        if i % 2 == 1 && !part.is_empty() {
            let _ = write!(out, "\\fB{part}\\fR");
        } else {
            out.push_str(&part);
        }
    }
    // Which would be a request otherwise.
    if out.starts_with(['.', '\'']) { format!("\\&{out}") } else { out }
}

fn plain(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_reference_is_in_the_page() {
        let page = configuration();
        let rows = reference::page().lines().filter(|l| l.starts_with("| `")).count();
        assert!(rows > 100, "{rows}");
        assert_eq!(page.matches(".TP\n\\fB").count(), rows);
        assert!(page.contains("\\fBstate_dir\\fR (text; default \\fB\"/var/lib/dormouse\"\\fR)\n"), "{page}");
        assert!(page.contains("\\fBgateway\\fR ("), "{page}");
        // No row of a table, and no request that man(7) does not have.
        for line in page.lines() {
            assert!(!line.starts_with('|') && !line.contains('`'), "{line}");
            let request = line.strip_prefix('.').map(|l| l.split(' ').next().unwrap_or_default());
            assert!(request.is_none_or(|r| ["TH", "SH", "PP", "TP", "BR"].contains(&r)), "{line}");
        }
    }

    #[test]
    fn a_line_is_text_whatever_it_begins_with() {
        assert_eq!(text(".so `a-b` \\n"), "\\&.so \\fBa\\-b\\fR \\en");
        let mut out = String::new();
        key(&mut out, "`to` | text | `\"a\\|b\"` | one\\|two |".trim_start_matches('`'));
        assert_eq!(out, ".TP\n\\fBto\\fR (text; default \\fB\"a|b\"\\fR)\none|two\n");
    }
}
