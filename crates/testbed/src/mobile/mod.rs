//! Mobile IP in five namespaces: a correspondent, a home agent, two foreign agents, and a device that moves between the three networks.
//!
//! ```text
//!                                            ┌── home0 ── home0 ──┐
//!   correspondent 10.98.0.2 ── home agent 10.50.0.1               device 10.50.0.2, wherever it is
//!                                  ├── foreign agent 10.51.0.1 ── radio0 ── fa1 ──┤
//!                                  └── foreign agent 10.52.0.1 ── radio0 ── fa2 ──┘
//! ```
//!
//! Where the device has addresses of its own ([`CareOf::CoLocated`]), the foreign agents' hosts are the routers of their networks, and no agents.
//!
//! Owns namespaces, routes, keys and programs; all of it goes with its owner. What a program decides is [`dormouse_mobileip`]'s.
//! [`protected`]: the shipped daemons beside them, if wanted: the correspondent's, access routers beside the foreign agents, and the
//! device's.

pub mod driver;
pub mod protected;
mod radio;
mod telling;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dormouse_crypto::Secret;
use dormouse_io::entropy::OsEntropy;
use dormouse_sansio::Entropy as _;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::daemon::{Dormoused, binary};
use crate::host::{Host, Testbed};
use crate::process::Process;
use driver::{Node, OwnAddress, Role, Shared};
use protected::{Daemons, Protection};
pub use radio::Radio;
use telling::AccessRouter;

/// With whom the device talks.
pub const CORRESPONDENT: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
/// The device's address.
pub const DEVICE: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 2);
/// The home agent.
pub const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 1);
/// The foreign agents.
pub const FOREIGN: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 51, 0, 1), Ipv4Addr::new(10, 52, 0, 1)];
/// The device's own addresses in the networks of the foreign agents, if it has some.
pub const CO_LOCATED: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 51, 0, 2), Ipv4Addr::new(10, 52, 0, 2)];
const NETWORK: &str = "10.50.0.0/24";
/// Room for a program's configuration, in bytes; it is some hundred.
const CONFIGURATION: usize = 16 << 10;
/// How long a program may take to begin, and to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the device can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// At home.
    Home,
    /// With a foreign agent.
    Foreign(usize),
}

impl Place {
    /// All.
    pub const ALL: [Self; 3] = [Self::Home, Self::Foreign(0), Self::Foreign(1)];

    /// The device's interface there, which is also the place's name.
    #[must_use]
    pub const fn interface(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Foreign(0) => "fa1",
            Self::Foreign(_) => "fa2",
        }
    }

    /// The care-of address there; at home the home address.
    #[must_use]
    pub const fn care_of(self) -> Ipv4Addr {
        match self {
            Self::Home => DEVICE,
            Self::Foreign(0) => FOREIGN[0],
            Self::Foreign(_) => FOREIGN[1],
        }
    }
}

/// By whose address the device registers in another network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CareOf {
    /// The foreign agent's.
    #[default]
    ForeignAgent,
    /// Its own, one of [`CO_LOCATED`].
    CoLocated,
}

/// A program of the topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// The home agent.
    Home,
    /// A foreign agent.
    Foreign(usize),
    /// The mobile host.
    Device,
}

/// All of it.
#[derive(Debug)]
pub struct MobileIp {
    /// In the order of [`Program`]: home agent, foreign agents, device.
    programs: [Option<Process>; 4],
    care_of: CareOf,
    /// The daemons, if there are some.
    pub daemons: Option<Daemons>,
    /// The device.
    pub device: Host,
    /// With whom it talks.
    pub correspondent: Host,
    /// The home agent.
    pub home: Host,
    /// The foreign agents.
    pub foreign: [Host; 2],
    // Last: namespaces go after what works in them.
    bed: Testbed,
}

impl MobileIp {
    /// As [`Self::over`], with perfect radios.
    ///
    /// # Errors
    /// As there.
    pub fn start(protection: Protection) -> Result<Self> {
        Self::over(None, protection)
    }

