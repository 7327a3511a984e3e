//! A device with zones, its gateway and three access routers in a row, each in a network of its own: configurations and machines. Owns what the
//! worlds of zones have in common; what routers do is the worlds' own.

use dormouse_netem::LinkConfig;
use dormouse_sim::{Machine, MachineId, NetworkId, Topology};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

pub(crate) const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
pub(crate) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2));
pub(crate) const ROUTERS: usize = 3;
/// From any network to the gateway, or back.
pub(crate) const DELAY: Duration = Duration::from_millis(10);

/// How header keys come to the routers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keys {
    /// Before the device, from the gateway (Proactive Key Distribution).
    Ahead,
    /// When the device is there, from the gateway.
    There,
    /// From the router where it was before (Directed Key Migration).
    Moved,
}

/// What differs between worlds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Configuration {
    pub(crate) keys: Keys,
    /// Routers that may hold the keys of one SA before others are made.
    pub(crate) most_routers: usize,
    /// The device reports what it gets (esp-arq).
    pub(crate) reports: bool,
    /// ESP travels as protocol 50, not in UDP.
    pub(crate) bare: bool,
}

fn auth(connection: &str, own: &str, peer: &str) -> String {
    let secret = "secret = \"a secret of the simulation\"";
    format!(
        "[connection.{connection}.local]\nid = \"{own}.sim\"\n{secret}\n[connection.{connection}.remote]\nid = \"{peer}.sim\"\n{secret}\n"
    )
}

/// How ESP travels between device and gateway.
fn carriage(configuration: &Configuration) -> String {
    let way = if configuration.bare { "nat" } else { "auto" };
    format!("[connection.office.ike]\nesp_in_udp = \"{way}\"\n")
}

fn device_file(configuration: &Configuration) -> String {
    let head = format!("[connection.office]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\n");
    let child = "[connection.office.child]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\nprotection = \"zoned\"\n";
    let zones = if configuration.reports { "zones = { reports = true }\n" } else { "" };
    head + &auth("office", "device", "gateway") + child + zones + &carriage(configuration)
}

fn gateway_file(configuration: &Configuration) -> String {
    let &Configuration { keys, most_routers, .. } = configuration;
    let mut file =
        "[connection.office]\nrole = \"gateway\"\n".to_owned() + &auth("office", "gateway", "device");
    file += &carriage(configuration);
    file += "[connection.office.pool]\naddresses = [\"10.55.0.0/16\"]\n[connection.office.child]\nlocal = [\"10.99.0.0/24\"]\n\
             remote = [\"dynamic\"]\nprotection = \"zoned\"\n[connection.office.child.zones]\nrouters = [\"r1.sim\", \"r2.sim\", \"r3.sim\"]\n";
    file += &format!("ahead = {}\nmost_routers = {most_routers}\n", keys == Keys::Ahead);
    for router in 1..=ROUTERS {
        file += &format!(
            "[connection.r{router}]\nrole = \"gateway\"\n[connection.r{router}.keys]\npeer = \"router\"\n"
        );
        // With keys that move no address tells where the device is.
        if keys != Keys::Moved {
            let next = beside(router).map(|n| format!("\"r{n}.sim\"")).collect::<Vec<_>>().join(", ");
            file += &format!("serves = [\"192.0.{router}.0/24\"]\nneighbours = [{next}]\n");
        }
        file += &auth(&format!("r{router}"), "gateway", &format!("r{router}"));
    }
    file
}

/// The routers next to this one, by their numbers from 1 on.
pub(crate) fn beside(router: usize) -> impl Iterator<Item = usize> {
    [router - 1, router + 1].into_iter().filter(|n| (1..=ROUTERS).contains(n))
}

pub(crate) fn router_file(router: usize, keys: Keys) -> String {
    let mut file = format!("[connection.gw]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\nauto = true\n");
    file += "[connection.gw.keys]\npeer = \"gateway\"\n";
    file += &auth("gw", &format!("r{router}"), "gateway");
    for next in beside(router).filter(|_| keys == Keys::Moved) {
        let role = if next > router {
            "role = \"gateway\"\n".to_owned()
        } else {
            format!("role = \"client\"\ngateway = \"192.0.{next}.1\"\nauto = true\n")
        };
        file += &format!("[connection.r{next}]\n{role}[connection.r{next}.keys]\npeer = \"router\"\n");
        file += &auth(&format!("r{next}"), &format!("r{router}"), &format!("r{next}"));
    }
    file
}

pub(crate) fn address(at: usize, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, at as u8 + 1, host))
}

/// The machines, none of them up, and none but the gateway's in its network.
pub(crate) struct Machines {
    pub(crate) net: Topology,
    pub(crate) device: MachineId,
    pub(crate) gateway: MachineId,
    pub(crate) routers: Vec<MachineId>,
    pub(crate) networks: Vec<NetworkId>,
}

impl Machines {
    pub(crate) fn new(seed: u64, configuration: &Configuration) -> Self {
        let mut net = Topology::new(seed);
        let link = LinkConfig { delay: DELAY, ..LinkConfig::default() };
        let networks: Vec<NetworkId> = (0..ROUTERS).map(|_| net.add_network(link, None)).collect();
        let centre = net.add_network(LinkConfig::default(), None);
        let add = |net: &mut Topology, file: &str, gateways: Vec<(String, IpAddr)>| {
            let mut machine = Machine::new(net.host_of(file));
            machine.gateways.extend(gateways.into_iter().map(|(name, address)| (name, vec![address])));
            net.add_machine(machine)
        };
        let gateway = add(&mut net, &gateway_file(configuration), Vec::new());
        let device = add(&mut net, &device_file(configuration), vec![("office".to_owned(), GATEWAY)]);
        let of = |router: usize| {
            let before = format!("r{}", router - 1);
            vec![("gw".to_owned(), GATEWAY), (before, address(router.max(2) - 2, 1))]
        };
        let routers =
            (1..=ROUTERS).map(|n| add(&mut net, &router_file(n, configuration.keys), of(n))).collect();
        net.place(gateway, Some((centre, vec![GATEWAY])));
        Self { net, device, gateway, routers, networks }
    }
}
