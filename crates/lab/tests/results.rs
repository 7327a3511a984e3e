//! The result file: what is written comes back, what is hostile is refused with its place, and nothing half-written stays.

use std::path::PathBuf;

use dormouse_lab::results::esp::{Metric, Point, What};
use dormouse_lab::results::format::Machine;
use dormouse_lab::results::{Figures, ReadError, Results, Sample};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A directory that goes with the test.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dormouse-results-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn results() -> Results {
    let machine = Machine { cpu: "A processor".to_owned(), cores: 2, ..Machine::default() };
    let mut results = Results::new(machine);
    let mut sample = Sample::from(Point::new(What::Crypto, "aes128gcm16", 1420, 1));
    sample.verified = true;
    for n in 0..5 {
        let throughput = 1e9 / 3.0 + f64::from(n);
        sample.push(n, Figures::default().with("throughput", throughput).with("cpu_thread", 0.1));
    }
    results.samples.push(sample);
    results
}

fn json_of(results: &Results) -> Value {
    serde_json::to_value(results).expect("JSON")
}

fn parse(value: &Value) -> Result<Results, ReadError> {
    <Results>::parse(value.to_string().as_bytes())
}

#[test]
fn what_is_written_comes_back_and_nothing_else_is_left() {
    let directory = Temporary::new("roundtrip");
    let path = directory.0.join("result.json");
    std::fs::write(&path, "an older one").expect("a file");
    results().write(&path).expect("written");
    assert_eq!(<Results>::read(&path).expect("read"), results());
    let left: Vec<_> = std::fs::read_dir(&directory.0).expect("listed").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn what_is_not_a_number_is_not_written_and_the_older_file_stays() {
    let directory = Temporary::new("nan");
    let path = directory.0.join("result.json");
    results().write(&path).expect("written");
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        let mut broken = results();
        broken.samples[0].rounds[2].figures = Figures::default().with("throughput", bad);
        let error = broken.write(&path).expect_err("refused").to_string();
        assert!(error.contains("samples[0].rounds[2].figures.throughput"), "{error}");
    }
    let mut broken = results();
    broken.samples[0].rounds[0].figures = Figures::default().with("joules", f64::NAN);
    assert!(broken.write(&path).expect_err("refused").to_string().contains("joules"));
    broken.samples[0].rounds[0].figures = Figures::default().with("parsecs", 12.0);
    let error = broken.write(&path).expect_err("refused").to_string();
    assert!(error.contains("samples[0].rounds[0].figures.parsecs: it has no unit"), "{error}");
    assert_eq!(<Results>::read(&path).expect("read"), results());
}

/// A client's sessions are rounds: more than any plan has. Other lists have their limit.
#[test]
fn a_sample_has_more_rounds_than_a_plan() {
    let mut many = results();
    let sample = &mut many.samples[0];
    (5..12_000).for_each(|n| sample.push(n, Figures::default().with("throughput", 1.0)));
    assert_eq!(parse(&json_of(&many)).expect("read"), many);
    many.rounds = 12_000;
    assert!(many.check().expect_err("refused").to_string().contains("at rounds: 12000"));
    let mut flags = results();
    flags.machine.flags = vec!["aes".to_owned(); 12_000];
    let refused = flags.check().expect_err("refused").to_string();
    assert!(refused.contains("at machine.flags: 12000 values, expected at most 10000"), "{refused}");
}

