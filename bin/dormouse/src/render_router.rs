//! How an access router looks to people. Owns layout only; decides nothing.

use crate::style::{Style, bytes, duration, field};
use dormouse_control::{RepairedFlow, RouterStatus};
use dormouse_report::digits;

/// The two sides, what was done between them, the flows that are repaired, and the header keys.
pub(crate) fn status(it: &RouterStatus, style: Style) -> String {
    let mut out = format!("{}  {} - {}\n", style.strong("router"), it.device, it.network);
    let held = bytes(it.held_bytes as u64);
    let heard = match it.repair.as_str() {
        "esp-arq" => format!("{} reports; {} SAs", it.reports, it.connections),
        _ => format!("{} acknowledgements hidden; {} connections", it.suppressed, it.connections),
    };
    let did =
        format!("{}: {} packets repeated of {} kept, {heard}, {held} held", it.repair, it.repeated, it.kept);
    field(&mut out, style, "repair", &did);
    for of in &it.flows {
        field(&mut out, style, "flow", &flow(of));
    }
    let more = it.connections.saturating_sub(it.flows.len());
    if more > 0 {
        field(&mut out, style, "flow", &format!("and {more} more, without a packet for longer"));
    }
    let passed = format!(
        "{} packets to devices, {} from them; {} wait, {} dropped",
        it.to_device, it.to_network, it.waiting, it.dropped
    );
    field(&mut out, style, "passed", &passed);
    let read =
        format!("{} headers, {} packets did not open; keys asked for {} times", it.read, it.closed, it.asked);
    field(&mut out, style, "read", &read);
    for keys in &it.keys {
        let state = if keys.state == "fit" { keys.state.clone() } else { style.warning(&keys.state) };
        field(&mut out, style, "keys", &format!("{}: {state}", keys.spi));
    }
    out
}

/// Whose packets, what was done for them, and how the radio is.
fn flow(of: &RepairedFlow) -> String {
    let who = match (&of.fixed, &of.spi) {
        (Some(fixed), _) => format!("{fixed} to {}", of.device),
        (None, Some(spi)) => format!("SA {spi} to {}", of.device),
        (None, None) => of.device.clone(),
    };
    let esp = of.esp.as_ref().map(|[gateway, device]| format!(" in ESP from {gateway} to {device}"));
    let hidden = of.fixed.as_ref().map(|_| format!(", {} hidden", of.suppressed));
    let radio =
        of.round_trip_seconds.map(|time| format!("; the radio's round trip {} ms", digits(time * 1e3)));
    format!(
        "{who}{}: {} repeated of {} kept{}, {} held{}; last packet {} ago",
        esp.unwrap_or_default(),
        of.repeated,
        of.kept,
        hidden.unwrap_or_default(),
        of.held,
        radio.unwrap_or_default(),
        duration(of.quiet_seconds)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_control::HeaderKeys;

    fn flows() -> Vec<RepairedFlow> {
        let connection = RepairedFlow {
            device: "10.1.0.2:5000".into(),
            fixed: Some("203.0.113.1:80".into()),
            held: 3,
            kept: 800,
            repeated: 60,
            suppressed: 70,
            round_trip_seconds: Some(0.0123),
            quiet_seconds: 0.2,
            ..RepairedFlow::default()
        };
        let esp = Some(["192.0.2.1".into(), "198.51.100.2".into()]);
        let zoned = RepairedFlow { esp, round_trip_seconds: None, ..connection.clone() };
        let (device, spi) = ("198.51.100.2".into(), Some("c0000001".into()));
        let sa = RepairedFlow { device, spi, fixed: None, suppressed: 0, ..connection.clone() };
        vec![connection, zoned, sa]
    }

    #[test]
    fn a_router_reads_like_this() {
        let keys = |spi: &str, state: &str| HeaderKeys { spi: spi.into(), state: state.into() };
        let it = RouterStatus {
            device: "wlan0".into(),
            network: "eth0".into(),
            repair: "snoop".into(),
            to_device: 900,
            to_network: 400,
            dropped: 1,
            waiting: 2,
            kept: 800,
            repeated: 60,
            suppressed: 70,
            reports: 0,
            connections: 8,
            held_bytes: 4_500,
            flows: flows(),
            read: 1_200,
            closed: 3,
            asked: 4,
            keys: vec![keys("c0000001 c0000002", "fit"), keys("c0000003 c0000004", "stale")],
        };
        let expected = "\
router  wlan0 - eth0
  repair     snoop: 60 packets repeated of 800 kept, 70 acknowledgements hidden; 8 connections, 4.50 kB held
  flow       203.0.113.1:80 to 10.1.0.2:5000: 60 repeated of 800 kept, 70 hidden, 3 held; the radio's round trip 12.3 ms; last packet 0.2 s ago
  flow       203.0.113.1:80 to 10.1.0.2:5000 in ESP from 192.0.2.1 to 198.51.100.2: 60 repeated of 800 kept, 70 hidden, 3 held; last packet 0.2 s ago
  flow       SA c0000001 to 198.51.100.2: 60 repeated of 800 kept, 3 held; the radio's round trip 12.3 ms; last packet 0.2 s ago
  flow       and 5 more, without a packet for longer
  passed     900 packets to devices, 400 from them; 2 wait, 1 dropped
  read       1200 headers, 3 packets did not open; keys asked for 4 times
  keys       c0000001 c0000002: fit
  keys       c0000003 c0000004: stale
";
        assert_eq!(status(&it, Style::plain()), expected);
    }
}
