//! How much memory `dormouse trace` takes: as stated in docs/recordings.md, and no more for ten times as much. The only test of its program, for the
//! system tells the largest of all child processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::Scene;
use nix::sys::resource::{UsageWho, getrusage};
use std::io::{BufWriter, Write};

/// What a recording of few clients and sessions takes at most, in KiB (docs/recordings.md): 80 MB of activities that are sorted, 10 MB of those that
/// overlap, 16 MiB of a record, the windows of 64 temporary files, and the program itself.
const BOUND: i64 = 200 << 10;
/// What ten times as much may take more, in KiB: the windows of the temporary files.
const MORE: i64 = 16 << 10;
/// The smaller recording, in MB, unless `DORMOUSE_TRACE_MB` says otherwise: it fills what is held at once.
const SMALL: u64 = 10;

/// A text of so many bytes: forty clients, each sending every few seconds, in no order of time.
fn recording(scene: &Scene, name: &str, bytes: u64) -> u64 {
    let mut out = BufWriter::new(std::fs::File::create(scene.0.join(name)).unwrap());
    let (mut written, mut records) = (0, 0u64);
    while written < bytes {
        // Each stretch of a thousand records goes back in time.
        let at = 1_700_000_000 + records / 40 + records % 1000 / 500;
        let line = format!("c{},{at},1\n", records % 40);
        written += line.len() as u64;
        records += 1;
        out.write_all(line.as_bytes()).unwrap();
    }
    out.into_inner().unwrap().sync_all().unwrap();
    records
}

/// The most that a child process had in memory so far, in KiB.
fn peak() -> i64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss()
}

#[test]
fn a_recording_of_any_size_is_read_in_the_memory_that_is_stated() {
    let small = std::env::var("DORMOUSE_TRACE_MB").ok().and_then(|mb| mb.parse().ok()).unwrap_or(SMALL);
    let scene = Scene::new("memory");
    let mut peaks = Vec::new();
    for (name, megabytes) in [("small.csv", small), ("large.csv", small * 10)] {
        let records = recording(&scene, name, megabytes * 1_000_000);
        // More than are held in memory at once: otherwise the smaller one would show nothing.
        assert!(records > 1 << 19, "{records} records");
        let report = scene.json(&format!("trace {name} --json --threads 2"));
        assert_eq!((&report["total"]["packets"], &report["lost_total"]), (&records.into(), &0.into()));
        assert_eq!(report["clients"].as_array().unwrap().len(), 40);
        std::fs::remove_file(scene.0.join(name)).unwrap();
        peaks.push(peak());
    }
    println!("at most {peaks:?} KiB for {small} MB and ten times as much");
    assert!(peaks.iter().all(|peak| *peak < BOUND), "{peaks:?} KiB of {BOUND}");
    assert!(peaks[1] - peaks[0] < MORE, "{peaks:?} KiB: it grows with what is read");
}
