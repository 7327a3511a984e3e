//! A shipped access router between a wire and a bad radio, a gateway behind it and a device before it: namespaces, and a daemon in each.
//!
//! ```text
//!   gateway 10.78.0.1 ── wire ── 10.78.0.2 access router 10.77.0.1 ── radio ── device 10.77.0.2
//! ```
//!
//! The device fetches from the gateway's host: by TCP as it is, or through a tunnel, whose packets are protected whole or in zones. Owns
//! namespaces, links, configurations and daemons; all of it goes with its owner.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use dormouse_netem::{LinkConfig, LinkStats};
use serde_json::Value;

use crate::daemon::Dormoused;
use crate::host::{Host, Testbed};
use crate::radio::{self, ADDRESSES, INTERFACE, Radio, Transfer, transfer};

/// The gateway's address on the wire.
pub const GATEWAY: &str = "10.78.0.1";
/// The router's.
const ROUTER: &str = "10.78.0.2";
/// What is behind the gateway, for those who come through the tunnel.
pub const SERVER: &str = "10.99.0.2";
/// The router's interface on the wire, and the gateway's.
const WIRE: [&str; 2] = ["net0", "eth0"];
/// Until a session is up, or keys have come. A busy machine takes its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the router does against the radio's losses, in the words of `router.repair`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Repair {
    /// Nothing.
    #[default]
    None,
    /// By the headers of TCP.
    Snoop,
    /// By the numbers of ESP; the device reports them, and the router's key opens no byte of a packet.
    EspArq,
}

impl Repair {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Snoop => "snoop",
            Self::EspArq => "esp-arq",
        }
    }
}

/// What lies between device and gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tunnel {
    /// No tunnel: neither end has a daemon.
    #[default]
    None,
    /// Packets are protected whole.
    Whole,
    /// Packets are protected in zones.
    Zoned {
        /// Whether the gateway names the router as one that may have the header keys.
        trusted: bool,
    },
    /// Of both ends' packets one in so many is protected in zones, the others whole: two CHILD SAs. The router has no keys.
    Shared {
        /// One in so many.
        every: u32,
    },
}

impl Tunnel {
    const fn is_zoned(self) -> bool {
        matches!(self, Self::Zoned { .. })
    }
}

/// What to build.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What lies between device and gateway.
    pub tunnel: Tunnel,
    /// What the router does against losses.
    pub repair: Repair,
    /// `router.rate_kbit` of the router.
    pub rate_kbit: u32,
    /// The wire, the same each way.
    pub wire: LinkConfig,
    /// The radio, the same each way.
    pub radio: LinkConfig,
    /// Of what the radio draws. The wire has draws of its own.
    pub seed: u64,
    /// Lines for the section `daemon` of every daemon.
    pub daemon: String,
}

/// See the module.
#[derive(Debug)]
pub struct Repaired {
    /// The router's daemon.
    pub router: Dormoused,
    /// Those of gateway and device, if there is a tunnel.
    ends: Option<[Dormoused; 2]>,
    /// The hosts: gateway, router, device.
    pub hosts: [Host; 3],
    /// The radio.
    pub radio: Radio,
    wire: Radio,
    // Last: namespaces go after what works in them.
    _bed: Testbed,
}

/// The two ends of a connection know each other by a secret.
fn auth(connection: &str, own: &str, peer: &str) -> String {
    let secret = "secret = \"a repaired radio of the testbed, which everyone may read\"";
    format!(
        "[connection.{connection}.local]\nid = \"{own}.test\"\n{secret}\n[connection.{connection}.remote]\nid = \"{peer}.test\"\n{secret}\n"
    )
}

/// Where the first zone ends: nowhere, if the router has no use for headers.
const fn ends(repair: Repair) -> &'static str {
    match repair {
        Repair::EspArq => "ends = [\"none\"]",
        Repair::None | Repair::Snoop => "ends = [\"transport-header\"]",
    }
}

/// A second CHILD SA beside the whole one, in zones, for one packet in so many. `sides`: what it connects.
fn second(every: u32, sides: &str) -> String {
    format!(
        "protection = \"whole\"\n[connection.office.children.zoned]\nprotection = \"zoned\"\nchoose = {{ every = {every} }}\n{sides}"
    )
}

