//! The manual of the result file and the code that writes it: its example is a file, and every field that can be written is in it.

use std::collections::BTreeSet;

use dormouse_energy::profile::Profile;
use dormouse_lab::results::esp::{Direction, Encapsulation, Engine, Point, Unit, What};
use dormouse_lab::results::format::{Discarded, EnergySource, Input, Machine, Skipped};
use dormouse_lab::results::{Figures, Point as _, Results, Sample};
use serde_json::Value;

const MANUAL: &str = include_str!("../../../docs/results.md");

#[test]
fn the_example_is_a_result_file() {
    let (_, rest) = MANUAL.split_once("```json\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let results = Results::<Point>::parse(example.as_bytes()).expect("a result file");
    assert_eq!(results.samples.len(), 1);
    assert_eq!(results.samples[0].rounds.len(), 1);
}

/// A file in which nothing is absent.
fn everything() -> Results {
    let machine = Machine {
        governor: Some("ondemand".to_owned()),
        congestion_control: Some("cubic".to_owned()),
        hypervisor: Some("kvm".to_owned()),
        ..Machine::default()
    };
    let mut results = Results::new(machine.clone());
    results.far = Some(machine);
    results.finished = Some(1);
    let (file, sha256) = ("day.pcap".to_owned(), "e3b0".to_owned());
    results.inputs.push(Input { file, bytes: 1, sha256, lost: 1 });
    results.profiles.insert("laptop-000".to_owned(), Profile::shipped("laptop-000").expect("it ships"));
    (results.conditions.load_before, results.conditions.load_after) = (Some([0.0; 3]), Some([0.0; 3]));
    results.conditions.steal = Some(0.0);
    results.energy.idle_watts = Some(1.0);
    results.settings = serde_json::json!({});
    let mut sample = Sample::from(Point::new(What::Path, "aes128-sha1", 1_420, 1));
    sample.integrity = Some("sha1".to_owned());
    sample.key_bits = Some(128);
    sample.aes_instructions = Some(true);
    sample.governor = Some("ondemand".to_owned());
    (sample.offered, sample.file_bytes) = (Some(1.0), Some(1));
    sample.remark = Some("a remark".to_owned());
    let all = Point::QUANTITIES.iter();
    sample.push(1, all.fold(Figures::default(), |figures, (name, _)| figures.with(name, 0.5)));
    results.samples.push(sample);
    results.skipped.push(Skipped::failed("a suite", "a reason"));
    let (subject, reason) = ("a point".to_owned(), "a reason".to_owned());
    results.discarded.push(Discarded { round: 1, subject, reason });
    results
}

/// The names of all fields, wherever they are.
fn names(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                into.insert(name.clone());
                // A profile is described where profiles are.
                if name != "profiles" {
                    names(value, into);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, into)),
        _ => {}
    }
}

fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).expect("JSON").as_str().expect("a word").to_owned()
}

#[test]
fn every_field_and_every_word_of_the_vocabulary_is_in_the_manual() {
    let results = everything();
    results.check().expect("a valid file");
    let mut all = BTreeSet::new();
    names(&serde_json::to_value(&results).expect("JSON"), &mut all);
    for what in [What::Crypto, What::Path, What::Stream, What::Download, What::Tls] {
        all.insert(word(what));
    }
    use Engine::{Dormouse, Kernel, Plain, Rustls, Wireguard, WireguardGo};
    for engine in [Dormouse, Kernel, Wireguard, WireguardGo, Rustls, Plain] {
        all.insert(word(engine));
    }
    use Encapsulation::{None, Transport, Tunnel, Udp, UdpTransport};
    all.extend([None, Tunnel, Transport, Udp, UdpTransport].map(word));
    all.extend([Direction::Out, Direction::In, Direction::Both].map(word));
    all.extend([Unit::Packet, Unit::Payload].map(word));
    all.extend([EnergySource::None, EnergySource::Measured, EnergySource::Estimated].map(word));
    let missing: Vec<&String> = all
        .iter()
        .filter(|name| {
            ![format!("`{name}`"), format!("\"{name}\"")].iter().any(|quoted| MANUAL.contains(quoted))
        })
        .collect();
    assert!(missing.is_empty(), "docs/results.md does not mention {missing:?}");
}
