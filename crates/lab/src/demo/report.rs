//! The demo's rows, as a table for people and as JSON for programs. Owns the form; measures nothing.

use super::config::{GATEWAY_GIVES_UP, GATEWAY_KEEPS, NAT_TIMEOUT};
use super::hour::Hour;
use serde::Serialize;
use std::fmt;

/// Version of the JSON form.
const VERSION: u32 = 1;

/// One thing that happened to the device. All figures were measured in this run.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What happened.
    pub event: String,
    /// The rung of the wake-up ladder by which the session came back; none if it never went.
    pub rung: Option<String>,
    /// IKE messages, both directions.
    pub messages: u64,
    /// IKE round trips.
    pub round_trips: u64,
    /// Bytes that the device's radio sent and received, link headers included.
    pub air_bytes: u64,
    /// CPU time of the device's daemon, in milliseconds.
    pub device_cpu_ms: f64,
    /// CPU time of the gateway's daemon, in milliseconds; of the new process, if it was restarted.
    pub gateway_cpu_ms: f64,
    /// From the wake to the arrival of the first inner packet at the server, in milliseconds.
    pub first_packet_ms: Option<f64>,
    /// From the wake to the first echo, in milliseconds.
    pub first_echo_ms: Option<f64>,
    /// Inner packets sent since the wake, 5 ms apart.
    pub probes: u64,
    /// Those of them that never arrived.
    pub lost: u64,
    /// Anything else worth saying.
    pub note: String,
}

/// The whole story.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this form.
    pub version: u32,
    /// Kernel, processor count: where it was measured.
    pub machine: String,
    /// One row for each event.
    pub rows: Vec<Row>,
    /// Counters that the long-lived TCP connection had echoed, in order, at the end.
    pub tcp_echoes: u64,
    /// The working hour, unless it was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hour: Option<Hour>,
}

impl Report {
    pub(super) fn new(rows: Vec<Row>, tcp_echoes: u64, hour: Option<Hour>) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        Self {
            version: VERSION,
            machine: format!("Linux {}, {cpus} processors", kernel.trim()),
            rows,
            tcp_echoes,
            hour,
        }
    }
}

/// Heading of the table that [`Row`]'s `Display` fills.
pub const HEADING: &str = "event                                               rung    msgs  RTs   air B  CPU ms dev   gw  first packet ms  lost/sent";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.first_packet_ms.map_or_else(|| "-".into(), |ms| format!("{ms:.1}"));
        write!(
            f,
            "{:<51} {:<7} {:>4} {:>4} {:>7} {:>10.1} {:>4.1} {:>16} {:>5}/{:<4}",
            self.event,
            self.rung.as_deref().unwrap_or("-"),
            self.messages,
            self.round_trips,
            self.air_bytes,
            self.device_cpu_ms,
            self.gateway_cpu_ms,
            ms,
            self.lost,
            self.probes,
        )?;
        if !self.note.is_empty() {
            write!(f, " {}", self.note)?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    /// What stands under the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "The long-lived TCP connection lived through all of it: {} counters echoed, in order. ({})",
            self.tcp_echoes, self.machine
        )?;
        write!(
            f,
            "Network B forgets idle NAT mappings after {} s; the gateway gives a silent device up after {} s, one that has announced \
             its sleep after {} s. When the gateway has forgotten the session, what was sent to it goes out again; a packet is lost \
             only if it was on its way when the old gateway spoke last, or followed within {} ms: ESP acknowledges none. Air \
             bytes include the probes (one each 5 ms until 100 have passed), ping and TCP.",
            NAT_TIMEOUT,
            GATEWAY_GIVES_UP.as_secs(),
            GATEWAY_KEEPS.as_secs(),
            dormouse_node::ladder::QUIET.as_millis()
        )?;
        match &self.hour {
            Some(hour) => write!(f, "\n\n{}", super::hour::document(hour, false).text()),
            None => Ok(()),
        }
    }
}
