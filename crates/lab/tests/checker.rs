//! The checker in Python, which shares nothing with the programs that it checks: it agrees with their reports, and does not where a figure of the
//! raw data or of a report is another one. The raw data of the two measured experiments are excerpts of real runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse_lab::{Context, find, reproduce};
use dormouse_testbed::{Need, require};

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A directory with reports and their raw data.
fn reports() -> Scratch {
    let dir = std::env::temp_dir().join(format!("dormouse-checker-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a directory");
    let report = |name: &str, context: &Context| {
        let report = (find(name).expect("it is listed").run)(context).expect("it runs");
        reproduce::keep(&dir.join(name).with_extension("json"), &report).expect("it is written");
    };
    for name in ["paper-000-live", "paper-003"] {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).with_extension("json");
        let raw = dir.join(name).with_extension("json");
        fs::copy(data, &raw).expect("copied");
        report(name, &Context { file: Some(raw), ..Context::default() });
    }
    let out = Some(dir.join("paper-000.json"));
    report("paper-000", &Context { threads: 2, clients: Some(40), seed: 3, out, ..Context::default() });
    Scratch(dir)
}

/// Whether it found everything in order, and what it said.
fn check(path: &Path) -> (bool, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/check-reproduction");
    let output = Command::new("python3").arg(script).arg(path).output().expect("python3 runs");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said)
}

#[test]
fn an_independent_program_finds_the_same_savings_intervals_and_verdicts() {
    if !require("the checker", &[Need::Program("python3")]) {
        return;
    }
    let scratch = reports();
    let (agrees, said) = check(&scratch.0);
    assert!(agrees, "{said}");
    for stated in [
        "12 of 12 claims' intervals",
        "4 of 5 claims' intervals",
        "10 of 10 claims' intervals",
        "table cells",
        "verdicts",
    ] {
        assert!(said.contains(stated), "{stated}: {said}");
    }
    let raw = scratch.0.join("paper-000.json");
    let report = scratch.0.join("paper-000.report.json");
    let [raw_text, text] = [&raw, &report].map(|path| fs::read_to_string(path).expect("it is there"));
    let verdict = text.find("\"finding\": \"contradicted\"").expect("a verdict");
    let end = text.find("\"high\": ").expect("an interval") + "\"high\": ".len();
    let cost = raw_text.find("\"cost.all.time-outs\":[").expect("a cost") + "\"cost.all.time-outs\":[".len();
    for (path, whole, other, stated) in [
        (
            &report,
            &text,
            text[..verdict].to_owned() + &text[verdict..].replacen("contradicted", "confirmed", 1),
            "verdicts: ",
        ),
        (&report, &text, format!("{}9{}", &text[..end], &text[end..]), "differences"),
        (&raw, &raw_text, format!("{}9{}", &raw_text[..cost], &raw_text[cost..]), "costs: "),
        (&raw, &raw_text, raw_text.replacen("\"value\": 2.29", "\"value\": 2.3", 1), "model: "),
    ] {
        assert_ne!(*whole, other, "{stated}");
        fs::write(path, other).expect("written");
        let (agrees, said) = check(&raw);
        assert!(!agrees && said.contains(stated), "{stated}: {said}");
        fs::write(path, whole).expect("written");
    }
}