#[test]
fn unknown_fields_are_passed_over() {
    let mut value = json_of(&results());
    value["later"] = json!({ "deep": [1, 2] });
    value["samples"][0]["colour"] = json!("blue");
    value["samples"][0]["rounds"][0]["moon"] = json!(null);
    assert_eq!(parse(&value).expect("read"), results());
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let mut cases: Vec<(&str, Value, &str)> = vec![
        ("/format", json!("other"), "format is \"other\", expected \"dormouse-results\""),
        ("/version", json!(1), "version is 1, expected 2"),
        ("/version", json!("2"), "version is \"2\", expected 2"),
        ("/experiment", json!("demo"), "it is of \"demo\", expected bench"),
        ("/samples/0/point/what", json!("guess"), "at samples[0].point.what: unknown variant `guess`"),
        (
            "/samples/0/point/packet_bytes",
            json!(0),
            "at samples[0].point.packet_bytes: 0 is not between 1 and 65535",
        ),
        ("/samples/0/point/packet_bytes", json!(-3), "at samples[0].point.packet_bytes: invalid value"),
        ("/samples/0/point/cores", json!(0), "at samples[0].point.cores"),
        ("/samples/0/verified", json!("yes"), "at samples[0].verified: invalid type"),
        ("/samples/0/point/suite", json!("<script>"), "at samples[0].point.suite"),
        (
            "/samples/0/rounds/1/figures/throughput",
            json!("fast"),
            "at samples[0].rounds[1].figures.throughput: invalid type",
        ),
        (
            "/samples/0/rounds/1/figures/loss",
            json!([1.5]),
            "rounds[1].figures.loss: 1.5 is not between 0 and 1",
        ),
        ("/samples/0/rounds/1/round", json!(0), "round 0 is there twice"),
        ("/samples", json!({}), "at samples: invalid type"),
        ("/machine/cores", json!(1.5), "at machine.cores"),
        ("/conditions/steal", json!(7), "at conditions.steal"),
        (
            "/samples/0/rounds/1/figures/cpu_system",
            json!([1e16]),
            "at samples[0].rounds[1].figures.cpu_system",
        ),
        ("/units", json!({}), "at samples[0].rounds[0].figures.cpu_thread: it has no unit"),
        ("/far/cores", json!("many"), "at far.cores: invalid type"),
        ("/rounds", json!(10_001), "at rounds: 10001 is not between 0 and 10000"),
        (
            "/samples/0/point/file_bytes",
            json!(0),
            "at samples[0].point.file_bytes: 0 is not between 1 and 100000000000",
        ),
        (
            "/samples/0/point/file_bytes",
            json!(u64::MAX),
            "at samples[0].point.file_bytes: 18446744073709551615 is not",
        ),
    ];
    let long = "x".repeat(5_000);
    cases.push(("/machine/cpu", json!(long), "at machine.cpu: 5000 bytes of text"));
    cases.push(("/far/kernel", json!(long), "at far.kernel: 5000 bytes of text"));
    cases.push(("/machine/hypervisor", json!(long), "at machine.hypervisor: 5000 bytes of text"));
    cases.push(("/machine/flags", json!(["aes", long]), "at machine.flags[1]: 5000 bytes of text"));
    cases.push(("/command", json!(["dormouse", long]), "at command[1]: 5000 bytes of text"));
    let mut base = json_of(&results());
    base["samples"][0]["rounds"][1]["figures"]["loss"] = json!([0.0]);
    base["samples"][0]["rounds"][1]["figures"]["cpu_system"] = json!([0.0]);
    base["conditions"]["steal"] = json!(0.0);
    base["far"] = base["machine"].clone();
    base["machine"]["hypervisor"] = json!("kvm");
    base["samples"][0]["point"]["file_bytes"] = json!(1);
    for (place, bad, expected) in cases {
        let mut value = base.clone();
        *value.pointer_mut(place).expect("the place") = bad;
        let error = parse(&value).expect_err(place).to_string();
        assert!(error.contains(expected), "{place}: {error}");
    }
    let mut value = base.clone();
    value["samples"][0].as_object_mut().expect("an object").remove("verified");
    assert!(parse(&value).expect_err("refused").to_string().contains("samples[0]: missing field `verified`"));
}

#[test]
fn what_is_no_json_or_very_deep_is_refused() {
    let deep = "[".repeat(200_000);
    for text in
        ["", "{", "null", "[]", "\u{0}", "{\"format\":\"dormouse-results\"}", &deep, "{\"samples\":NaN}"]
    {
        assert!(Results::<Point>::parse(text.as_bytes()).is_err(), "{text:.40}");
    }
    assert!(Results::<Point>::read(&PathBuf::from("/nonexistent/result.json")).is_err());
}