fn gateway_file(tunnel: Tunnel, repair: Repair) -> String {
    let mut file =
        "[connection.office]\nrole = \"gateway\"\n".to_owned() + &auth("office", "gateway", "device");
    file += "[connection.office.pool]\naddresses = [\"10.55.0.0/24\"]\n[connection.office.child]\nlocal = [\"10.99.0.0/24\"]\n\
             remote = [\"dynamic\"]\n";
    let trusted = match tunnel {
        Tunnel::Zoned { trusted } => trusted,
        Tunnel::Shared { every } => {
            return file + &second(every, "local = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\n");
        }
        Tunnel::None | Tunnel::Whole => return file + "protection = \"whole\"\n",
    };
    file += &format!("protection = \"zoned\"\n[connection.office.child.zones]\n{}\n", ends(repair));
    file += if trusted { "routers = [\"r1.test\"]\n" } else { "routers = []\n" };
    file += "[connection.r1]\nrole = \"gateway\"\n";
    file += &auth("r1", "gateway", "r1");
    file += "[connection.r1.keys]\npeer = \"router\"\n";
    // Where it serves means nothing if it may have no keys.
    file + if trusted { "serves = [\"10.77.0.0/24\"]\n" } else { "" }
}

fn router_file(settings: &Settings) -> String {
    let (repair, rate) = (settings.repair.name(), settings.rate_kbit);
    let mut file = format!(
        "[router]\ndevice = \"{INTERFACE}\"\nnetwork = \"{}\"\nrepair = \"{repair}\"\nrate_kbit = {rate}\n",
        WIRE[0]
    );
    if settings.tunnel.is_zoned() {
        file += &format!(
            "[connection.gw]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\nauto = true\n[connection.gw.keys]\npeer = \"gateway\"\n"
        );
        file += &auth("gw", "r1", "gateway");
    }
    file
}

fn device_file(settings: &Settings) -> String {
    let mut file = format!("[connection.office]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\n");
    file += &auth("office", "device", "gateway");
    file += "[connection.office.child]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\n";
    match settings.tunnel {
        Tunnel::Zoned { .. } => {}
        Tunnel::Shared { every } => return file + &second(every, "remote = [\"10.99.0.0/24\"]\n"),
        Tunnel::None | Tunnel::Whole => return file + "protection = \"whole\"\n",
    }
    let reports = settings.repair == Repair::EspArq;
    file + &format!("protection = \"zoned\"\nzones = {{ {}, reports = {reports} }}\n", ends(settings.repair))
}

impl Repaired {
    /// Builds it. The device's session is up, if there is a tunnel; the router may not have its keys yet.
    ///
    /// # Errors
    /// Without root or what namespaces need, or if a daemon does not begin.
    pub fn start(settings: &Settings) -> Result<Self> {
        let mut bed = Testbed::new()?;
        let hosts = [bed.host("gateway")?, bed.host("router")?, bed.host("device")?];
        let [gateway, router, device] = &hosts;
        let hop = |radio, seed| radio::Settings { radio, seed, ..radio::Settings::default() };
        let wire = Radio::between(
            hop(settings.wire, !settings.seed),
            (gateway, WIRE[1], &[&format!("{GATEWAY}/24")]),
            (router, WIRE[0], &[&format!("{ROUTER}/24")]),
        )?;
        let radio = Radio::start(hop(settings.radio, settings.seed), router, device)?;
        router.sysctl("net.ipv4.ip_forward", "1")?;
        gateway.ip(&format!("route add 10.77.0.0/24 via {ROUTER}"))?;
        gateway.ip(&format!("addr add {SERVER}/32 dev lo"))?;
        device.ip(&format!("route add default via {}", ADDRESSES[0][0]))?;
        let daemon =
            |host, file: &str| Dormoused::start(host, &format!("dns = \"off\"\n{}", settings.daemon), file);
        let tunnel = settings.tunnel != Tunnel::None;
        let far =
            tunnel.then(|| daemon(gateway, &gateway_file(settings.tunnel, settings.repair))).transpose()?;
        let own = daemon(router, &router_file(settings))?;
        let near = tunnel.then(|| daemon(device, &device_file(settings))).transpose()?;
        let ends = far.zip(near).map(|(far, near)| [far, near]);
        let world = Self { router: own, ends, hosts, radio, wire, _bed: bed };
        if tunnel {
            world.up()?;
        }
        if let Tunnel::Shared { .. } = settings.tunnel {
            world.awaited("two CHILD SAs", || Ok(world.sent()?.filter(|sent| sent.children == 2)))?;
        }
        Ok(world)
    }

    /// The gateway's daemon.
    ///
    /// # Errors
    /// Without a tunnel there is none.
    pub fn gateway(&self) -> Result<&Dormoused> {
        self.ends.as_ref().map(|[gateway, _]| gateway).context("there is no tunnel")
    }

    /// The device's.
    ///
    /// # Errors
    /// Without a tunnel there is none.
    pub fn device(&self) -> Result<&Dormoused> {
        self.ends.as_ref().map(|[_, device]| device).context("there is no tunnel")
    }

