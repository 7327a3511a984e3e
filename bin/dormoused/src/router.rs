//! The access router's wires: packets between the interface towards devices and the one towards the network are led into two TUN
//! interfaces, one for each way, and what the host makes of them goes back the same way, for the kernel to forward. Owns these interfaces;
//! routes and rules that lead to them are [`Machine`]'s. It decides nothing.
//!
//! The kernel does what a router does besides (neighbours, hop limits, errors), and goes on alone when the daemon ends: a rule whose table is
//! empty leads nowhere.

use crate::daemon::Daemon;
use crate::machine::Machine;
use anyhow::Context;
use dormouse_control::{Error, ErrorKind, HeaderKeys, RepairedFlow, Reply, RouterStatus};
use dormouse_crypto::cert::Identity;
use dormouse_esp::Keys;
use dormouse_io::netlink::InterfaceName;
use dormouse_io::probe;
use dormouse_io::tun::{Tun, TunOptions};
use dormouse_keying::SaId;
use dormouse_node::SessionInfo;
use dormouse_node::config::file::Router;
use dormouse_node::host::{Ends, Followed, Name, Side};
use dormouse_sansio::Instant;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::path::Path;

/// What comes from devices, and what comes from the network.
const INTERFACES: [&str; 2] = ["dormouse-dev", "dormouse-net"];
/// What the real interfaces carry is for the kernel to say: nothing is too big for these.
const MTU: u16 = u16::MAX;
/// Packets taken from one before others have a turn.
const BUDGET: usize = 64;
const SYSCTL: &str = "/proc/sys";

/// See the module.
#[derive(Debug)]
pub(crate) struct Transit {
    settings: Router,
    /// In the order of [`INTERFACES`].
    pub(crate) tuns: [Tun; 2],
    buffer: Vec<u8>,
}

/// The side that this TUN has packets from.
const fn side(index: usize) -> Side {
    if index == 0 { Side::Device } else { Side::Network }
}

impl Transit {
    /// Makes the interfaces and leads packets into them. As root, before privileges are given away.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new(settings: &Router, machine: &mut Machine) -> anyhow::Result<Self> {
        let open = |name: &str| {
            let options =
                TunOptions { name: Some(name.into()), mtu: MTU, offload: false, ..TunOptions::default() };
            Tun::open(&options).context("router")
        };
        let [first, second] = INTERFACES;
        let tuns = [open(first)?, open(second)?];
        for (from, (tun, side)) in [&settings.device, &settings.network].into_iter().zip(tuns.iter().zip(0..))
        {
            loosen(tun.name());
            let name = InterfaceName::new(from).context("router: a name too long for an interface")?;
            machine.lead_transit(name, side, tun.index()?).with_context(|| format!("router: {from}"))?;
        }
        forwards(settings);
        tracing::info!(
            device = settings.device,
            network = settings.network,
            repair = settings.repair.name(),
            "an access router"
        );
        Ok(Self { settings: settings.clone(), tuns, buffer: vec![0; usize::from(u16::MAX)] })
    }

    /// A packet goes on to a side: back by the interface that it came by.
    pub(crate) fn send(&self, to: Side, packet: &[u8]) {
        let [from_device, from_network] = &self.tuns;
        let tun = if to == Side::Network { from_device } else { from_network };
        // Lost if the interface is off, as on any network.
        let _lost = tun.write(&[IoSlice::new(packet)]);
    }
}

/// The reverse path of what comes from these interfaces leads elsewhere: strict filtering would drop it.
fn loosen(interface: &str) {
    let strict = probe::reverse_path(Path::new(SYSCTL))
        .is_ok_and(|found| found.strict.iter().any(|name| name == interface));
    let path = format!("{SYSCTL}/net/ipv4/conf/{interface}/rp_filter");
    if strict && let Err(error) = std::fs::write(path, "2") {
        tracing::warn!(
            %error,
            "reverse-path filtering drops packets in transit: set net.ipv4.conf.{interface}.rp_filter = 2, or net.ipv4.conf.all.rp_filter = 2"
        );
    }
}

fn identity(text: &str) -> Result<Identity, Error> {
    text.parse().map_err(|e| Error::new(ErrorKind::Request, format!("'{text}' is no identity: {e}")))
}

fn no_router() -> Error {
    Error::new(ErrorKind::Request, "this machine is no access router").with_change("router.device")
}

/// Says it if the kernel does not forward.
fn forwards(settings: &Router) {
    for name in [&settings.device, &settings.network].into_iter().chain(&INTERFACES.map(str::to_owned)) {
        let path = format!("{SYSCTL}/net/ipv4/conf/{name}/forwarding");
        if probe::number(Path::new(&path)).is_ok_and(|on| on == 0) {
            tracing::warn!(interface = %name, "the kernel does not forward IPv4 from this interface: set net.ipv4.ip_forward = 1");
        }
    }
}

