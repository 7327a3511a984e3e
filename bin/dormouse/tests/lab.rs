//! `dormouse lab` as scripts see it: what would overwrite raw data or do nothing is refused before anything is measured, and what was not
//! compared is no success.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../../../crates/lab/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use dormouse_lab::results::format::Skipped;

struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dormouse-lab-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Exit code, and what was said on both outputs.
    fn run(&self, arguments: &str) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        let output = command.current_dir(&self.0).arg("lab").args(arguments.split(' ')).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout) + &text(output.stderr))
    }

    fn files(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_would_overwrite_raw_data_is_refused_before_the_work() {
    let scene = Scene::new("overwrite");
    for (arguments, stated) in [
        ("run paper-000 --clients 20 --out X.txt", "ends in .json"),
        ("run paper-000 --clients 20 --out X.html", "ends in .json"),
        ("run paper-000 --clients 20 --out X", "ends in .json"),
        ("run paper-000 --clients 20 --out X.report.json", "another name"),
        ("run paper-002 --resume X.txt", "ends in .json"),
        ("run paper-000 --clients 20 --out X.json --html X.json", "overwrite"),
    ] {
        let (code, said) = scene.run(arguments);
        assert!(code != 0 && said.contains(stated), "{arguments}: {code}: {said}");
        assert_eq!(scene.files(), Vec::<String>::new(), "{arguments}");
    }
}

#[test]
fn what_would_do_nothing_is_refused() {
    let scene = Scene::new("nothing");
    for arguments in [
        "run paper-000 --results X.json --short",
        "run paper-000 --results X.json --seed 2",
        "run paper-000 --results X.json --clients 20",
        "run paper-000 --results X.json day.pcap",
        "run paper-002 --resume X.json --quick",
        "run paper-002 --resume X.json --seed 2",
        "run paper-002 day.pcap",
        "run paper-003-handoff --clients 2",
        "reproduce paper-003 --quick --recording day.pcap",
    ] {
        fs::write(scene.0.join("day.pcap"), "").unwrap();
        let (code, said) = scene.run(arguments);
        let told = ["cannot be used with", "no recording is used", "--clients is of", "--recording is for"];
        assert!(code != 0 && told.iter().any(|t| said.contains(t)), "{arguments}: {code}: {said}");
        assert_eq!(scene.files(), ["day.pcap"], "{arguments}");
    }
}

#[test]
fn a_name_with_dots_stands_beside_its_report_and_nothing_to_compare_is_no_success() {
    let scene = Scene::new("dots");
    let (code, said) = scene.run("run paper-000 --short --clients 20 --out run.2026.json");
    assert_eq!(code, 0, "{said}");
    let files = ["run.2026", "run.2026.html", "run.2026.json", "run.2026.report.json", "run.2026.txt"];
    assert_eq!(scene.files(), files);
    let raw = fs::read_to_string(scene.0.join("run.2026.json")).unwrap();
    assert!(raw.contains("\"plan\": \"chosen\""), "20 clients are no plan of ours");
    let (code, said) = scene.run("verify .");
    assert!(code == 0 && said.contains("the same bytes follow"), "{said}");
    fs::write(scene.0.join("alone.json"), raw).unwrap();
    let (code, said) = scene.run("verify alone.json");
    assert!(code == 1 && said.contains("nothing stands beside it"), "{said}");
    let (code, said) = scene.run("verify nowhere");
    assert!(code == 1 && said.contains("nowhere: no such file or directory"), "{said}");
}

/// What this machine lacks is said, and is no failure; what was tried and given up is one.
#[test]
fn results_without_a_point_that_failed_are_no_success() {
    let scene = Scene::new("failed");
    let mut results = common::campaign();
    results.skipped.push(Skipped::new("daemons", "root"));
    results.write(&scene.0.join("lacks.json")).unwrap();
    results.skipped.push(Skipped::failed("null", "a wrong answer"));
    results.write(&scene.0.join("failed.json")).unwrap();
    let run = |file: &str| scene.run(&format!("run paper-001 --results {file}"));
    let (code, said) = run("lacks.json");
    assert!(code == 0 && said.contains("not measured: daemons: root"), "{code}: {said}");
    assert!(!said.contains("incomplete: "), "{said}");
    let (code, said) = run("failed.json");
    let words = "not measured: null: it failed: a wrong answer";
    assert!(code == 1 && said.contains(&format!("incomplete: {words}")), "{code}: {said}");
    let (first, _) = said.split_once("Claims").unwrap();
    assert!(first.contains(words), "{said}");
}

#[test]
fn the_list_says_how_long_each_takes() {
    let scene = Scene::new("list");
    let (code, said) = scene.run("list");
    assert!(code == 0, "{said}");
    for name in ["paper-000", "paper-003-handoff", "paper-004"] {
        let title = |line: &&str| line.split_whitespace().next() == Some(name);
        let mut lines = said.lines().skip_while(|line| !title(line));
        assert!(lines.next().is_some_and(|line| line.contains(" Paper 00")), "{said}");
        let times = lines.next().unwrap_or_default().trim();
        assert!(times.starts_with("quick ") && times.contains(", full "), "{name}: {times}");
        assert!(times.chars().any(|c| c.is_ascii_digit()), "{name}: {times}");
    }
}