    /// Brings the device's session up.
    ///
    /// # Errors
    /// If it does not come; the error has the logs.
    pub fn up(&self) -> Result<()> {
        let limit = PATIENCE.as_secs().to_string();
        self.device()?.ok(&["up", "office", "--timeout", &limit]).with_context(|| self.logs())?;
        Ok(())
    }

    /// The logs of gateway and router.
    #[must_use]
    pub fn logs(&self) -> String {
        let gateway = self.ends.as_ref().map(|[gateway, _]| gateway.log()).unwrap_or_default();
        format!("gateway:\n{gateway}\nrouter:\n{}", self.router.log())
    }

    /// The router's own part of its status.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn status(&self) -> Result<Value> {
        let status = self.router.ok(&["status", "--json"])?;
        status.json.pointer("/result/status/router").cloned().context(status.text)
    }

    /// Waits until the router has so many SAs' keys; its status then.
    ///
    /// # Errors
    /// If it has not within a minute; the error has the logs.
    pub fn keys(&self, count: usize) -> Result<Value> {
        let has = |status: &Value| status["keys"].as_array().map(Vec::len) == Some(count);
        self.awaited(&format!("{count} keys"), || Ok(Some(self.status()?).filter(has)))
    }

    /// Asks `look` until it finds something.
    fn awaited<T>(&self, what: &str, look: impl Fn() -> Result<Option<T>>) -> Result<T> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if Instant::now() > until {
                bail!("{what} were awaited: {}\n{}", self.status()?, self.logs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the gateway has sent to the device; nothing before there is a session.
    ///
    /// # Errors
    /// Without a tunnel, or if its daemon does not answer.
    pub fn sent(&self) -> Result<Option<Sent>> {
        let status = self.gateway()?.ok(&["status", "--json"])?;
        let sessions = status.json.pointer("/result/status/gateway/sessions").and_then(Value::as_array);
        let of_device = |session: &&Value| session["connection"] == "office";
        let Some(session) = sessions.into_iter().flatten().find(of_device) else { return Ok(None) };
        let children = session["children"].as_array().context("no CHILD SAs")?;
        let count =
            |child: &Value| child.pointer("/traffic/packets_out").and_then(Value::as_u64).unwrap_or(0);
        let zoned = children.iter().filter(|child| child["zones"].as_u64() > Some(0)).map(count).sum();
        Ok(Some(Sent { children: children.len(), packets: children.iter().map(count).sum(), zoned }))
    }

    /// The device fetches `bytes` bytes from behind the gateway, or from the gateway's own address if there is no tunnel; with what the router did
    /// meanwhile. For the rest see [`transfer`].
    ///
    /// # Errors
    /// As [`transfer`]; the error has the logs.
    pub fn fetch(
        &self,
        congestion: &str,
        bytes: u64,
        limit: Duration,
        stop: &Arc<AtomicBool>,
    ) -> Result<(Transfer, Did)> {
        let before = self.status()?;
        let [gateway, _, device] = &self.hosts;
        let server = if self.ends.is_some() { SERVER } else { GATEWAY }.parse()?;
        let fetched =
            transfer(gateway, device, server, congestion, bytes, limit, stop).with_context(|| self.logs())?;
        let after = self.status()?;
        let grown = |key: &str| Some(after[key].as_u64()?.saturating_sub(before[key].as_u64()?));
        let all = || {
            Some(Did {
                to_device: grown("to_device")?,
                to_network: grown("to_network")?,
                dropped: grown("dropped")?,
                repeated: grown("repeated")?,
                read: grown("read")?,
                asked: grown("asked")?,
                reports: grown("reports")?,
            })
        };
        let did = all().with_context(|| format!("no counters: {after}"))?;
        Ok((fetched, did))
    }

    /// Takes all of it away; what the radio did towards the device, and back.
    ///
    /// # Errors
    /// What went wrong with a link while it worked.
    pub fn stop(self) -> Result<[LinkStats; 2]> {
        let Self { router, ends, hosts: _hosts, radio, wire, _bed } = self;
        drop((ends, router));
        let stats = radio.stop()?.stats();
        wire.stop()?;
        Ok(stats)
    }
}

/// What a gateway has sent to its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// CHILD SAs that there are.
    pub children: usize,
    /// Packets in all of them.
    pub packets: u64,
    /// Packets in those with zones.
    pub zoned: u64,
}

/// What a router did, by its status, in packets unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Did {
    /// Sent to the device, repetitions included.
    pub to_device: u64,
    /// Sent to the network.
    pub to_network: u64,
    /// Dropped because too many waited for the radio.
    pub dropped: u64,
    /// Sent again.
    pub repeated: u64,
    /// Whose header was read with keys of the gateway.
    pub read: u64,
    /// Questions for keys.
    pub asked: u64,
    /// The device's reports.
    pub reports: u64,
}
