//! `dormouse bench` as users meet it: refusals with words, results that can be read, and nothing left behind.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use dormouse_lab::results::Results;
use dormouse_lab::results::esp::{Point, What};
use dormouse_testbed::{Need, require};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command.arg("bench").args(args);
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file that goes when it is dropped.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("dormouse-bench-{name}-{}.json", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Network namespaces that the process `pid` made.
fn namespaces(pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|e| e.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("dm{pid}-"))).collect()
}

#[test]
fn an_unknown_suite_is_answered_with_the_known_ones() {
    let out = bench(&["--what", "crypto", "--suites", "aes512"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(errors(&out).contains("unknown suite \"aes512\"; known are aes128-sha1, "), "{}", errors(&out));
}

#[test]
fn whoever_reads_the_first_line_of_a_plan_may_go() {
    let mut child = bench(&["--plan", "--what", "crypto"]).stdout(Stdio::piped()).spawn().unwrap();
    // More than a pipe holds is still to come.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
}

#[test]
fn a_file_that_is_no_result_is_not_continued() {
    let file = File::new("rubbish");
    std::fs::write(&file.0, "{\"format\": \"something else\"}").unwrap();
    let out = bench(&["--resume", file.path()]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let text = errors(&out);
    assert!(text.contains(file.path()) && text.contains("no results file of dormouse"), "{text}");
}

/// The profile stands in the results: neither its name nor its file is looked for when they are continued.
#[test]
fn a_campaign_goes_on_without_the_file_of_its_profile() {
    let (profile, results) = (File::new("profile"), File::new("profiled"));
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/energy/profiles/raspberry-pi-4.toml");
    let text =
        std::fs::read_to_string(shipped).unwrap().replace("name = \"raspberry-pi-4\"", "name = \"mine\"");
    std::fs::write(&profile.0, text).unwrap();
    let chosen = ["--what", "crypto", "--suites", "aes128gcm16", "--sizes", "64", "--quick", "--repeat", "1"];
    let out = bench(&chosen).args(["--profile", profile.path(), "--out", results.path()]).output().unwrap();
    assert!(out.status.success(), "{}", errors(&out));
    std::fs::remove_file(&profile.0).unwrap();
    let out = bench(&["--resume", results.path()]).output().unwrap();
    assert!(out.status.success(), "{}", errors(&out));
    let read: Results<Point> = Results::read(&results.0).unwrap();
    assert_eq!((read.energy.name.as_str(), read.profiles.contains_key("mine")), ("mine", true));
}

#[test]
fn a_place_that_cannot_be_written_is_named_before_anything_is_measured() {
    let out = bench(&["--what", "crypto", "--quick", "--out", "/nonexistent/x.json"]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(errors(&out).contains("/nonexistent/x.json"), "{}", errors(&out));
}

#[test]
fn a_result_file_that_is_not_there_is_named_once_with_the_reason() {
    for args in [&["bench", "--resume", "/nonexistent/x.json"][..], &["advise", "/nonexistent/x.json"]] {
        let out = Command::new(env!("CARGO_BIN_EXE_dormouse")).args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        let text = errors(&out);
        assert_eq!(text.matches("/nonexistent/x.json").count(), 1, "{text}");
        assert_eq!(text.matches("No such file").count(), 1, "{text}");
    }
}

/// A file system of a few pages; unmounted when it is dropped.
struct Small(PathBuf);

impl Small {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("dormouse-bench-small-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=12k", "dormouse-bench"])
            .arg(&path)
            .status()
            .unwrap();
        assert!(mounted.success());
        Self(path)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_full_disk_is_said_and_what_was_written_before_stays() {
    if !require("a full disk", &[Need::Root, Need::Program("mount")]) {
        return;
    }
    let disk = Small::new();
    let file = disk.0.join("results.json");
    let out =
        bench(&["--what", "crypto", "--quick", "--suites", "null-sha256", "--sizes", "180", "--cores", "1"])
            .args(["--repeat", "2000", "--out", file.to_str().unwrap()])
            .output()
            .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let text = errors(&out);
    assert_eq!(text.matches("No space left on device").count(), 1, "{text}");
    assert_eq!(text.matches(file.to_str().unwrap()).count(), 1, "{text}");
    let kept = <Results>::read(&file).unwrap();
    assert!(kept.finished.is_none() && kept.rounds == 2000);
    let entries: Vec<_> = std::fs::read_dir(&disk.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(entries, ["results.json"], "no half of a file");
}

#[test]
fn a_governor_that_cannot_be_set_is_refused() {
    let out = bench(&["--what", "crypto", "--quick", "--governors", "turbo"]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let text = errors(&out);
    assert!(
        text.contains("no frequency governors") || text.contains("no governor is called \"turbo\""),
        "{text}"
    );
}

#[test]
fn cryptography_is_measured_by_anybody_and_the_results_can_be_read() {
    let file = File::new("crypto");
    let args = ["--what", "crypto", "--quick", "--suites", "aes128gcm16,null-sha256", "--sizes", "180"];
    let out = bench(&args).args(["--cores", "1", "--repeat", "1", "--out", file.path()]).output().unwrap();
    assert!(out.status.success(), "{}", errors(&out));
    let results = <Results>::read(&file.0).unwrap();
    assert!(results.finished.is_some());
    assert!(results.samples.len() >= 4);
    for sample in &results.samples {
        assert!(sample.verified, "{sample:?}");
        assert!(sample.rounds.iter().all(|r| r.figures.one("throughput") > Some(0.0)), "{sample:?}");
        assert_eq!(sample.rounds.len(), 1);
    }
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("null-sha256 180 B in"), "{text}");
}

/// The mask that hides AES instructions is measured before it is believed, by the words of the worker itself.
#[test]
fn the_worker_answers_jobs_and_refuses_nonsense() {
    let mut child =
        bench(&["worker"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the worker starts");
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut ask = |job: &str| -> serde_json::Value {
        writeln!(input, "{job}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let point = Point::new(What::Crypto, "aes128ctr-sha256", 1_424, 1);
    let job = serde_json::json!({ "point": { "point": point, "millis": 1, "seed": 1 } });
    let answer = ask(&job.to_string());
    assert!(answer["figures"]["throughput"][0].as_f64().unwrap() > 0.0, "{answer}");
    assert!(ask("nonsense")["failed"].is_string());
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// Waits for the end, so long that only a child that hangs is killed.
fn wait(child: &mut Child) -> Option<i32> {
    for _ in 0..3000 {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

#[test]
fn a_path_is_measured_and_nothing_is_left_behind() {
    if !require("the path benchmark", &[Need::Root, Need::Program("ip"), Need::File("/dev/net/tun")]) {
        return;
    }
    let file = File::new("path");
    let args = ["--what", "path,downloads", "--quick", "--repeat", "1", "--suites", "aes128gcm16"];
    let mut child = bench(&args)
        .args(["--sizes", "1400", "--files", "50000", "--out", file.path()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    assert_eq!(wait(&mut child), Some(0));
    assert_eq!(namespaces(pid), Vec::<String>::new());
    let results = <Results>::read(&file.0).unwrap();
    let ours: Vec<_> = results.samples.iter().filter(|s| s.suite == "aes128gcm16").collect();
    let ways: Vec<_> = ours.iter().map(|s| s.encapsulation).collect();
    assert!(ours.len() >= 6, "tunnel, transport and UDP, packets and files: {ways:?}");
    if results.machine.flags.iter().any(|f| f == "aes") {
        let hidden = |what| ours.iter().any(|s| s.what == what && s.aes_instructions == Some(false));
        assert!(
            hidden(What::Path) && hidden(What::Download),
            "without AES instructions too: {:?}",
            results.skipped
        );
    }
    assert!(ours.iter().all(|s| s.verified && s.rounds.len() == 1), "{:?}", results.skipped);
}

#[test]
fn an_interrupt_leaves_nothing_behind_and_can_be_continued() {
    if !require("the path benchmark", &[Need::Root, Need::Program("ip"), Need::File("/dev/net/tun")]) {
        return;
    }
    let file = File::new("interrupt");
    let args = ["--what", "path", "--quick", "--repeat", "500", "--suites", "none", "--sizes", "1400"];
    let mut child = bench(&args)
        .args(["--out", file.path()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    // Until it is at work: the namespaces are there.
    for _ in 0..600 {
        if namespaces(pid).len() == 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(namespaces(pid).len(), 2);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), nix::sys::signal::SIGINT).unwrap();
    assert_eq!(wait(&mut child), Some(1));
    assert_eq!(namespaces(pid), Vec::<String>::new());
    let results = <Results>::read(&file.0).unwrap();
    assert!(results.finished.is_none() && results.rounds == 500);
}
