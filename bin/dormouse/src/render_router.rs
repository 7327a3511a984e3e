//! How an access router looks to people. Owns layout only; decides nothing.

use crate::style::{Style, bytes, field};
use dormouse_control::RouterStatus;

/// The two sides, what was done between them, and the header keys.
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

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_control::HeaderKeys;

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
            connections: 1,
            held_bytes: 4_500,
            read: 1_200,
            closed: 3,
            asked: 4,
            keys: vec![keys("c0000001 c0000002", "fit"), keys("c0000003 c0000004", "stale")],
        };
        let expected = "\
router  wlan0 - eth0
  repair     snoop: 60 packets repeated of 800 kept, 70 acknowledgements hidden; 1 connections, 4.50 kB held
  passed     900 packets to devices, 400 from them; 2 wait, 1 dropped
  read       1200 headers, 3 packets did not open; keys asked for 4 times
  keys       c0000001 c0000002: fit
  keys       c0000003 c0000004: stale
";
        assert_eq!(status(&it, Style::plain()), expected);
    }
}