/// A file may come from anywhere, and its words are printed.
#[test]
fn what_a_terminal_would_obey_does_not_come_through() {
    let mut hostile = results();
    hostile.machine.cpu = "A \u{1b}]0;owned\u{7}processor".to_owned();
    hostile.versions.insert("\u{9b}2J".to_owned(), "\u{202e}1".to_owned());
    hostile.samples[0].remark = Some("two\nlines".to_owned());
    let read = <Results>::parse(&serde_json::to_vec(&hostile).expect("JSON")).expect("read");
    assert_eq!(read.machine.cpu, "A \u{fffd}]0;owned\u{fffd}processor");
    assert_eq!(read.versions.iter().next(), Some((&"\u{fffd}2J".to_owned(), &"\u{fffd}1".to_owned())));
    assert_eq!(read.samples[0].remark.as_deref(), Some("two\nlines"));
    hostile.format = "\u{9b}2J\u{202e}".to_owned();
    let error =
        <Results>::parse(&serde_json::to_vec(&hostile).expect("JSON")).expect_err("refused").to_string();
    assert!(!error.contains(['\u{9b}', '\u{202e}']), "{error:?}");
}

#[test]
fn cpu_time_with_the_rest_of_the_system_is_not_mixed_with_cpu_time_without() {
    let sample = |systems: [Option<f64>; 3]| {
        let mut sample = Sample::from(Point::new(What::Path, "none", 64, 1));
        for (n, system) in (1..).zip(systems) {
            sample.push(n, Figures::default().with("cpu_thread", 10.0).with("cpu_system", system));
        }
        sample
    };
    let a = sample([Some(5.0), None, Some(6.0)]);
    assert_eq!(a.values(Metric::Cpu), [15.0, 16.0]);
    assert_eq!(a.paired(&a, Metric::Cpu), [(15.0, 15.0), (16.0, 16.0)]);
    assert_eq!(sample([None; 3]).values(Metric::Cpu), [10.0, 10.0, 10.0], "of all or of none");
}

#[test]
fn figures_are_paired_by_round() {
    let sample = |rounds: [(u32, f64); 3]| {
        let mut sample = Sample::from(Point::new(What::Crypto, "none", 64, 1));
        for (n, value) in rounds {
            sample.push(n, Figures::default().with("throughput", value));
        }
        sample
    };
    let a = sample([(3, 30.0), (1, 10.0), (2, 20.0)]);
    let b = sample([(2, 2.0), (3, 3.0), (9, 9.0)]);
    assert_eq!(a.values(Metric::Throughput), [10.0, 20.0, 30.0]);
    assert_eq!(a.paired(&b, Metric::Throughput), [(20.0, 2.0), (30.0, 3.0)]);
    assert!(a.paired(&b, Metric::Cpu).is_empty());
}

proptest! {
    /// Flipped bytes give another valid file or an error, never a panic and never a figure that is none.
    #[test]
    fn damage_never_panics(at in 0usize..4_000, byte: u8) {
        let mut text = serde_json::to_vec(&results()).expect("JSON");
        let at = at % text.len();
        text[at] = byte;
        if let Ok(read) = <Results>::parse(&text) {
            prop_assert!(read.check().is_ok());
        }
    }
}

#[test]
fn a_link_stays_a_link_and_a_device_a_device() {
    let directory = Temporary::new("link");
    let (file, link) = (directory.0.join("file.json"), directory.0.join("link.json"));
    std::fs::write(&file, "old").expect("made");
    std::os::unix::fs::symlink("file.json", &link).expect("made");
    results().write(&link).expect("written");
    assert_eq!(<Results>::read(&file).expect("read"), results());
    assert!(std::fs::symlink_metadata(&link).is_ok_and(|m| m.is_symlink()));

    // Root could put a file in its place.
    let full = std::path::Path::new("/dev/full");
    let error = results().write(full).expect_err("refused");
    assert!(error.to_string().contains("/dev/full"), "{error}");
    assert!(!std::fs::metadata(full).expect("there").is_file());
}
