//! Two access routers of one gateway, and a device that moves between them; all are shipped daemons, in namespaces.
//!
//! ```text
//!                           ┌── 10.81.1.1 r1 ── 10.82.1.1 ──┐
//!   gateway, 10.99.0.2 ─────┤                               device 10.82.1.2 or 10.82.2.2
//!                           └── 10.81.2.1 r2 ── 10.82.2.1 ──┘
//! ```
//!
//! The device has an address of its own in either place and keeps its session by MOBIKE. Owns namespaces, routes, configurations and daemons;
//! all of it goes with its owner.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::daemon::Dormoused;
use crate::host::{Host, Testbed};

/// What the device talks to, at its gateway.
pub const SERVER: &str = "10.99.0.2";
/// The identities of the routers.
pub const ROUTERS: [&str; 2] = ["r1.test", "r2.test"];
/// The device's.
pub const DEVICE: &str = "device.test";
/// What the gateway's address is, by way of either router.
const GATEWAY: &str = "10.80.0.1";
const PATIENCE: Duration = Duration::from_secs(30);

/// How header keys come to the router where the device goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Packets are protected whole: there are none.
    Whole,
    /// Before it comes, from the gateway, which knows by addresses where devices are, and which routers are neighbours (Proactive Key Distribution).
    Ahead,
    /// From the router where it was before (Directed Key Migration). The gateway does not know by addresses where devices are.
    Migrate,
    /// From the gateway, only when its operator says where the device is (`dormouse keys at`).
    Told,
}

/// See the module.
#[derive(Debug)]
pub struct Routers {
    /// The device's daemon.
    pub device: Dormoused,
    /// The routers'.
    pub routers: [Dormoused; 2],
    /// The gateway's.
    pub gateway: Dormoused,
    /// Where the gateway and the server are.
    pub fixed: Host,
    /// Where the device is.
    pub mobile: Host,
    // Last: namespaces go after what works in them.
    _bed: Testbed,
}

/// The two ends of a connection know each other by a secret.
fn auth(connection: &str, own: &str, peer: &str) -> String {
    let secret = "secret = \"routers of the testbed, which everyone may read\"";
    format!(
        "[connection.{connection}.local]\nid = \"{own}\"\n{secret}\n[connection.{connection}.remote]\nid = \"{peer}\"\n{secret}\n"
    )
}

fn gateway_file(mode: Mode) -> String {
    let (protection, ahead) = (if mode == Mode::Whole { "whole" } else { "zoned" }, mode == Mode::Ahead);
    let mut file =
        "[connection.office]\nrole = \"gateway\"\n".to_owned() + &auth("office", "gateway.test", DEVICE);
    file += "[connection.office.pool]\naddresses = [\"10.55.0.0/24\"]\n";
    file += &format!(
        "[connection.office.child]\nlocal = [\"10.99.0.0/24\"]\nremote = [\"dynamic\"]\nprotection = \"{protection}\"\n"
    );
    if mode != Mode::Whole {
        file += &format!("zones = {{ routers = {ROUTERS:?}, ahead = {ahead} }}\n");
    }
    for (n, (own, other)) in [(1, (ROUTERS[0], ROUTERS[1])), (2, (ROUTERS[1], ROUTERS[0]))] {
        file +=
            &format!("[connection.r{n}]\nrole = \"gateway\"\n[connection.r{n}.keys]\npeer = \"router\"\n");
        if mode == Mode::Ahead {
            file += &format!("serves = [\"10.82.{n}.0/24\"]\nneighbours = [\"{other}\"]\n");
        }
        file += &auth(&format!("r{n}"), "gateway.test", own);
    }
    file
}

/// `n`: 1 or 2.
fn router_file(mode: Mode, n: usize) -> String {
    let own = ROUTERS[n - 1];
    let mut file = "[router]\ndevice = \"radio0\"\nnetwork = \"net0\"\n".to_owned();
    file += &format!(
        "[connection.gw]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\nauto = true\n[connection.gw.keys]\npeer = \"gateway\"\n"
    );
    file += &auth("gw", own, "gateway.test");
    if mode == Mode::Migrate {
        let role = if n == 1 {
            "role = \"gateway\""
        } else {
            "role = \"client\"\ngateway = \"10.81.1.1\"\nauto = true"
        };
        file += &format!("[connection.next]\n{role}\n[connection.next.keys]\npeer = \"router\"\n");
        file += &auth("next", own, ROUTERS[2 - n]);
    }
    file
}

