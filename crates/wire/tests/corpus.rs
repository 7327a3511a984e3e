//! Replays the committed fuzz corpora through the bodies of their targets, without a fuzzer.

#![expect(clippy::disallowed_methods, reason = "a test reads files of the repository")]

use std::fs;
use std::path::Path;

#[path = "common/replay.rs"]
mod replay;

use dormouse_wire::fuzz;
use replay::replay;

#[test]
fn wire_ike() {
    replay("wire_ike", fuzz::ike);
}

#[test]
fn wire_mobileip() {
    replay("wire_mobileip", fuzz::mobileip);
}

#[test]
fn wire_hip() {
    replay("wire_hip", fuzz::hip);
}

#[test]
fn wire_mlike() {
    replay("wire_mlike", fuzz::mlike);
}

#[test]
fn wire_ip() {
    replay("wire_ip", fuzz::ip);
}

#[test]
fn wire_names() {
    replay("wire_names", fuzz::names);
}

#[test]
fn wire_natt() {
    replay("wire_natt", fuzz::natt);
}

/// The seeds are worth mutating: all but the ones that are meant to be refused are accepted.
#[test]
fn seeds_reach_past_the_first_check() {
    use dormouse_wire::{ike, ip};
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let read = |name: &str| fs::read(corpus.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    for name in ["sa_init", "sa_init_cookie", "resume", "informational_sk", "fragment", "clear_then_sk"] {
        let parsed = ike::Message::parse(&read(&format!("wire_ike/{name}")));
        assert!(parsed.is_ok(), "{name}: {parsed:?}");
    }
    for name in ["chain_auth", "chain_rekey", "chain_delete", "chain_attributes"] {
        let data = read(&format!("wire_ike/{name}"));
        let parsed = ike::parse_payloads(data[0].into(), &data[1..]);
        assert!(parsed.is_ok(), "{name}: {parsed:?}");
    }
    for (name, kind) in [("fragmentation_needed", 3), ("packet_too_big", 2)] {
        let data = read(&format!("wire_ip/{name}"));
        let packet = ip::Packet::parse(&data).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(packet.payload().first(), Some(&kind), "{name}");
    }
    for name in ["tcp4_syn", "tcp4_syn_odd", "tcp6_synack"] {
        assert!(ip::tcp::clamp_mss(&mut read(&format!("wire_ip/{name}")), 1000, 1000), "{name}");
    }
}

/// Every target has a binary, seeds, and a test in some crate that names them: nothing in `fuzz/` is left out of the replay.
#[test]
fn every_target_is_replayed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = |dir: &Path| -> Vec<_> {
        let read = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        read.map(|entry| entry.expect("a directory entry").path()).collect()
    };
    let text = |file: &Path| fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let tests: Vec<String> = entries(&root.join("crates"))
        .iter()
        .map(|krate| krate.join("tests"))
        .filter(|tests| tests.is_dir())
        .flat_map(|tests| entries(&tests))
        .filter(|file| file.extension().is_some_and(|e| e == "rs"))
        .map(|file| text(&file))
        .collect();
    let manifest = text(&root.join("fuzz/Cargo.toml"));
    let targets = entries(&root.join("fuzz/fuzz_targets"));
    assert!(targets.len() >= 16, "{targets:?}");
    for target in targets {
        let name = target.file_stem().and_then(|s| s.to_str()).expect("a name");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} has no binary");
        assert!(!entries(&root.join("fuzz/corpus").join(name)).is_empty(), "{name} has no seeds");
        let named = [format!("replay(\"{name}\""), format!("fuzz/corpus/{name}\"")];
        assert!(tests.iter().any(|t| named.iter().any(|n| t.contains(n))), "no test replays {name}");
    }
}

/// The replay is worth running: a body that panics fails it, and the file is named.
#[test]
#[should_panic(expected = "breaks wire_natt")]
fn a_seed_that_breaks_its_target_fails_the_replay() {
    replay("wire_natt", |data| assert!(data.is_empty(), "on purpose"));
}
