//! What the daemon's parts have counted, for `stats`. Owns the names of the counters.

use crate::daemon::Daemon;
use dormouse_control as control;
use std::collections::BTreeMap;

impl Daemon {
    pub(crate) fn stats(&self) -> control::Stats {
        let ike = self.host.node().ike_stats();
        let (node, plane) = (self.host.node().counters(), self.host.counters());
        let mut counters: BTreeMap<String, u64> = [
            ("ike.datagrams_in", ike.datagrams_in),
            ("ike.datagrams_out", ike.datagrams_out),
            ("ike.bytes_in", ike.bytes_in),
            ("ike.bytes_out", ike.bytes_out),
            ("ike.round_trips", ike.round_trips),
            ("ike.retransmissions", ike.retransmissions),
            ("ike.keepalives", ike.keepalives),
            ("ike.half_open_displaced", ike.half_open_displaced),
            ("ike.puzzles_given", ike.puzzles_given),
            ("ike.puzzles_solved", ike.puzzles_solved),
            ("esp.discards", node.esp_discards()),
            ("esp.unknown_spi", node.unknown_spi()),
            ("nat.keepalives_in", node.keepalives_in),
            ("plane.malformed", node.malformed),
            ("plane.no_policy", plane.no_policy),
            ("plane.held", plane.held),
            ("plane.held_dropped", plane.held_dropped),
            ("plane.too_big", plane.too_big),
            ("plane.unsent", plane.unsent),
            ("plane.unsealed", plane.unsealed),
            ("plane.isolated", plane.isolated),
            ("plane.discards", plane.discards),
            ("plane.arrivals_dropped", plane.arrivals_dropped),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        if let Some((stood_in, (packets, bytes))) = self.host.node().stand_in_totals() {
            let named = |name: &str, n: u64| (format!("standin.{name}"), n);
            counters.extend([
                named("handled", stood_in.handled),
                named("buffered", stood_in.buffered),
                named("delivered", stood_in.delivered),
                named("waiting_packets", packets as u64),
                named("waiting_bytes", bytes as u64),
            ]);
            counters
                .extend(stood_in.answered.iter().map(|(k, n)| named(&format!("answered.{}", k.name()), *n)));
            counters
                .extend(stood_in.dropped.iter().map(|(r, n)| named(&format!("dropped.{}", r.name()), *n)));
        }
        counters.extend(self.hip_counters().into_iter().map(|(name, n)| (name.to_owned(), n)));
        counters.extend(ike.begun.iter().map(|(kind, n)| (format!("ike.begun.{}", lower(kind)), *n)));
        counters.extend(ike.answered.iter().map(|(kind, n)| (format!("ike.answered.{}", lower(kind)), *n)));
        counters.extend(ike.discards.iter().map(|(reason, n)| (format!("ike.discards.{reason}"), *n)));
        control::Stats { counters }
    }
}

pub(crate) fn lower(kind: &impl std::fmt::Debug) -> String {
    let mut out = String::new();
    for c in format!("{kind:?}").chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}