    /// Builds it, with the device nowhere, and a radio like this between it and either foreign agent. With daemons, its connection is not up yet.
    ///
    /// # Errors
    /// Without root or what namespaces need, or if a program does not begin.
    pub fn over(radio: Option<Radio>, protection: Protection) -> Result<Self> {
        Self::build(radio, protection, CareOf::ForeignAgent)
    }

    /// The same, with perfect radios, routers in the place of the foreign agents, and an address of the device's own in their networks.
    ///
    /// # Errors
    /// As there.
    pub fn co_located(protection: Protection) -> Result<Self> {
        Self::build(None, protection, CareOf::CoLocated)
    }

    fn build(radio: Option<Radio>, protection: Protection, care_of: CareOf) -> Result<Self> {
        let mut bed = Testbed::new()?;
        let [device, correspondent, home] = ["device", "correspondent", "home-agent"].map(|n| bed.host(n));
        let (device, correspondent, home) = (device?, correspondent?, home?);
        let foreign = [bed.host("fa1")?, bed.host("fa2")?];
        bed.link((&correspondent, "eth0", &["10.98.0.2/24"]), (&home, "lan", &["10.98.0.1/24"]))?;
        let wires = [["10.60.1.1/30", "10.60.1.2/30"], ["10.60.2.1/30", "10.60.2.2/30"]];
        for ((agent, [near, far]), place) in
            foreign.iter().zip(wires).zip([Place::Foreign(0), Place::Foreign(1)])
        {
            bed.link((&home, place.interface(), &[near]), (agent, "eth0", &[far]))?;
            bed.link((agent, "radio", &[]), (&device, place.interface(), &[]))?;
            agent.sysctl("net.ipv4.ip_forward", "1")?;
            agent.ip(&format!("route add default via {}", near.trim_end_matches("/30")))?;
        }
        bed.link((&home, "radio", &[]), (&device, Place::Home.interface(), &[]))?;
        home.sysctl("net.ipv4.ip_forward", "1")?;
        home.ip("route add 10.51.0.0/24 via 10.60.1.2")?;
        home.ip("route add 10.52.0.0/24 via 10.60.2.2")?;
        correspondent.ip("route add default via 10.98.0.1")?;
        let links = Place::ALL.map(|p| (&device, p.interface()));
        for (host, name) in
            [(&home, "radio"), (&foreign[0], "radio"), (&foreign[1], "radio")].into_iter().chain(links)
        {
            // These links are the programs' alone.
            host.sysctl(&format!("net.ipv4.conf.{name}.forwarding"), "0")?;
            host.sysctl(&format!("net.ipv4.conf.{name}.rp_filter"), "1")?;
            host.sysctl(&format!("net.ipv4.conf.{name}.arp_ignore"), "8")?;
            host.sysctl(&format!("net.ipv6.conf.{name}.disable_ipv6"), "1")?;
        }
        let programs = [None, None, None, None];
        let mut it = Self { programs, care_of, daemons: None, device, correspondent, home, foreign, bed };
        it.go(None)?;
        it.configure(radio, protection)?;
        for program in [Program::Home, Program::Foreign(0), Program::Foreign(1), Program::Device] {
            if care_of == CareOf::ForeignAgent || !matches!(program, Program::Foreign(_)) {
                it.launch(program)?;
            }
        }
        if protection != Protection::None {
            it.daemons = Some(Daemons::start(&it, radio, protection)?);
        }
        Ok(it)
    }

    /// Scratch directory, with a folder for each host: configuration and log of its program.
    #[must_use]
    pub fn dir(&self) -> &std::path::Path {
        self.bed.dir()
    }

    /// The host of a program.
    #[must_use]
    pub fn host(&self, program: Program) -> &Host {
        match program {
            Program::Home => &self.home,
            Program::Foreign(n) => &self.foreign[n.min(1)],
            Program::Device => &self.device,
        }
    }

