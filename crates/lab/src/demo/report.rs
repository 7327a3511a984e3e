//! The demo's rows as text for people. Owns the form; measures nothing.

use super::config::{GATEWAY_GIVES_UP, GATEWAY_KEEPS, NAT_TIMEOUT};
use super::{Options, Point, document, hip};
use crate::results::{Figures, Results};

const HEADING_HIP: &str = "event                                               base exchanges   air B  CPU ms dev   srv  first packet ms  lost/sent";

/// Heading of the rows.
#[must_use]
pub const fn heading(options: &Options) -> &'static str {
    if options.hip { HEADING_HIP } else { HEADING }
}

const HEADING: &str = "event                                               rung    msgs  RTs   air B  CPU ms dev   gw  first packet ms  lost/sent";

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

/// One thing that happened to the device, in the story of HIP.
pub(super) fn hip_row(event: &str, figures: &Figures) -> String {
    let of = |name| figures.one(name).unwrap_or(f64::NAN);
    let first = figures.one("first_packet").map_or_else(|| "-".into(), |ms| format!("{ms:.1}"));
    format!(
        "{event:<51} {:>14} {:>7} {:>10.1} {:>5.1} {first:>16} {:>5}/{:<4}",
        of("exchanges"),
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
    let sum = |name: &str| -> f64 { results.samples.iter().flat_map(|s| s.all(name)).sum() };
    if results.plan == hip::PLAN {
        return format!(
            "One TCP transfer went through all of it: {:.1} MB arrived in order, {} bytes lost. ({}, {} processors)\n\
             Neither host knows the other by an address: the device tells the server from each new one (UPDATE), and the server sends there \
             once the device has answered from there. A server that has forgotten everything is asked after 4 s of silence and given up \
             7 s later, then found anew by a base exchange. Air bytes include the transfer and the probes (one each 5 ms until 100 have \
             passed after the first echo).",
            sum("tcp_bytes") / 1e6,
            sum("tcp_lost"),
            results.machine.kernel,
            results.machine.cores,
        );
    }
    let echoes = sum("tcp_echoes");
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