fn device_file(mode: Mode) -> String {
    let protection = if mode == Mode::Whole { "whole" } else { "zoned" };
    format!("[connection.office]\nrole = \"client\"\ngateway = \"{GATEWAY}\"\n")
        + &auth("office", DEVICE, "gateway.test")
        + &format!(
            "[connection.office.child]\nremote = [\"10.99.0.0/24\"]\nrequest_address = \"ipv4\"\nprotection = \"{protection}\"\n"
        )
}

impl Routers {
    /// Builds it, with the device nowhere and its connection not wanted.
    ///
    /// # Errors
    /// Without root or what namespaces need, or if a daemon does not begin.
    pub fn start(mode: Mode) -> Result<Self> {
        let mut bed = Testbed::new()?;
        let (fixed, mobile) = (bed.host("gateway")?, bed.host("device")?);
        let hosts = [bed.host("r1")?, bed.host("r2")?];
        fixed.ip(&format!("addr add {GATEWAY}/32 dev lo"))?;
        fixed.ip(&format!("addr add {SERVER}/32 dev lo"))?;
        fixed.sysctl("net.ipv4.ip_forward", "1")?;
        for (n, router) in (1..).zip(&hosts) {
            let (near, far) = (format!("10.81.{n}.254/24"), format!("10.81.{n}.1/24"));
            bed.link((&fixed, &format!("r{n}"), &[&near]), (router, "net0", &[&far]))?;
            bed.link((router, "radio0", &[&format!("10.82.{n}.1/24")]), (&mobile, &place(n), &[]))?;
            router.ip(&format!("route add default via 10.81.{n}.254"))?;
            router.sysctl("net.ipv4.ip_forward", "1")?;
            fixed.ip(&format!("route add 10.82.{n}.0/24 via 10.81.{n}.1"))?;
            mobile.ip(&format!("link set dev {} down", place(n)))?;
        }
        let daemon = "dns = \"off\"";
        let gateway = Dormoused::start(&fixed, daemon, &gateway_file(mode))?;
        let [one, two] = &hosts;
        let routers = [
            Dormoused::start(one, daemon, &router_file(mode, 1))?,
            Dormoused::start(two, daemon, &router_file(mode, 2))?,
        ];
        for router in &routers {
            router.ok(&["wait", "gw", "--timeout", "30"])?;
        }
        if mode == Mode::Migrate {
            routers[1].ok(&["wait", "next", "--timeout", "30"])?;
        }
        let device = Dormoused::start(&mobile, daemon, &device_file(mode))?;
        Ok(Self { device, routers, gateway, fixed, mobile, _bed: bed })
    }

    /// Takes the device to a router, 0 or 1, or nowhere.
    ///
    /// # Errors
    /// If `ip` refuses.
    pub fn go(&self, to: Option<usize>) -> Result<()> {
        let mut lines = String::new();
        for n in [1, 2].into_iter().filter(|n| to.map(|to| to + 1) != Some(*n)) {
            lines += &format!("link set dev {} down\naddr flush dev {}\n", place(n), place(n));
        }
        if let Some(n) = to.map(|to| to + 1) {
            lines += &format!(
                "addr replace 10.82.{n}.2/24 dev {0}\nlink set dev {0} up\nroute replace default via 10.82.{n}.1 dev {0}\n",
                place(n)
            );
        }
        let file = self.mobile.dir().join("move.ip");
        std::fs::write(&file, lines)?;
        self.mobile.ip(&format!("-batch {}", file.display()))
    }

    /// The part of a router's status that is the router's own.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn router(&self, at: usize) -> Result<Value> {
        let status = self.routers[at.min(1)].ok(&["status", "--json"])?;
        status.json.pointer("/result/status/router").cloned().context(status.text)
    }

    /// How many SAs' keys a router has.
    ///
    /// # Errors
    /// As [`Self::router`].
    pub fn keys(&self, at: usize) -> Result<usize> {
        Ok(self.router(at)?["keys"].as_array().map_or(0, Vec::len))
    }

    /// Waits until a router has keys of some SA, or of none.
    ///
    /// # Errors
    /// If it has not within half a minute; the error has the logs.
    pub fn has_keys(&self, at: usize, some: bool) -> Result<()> {
        let begin = std::time::Instant::now();
        while (self.keys(at)? > 0) != some {
            if begin.elapsed() > PATIENCE {
                let logs = [&self.gateway, &self.routers[0], &self.routers[1]].map(Dormoused::log).join("\n");
                bail!(
                    "r{}: keys {}were awaited: {}\n{logs}",
                    at + 1,
                    if some { "" } else { "of none " },
                    self.router(at)?
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// The device's interface to the router of this number.
fn place(n: usize) -> String {
    format!("to-r{n}")
}