    /// Writes what each program is, with keys of its own for each pair.
    fn configure(&self, radio: Option<Radio>, protection: Protection) -> Result<()> {
        let mut spi = 256;
        let mut pair = |a: Ipv4Addr, b: Ipv4Addr| {
            let mut key = Secret::zeroed(32);
            OsEntropy.fill(key.as_mut_bytes());
            spi += 1;
            let end = |with| Shared { with, spi, key: key.clone() };
            (end(b), end(a))
        };
        let (home_of_device, device_of_home) = pair(HOME_AGENT, DEVICE);
        let at_home = FOREIGN.map(|f| pair(HOME_AGENT, f));
        let at_device = FOREIGN.map(|f| pair(DEVICE, f));
        let [h0, h1] = at_home.clone().map(|(home, _)| home);
        let [d0, d1] = at_device.clone().map(|(device, _)| device);
        self.write(
            Program::Home,
            None,
            Role::Home {
                address: HOME_AGENT,
                network: NETWORK.into(),
                mobiles: vec![home_of_device],
                foreign: vec![h0, h1],
            },
        )?;
        for (n, ((_, home), (_, device))) in at_home.into_iter().zip(at_device).enumerate() {
            let (mobiles, home_agents, address) = (vec![device], vec![home], FOREIGN[n]);
            let others = [(FOREIGN[1 - n], protected::ROUTERS[1 - n].to_owned())].into();
            let socket = Dormoused::socket_in(&self.foreign[n]);
            let router = protection.has_keys().then_some(AccessRouter { socket, others });
            let role = Role::Foreign { address, mobiles, home_agents, router };
            let radio = radio.map(|radio| radio.from(n as u64 + 1));
            self.write(Program::Foreign(n), radio, role)?;
        }
        let (home_agent, foreign) = (device_of_home, vec![d0, d1]);
        self.write(
            Program::Device,
            radio.map(|radio| radio.from(8)),
            Role::Mobile { home: DEVICE, home_agent, foreign, own: self.own_addresses()? },
        )
    }

    /// The device's own addresses, if it has some; makes the kernels of the foreign agents' hosts the routers to them. The device's program answers
    /// no ARP: its link address is set at the router, as the router's is in its configuration.
    fn own_addresses(&self) -> Result<BTreeMap<String, OwnAddress>> {
        let mut own = BTreeMap::new();
        if self.care_of == CareOf::ForeignAgent {
            return Ok(own);
        }
        let link_address = |host: &Host, interface: &str| {
            let text = host.sh(&format!("cat /sys/class/net/{interface}/address"))?;
            Ok::<_, anyhow::Error>(text.trim().to_owned())
        };
        let networks = self.foreign.iter().zip(FOREIGN).zip(CO_LOCATED);
        for (((host, gateway), address), place) in networks.zip([Place::Foreign(0), Place::Foreign(1)]) {
            let device = link_address(&self.device, place.interface())?;
            host.ip(&format!("addr add {gateway}/24 dev radio"))?;
            host.ip(&format!("neigh replace {address} lladdr {device} nud permanent dev radio"))?;
            host.sysctl("net.ipv4.conf.radio.forwarding", "1")?;
            let text = link_address(host, "radio")?;
            let mut router = [0; 6];
            hex::decode_to_slice(text.replace(':', ""), &mut router).context(text)?;
            own.insert(place.interface().to_owned(), OwnAddress { address, router });
        }
        Ok(own)
    }

