//! The numbers for Prometheus: their names, what they mean, and how they are written (OpenMetrics 1.0). Owns the table of names, which are stable; what is
//! counted is counted elsewhere.
//!
//! No label names a peer or an address: there are as many series as the configuration has connections, times the words of this program.

use anyhow::Result;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;

/// The media type.
pub(crate) const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a number only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It grows as long as the daemon runs. Its name has `_total` behind it where it is written.
    Counter,
    /// It may be anything.
    Gauge,
}
use Kind::{Counter, Gauge};

/// One name: without `_total`, whether it only grows, its labels, and what it is.
type Row = (&'static str, Kind, &'static [&'static str], &'static str);

/// All names. Those that begin with `ipsec_` are what exporters for strongSwan and libreswan call the same.
const NAMES: &[Row] = &[
    ("ipsec_up", Gauge, &[], "The daemon answers"),
    ("ipsec_uptime_seconds", Gauge, &[], "Since its start"),
    ("ipsec_ike_sas", Gauge, &[], "IKE SAs in all states"),
    (
        "ipsec_half_open_ike_sas",
        Gauge,
        &[],
        "Of these, handshakes of callers that have not shown yet that they are there",
    ),
    (
        "ipsec_child_sa_bytes_in",
        Gauge,
        &["ike_sa_name"],
        "Inner bytes received by all CHILD SAs of a connection since the daemon's start, those that are gone included",
    ),
    ("ipsec_child_sa_bytes_out", Gauge, &["ike_sa_name"], "The same, sent"),
    ("ipsec_child_sa_packets_in", Gauge, &["ike_sa_name"], "Packets received by them"),
    ("ipsec_child_sa_packets_out", Gauge, &["ike_sa_name"], "Packets sent by them"),
    ("dormouse_build_info", Gauge, &["version"], "The release"),
    ("dormouse_sessions", Gauge, &["connection", "role"], "Sessions that are established"),
    (
        "dormouse_sessions_asleep",
        Gauge,
        &["connection", "role"],
        "Of these, those whose other end has announced that it sleeps",
    ),
    (
        "dormouse_sessions_begun",
        Counter,
        &["connection", "how"],
        "Gateway and HIP: sessions of peers that came, by full exchange or by ticket",
    ),
    (
        "dormouse_sessions_ended",
        Counter,
        &["connection"],
        "Gateway and HIP: sessions of peers that have ended",
    ),
    (
        "dormouse_absent_devices",
        Gauge,
        &[],
        "Gateway: devices that sleep without a session and come back by ticket",
    ),
    (
        "dormouse_connection_state",
        Gauge,
        &["connection", "state"],
        "Client: 1 for what a connection is doing, 0 for the rest",
    ),
    ("dormouse_ticket_held", Gauge, &["connection"], "Client: a ticket is held"),
    (
        "dormouse_wakes",
        Counter,
        &["connection", "rung"],
        "Client: how often each rung of the wake-up ladder brought the session up",
    ),
    ("dormouse_wake_seconds", Counter, &["connection", "rung"], "Client: how long these took, in sum"),
    ("dormouse_rung_failures", Counter, &["connection", "rung"], "Client: how often each rung failed"),
    ("dormouse_tickets", Counter, &["outcome"], "Gateway: tickets that were issued, accepted and refused"),
    ("dormouse_refused", Counter, &["reason"], "Gateway: callers that were refused"),
    (
        "dormouse_newcomers_refused",
        Counter,
        &[],
        "First messages that were dropped because there were too many half-open IKE SAs",
    ),
    (
        "dormouse_half_open_displaced",
        Counter,
        &[],
        "Half-open IKE SAs that gave way to others, or ended early because there were many",
    ),
    ("dormouse_cookies_sent", Counter, &[], "Cookies that were asked back, with a puzzle or without"),
    ("dormouse_puzzles_given", Counter, &[], "Puzzles (RFC 8019) that were given to callers"),
    ("dormouse_puzzles_solved", Counter, &[], "Solutions of callers that counted"),
    (
        "dormouse_cluster_reachable",
        Gauge,
        &[],
        "Gateway that shares a database: it could be asked at the last attempt",
    ),
    ("dormouse_cluster_denials", Gauge, &[], "Gateway that shares a database: denials in it"),
    (
        "dormouse_cluster_gateways",
        Gauge,
        &["state"],
        "Gateways that share the database: heard within 30 seconds, or silent, as of the last heartbeat",
    ),
    (
        "dormouse_cluster_round_trip_seconds",
        Gauge,
        &[],
        "From this gateway to the shared database and back, as of the last heartbeat",
    ),
    (
        "dormouse_cluster_session_seconds",
        Gauge,
        &[],
        "How long a session takes at this gateway when 16 begin at once, by its load report; none before 16 have begun",
    ),
    (
        "dormouse_cluster_load_seconds",
        Gauge,
        &[],
        "That times the devices of this gateway, awake and asleep: by what gateways are compared",
    ),
    (
        "dormouse_cluster_sent_away",
        Counter,
        &[],
        "Clients that logged in and were sent to another gateway by load",
    ),
    ("dormouse_cluster_ticket_keys", Gauge, &[], "Keys that open tickets of gateways that share a database"),
    (
        "dormouse_cluster_ticket_key_age_seconds",
        Gauge,
        &[],
        "How long tickets have been sealed with the newest of them: a day and ten minutes at most",
    ),
    ("dormouse_stand_in_devices", Gauge, &[], "Devices that sleep and are stood in for"),
    ("dormouse_stand_in_packets", Counter, &[], "Packets that came for devices that slept"),
    ("dormouse_stand_in_answered", Counter, &["kind"], "Answers in their place"),
    ("dormouse_stand_in_kept", Counter, &[], "Packets that were kept for them"),
    ("dormouse_stand_in_delivered", Counter, &[], "Packets that they were given when they woke"),
    ("dormouse_stand_in_dropped", Counter, &["reason"], "Packets for them that were dropped"),
    ("dormouse_stand_in_waiting_packets", Gauge, &[], "Packets that wait for them now"),
    ("dormouse_stand_in_waiting_bytes", Gauge, &[], "The memory that these take"),
    ("dormouse_radio_state", Gauge, &["state"], "Device: 1 for what the radio is doing, 0 for the rest"),
    ("dormouse_radio_seconds", Counter, &["state"], "Device: how long the radio was in each state"),
    ("dormouse_radio_failures", Counter, &[], "Device: commands to the radio that failed"),
    ("dormouse_sleeps", Counter, &[], "Device: sleeps"),
    (
        "dormouse_sleeps_called_off",
        Counter,
        &[],
        "Device: sleeps that a packet called off before the radio was off",
    ),
    ("dormouse_wake_causes", Counter, &["cause"], "Device: wakes, by what caused them"),
    (
        "dormouse_lost_packets",
        Counter,
        &[],
        "Device: packets that were lost because the radio was off, as far as it is known",
    ),
    ("dormouse_held_packets", Gauge, &[], "Packets that wait for their session"),
    (
        "dormouse_energy_joules",
        Gauge,
        &["of", "source"],
        "Device: joules of the radio since the daemon's start, by a profile or a meter: used, and what a radio would have used that is always on, or in power-save mode",
    ),
    (
        "dormouse_energy_saved_joules",
        Gauge,
        &["source"],
        "Device: what sleeping has saved of an always active radio; below 0 it has cost more",
    ),
    ("dormouse_ike_datagrams", Counter, &["direction"], "Datagrams of IKE"),
    ("dormouse_ike_bytes", Counter, &["direction"], "Their bytes"),
    ("dormouse_ike_retransmissions", Counter, &[], "Datagrams of IKE that repeated an earlier one"),
    ("dormouse_ike_exchanges", Counter, &["kind", "side"], "Exchanges that were begun here, or answered"),
    ("dormouse_ike_discards", Counter, &["reason"], "Datagrams of IKE that were dropped"),
    ("dormouse_esp_discards", Counter, &["reason"], "Packets of ESP that were dropped"),
    ("dormouse_packets_dropped", Counter, &["reason"], "Other packets and datagrams that were dropped"),
    (
        "dormouse_hip",
        Counter,
        &["event"],
        "HIP: what has happened, in the words of the control protocol's counters",
    ),
];

/// A number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// Whole.
    Whole(u64),
    /// Not whole, or below zero.
    Real(f64),
}

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Self::Whole(n)
    }
}

