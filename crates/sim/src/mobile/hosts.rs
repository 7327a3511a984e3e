//! Hosts that ship beside the parts of Mobile IP: the mobile host's and the correspondent's, between which packets are protected, and beside each foreign
//! agent an access router, between that agent and its wire.
//!
//! ```text
//!   correspondent: gateway ── core ── wire ── access router ── foreign agent ── radio ── mobile host: device
//! ```
//!
//! Owns how packets go between hosts and parts, what foreign agents tell the routers beside them, and the ledger of what the two ends have
//! sealed. A router that repeats a nonce, changes a packet or makes one is a panic; must never look at what a host decides.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use dormouse_crypto::cert::Identity;
use dormouse_mobileip::{ForeignAgent, RouterNews, Side};
use dormouse_node::config::access_router::Router;
use dormouse_node::host::{Host, RouterInfo, Side as Towards};
use dormouse_sansio::Instant;
use dormouse_wire::ip::{Ipv4, protocol};

use super::{CORRESPONDENT, Mobile, Place};
use crate::engine::is_esp;
use crate::machine::Machine;
use crate::{ends, outer};

/// What a compromised access router does to ESP packets that it passes on, in a tunnel of IP in IP or not.
pub type Alteration = Box<dyn FnMut(&mut Vec<u8>)>;

/// The configuration of a host.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The text of the file.
    pub file: String,
    /// Where the gateways of its connections are, by the connections' names.
    pub gateways: BTreeMap<String, IpAddr>,
}

/// See the module.
pub struct Hosts {
    /// The mobile host's, whose outer address is the home address.
    pub device: Machine,
    /// The correspondent's.
    pub gateway: Machine,
    /// Those beside the foreign agents.
    pub routers: Vec<Machine>,
    /// All access routers do this, if they are compromised.
    pub compromised: Option<Alteration>,
    /// ESP packets that have come to an end, and are none that the other end has sealed.
    pub strange: u64,
    /// Of the routers: their identities and configurations.
    setups: Vec<(Identity, Setup)>,
    section: Router,
    /// What the ends have sealed, by SPI and explicit nonce.
    sealed: BTreeMap<Nonce, Vec<u8>>,
}

type Nonce = (u32, [u8; 8]);

/// From where a packet of a host goes on.
enum Source {
    Device,
    Gateway,
    Router(usize, Towards),
}

/// The address of the access router beside the foreign agent that has this one.
#[must_use]
pub const fn router_beside(agent: Ipv4Addr) -> Ipv4Addr {
    let [a, b, c, _] = agent.octets();
    Ipv4Addr::new(a, b, c, 9)
}

/// The ESP packet in a packet, in a tunnel of IP in IP or not, from its SPI on.
fn esp_in(packet: &[u8]) -> Option<Vec<u8>> {
    let inside = match Ipv4::parse(packet) {
        Ok(ip) if ip.protocol() == protocol::IPV4 => ip.payload(),
        _ => packet,
    };
    let (path, datagram) = outer::datagram(inside)?;
    is_esp(&path, &datagram).then_some(datagram)
}

fn nonce(esp: &[u8]) -> Option<Nonce> {
    let spi = u32::from_be_bytes(*esp.first_chunk()?);
    Some((spi, *esp.get(8..)?.first_chunk()?))
}

impl Hosts {
    fn machines(&self) -> impl Iterator<Item = &Machine> {
        [&self.device, &self.gateway].into_iter().chain(&self.routers)
    }

    /// When the first of them wants to run.
    pub(super) fn due(&self) -> Option<Instant> {
        self.machines().filter_map(Machine::due).min()
    }

    /// What an access router says of itself; nothing while its process is dead.
    #[must_use]
    pub fn info(&self, n: usize) -> RouterInfo {
        let host = self.routers.get(n).and_then(Machine::host);
        host.and_then(Host::router_info).unwrap_or_default()
    }

    fn seal(&mut self, esp: Vec<u8>) {
        let Some(nonce) = nonce(&esp) else { return };
        let twice = self.sealed.insert(nonce, esp);
        assert!(twice.is_none(), "a nonce of {:08x} comes twice", nonce.0);
    }

