//! The machines of a topology: their cores, made from the text of a configuration, as in the world. Owns that text.

use crate::machine::{self, Disk, Machine};
use crate::settings::{Family, Proof, Settings};
use crate::topology::{MachineId, Topology};
use dormouse_ike::EndpointConfig;
use dormouse_ike::ticket::TicketKeys;
use dormouse_ike::work::Beside;
use dormouse_node::config::Resolved;
use dormouse_node::host::{Engine, Host, InUdp};
use dormouse_node::pool::{Pool, SharedPool};
use dormouse_node::{Node, Rekey};
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
/// Prefixes of the gateway's pool.
const POOL: [&str; 2] = ["10.55.0.0/16", "fd55::/120"];
/// And those that it has after a reload.
const OTHER_POOL: [&str; 2] = ["10.56.0.0/16", "fd56::/120"];
/// Wall-clock time at the beginning.
pub(crate) const EPOCH: UnixTime = UnixTime(1_800_000_000);
/// A ticket key is used so long,
const ROTATE: Duration = Duration::from_secs(24 * 3600);
/// and still opens tickets so long.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);

impl Topology {
    /// New ticket keys, as a disk holds them.
    pub fn ticket_keys(&mut self) -> Vec<u8> {
        ticket_keys(self.rng(), EPOCH)
    }

    /// Adds the machine of a device of this name, which knows where the gateway is.
    ///
    /// # Panics
    /// If the settings are not valid.
    pub fn add_device(&mut self, settings: &Settings, name: &str) -> MachineId {
        let (now, unix) = (self.now, EPOCH + (self.now - Instant::ZERO));
        let mut machine = Machine::new(device(settings, name, self.rng(), now, unix));
        machine.gateways.insert(CONNECTION.into(), settings.outer.of(GATEWAY));
        self.add_machine(machine)
    }

    /// Adds a gateway for devices of this name (`*`: of any), with the ticket keys on its disk.
    ///
    /// # Panics
    /// If the settings are not valid.
    pub fn add_gateway(&mut self, settings: &Settings, device: &str, ticket_keys: Vec<u8>) -> MachineId {
        let (now, unix) = (self.now, EPOCH + (self.now - Instant::ZERO));
        let disk = Disk { ticket_keys, ..Disk::default() };
        let mut machine = Machine::new(gateway(settings, device, self.rng(), &disk, now, unix));
        machine.disk = disk;
        settings.engine.then(|| machine.set_engine(WORKERS.udp));
        self.add_machine(machine)
    }

    /// A core with the connections of this file, and a pool if one of them gives addresses.
    ///
    /// # Panics
    /// If the file is not valid.
    pub fn host_of(&mut self, toml: &str) -> Host {
        let now = self.now;
        host_of(toml, now, self.rng())
    }
}

/// The other engine of a device that has one: its kernel.
const KERNEL: Engine = Engine { raw: true, udp: InUdp::Alone, load: 2, ours: false };
/// That of a gateway: workers, which take ESP as a protocol of its own too, as its kernel would.
const WORKERS: Engine = Engine { raw: true, udp: InUdp::Each, load: 2, ours: true };

/// A core with the connections of this file, and a pool if one of them gives addresses.
///
/// # Panics
/// If the file is not valid.
pub(crate) fn host_of(toml: &str, now: Instant, rng: &mut Seeded) -> Host {
    let unix = EPOCH + (now - Instant::ZERO);
    let connections = machine::connections(toml);
    let prefixes: Vec<_> = connections.iter().flat_map(|c| c.pool.iter().copied()).collect();
    let pool = (!prefixes.is_empty()).then(|| SharedPool::new(Pool::new(prefixes)));
    machine::host(now, connections, EndpointConfig::default(), pool, rng, unix)
}

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
    let connections = device_connections(settings, name);
    let mut host = machine::host(now, connections, EndpointConfig::default(), None, rng, unix);
    settings.engine.then(|| host.set_engine(KERNEL));
    host
}

