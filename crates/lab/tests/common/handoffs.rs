//! Invented raw data of `paper-003-handoff`, for tests only.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// Handoffs in a file that is otherwise like that of `of`: a round of one point is missing, so that rounds must be paired by their numbers.
pub(crate) fn handoffs(of: &Path) -> String {
    let mut raw: Value = serde_json::from_slice(&fs::read(of).expect("raw data")).expect("JSON");
    let sample = |line: &str, phase: &str, lacks: u32, ms: f64| {
        let of = |n: u32| ms * (1.0 + 0.1 * f64::from(n * 7 % 11));
        let rounds = (1..=7).filter(|n| *n != lacks);
        let rounds =
            rounds.map(|n| json!({ "round": n, "figures": { "pause": [of(n)], "exchange": [of(n) / 9.0], "ready": [of(n) / 3.0], "rtt": [of(n) / 99.0] } }));
        let point = json!({ "line": line, "phase": phase });
        json!({ "point": point, "verified": true, "rounds": rounds.collect::<Vec<_>>() })
    };
    raw["experiment"] = "paper-003-handoff".into();
    raw["units"] = json!({ "pause": "ms", "exchange": "ms", "ready": "ms", "rtt": "ms" });
    raw["samples"] = json!([
        sample("mobile-ip", "initialization", 2, 10.0),
        sample("mobile-ip", "handoff", 0, 10.0),
        sample("mobile-ip-ipsec", "initialization", 0, 40.0),
        sample("mobile-ip-ipsec", "handoff", 4, 12.0),
        sample("mobile-ip-pkd", "initialization", 0, 45.0),
        sample("mobile-ip-pkd", "handoff", 6, 12.0),
        sample("mobile-ip-dkm", "initialization", 0, 45.0),
        sample("mobile-ip-dkm", "handoff", 1, 16.0),
        sample("mobike", "initialization", 0, 50.0),
        sample("mobike", "handoff", 5, 20.0),
        sample("routers", "handoff", 3, 10.0),
        sample("pkd", "handoff", 0, 10.5),
        sample("dkm", "handoff", 0, 20.0),
    ]);
    raw.to_string()
}