    fn is_sealed(&self, esp: &[u8]) -> bool {
        nonce(esp).and_then(|nonce| self.sealed.get(&nonce)).is_some_and(|sealed| sealed == esp)
    }

    /// A router passes this on.
    fn pass(&mut self, packet: &mut Vec<u8>) {
        let Some(esp) = esp_in(packet) else { return };
        match &mut self.compromised {
            Some(alter) => alter(packet),
            None => assert!(self.is_sealed(&esp), "a router has changed a packet, or made one"),
        }
    }

    /// What the hosts want to send.
    fn take(&mut self) -> Vec<(Source, Vec<u8>)> {
        let mut all = Vec::new();
        for at_device in [true, false] {
            let end = if at_device { &mut self.device } else { &mut self.gateway };
            for (path, datagram) in std::mem::take(&mut end.outbox) {
                let from = if at_device { Source::Device } else { Source::Gateway };
                all.push((from, outer::packet(&path, &datagram)));
                if is_esp(&path, &datagram) {
                    self.seal(datagram);
                }
            }
        }
        for n in 0..self.routers.len() {
            let own = std::mem::take(&mut self.routers[n].outbox).into_iter();
            let own = own.map(|(path, datagram)| outer::packet(&path, &datagram));
            all.extend(own.map(|packet| (Source::Router(n, Towards::Network), packet)));
            for (to, mut packet) in std::mem::take(&mut self.routers[n].transit) {
                self.pass(&mut packet);
                all.push((Source::Router(n, to), packet));
            }
        }
        all
    }
}

impl Mobile {
    /// Hosts stand beside the parts from now on: the mobile host's, the correspondent's, and one beside each foreign agent, which is an access
    /// router and brings its connections up.
    ///
    /// # Panics
    /// If there is not one for each foreign agent, or a configuration is not valid.
    pub fn protect(
        &mut self,
        device: &Setup,
        gateway: &Setup,
        routers: Vec<(Identity, Setup)>,
        section: Router,
    ) {
        assert_eq!(routers.len(), self.configs.len(), "a router for each foreign agent");
        let (home, count) = (self.address, routers.len());
        let (device, gateway) = (self.machine(device, home), self.machine(gateway, CORRESPONDENT));
        let beside: Vec<_> = self.configs.iter().map(|c| router_beside(c.agent.address)).collect();
        let machines = routers.iter().zip(beside).map(|((_, setup), at)| self.machine(setup, at));
        let machines = machines.collect();
        self.hosts = Some(Hosts {
            device,
            gateway,
            routers: machines,
            compromised: None,
            strange: 0,
            setups: routers,
            section,
            sealed: BTreeMap::new(),
        });
        (0..count).for_each(|n| self.boot(n));
        self.flush();
    }

    /// The hosts.
    ///
    /// # Panics
    /// If there are none.
    pub fn hosts(&mut self) -> &mut Hosts {
        self.hosts.as_mut().expect("a world with hosts")
    }

    fn machine(&mut self, setup: &Setup, address: Ipv4Addr) -> Machine {
        let mut machine = Machine::new(ends::host_of(&setup.file, self.now, &mut self.rng));
        machine.gateways.extend(setup.gateways.iter().map(|(name, at)| (name.clone(), vec![*at])));
        machine.inside = Some(Vec::new());
        machine.set_addresses(self.now, vec![address.into()]);
        machine
    }

    fn boot(&mut self, n: usize) {
        let (now, hosts) = (self.now, self.hosts());
        let (section, setup) = (&hosts.section, &hosts.setups[n].1);
        hosts.routers[n].with(now, |host| {
            host.set_router(section);
            setup.gateways.keys().for_each(|name| assert!(host.up(now, name), "{name}"));
        });
    }

    /// The process of an access router dies, and with it its keys. Its kernel forwards alone.
    pub fn kill_router(&mut self, n: usize) {
        self.hosts().routers[n].crash();
    }

    /// It is back.
    pub fn restart_router(&mut self, n: usize) {
        self.kill_router(n);
        let file = self.hosts().setups[n].1.file.clone();
        let (now, host) = (self.now, ends::host_of(&file, self.now, &mut self.rng));
        self.hosts().routers[n].restart(now, host);
        self.boot(n);
        self.flush();
    }

