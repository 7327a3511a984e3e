//! The record of the RFCs' requirements (docs/requirements) and the quotations in the sources agree: what the record calls
//! obeyed is quoted, with its section, in the file that it names; what the sources quote is in the record. Prints the counts.

#![expect(clippy::disallowed_methods, reason = "a test reads files of the repository")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const LEVELS: [&str; 7] =
    ["MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "RECOMMENDED", "NOT RECOMMENDED", "rule"];

/// One line of the record.
struct Requirement {
    rfc: String,
    section: String,
    clause: String,
    /// The files that quote it.
    cited: Vec<String>,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Obeyed,
    NotApplicable,
    Deviates,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `section | level | clause | where`, where being files, or `n/a: reason`, or `deviates[ at files]: reason`.
fn requirement(rfc: &str, line: &str) -> Option<Requirement> {
    let [section, level, clause, place]: [&str; 4] = line.split(" | ").collect::<Vec<_>>().try_into().ok()?;
    let reason = |text: &str| (text.trim().len() > 8).then_some(());
    let (state, files) = if let Some(why) = place.strip_prefix("n/a:") {
        reason(why)?;
        (State::NotApplicable, "")
    } else if let Some(rest) = place.strip_prefix("deviates") {
        let (files, why) = rest.split_once(": ")?;
        reason(why)?;
        (State::Deviates, files.strip_prefix(" at ").unwrap_or_default())
    } else {
        (State::Obeyed, place)
    };
    let numbered = section.split('.').all(|n| n.parse::<u8>().is_ok());
    (numbered && LEVELS.contains(&level) && clause.len() > 8).then(|| Requirement {
        rfc: rfc.into(),
        section: section.into(),
        clause: one_line(clause),
        cited: files.split(", ").filter(|f| !f.is_empty()).map(Into::into).collect(),
        state,
    })
}

fn record() -> Vec<Requirement> {
    let mut record = Vec::new();
    for entry in fs::read_dir(root().join("docs/requirements")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let Some(rfc) = name.strip_prefix("rfc") else { continue };
        for line in
            fs::read_to_string(&path).unwrap().lines().filter(|l| !l.is_empty() && !l.starts_with('#'))
        {
            record.push(requirement(rfc, line).unwrap_or_else(|| panic!("{}: {line}", path.display())));
        }
    }
    record
}

/// The comments of a source file, each block in one line; a block quotation (`>`) is a quotation like another.
fn comments(source: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    let mut quoting = false;
    for line in source.lines().map(str::trim) {
        let text = ["///", "//!", "//"].iter().find_map(|p| line.strip_prefix(p)).map(str::trim);
        let quoted = text.and_then(|t| t.strip_prefix('>'));
        if quoted.is_some() != quoting {
            quoting = !quoting;
            blocks.last_mut().unwrap().push('"');
        }
        match text {
            Some(text) => *blocks.last_mut().unwrap() += &format!(" {}", quoted.unwrap_or(text)),
            None => blocks.push(String::new()),
        }
    }
    blocks.iter().map(|b| one_line(b)).filter(|b| !b.is_empty()).collect()
}

/// What each source file quotes.
fn sources() -> BTreeMap<String, Vec<Quotation>> {
    let root = root();
    let mut found = BTreeMap::new();
    let mut dirs: Vec<PathBuf> = ["crates", "bin"]
        .iter()
        .flat_map(|d| fs::read_dir(root.join(d)).unwrap())
        .map(|e| e.unwrap().path().join("src"))
        .collect();
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for path in entries.map(|e| e.unwrap().path()) {
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                let blocks = comments(&fs::read_to_string(&path).unwrap());
                found.insert(name, blocks.iter().flat_map(|b| quotations(b)).collect());
            }
        }
    }
    found
}

/// A sentence of an RFC in a comment: `"..." (RFC 7296 section 2.3)` or `RFC 7296 section 2.3: "..."`.
struct Quotation {
    text: String,
    /// The RFC and the section.
    of: (String, String),
}

/// The first, or the last, RFC with its section that a text names.
fn cited(text: &str, last: bool) -> Option<(String, String)> {
    let number = |text: &str| -> String {
        let digits: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        digits.trim_end_matches('.').to_owned()
    };
    let at = if last { text.rfind("RFC ")? } else { text.find("RFC ")? };
    let rest = &text[at + 4..];
    let rfc = number(rest);
    let section = rest[rfc.len()..].trim_start_matches(',').strip_prefix(" section ").map(number)?;
    Some((rfc, section))
}

fn quotations(comment: &str) -> Vec<Quotation> {
    let parts: Vec<&str> = comment.split('"').collect();
    let mut found = Vec::new();
    for (i, text) in parts.iter().enumerate().skip(1).step_by(2).filter(|(_, t)| t.contains(' ')) {
        let behind = parts.get(i + 1).filter(|t| t.starts_with(" (RFC ") || t.starts_with(", (RFC "));
        let of = behind
            .and_then(|t| cited(t, false))
            .or_else(|| cited(text, true))
            .or_else(|| cited(parts[i - 1].strip_suffix(": ")?, true));
        found.extend(of.map(|of| Quotation { text: (*text).to_owned(), of }));
    }
    found
}

#[test]
fn what_is_called_obeyed_is_quoted_there() {
    let sources = sources();
    let mut missing = Vec::new();
    for r in record() {
        let here = |q: &Quotation| q.of.0 == r.rfc && q.of.1 == r.section && q.text.contains(&r.clause);
        for file in &r.cited {
            if !sources.get(file).is_some_and(|quoted| quoted.iter().any(here)) {
                missing.push(format!("{file}: \"{}\" (RFC {} section {})", r.clause, r.rfc, r.section));
            }
        }
    }
    assert!(missing.is_empty(), "not quoted where the record says:\n{}", missing.join("\n"));
}

#[test]
fn what_is_quoted_is_in_the_record() {
    let record = record();
    let mut unknown = Vec::new();
    for (file, quoted) in sources() {
        for Quotation { text, of: (rfc, section) } in quoted {
            let known = |r: &Requirement| {
                let pieces = text.split("[...]").map(|p| p.trim().trim_end_matches(['.', ':', ';', ',']));
                let pieces = pieces.filter(|p| !p.is_empty());
                let overlap = |p: &str| p.contains(r.clause.trim_end_matches('.')) || r.clause.contains(p);
                r.rfc == rfc && r.section == section && pieces.into_iter().any(overlap)
            };
            if record.iter().any(|r| r.rfc == rfc) && !record.iter().any(known) {
                unknown.push(format!("{file}: \"{text}\" (RFC {rfc} section {section})"));
            }
        }
    }
    assert!(unknown.is_empty(), "quoted, but not in docs/requirements:\n{}", unknown.join("\n"));
}

#[test]
fn counts() {
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for r in record() {
        counts.entry(r.rfc).or_default()[r.state as usize] += 1;
    }
    assert_eq!(counts.len(), 31);
    for (rfc, [obeyed, not_applicable, deviates]) in counts {
        println!("RFC {rfc}: {obeyed} obeyed, {not_applicable} not applicable, {deviates} deviating");
    }
}
