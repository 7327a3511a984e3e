//! Two hosts in network namespaces with a veth pair between them, and the tunnels over it: ours, WireGuard's, the kernel's
//! own ESP, or none. Owns the namespaces and the processes in them; dropped, it removes both.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Result, anyhow, bail, ensure};
use dormouse_testbed::wireguard::{self, WireguardGo};
use dormouse_testbed::{Host, Need, Testbed};

use super::forward::{End, INNER, Job, OUTER, Site, TUN};
use super::place::Place;
use crate::needs::missing;
use crate::results::esp::{Encapsulation, Engine, Point};

const VETH: &str = "eth0";

/// The two hosts: the first sends, the second receives.
#[derive(Debug)]
pub(crate) struct Bed {
    /// The hosts.
    pub(crate) hosts: [Host; 2],
    /// Removes the namespaces when it goes.
    _testbed: Testbed,
}

impl Bed {
    /// Makes them.
    ///
    /// # Errors
    /// Without privileges.
    pub(crate) fn new() -> Result<Self> {
        if let Some(what) = missing() {
            bail!("network namespaces need {what}");
        }
        let mut testbed = Testbed::new()?;
        let hosts = [testbed.host("send")?, testbed.host("recv")?];
        for host in &hosts {
            // Router solicitations would be noise.
            host.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        }
        let [a, b] = OUTER.map(|address| format!("{address}/24"));
        testbed.link((&hosts[0], VETH, &[&a]), (&hosts[1], VETH, &[&b]))?;
        Ok(Self { hosts, _testbed: testbed })
    }
}

/// What decides whether two points can share a tunnel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    /// Who protects it.
    pub(crate) engine: Engine,
    /// With what.
    pub(crate) suite: String,
    /// How packets are wrapped.
    pub(crate) encapsulation: Encapsulation,
    /// How many processors its threads may use.
    pub(crate) cores: u32,
    /// Whether AES instructions are hidden from it.
    pub(crate) hidden: bool,
}

impl Key {
    /// That of a point.
    pub(crate) fn of(sample: &Point) -> Self {
        // TLS needs no tunnel: it runs over the bare link.
        let engine = if sample.engine == Engine::Rustls { Engine::Plain } else { sample.engine };
        let suite = if engine == Engine::Plain { "none".to_owned() } else { sample.suite.clone() };
        let hidden = sample.aes_instructions == Some(false);
        Self { engine, suite, encapsulation: sample.encapsulation, cores: sample.cores, hidden }
    }
}

/// A link, with or without a tunnel over it. Dropped, the tunnel goes.
#[derive(Debug)]
pub(crate) struct Link {
    hosts: [Host; 2],
    device: String,
    addresses: [IpAddr; 2],
    mtu: u32,
    full_mtu: u32,
    helpers: Vec<u32>,
    carriers: Carriers,
}

#[derive(Debug)]
enum Carriers {
    None,
    Ours(Vec<End>),
    WireguardGo(Vec<WireguardGo>),
    KernelWireguard,
    Kernel,
}

impl Link {
    /// Sets up what `key` says over the bed. [`super::transfer::verify`] must prove that bytes pass it unchanged before it is measured.
    ///
    /// # Errors
    /// If something that it needs is not here.
    pub(crate) fn start(bed: &Bed, key: &Key) -> Result<Self> {
        let mut link = Self {
            hosts: bed.hosts.clone(),
            device: VETH.to_owned(),
            addresses: OUTER.map(IpAddr::from),
            mtu: 0,
            full_mtu: 1_500,
            helpers: Vec::new(),
            carriers: Carriers::None,
        };
        // A link without a tunnel sets the size of its packets on the wire itself: the next one needs all of it again.
        for host in &link.hosts {
            host.ip(&format!("link set dev {VETH} mtu {}", link.full_mtu))?;
        }
        match key.engine {
            Engine::Plain | Engine::Rustls => {}
            Engine::Dormouse => link.ours(key)?,
            Engine::Wireguard | Engine::WireguardGo => link.wireguard(key.engine)?,
            Engine::Kernel => link.kernel()?,
        }
        link.set_mtu(link.full_mtu)?;
        Ok(link)
    }