impl From<usize> for Value {
    fn from(n: usize) -> Self {
        Self::Whole(n as u64)
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Self {
        Self::Whole(is.into())
    }
}

impl From<f64> for Value {
    fn from(n: f64) -> Self {
        Self::Real(n)
    }
}

/// The numbers at one moment, by name and by the values of their labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sheet(BTreeMap<&'static str, BTreeMap<Vec<String>, Value>>);

impl Sheet {
    /// Notes a number. `labels`: their values, in the order of the table.
    pub(crate) fn put(&mut self, name: &'static str, labels: &[&str], value: impl Into<Value>) {
        debug_assert!(
            NAMES.iter().any(|(known, _, keys, _)| *known == name && keys.len() == labels.len()),
            "{name} is not in the table with {} labels",
            labels.len()
        );
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        self.0.entry(name).or_default().insert(labels, value.into());
    }

    /// In the words of OpenMetrics.
    ///
    /// # Errors
    /// None is expected: it writes to memory.
    pub(crate) fn text(self) -> Result<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Sheet {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, kind, keys, help) in NAMES {
            let Some(samples) = self.0.get(name) else { continue };
            let typed = match kind {
                Counter => ConstCounter::new(0u64).metric_type(),
                Gauge => ConstGauge::new(0u64).metric_type(),
            };
            let mut family = encoder.encode_descriptor(name, help, None, typed)?;
            for (values, value) in samples {
                let labels: Vec<(&str, &str)> =
                    keys.iter().copied().zip(values.iter().map(String::as_str)).collect();
                if labels.is_empty() {
                    // There is one sample, and braces with nothing between them would be another spelling of it.
                    write(*kind, *value, family)?;
                    break;
                }
                write(*kind, *value, family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn write(kind: Kind, value: Value, sample: MetricEncoder<'_>) -> fmt::Result {
    match (kind, value) {
        (Counter, Value::Whole(n)) => ConstCounter::new(n).encode(sample),
        (Counter, Value::Real(n)) => ConstCounter::new(n).encode(sample),
        (Gauge, Value::Whole(n)) => ConstGauge::new(n).encode(sample),
        (Gauge, Value::Real(n)) => ConstGauge::new(n).encode(sample),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// As it is written.
    fn written(name: &str, kind: Kind) -> String {
        if kind == Counter { format!("{name}_total") } else { name.to_owned() }
    }

    fn all() -> BTreeSet<String> {
        NAMES.iter().map(|(name, kind, ..)| written(name, *kind)).collect()
    }

    /// Names of ours in a text.
    fn names(text: &str) -> BTreeSet<String> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let ours = |w: &&str| ["ipsec_", "dormouse_"].iter().any(|p| w.starts_with(p) && w.len() > p.len());
        text.split(|c| !word(c)).filter(ours).map(str::to_owned).collect()
    }

    #[test]
    fn the_manual_has_every_name_with_its_labels() {
        let manual = include_str!("../../../docs/administrator.md");
        for (name, kind, labels, help) in NAMES {
            let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
            let row = format!("| `{}` | {labels} | {help} |", written(name, *kind));
            assert!(manual.contains(&row), "docs/administrator.md lacks: {row}");
        }
        let rows =
            manual.lines().filter(|line| line.starts_with("| `ipsec_") || line.starts_with("| `dormouse_"));
        assert_eq!(rows.count(), NAMES.len(), "docs/administrator.md has a name too many");
        assert_eq!(all().len(), NAMES.len(), "a name is there twice");
    }

    #[test]
    fn the_dashboard_asks_for_names_and_labels_that_there_are() {
        let text = include_str!("../../../packaging/grafana-dashboard.json");
        let board: serde_json::Value = serde_json::from_str(text).unwrap();
        let mut asked = BTreeSet::new();
        for panel in board["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let query = target["expr"].as_str().unwrap();
                let of = names(query);
                assert!(!of.is_empty() && of.is_subset(&all()), "{query}");
                let labels: BTreeSet<&str> = NAMES
                    .iter()
                    .filter(|(name, kind, ..)| of.contains(&written(name, *kind)))
                    .flat_map(|(_, _, labels, _)| labels.iter().copied())
                    .collect();
                let by = query.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
                let legend = target["legendFormat"].as_str().unwrap();
                let shown = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
                for label in by.chain(shown) {
                    // Prometheus itself says which machine it has asked.
                    assert!(label == "instance" || labels.contains(label), "{label} in {query}: {legend}");
                }
                asked.extend(of);
            }
        }
        assert!(asked.len() > 30, "{asked:?}");
    }

    #[test]
    fn what_is_written_is_openmetrics_and_a_label_cannot_break_out_of_it() {
        let mut sheet = Sheet::default();
        sheet.put("ipsec_up", &[], true);
        sheet.put("dormouse_wake_seconds", &["of\"fice\\\n", "held"], 1.5);
        sheet.put("dormouse_energy_saved_joules", &["profile"], -2.25);
        let text = sheet.text().unwrap();
        let expected = "# HELP ipsec_up The daemon answers\n# TYPE ipsec_up gauge\nipsec_up 1\n\
            # HELP dormouse_wake_seconds Client: how long these took, in sum\n# TYPE dormouse_wake_seconds counter\n\
            dormouse_wake_seconds_total{connection=\"of\\\"fice\\\\\\n\",rung=\"held\"} 1.5\n\
            # HELP dormouse_energy_saved_joules Device: what sleeping has saved of an always active radio; below 0 it has cost more\n\
            # TYPE dormouse_energy_saved_joules gauge\ndormouse_energy_saved_joules{source=\"profile\"} -2.25\n# EOF\n";
        assert_eq!(text, expected);
    }
}
