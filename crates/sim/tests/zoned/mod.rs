//! A device with zones, its gateway and three access routers in a row, each in a network of its own: configurations and machines. Owns what the
//! worlds of zones have in common, and the witness of what may be read on the way; what routers do is the worlds' own.

use dormouse_netem::LinkConfig;
use dormouse_sansio::{Carrier, Entropy, Path, Seeded};
use dormouse_sim::{Machine, MachineId, NetworkId, Topology};
use dormouse_wire::ip::udp;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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

/// In every numbered packet: outside it is seen where a packet is not encrypted, and nowhere else.
pub(crate) const SECRET: &[u8] = b"for the ends alone";

/// How a flow is divided between a CHILD SA in zones and a whole one with the same selectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Divided {
    /// There is only the one in zones.
    No,
    /// One packet in so many goes in zones: of what the device sends, and of what the gateway does.
    Every(u32, u32),
    /// Those that are marked do: every second one of either direction.
    Marked,
    /// One packet in so many of what the device sends, and what the gateway sends goes as the device's last one came.
    Followed(u32),
    /// All of what the device sends while its signal is weak, and what the gateway sends goes as the device's last one came.
    Weak,
}

impl Divided {
    /// Of what goes this way, one packet in so many is in zones, while the signal is weak.
    pub(crate) const fn part(self, to_device: bool) -> u32 {
        match self {
            Self::No => 1,
            Self::Every(device, gateway) => {
                if to_device {
                    gateway
                } else {
                    device
                }
            }
            Self::Marked => 2,
            Self::Followed(device) => device,
            Self::Weak => 1,
        }
    }

    /// The line of an end's child in zones.
    fn line(self, of_device: bool) -> String {
        match self {
            Self::No => String::new(),
            Self::Followed(_) | Self::Weak if !of_device => "choose = { as_peer = true }\n".to_owned(),
            Self::Every(..) | Self::Followed(_) => {
                format!("choose = {{ every = {} }}\n", self.part(!of_device))
            }
            Self::Weak => "choose = { signal_below = -75 }\n".to_owned(),
            Self::Marked => format!("choose = {{ dscp = [{MARK}] }}\n"),
        }
    }
}

/// The code point of expedited forwarding.
const MARK: u8 = 46;
/// Of packets that go by the CHILD SA that does not encrypt, where there is one.
const IN_CLEAR: u8 = 10;

/// What a seed draws of the zones of a world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn {
    /// The first zone has no bytes: routers read nothing.
    pub(crate) unreadable: bool,
    pub(crate) divided: Divided,
    /// A further CHILD SA authenticates its packets and does not encrypt them: those that are marked for it.
    pub(crate) clear: bool,
}

impl Drawn {
    /// The defaults.
    pub(crate) const PLAIN: Self = Self { unreadable: false, divided: Divided::No, clear: false };

    pub(crate) fn of(seed: u64) -> Self {
        let mut draw = Seeded::new(seed ^ 0x0021_0e5d);
        let kind = draw.below(5);
        let mut part = || 1 + u32::try_from(draw.below(3)).expect("a small number");
        let divided = match (kind, part(), part()) {
            (0, ..) => Divided::No,
            (1, device, gateway) => Divided::Every(device, gateway),
            (2, ..) => Divided::Marked,
            (3, device, _) => Divided::Followed(device),
            _ => Divided::Weak,
        };
        Self { unreadable: draw.below(2) == 0, divided, clear: draw.below(2) == 0 }
    }
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
    pub(crate) drawn: Drawn,
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
    let mut file = head + &auth("office", "device", "gateway");
    file += "[connection.office.child]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\n";
    file += &zoned(configuration, "remote = [\"10.99.0.0/24\"]\n", true);
    file += &format!("reports = {}\n", configuration.reports);
    file + &clear(configuration, "remote = [\"10.99.0.0/24\"]\n") + &carriage(configuration)
}

/// An end's child that does not encrypt, where there is one.
fn clear(configuration: &Configuration, selectors: &str) -> String {
    let choose = format!("choose = {{ dscp = [{IN_CLEAR}] }}");
    let section =
        format!("[connection.office.children.clear]\n{selectors}protection = \"authenticated\"\n{choose}\n");
    if configuration.drawn.clear { section } else { String::new() }
}

/// An end's child in zones, as far as it is not written yet, with the beginning of their section; `selectors` are those of the first child.
fn zoned(configuration: &Configuration, selectors: &str, of_device: bool) -> String {
    let Drawn { unreadable, divided, .. } = configuration.drawn;
    let (section, head) = match divided {
        Divided::No => ("child", String::new()),
        _ => ("children.zoned", format!("[connection.office.children.zoned]\n{selectors}")),
    };
    let ends = if unreadable { "ends = [\"none\"]\n" } else { "" };
    let choose = divided.line(of_device);
    format!("{head}protection = \"zoned\"\n{choose}[connection.office.{section}.zones]\n{ends}")
}

fn gateway_file(configuration: &Configuration) -> String {
    let &Configuration { keys, most_routers, .. } = configuration;
    let mut file =
        "[connection.office]\nrole = \"gateway\"\n".to_owned() + &auth("office", "gateway", "device");
    file += &carriage(configuration);
    let selectors = "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n";
    file += &format!(
        "[connection.office.pool]\naddresses = [\"10.55.0.0/16\"]\n[connection.office.child]\n{selectors}"
    );
    file += &zoned(configuration, selectors, false);
    file += "routers = [\"r1.sim\", \"r2.sim\", \"r3.sim\"]\n";
    file += &format!("ahead = {}\nmost_routers = {most_routers}\n", keys == Keys::Ahead);
    file += &clear(configuration, selectors);
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

/// The signal of the device's radio is weak from now on, or good.
pub(crate) fn set_signal(net: &mut Topology, device: MachineId, weak: bool) {
    net.with(device, |_, host| host.set_signal(Some(if weak { -80 } else { -50 })));
}

/// Whether a datagram shows the packet that it carries. Only one of ESP may, with a packet that is marked for it, in a world that has such a
/// CHILD SA: all others are sealed.
pub(crate) fn shows(path: &Path, datagram: &[u8], drawn: Drawn) -> bool {
    let shown = datagram.windows(SECRET.len()).any(|part| part == SECRET);
    if shown {
        let is_esp = matches!(path.carrier, Carrier::RawEsp | Carrier::NatT);
        // Behind SPI, number and IV, from an IP header without options on.
        let is_chosen = matches!(datagram.get(16..), Some([0x45, tos, ..]) if tos >> 2 == IN_CLEAR);
        assert!(drawn.clear && is_esp && is_chosen, "in clear");
    }
    shown
}

/// A packet with its number and what is behind it. Every second one is marked; of the others every eighth is marked to go in clear.
pub(crate) fn numbered(from: IpAddr, to: IpAddr, number: u64, rest: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let [from, to] = [from, to].map(|address| SocketAddr::new(address, 9));
    udp::build(from, to, &[&number.to_be_bytes(), rest].concat(), &mut packet).expect("a packet");
    let mark = match number / 2 % 16 {
        1 => IN_CLEAR,
        place if place.is_multiple_of(2) => MARK,
        _ => 0,
    };
    if mark > 0 {
        packet[1] = mark << 2;
        // Its word grows by as much, and the sum of all (RFC 1071) with it.
        let sum = u32::from(!u16::from_be_bytes([packet[10], packet[11]])) + u32::from(packet[1]);
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet
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