    /// Lets hosts run that are due.
    pub(super) fn run_hosts(&mut self) {
        let now = self.now;
        let Some(hosts) = &mut self.hosts else { return };
        let ends = [&mut hosts.device, &mut hosts.gateway];
        ends.into_iter().chain(&mut hosts.routers).for_each(|machine| machine.run(now));
    }

    /// A packet has come out of a foreign agent's wire: whether that was for the access router before it, or goes through that.
    pub(super) fn router_takes(&mut self, n: usize, packet: &[u8]) -> bool {
        let now = self.now;
        let Some(hosts) = &mut self.hosts else { return false };
        let own = router_beside(self.configs[n].agent.address);
        if !Ipv4::parse(packet).is_ok_and(|ip| ip.dst() == own) {
            return self.goes_through(n, Towards::Network, packet);
        }
        if let Some((path, datagram)) = outer::datagram(packet) {
            hosts.routers[n].receive(now, outer::arrived(path), datagram);
        }
        true
    }

    /// A foreign agent sends a packet towards its wire: whether that goes through an access router.
    pub(super) fn router_passes(&mut self, n: usize, packet: &[u8]) -> bool {
        self.goes_through(n, Towards::Device, packet)
    }

    fn goes_through(&mut self, n: usize, from: Towards, packet: &[u8]) -> bool {
        let now = self.now;
        let router = self.hosts.as_mut().map(|hosts| &mut hosts.routers[n]);
        let Some(router) = router.filter(|router| router.host().is_some()) else { return false };
        router.with(now, |host| host.handle_packet(now, from, packet.to_vec()));
        true
    }

    /// A packet has come to the correspondent (0) or the mobile host (1), and its host there opens it.
    pub(super) fn open(&mut self, at: usize, packet: &[u8]) {
        let now = self.now;
        let Some(hosts) = &mut self.hosts else { return };
        let Some((path, datagram)) = outer::datagram(packet) else { return };
        hosts.strange += u64::from(is_esp(&path, &datagram) && !hosts.is_sealed(&datagram));
        let end = if at == 0 { &mut hosts.gateway } else { &mut hosts.device };
        end.receive(now, outer::arrived(path), datagram);
    }

    /// Foreign agents tell the routers beside them what has happened. One whose process is dead does not hear it.
    fn tell_routers(&mut self) {
        let now = self.now;
        let Some(hosts) = &mut self.hosts else { return };
        for (n, agent) in self.foreign.iter_mut().enumerate() {
            while let Some(event) = agent.as_mut().and_then(ForeignAgent::poll_event) {
                let router = &mut hosts.routers[n];
                match event.for_router() {
                    Some(RouterNews::Here { home, previous: Some(before) }) => {
                        let before = self.configs.iter().position(|c| c.agent.address == before);
                        if let Some((name, _)) = before.and_then(|before| hosts.setups.get(before)) {
                            let name = Some(name.clone());
                            router.with(now, |host| assert!(host.device_has_come(now, home.into(), name)));
                        }
                    }
                    Some(RouterNews::Here { home, previous: None }) => {
                        router.with(now, |host| assert!(host.device_has_come(now, home.into(), None)));
                    }
                    Some(RouterNews::Gone { home }) => {
                        router.with(now, |host| assert!(host.device_has_gone(now, home.into())));
                    }
                    None => {}
                }
            }
        }
    }

    /// Carries what the hosts want to send; whether there was something.
    pub(super) fn flush_hosts(&mut self) -> bool {
        self.tell_routers();
        let all = self.hosts.as_mut().map(Hosts::take).unwrap_or_default();
        let some = !all.is_empty();
        for (from, packet) in all {
            match from {
                // What cannot be sent, because the host is registered nowhere, is lost.
                Source::Device => {
                    let _unsent = self.host.handle_packet(self.now, Side::Routed, &packet);
                }
                Source::Gateway => self.route(packet),
                Source::Router(n, Towards::Network) => {
                    self.enter_link(Place::Foreign(n), Side::Routed, packet);
                }
                Source::Router(n, Towards::Device) => self.hand(Place::Foreign(n), Side::Routed, &packet),
            }
        }
        some
    }
}