    /// The sender, or the receiver.
    pub(crate) fn sender(&self) -> Place {
        Place::Host(self.hosts[0].clone())
    }

    /// See [`Link::sender`].
    pub(crate) fn receiver(&self) -> Place {
        Place::Host(self.hosts[1].clone())
    }

    /// The receiver's address inside the tunnel, if there is one.
    pub(crate) const fn to_receiver(&self) -> IpAddr {
        self.addresses[1]
    }

    /// The sender's.
    pub(crate) const fn to_sender(&self) -> IpAddr {
        self.addresses[0]
    }

    /// Processes beside this one that forward packets.
    pub(crate) fn helpers(&self) -> &[u32] {
        &self.helpers
    }

    /// Makes packets through the link at most `mtu` bytes long.
    ///
    /// # Errors
    /// If it does not fit so much.
    pub(crate) fn set_mtu(&mut self, mtu: u32) -> Result<()> {
        ensure!(mtu <= self.full_mtu, "{mtu} bytes do not fit the link's {} unfragmented", self.full_mtu);
        if self.mtu != mtu {
            for host in &self.hosts {
                host.ip(&format!("link set dev {} mtu {mtu}", self.device))?;
            }
            self.mtu = mtu;
        }
        Ok(())
    }

    /// As much as fits.
    ///
    /// # Errors
    /// If the interface is gone.
    pub(crate) fn whole_mtu(&mut self) -> Result<()> {
        self.set_mtu(self.full_mtu)
    }

    fn ours(&mut self, key: &Key) -> Result<()> {
        ensure!(!key.hidden || key.suite.contains("aes"), "{} has no use for AES instructions", key.suite);
        let mut ends = Vec::new();
        for (end, host) in self.hosts.iter().enumerate() {
            let site = Site::of_host(end);
            let job = Job { suite: key.suite.clone(), encapsulation: key.encapsulation, end, site };
            self.full_mtu = job.settings()?.inner_mtu()?.into();
            let end = End::start(&Place::Host(host.clone()), &job, key.hidden)?;
            self.helpers.push(end.pid());
            ends.push(end);
        }
        self.carriers = Carriers::Ours(ends);
        self.tunnel_addresses(TUN)
    }

    /// The tunnel's interface gets its addresses, and is what packets use from now on.
    fn tunnel_addresses(&mut self, device: &str) -> Result<()> {
        for (i, host) in self.hosts.iter().enumerate() {
            host.ip(&format!("addr add {} peer {} dev {device}", INNER[i], INNER[1 - i]))?;
            host.ip(&format!("link set dev {device} up"))?;
        }
        device.clone_into(&mut self.device);
        self.addresses = INNER.map(IpAddr::from);
        Ok(())
    }

    /// WireGuard, by the kernel or by wireguard-go; both are set up with `wg`.
    fn wireguard(&mut self, engine: Engine) -> Result<()> {
        if let Some(what) = Need::Program("wg").missing() {
            bail!("WireGuard cannot be set up: {what} is missing");
        }
        if engine == Engine::Wireguard {
            self.carriers = Carriers::KernelWireguard;
            for host in &self.hosts {
                host.ip(&format!("link add dev {TUN} type wireguard"))
                    .map_err(|e| anyhow!("the kernel's WireGuard is not present: {}", last_words(&e)))?;
            }
            wireguard::connect([&self.hosts[0], &self.hosts[1]], [TUN; 2], OUTER)?;
        } else {
            self.wireguard_go()?;
        }
        self.tunnel_addresses(TUN)?;
        self.full_mtu = 1_420;
        Ok(())
    }

