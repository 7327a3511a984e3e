//! The shipped daemons beside the programs of Mobile IP: a gateway at the correspondent, an access router at each foreign agent, and the device's, whose
//! session has its home address outside, so that it stays as it is wherever the device goes. Owns their configurations and the daemons.
//!
//! The correspondent is its own gateway: behind it is its own address alone, so that packets are protected from end to end, and the home agent
//! forwards what it cannot read. A foreign agent's router stands between the agent's own interface and the network: it sees packets in the tunnel
//! from the home agent. Where there is no agent, because the device has addresses of its own, it stands between the radio and the network.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{CORRESPONDENT, CareOf, MobileIp, Radio};
use crate::daemon::Dormoused;

/// The identities of the access routers.
pub const ROUTERS: [&str; 2] = ["fa1.test", "fa2.test"];
/// The device's connection to the correspondent.
pub const CONNECTION: &str = "office";
const PATIENCE: Duration = Duration::from_secs(30);

/// What protects the device's packets, and how header keys come to the access router where the device goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Protection {
    /// Nothing: Mobile IP alone, and no daemons.
    None,
    /// IPsec. Routers read nothing.
    Whole,
    /// IPsec in zones; the correspondent gives keys to the routers around the device before it comes (Proactive Key Distribution).
    Ahead,
    /// IPsec in zones; keys come from the router where the device was before (Directed Key Migration).
    Migrate,
}

impl Protection {
    /// Whether routers get keys.
    #[must_use]
    pub const fn has_keys(self) -> bool {
        matches!(self, Self::Ahead | Self::Migrate)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Daemons {
    /// The device's.
    pub device: Dormoused,
    /// Those of the foreign agents' hosts.
    pub routers: [Dormoused; 2],
    /// The correspondent's.
    pub gateway: Dormoused,
}

/// The two ends of a connection know each other by a secret.
fn auth(connection: &str, own: &str, peer: &str) -> String {
    let secret = "secret = \"mobile hosts of the testbed, which everyone may read\"";
    format!(
        "[connection.{connection}.local]\nid = \"{own}\"\n{secret}\n[connection.{connection}.remote]\nid = \"{peer}\"\n{secret}\n"
    )
}

fn gateway_file(protection: Protection) -> String {
    let zoned = if protection.has_keys() { "zoned" } else { "whole" };
    let mut file = format!(
        "[connection.{CONNECTION}]\nrole = \"gateway\"\n[connection.{CONNECTION}.pool]\naddresses = [\"10.55.0.0/24\"]\n\
         [connection.{CONNECTION}.child]\nlocal = [\"{CORRESPONDENT}/32\"]\nremote = [\"dynamic\"]\nprotection = \"{zoned}\"\n"
    );
    if protection.has_keys() {
        file +=
            &format!("zones = {{ routers = {ROUTERS:?}, ahead = {} }}\n", protection == Protection::Ahead);
    }
    file += &auth(CONNECTION, "gateway.test", "device.test");
    for (n, (own, other)) in [(1, (ROUTERS[0], ROUTERS[1])), (2, (ROUTERS[1], ROUTERS[0]))] {
        file +=
            &format!("[connection.fa{n}]\nrole = \"gateway\"\n[connection.fa{n}.keys]\npeer = \"router\"\n");
        if protection == Protection::Ahead {
            file += &format!("neighbours = [\"{other}\"]\n");
        }
        file += &auth(&format!("fa{n}"), "gateway.test", own);
    }
    file
}

/// `n`: 0 or 1; `device`: its interface towards devices. Between the two routers one calls, when there is something to ask for the first time.
fn router_file(device: &str, radio: Option<Radio>, protection: Protection, n: usize) -> String {
    let own = ROUTERS[n];
    // What waits must wait before the radio, where what is repeated overtakes it.
    let rate = radio.and_then(|radio| radio.rate).unwrap_or(0) / 1_000;
    let mut file = format!(
        "[router]\ndevice = \"{device}\"\nnetwork = \"eth0\"\nrate_kbit = {rate}\n\
         [connection.gw]\nrole = \"client\"\ngateway = \"{CORRESPONDENT}\"\nauto = true\n[connection.gw.keys]\npeer = \"gateway\"\n"
    );
    file += &auth("gw", own, "gateway.test");
    if protection == Protection::Migrate {
        let role = if n == 0 { "role = \"gateway\"" } else { "role = \"client\"\ngateway = \"10.60.1.2\"" };
        file += &format!("[connection.next]\n{role}\n[connection.next.keys]\npeer = \"router\"\n");
        file += &auth("next", own, ROUTERS[1 - n]);
    }
    file
}

fn device_file(protection: Protection) -> String {
    let zoned = if protection.has_keys() { "zoned" } else { "whole" };
    format!("[connection.{CONNECTION}]\nrole = \"client\"\ngateway = \"{CORRESPONDENT}\"\n")
        + &auth(CONNECTION, "device.test", "gateway.test")
        + &format!(
            "[connection.{CONNECTION}.child]\nremote = [\"{CORRESPONDENT}/32\"]\nrequest_address = \"ipv4\"\nprotection = \"{zoned}\"\n"
        )
}

/// The group of the user that the agents become: it may talk to the routers' daemons.
fn group() -> Result<String> {
    let user = nix::unistd::User::from_name("nobody")?.context("there is no user nobody")?;
    let group = nix::unistd::Group::from_gid(user.gid)?.context("nobody has no group")?;
    Ok(group.name)
}

impl Daemons {
    /// Starts them; the programs run.
    pub(super) fn start(world: &MobileIp, radio: Option<Radio>, protection: Protection) -> Result<Self> {
        let daemon = "dns = \"off\"";
        let gateway = Dormoused::start(&world.correspondent, daemon, &gateway_file(protection))?;
        let of_router = format!("{daemon}\ngroup = {:?}", group()?);
        let [one, two] = &world.foreign;
        // Without an agent between the two, the router has the radio itself.
        let towards = if world.care_of == CareOf::CoLocated { "radio" } else { "mip0" };
        let routers = [
            Dormoused::start(one, &of_router, &router_file(towards, radio, protection, 0))?,
            Dormoused::start(two, &of_router, &router_file(towards, radio, protection, 1))?,
        ];
        for router in &routers {
            router.ok(&["wait", "gw", "--timeout", "30"])?;
        }
        let device = Dormoused::start(&world.device, daemon, &device_file(protection))?;
        Ok(Self { device, routers, gateway })
    }

    /// The part of a router's status that is the router's own.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn router(&self, at: usize) -> Result<Value> {
        let status = self.routers[at.min(1)].ok(&["status", "--json"])?;
        status.json.pointer("/result/status/router").cloned().context(status.text)
    }

    /// The same, where routers get keys at all.
    ///
    /// # Errors
    /// As [`Self::has_keys`].
    pub fn has_keys_if(&self, protection: Protection, at: usize, some: bool) -> Result<()> {
        if protection.has_keys() { self.has_keys(at, some) } else { Ok(()) }
    }

    /// Waits until a router has keys of some SA, or of none.
    ///
    /// # Errors
    /// If it has not within half a minute; the error has the logs.
    pub fn has_keys(&self, at: usize, some: bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            let router = self.router(at)?;
            if router["keys"].as_array().is_some_and(|keys| keys.is_empty() != some) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                let logs = [&self.gateway, &self.routers[0], &self.routers[1]].map(Dormoused::log).join("\n");
                bail!(
                    "fa{}: keys {}were awaited: {router}\n{logs}",
                    at + 1,
                    if some { "" } else { "of none " }
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
