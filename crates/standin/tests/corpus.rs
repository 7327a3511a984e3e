//! Replays the committed fuzz corpus through the body of its target, without a fuzzer.

#![expect(clippy::disallowed_methods, reason = "a test reads files of the repository")]

#[path = "../../wire/tests/common/replay.rs"]
mod replay;

use dormouse_standin::{Counters, Kind, fuzz};
use replay::replay;
use std::path::Path;

#[test]
fn standin() {
    replay("standin", |data| drop(fuzz::life(data)));
}

/// The seeds are worth mutating: together they get every kind of answer.
#[test]
fn seeds_reach_every_answer() {
    let mut books = Counters::default();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/standin");
    for seed in std::fs::read_dir(corpus).expect("the corpus") {
        books.add(&fuzz::life(&std::fs::read(seed.expect("an entry").path()).expect("a seed")));
    }
    let answered: Vec<Kind> = books.answered.into_keys().collect();
    let all = [
        Kind::Echo,
        Kind::Neighbour,
        Kind::TcpKeepAlive,
        Kind::TcpHold,
        Kind::NetBiosSession,
        Kind::SmbEcho,
        Kind::NetBiosName,
        Kind::Mdns,
        Kind::Dns,
        Kind::Dhcp,
    ];
    assert_eq!(answered, all);
}