    fn wireguard_go(&mut self) -> Result<()> {
        if let Some(what) = Need::Program("wireguard-go").missing() {
            bail!("wireguard-go is not present: {what} is missing");
        }
        let names = ["a", "b"].map(|end| format!("dmwg{}{end}", std::process::id()));
        let mut ends = Vec::new();
        for (host, name) in self.hosts.iter().zip(&names) {
            let end = WireguardGo::start(host, Path::new("wireguard-go"), name)?;
            self.helpers.push(end.process().pid());
            ends.push(end);
        }
        self.carriers = Carriers::WireguardGo(ends);
        // Before they are renamed: the control socket keeps the first name.
        wireguard::connect([&self.hosts[0], &self.hosts[1]], [&names[0], &names[1]], OUTER)?;
        for (host, name) in self.hosts.iter().zip(&names) {
            host.ip(&format!("link set dev {name} down"))?;
            host.ip(&format!("link set dev {name} name {TUN}"))?;
        }
        Ok(())
    }

    /// ESP by the kernel (xfrm), tunnel mode, AES-128-GCM.
    fn kernel(&mut self) -> Result<()> {
        self.carriers = Carriers::Kernel;
        let key = |to: usize| format!("0x{}", format!("{:02x}", to + 1).repeat(20));
        for (i, host) in self.hosts.iter().enumerate() {
            for to in [0, 1] {
                let (src, dst) = (OUTER[1 - to], OUTER[to]);
                host.ip(&format!(
                    "xfrm state add src {src} dst {dst} proto esp spi {:#x} reqid 1 mode tunnel replay-window 128 \
                     aead rfc4106(gcm(aes)) {} 128",
                    0x100 * (to + 1),
                    key(to)
                ))
                .map_err(|e| anyhow!("the kernel's own ESP is not present: {}", last_words(&e)))?;
                let direction = if to == i { "in" } else { "out" };
                host.ip(&format!(
                    "xfrm policy add src {} dst {} dir {direction} tmpl src {src} dst {dst} proto esp reqid 1 mode tunnel",
                    INNER[1 - to], INNER[to]
                ))?;
            }
            host.ip(&format!("addr add {}/32 dev lo", INNER[i]))?;
            host.ip(&format!("route add {} dev {VETH} src {} mtu 1438", INNER[1 - i], INNER[i]))?;
        }
        self.addresses = INNER.map(IpAddr::from);
        self.full_mtu = 1_500;
        Ok(())
    }

    fn undo_kernel(&self) {
        for (i, host) in self.hosts.iter().enumerate() {
            for line in [
                "xfrm policy flush".to_owned(),
                "xfrm state flush".to_owned(),
                format!("route del {} dev {VETH}", INNER[1 - i]),
                format!("addr del {}/32 dev lo", INNER[i]),
            ] {
                // What was never made cannot be removed; and the namespaces go in any case.
                let _ = host.ip(&line);
            }
        }
    }
}

/// What a program had to say, without the command that made it say so.
fn last_words(error: &anyhow::Error) -> String {
    let text = error.to_string();
    text.rsplit("\": ").next().unwrap_or(&text).to_owned()
}

impl Drop for Link {
    fn drop(&mut self) {
        match &mut self.carriers {
            Carriers::None => {}
            Carriers::Ours(ends) => ends.clear(),
            Carriers::WireguardGo(ends) => ends.clear(),
            Carriers::KernelWireguard => {
                for host in &self.hosts {
                    // Of two that were to be made, one may never have been.
                    let _ = host.ip(&format!("link del dev {TUN}"));
                }
            }
            Carriers::Kernel => self.undo_kernel(),
        }
    }
}

/// The calling thread, and the threads that it makes, on the first `cores` processors; as before when dropped.
#[derive(Debug)]
pub(crate) struct Pinned(Option<nix::sched::CpuSet>);

impl Pinned {
    /// Pins.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn to(cores: u32) -> Result<Self> {
        use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
        use nix::unistd::Pid;
        let before = sched_getaffinity(Pid::from_raw(0))?;
        let allowed: Vec<usize> =
            (0..CpuSet::count()).filter(|n| before.is_set(*n).unwrap_or(false)).collect();
        let wanted = usize::try_from(cores)?;
        if wanted >= allowed.len() {
            return Ok(Self(None));
        }
        let mut set = CpuSet::new();
        for cpu in allowed.iter().take(wanted) {
            set.set(*cpu)?;
        }
        sched_setaffinity(Pid::from_raw(0), &set)?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // It was allowed before, and nothing else was changed.
            let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), before);
        }
    }
}