impl Daemon {
    /// Takes what waits in one of the router's interfaces.
    ///
    /// # Errors
    /// If it is gone.
    pub(crate) fn receive_transit(&mut self, now: Instant, index: usize) -> anyhow::Result<()> {
        let Some(transit) = &mut self.transit else { return Ok(()) };
        let Some(tun) = transit.tuns.get(index) else { return Ok(()) };
        for _ in 0..BUDGET {
            match tun.read(&mut transit.buffer) {
                Ok(len) => {
                    let packet = transit.buffer.get(..len).unwrap_or_default().to_vec();
                    self.host.handle_packet(now, side(index), packet);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // It was switched off: what it carried is lost, the daemon goes on.
                Err(e) if e.raw_os_error() == Some(crate::turns::EIO) => break,
                Err(e) => return Err(e).with_context(|| format!("reading from {}", tun.name())),
            }
        }
        Ok(())
    }

    /// Gateway: a device is behind this router now.
    ///
    /// # Errors
    /// If there is no such device, or the router may not have its keys.
    pub(crate) fn device_is_at(&mut self, now: Instant, peer: &str, router: &str) -> Result<Reply, Error> {
        let identity = identity(router)?;
        let sessions = self.host.node().gateway_sessions(now);
        let address: Option<IpAddr> = peer.parse().ok();
        let means = |s: &&SessionInfo| s.peer == peer || address.is_some_and(|a| s.addresses.contains(&a));
        let found: Vec<SaId> = sessions.iter().filter(means).filter_map(|s| s.owner.ike()).collect();
        if found.is_empty() {
            return Err(Error::new(ErrorKind::NotConnected, format!("no session of '{peer}'")));
        }
        let mut permitted = false;
        for sa in found {
            permitted |= self.host.node_mut().device_is_at(now, sa, &identity);
        }
        let refused = || format!("'{router}' is none of the routers that may have header keys of '{peer}'");
        let error = || {
            Error::new(ErrorKind::NotConnected, refused()).with_change("connection.NAME.child.zones.routers")
        };
        permitted.then_some(Reply::Done).ok_or_else(error)
    }

    /// Access router: a registration says that a device has come here.
    ///
    /// # Errors
    /// If this machine is no access router, or the router before has no name.
    pub(crate) fn device_has_come(
        &mut self,
        now: Instant,
        device: IpAddr,
        previous: Option<&str>,
    ) -> Result<Reply, Error> {
        let previous = previous.map(identity).transpose()?;
        self.host.device_has_come(now, device, previous).then_some(Reply::Done).ok_or_else(no_router)
    }

    /// Access router: it says that a device has left.
    ///
    /// # Errors
    /// If this machine is no access router.
    pub(crate) fn device_has_gone(&mut self, now: Instant, device: IpAddr) -> Result<Reply, Error> {
        self.host.device_has_gone(now, device).then_some(Reply::Done).ok_or_else(no_router)
    }

    /// For `status`.
    pub(crate) fn router_status(&self, now: Instant) -> Option<RouterStatus> {
        let (transit, info) = (self.transit.as_ref()?, self.host.router_info()?);
        let state = |keys| match keys {
            Keys::Fit => "fit",
            Keys::Stale => "stale",
            Keys::Exhausted => "used-up",
        };
        let keys = info
            .keys
            .iter()
            .map(|(id, keys)| HeaderKeys { spi: Name(*id).to_string(), state: state(*keys).into() });
        Some(RouterStatus {
            device: transit.settings.device.clone(),
            network: transit.settings.network.clone(),
            repair: transit.settings.repair.name().into(),
            to_device: info.counters.to_device,
            to_network: info.counters.to_network,
            dropped: info.counters.dropped,
            waiting: info.waiting,
            kept: info.snoop.kept,
            repeated: info.snoop.repeated,
            suppressed: info.snoop.suppressed,
            reports: info.reports,
            connections: info.held.0,
            held_bytes: info.held.2,
            flows: info.flows.iter().map(|of| flow(of, now)).collect(),
            read: info.zones.opened,
            closed: info.zones.closed,
            asked: info.counters.asked,
            keys: keys.collect(),
        })
    }
}

/// A flow as `status` reports it.
fn flow(of: &Followed, now: Instant) -> RepairedFlow {
    let who = match of.ends {
        Ends::Tcp { fixed, device, esp } => RepairedFlow {
            device: device.to_string(),
            fixed: Some(fixed.to_string()),
            esp: esp.map(|(gateway, device)| [gateway.to_string(), device.to_string()]),
            ..RepairedFlow::default()
        },
        Ends::Esp { spi, device } => RepairedFlow {
            device: device.to_string(),
            spi: Some(format!("{spi:08x}")),
            ..RepairedFlow::default()
        },
    };
    RepairedFlow {
        held: of.held,
        kept: of.done.kept,
        repeated: of.done.repeated,
        suppressed: of.done.suppressed,
        round_trip_seconds: of.round_trip.map(|time| time.as_secs_f64()),
        quiet_seconds: (now - of.heard).as_secs_f64(),
        ..who
    }
}