    fn write(&self, program: Program, radio: Option<Radio>, role: Role) -> Result<()> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let (links, bad) = match program {
            Program::Device => (Place::ALL.map(Place::interface).to_vec(), vec!["fa1", "fa2"]),
            Program::Home | Program::Foreign(_) => (vec!["radio"], vec!["radio"]),
        };
        let named = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let (links, radio) = (named(links), radio.map(|radio| (radio, named(bad))));
        let (control, user) = (self.control(program), "nobody".into());
        let node =
            Node { role, tun: "mip0".into(), links, control, user, lifetime: 300, interval: 1_000, radio };
        let path = self.host(program).dir().join("mobile-ip.json");
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        // The text grows while it is written: with room for all of it, no part of a key stays behind.
        let mut text = Zeroizing::new(Vec::with_capacity(CONFIGURATION));
        serde_json::to_writer_pretty(&mut *text, &node)?;
        Ok(file.write_all(&text)?)
    }

    fn control(&self, program: Program) -> PathBuf {
        self.host(program).dir().join("mobile-ip.sock")
    }

    fn slot(&mut self, program: Program) -> &mut Option<Process> {
        let [home, f0, f1, device] = &mut self.programs;
        match program {
            Program::Home => home,
            Program::Foreign(0) => f0,
            Program::Foreign(_) => f1,
            Program::Device => device,
        }
    }

    /// Starts a program that does not run.
    ///
    /// # Errors
    /// If it does not begin, and for a foreign agent where the device has addresses of its own.
    pub fn launch(&mut self, program: Program) -> Result<()> {
        if self.care_of == CareOf::CoLocated && matches!(program, Program::Foreign(_)) {
            bail!("the device has an address of its own there: no foreign agent is needed");
        }
        let host = self.host(program).clone();
        // What a killed program has left.
        let _ = std::fs::remove_file(self.control(program));
        let log = host.dir().join("mobile-ip.log");
        let _ = std::fs::remove_file(&log);
        let config = host.dir().join("mobile-ip.json");
        let mut command = host.command(binary("dormouse"));
        command.args(["lab", "mobile-ip-node"]).arg(&config);
        let mut process = Process::spawn("mobile-ip", &mut command, &log)?;
        process.wait_for("ready", PATIENCE)?;
        match program {
            Program::Home => host.ip(&format!("route replace {NETWORK} dev mip0"))?,
            Program::Foreign(n) => host.ip(&format!("route replace {}/32 dev mip0", FOREIGN[n.min(1)]))?,
            Program::Device => {
                host.ip(&format!("addr replace {DEVICE}/32 dev mip0"))?;
                host.ip("route replace default dev mip0")?;
            }
        }
        *self.slot(program) = Some(process);
        Ok(())
    }

    /// Kills a program, without a word to it.
    pub fn crash(&mut self, program: Program) {
        if let Some(mut process) = self.slot(program).take() {
            process.kill();
        }
    }

    /// Whether a program runs.
    pub fn runs(&mut self, program: Program) -> bool {
        self.slot(program).as_mut().is_some_and(|p| p.ended().is_none())
    }

    /// What a program has said so far.
    pub fn log(&mut self, program: Program) -> String {
        self.slot(program).as_ref().map(Process::log).unwrap_or_default()
    }

    /// A program's state.
    ///
    /// # Errors
    /// If it does not run.
    pub fn state(&self, program: Program) -> Result<Value> {
        driver::state(&self.control(program)).with_context(|| format!("{program:?}"))
    }

    /// Takes the device to a place, or into no network; what is heard of it is the programs' business.
    ///
    /// # Errors
    /// If `ip` refuses.
    pub fn go(&self, place: Option<Place>) -> Result<()> {
        let links: String = Place::ALL
            .into_iter()
            .filter(|p| Some(*p) != place)
            .map(|p| format!("link set dev {} down\n", p.interface()))
            .chain(place.map(|p| format!("link set dev {} up\n", p.interface())))
            .collect();
        let file = self.device.dir().join("move.ip");
        std::fs::write(&file, links)?;
        self.device.ip(&format!("-batch {}", file.display()))
    }

    /// The care-of address at a place.
    #[must_use]
    pub fn care_of(&self, place: Place) -> Ipv4Addr {
        match (place, self.care_of) {
            (Place::Foreign(n), CareOf::CoLocated) => CO_LOCATED[n.min(1)],
            _ => place.care_of(),
        }
    }

    /// Whether the device, by its state, is registered at a place.
    #[must_use]
    pub fn is_at(&self, state: &Value, place: Place) -> bool {
        state["care_of"] == self.care_of(place).to_string() && state["link"] == place.interface()
    }

    /// Waits until the device is registered at a place, and says so of itself.
    ///
    /// # Errors
    /// If it is not within ten seconds.
    pub fn arrives(&self, place: Place) -> Result<()> {
        let begin = std::time::Instant::now();
        loop {
            let state = self.state(Program::Device)?;
            if self.is_at(&state, place) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                bail!("the device is not registered at {}: {state}", place.interface());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
