//! The two ends of a world: their cores, made from the text of a configuration, as in the world. Owns that text.

use crate::machine::{self, Disk};
use crate::settings::{Family, Settings};
use dormouse_ike::EndpointConfig;
use dormouse_ike::ticket::TicketKeys;
use dormouse_node::host::Host;
use dormouse_node::pool::{Pool, SharedPool};
use dormouse_sansio::{Instant, Seeded, UnixTime};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Where the gateway is, in either family.
pub(crate) const GATEWAY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1)),
];
/// The name of the connection at both ends.
pub(crate) const CONNECTION: &str = "office";
/// Wall-clock time at the beginning.
pub(crate) const EPOCH: UnixTime = UnixTime(1_800_000_000);
/// A ticket key is used so long,
const ROTATE: Duration = Duration::from_secs(24 * 3600);
/// and still opens tickets so long.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);

/// New ticket keys, as a disk holds them.
pub(crate) fn ticket_keys(rng: &mut Seeded, unix: UnixTime) -> Vec<u8> {
    TicketKeys::generate(unix, ROTATE, KEEP, &mut rng.fork()).export().as_bytes().to_vec()
}

/// The core of the device of this name.
pub(crate) fn device(
    settings: &Settings,
    name: &str,
    rng: &mut Seeded,
    now: Instant,
    unix: UnixTime,
) -> Host {
    let (remote, request) = match settings.inner {
        Family::V4 => ("\"10.99.0.0/24\"", "ipv4"),
        Family::V6 => ("\"fd99::/64\"", "ipv6"),
        Family::Both => ("\"10.99.0.0/24\", \"fd99::/64\"", "auto"),
    };
    let child = format!("remote = [{remote}]\nrequest_address = \"{request}\"\n");
    let toml = connection("client", [name, "gateway"], child, settings.certificates, &settings.device);
    machine::host(now, &toml, EndpointConfig::default(), rng, unix)
}

/// The gateway's core, with what its disk holds, for devices of this name (`*`: of any).
pub(crate) fn gateway(
    settings: &Settings,
    device: &str,
    rng: &mut Seeded,
    disk: &Disk,
    now: Instant,
    unix: UnixTime,
) -> Host {
    let child = "local = [\"10.99.0.0/24\", \"fd99::/64\"]\nremote = [\"dynamic\"]\n".to_owned();
    let prefixes = ["10.55.0.0/16", "fd55::/120"];
    let toml = connection("gateway", ["gateway", device], child, settings.certificates, &settings.gateway)
        + &format!("[connection.{CONNECTION}.pool]\naddresses = {prefixes:?}\n");
    let pool = Pool::new(prefixes.iter().filter_map(|p| p.parse().ok()));
    let endpoint = EndpointConfig {
        pool: Some(Box::new(SharedPool::new(pool))),
        ticket_keys: TicketKeys::import(&disk.ticket_keys, ROTATE, KEEP).ok(),
        hold: settings.hold,
        ..EndpointConfig::default()
    };
    let mut host = machine::host(now, &toml, endpoint, rng, unix);
    if let Some((limits, longest)) = settings.stand_in {
        host.node_mut().stand_in_for_sleepers(limits, longest);
    }
    host
}

/// One connection between `own` and `peer`. `child`: lines of its section of that name, to which `extra` may add, as to any other.
fn connection(
    role: &str,
    [own, peer]: [&str; 2],
    child: String,
    certificates: bool,
    extra: &[(&'static str, String)],
) -> String {
    let gateway = if role == "client" { format!("gateway = \"{}\"", GATEWAY[0]) } else { String::new() };
    let secret = "secret = \"a secret of the simulation\"".to_owned();
    let (local, remote) = if certificates {
        (format!("certificate = \"{own}.pem\"\nkey = \"{own}.key\""), "ca = [\"ca.pem\"]".to_owned())
    } else {
        (secret.clone(), secret)
    };
    let mut toml = format!(
        "[connection.{CONNECTION}]\nrole = \"{role}\"\n{gateway}\n[connection.{CONNECTION}.local]\nid = \"{own}.sim\"\n{local}\n\
         [connection.{CONNECTION}.remote]\nid = \"{peer}.sim\"\n{remote}\n"
    );
    let mut sections = BTreeMap::from([("child", child)]);
    for (name, line) in extra {
        sections.entry(name).or_default().extend([line.as_str(), "\n"]);
    }
    for (name, lines) in sections {
        toml += &format!("[connection.{CONNECTION}.{name}]\n{lines}");
    }
    toml
}
