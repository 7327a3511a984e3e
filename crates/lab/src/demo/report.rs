//! The demo's rows as text for people. Owns the form; measures nothing.

use super::config::{GATEWAY_GIVES_UP, GATEWAY_KEEPS, NAT_TIMEOUT};
use super::{Point, document};
use crate::results::{Figures, Results};

/// Heading of the rows.
pub const HEADING: &str = "event                                               rung    msgs  RTs   air B  CPU ms dev   gw  first packet ms  lost/sent";

/// One thing that happened to the device.
pub(super) fn row(event: &str, figures: &Figures) -> String {
    let of = |name| figures.one(name).unwrap_or(f64::NAN);
    let rung = figures.by("rung").next().map_or("-", |(rung, _)| rung);
    let first = figures.one("first_packet").map_or_else(|| "-".into(), |ms| format!("{ms:.1}"));
    let note = figures.one("downloaded").zip(figures.one("download"));
    let note = note.map(|(b, s)| format!(" {:.0} MB in {s:.2} s, digest equal", b / 1e6)).unwrap_or_default();
    format!(
        "{event:<51} {rung:<7} {:>4} {:>4} {:>7} {:>10.1} {:>4.1} {first:>16} {:>5}/{:<4}{note}",
        of("ike_messages"),
        of("ike_round_trips"),
        of("air"),
        of("device_cpu"),
        of("gateway_cpu"),
        of("lost"),
        of("probes"),
    )
}

/// What stands under the rows.
#[must_use]
pub fn closing(results: &Results<Point>) -> String {
    let echoes: f64 = results.samples.iter().flat_map(|s| s.all("tcp_echoes")).sum();
    let mut text = format!(
        "The long-lived TCP connection lived through all of it: {echoes} counters echoed, in order. ({}, {} processors)\n\
         Network B forgets idle NAT mappings after {NAT_TIMEOUT} s; the gateway gives a silent device up after {} s, one that has announced \
         its sleep after {} s. When the gateway has forgotten the session, what was sent to it goes out again; a packet is lost \
         only if it was on its way when the old gateway spoke last, or followed within {} ms: ESP acknowledges none. Air \
         bytes include the probes (one each 5 ms until 100 have passed), ping and TCP.",
        results.machine.kernel,
        results.machine.cores,
        GATEWAY_GIVES_UP.as_secs(),
        GATEWAY_KEEPS.as_secs(),
        dormouse_node::ladder::QUIET.as_millis()
    );
    if let Some(document) = document(results, false) {
        text += &format!("\n\n{}", document.text());
    }
    text
}