/// The connections of the device of this name.
pub(crate) fn device_connections(settings: &Settings, name: &str) -> Vec<Resolved> {
    let (remote, request) = match settings.inner {
        Family::V4 => ("\"10.99.0.0/24\"", "ipv4"),
        Family::V6 => ("\"fd99::/64\"", "ipv6"),
        Family::Both => ("\"10.99.0.0/24\", \"fd99::/64\"", "auto"),
    };
    let child = format!("remote = [{remote}]\nrequest_address = \"{request}\"\n");
    let toml = connection("client", [name, "gateway"], child, settings.proof, &settings.device);
    machine::connections(&toml)
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
    let connections = gateway_connections(settings, device);
    let mut pool = Pool::new(connections.iter().flat_map(|c| c.pool.iter().copied()));
    for (holder, addresses) in &disk.leases {
        pool.restore(holder.clone(), *addresses);
    }
    let endpoint = EndpointConfig {
        ticket_keys: TicketKeys::import(&disk.ticket_keys, ROTATE, KEEP).ok(),
        hold: settings.hold,
        // As the daemon does with what takes long.
        beside: Beside { sign: |_| true, agree: |_| true },
        ..EndpointConfig::default()
    };
    let mut host = machine::host(now, connections, endpoint, Some(SharedPool::new(pool)), rng, unix);
    settings.engine.then(|| host.set_engine(WORKERS));
    if let Some((limits, longest)) = settings.stand_in {
        host.node_mut().stand_in_for_sleepers(limits, longest);
    }
    host
}

/// The gateway's connections, for devices of this name (`*`: of any).
pub(crate) fn gateway_connections(settings: &Settings, device: &str) -> Vec<Resolved> {
    let child = "local = [\"10.99.0.0/24\", \"fd99::/64\"]\nremote = [\"dynamic\"]\n".to_owned();
    let prefixes = if settings.other_pool { OTHER_POOL } else { POOL };
    let toml = connection("gateway", ["gateway", device], child, settings.proof, &settings.gateway)
        + &format!("[connection.{CONNECTION}.pool]\naddresses = {prefixes:?}\n");
    machine::connections(&toml)
}

/// One connection between `own` and `peer`. `child`: lines of its section of that name, to which `extra` may add, as to any other.
fn connection(
    role: &str,
    [own, peer]: [&str; 2],
    child: String,
    proof: Proof,
    extra: &[(&'static str, String)],
) -> String {
    let gateway = if role == "client" { format!("gateway = \"{}\"", GATEWAY[0]) } else { String::new() };
    let secret = "secret = \"a secret of the simulation\"".to_owned();
    let certificate = format!("certificate = \"{own}.pem\"\nkey = \"{own}.key\"");
    let ca = "ca = [\"ca.pem\"]".to_owned();
    let users = format!("auth = [\"eap-tls\", \"eap-mschapv2\"]\nusers = \"users\"\n{ca}");
    let (local, remote) = match (proof, role) {
        (Proof::Secret, _) => (secret.clone(), secret),
        (Proof::Certificates, _) => (certificate, ca),
        (Proof::Password, "client") => {
            (format!("auth = \"eap-mschapv2\"\nuser = \"{own}.sim\"\npassword_file = \"password\""), ca)
        }
        (Proof::Tls, "client") => (format!("auth = \"eap-tls\"\n{certificate}"), ca),
        (Proof::TlsAlone, "client") => (format!("auth = \"eap-tls\"\neap_only = true\n{certificate}"), ca),
        (Proof::TlsAlone, _) => (certificate, format!("eap_only = true\n{users}")),
        (Proof::Password | Proof::Tls, _) => (certificate, users),
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

/// A gateway's operator asks for new keys for every peer that is there.
pub fn rekey_peers(now: Instant, gateway: &mut Node, which: Rekey) {
    for session in gateway.gateway_sessions(now) {
        _ = gateway.rekey_peer(now, &session.connection, &session.peer, which);
    }
}
