//! What the device of the demo has learned before its hour begins: the same client's traffic since midnight, lived through by the
//! daemon's own sleeper in virtual time. Owns the mapping from the plan to what a daemon would see.

use anyhow::{Context, Result, anyhow};
use dormouse_energy::Direction;
use dormouse_node::config;
use dormouse_node::sleeper::clock::PolicyTime;
use dormouse_node::sleeper::{Seen, Sleeper};
use dormouse_testbed::replay::{DEVICE_PORT, Kind, Planned, SERVER_PORT};
use dormouse_wire::ip::{Flow, protocol};
use std::net::{IpAddr, Ipv4Addr};

/// Headers of IP and UDP.
const HEADERS: usize = 28;
const DEVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 55, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2));

/// The history that a daemon with this `[sleep]` section would have written.
///
/// # Errors
/// If the section is wrong.
pub(super) fn history(section: &str, before: &[Planned]) -> Result<Vec<u8>> {
    let file = config::parse(section).map_err(|e| anyhow!(e))?;
    let sleep =
        config::resolve_sleep(&file.sleep, &mut |path, _| Err(format!("{}: not here", path.display())))
            .map_err(|e| anyhow!(e))
            .context("the policy's section")?;
    let mut sleeper = Sleeper::new(PolicyTime::ZERO, sleep.settings, false);
    sleeper.time_of_day(PolicyTime::ZERO, 0);
    sleeper.rehearse(before.iter().map(seen));
    let mut bytes = Vec::new();
    sleeper.save(&mut bytes);
    Ok(bytes)
}

/// A packet as the replay sends it. The answer to a ping is left out: it goes at once, and only if the device is awake.
fn seen(planned: &Planned) -> Seen {
    let at = PolicyTime::ZERO + planned.at;
    let packet = |direction, protocol, ports: (u16, u16)| {
        let (src, dst) = if direction == Direction::Outgoing { (DEVICE, SERVER) } else { (SERVER, DEVICE) };
        let flow = Flow { src, dst, protocol, src_port: Some(ports.0), dst_port: Some(ports.1) };
        Seen { at, direction, flow, size: planned.bytes + HEADERS }
    };
    // Type and code, as in traffic selectors.
    let request = 8 << 8;
    match planned.kind {
        Kind::Outgoing => packet(Direction::Outgoing, protocol::UDP, (DEVICE_PORT, SERVER_PORT)),
        Kind::Incoming | Kind::Reply(_) => {
            packet(Direction::Incoming, protocol::UDP, (SERVER_PORT, DEVICE_PORT))
        }
        Kind::Ping => packet(Direction::Incoming, protocol::ICMP, (request, request)),
    }
}
