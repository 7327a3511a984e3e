//! systemd-resolved by D-Bus (`org.freedesktop.resolve1`). Keeps no connection: DNS changes are rare.
//!
//! What is set belongs to the link and goes with it, so a crash leaves nothing behind once the tunnel interface is gone.

use super::{Error, Options, Settings};
use crate::dbus;
use std::net::IpAddr;
use std::time::Duration;

const NAME: &str = "org.freedesktop.resolve1";
const PATH: &str = "/org/freedesktop/resolve1";
const MANAGER: &str = "org.freedesktop.resolve1.Manager";
/// The longest that connecting to the bus, or one call, may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why systemd-resolved can be used, or why not. It must run, and programs must ask it: through the C library's `resolve`
/// module or through a resolv.conf that names its stub.
pub(super) fn usable(options: &Options) -> Result<String, String> {
    let bus = dbus::connect(options.bus.as_deref(), PATIENCE).map_err(|error| {
        tracing::debug!(%error, "D-Bus");
        "there is no D-Bus".to_owned()
    })?;
    let runs = dbus::has_owner(&bus, NAME).map_err(|e| format!("D-Bus does not answer ({e})"))?;
    if !runs {
        return Err("systemd-resolved does not run".into());
    }
    let nsswitch = std::fs::read_to_string(&options.nsswitch_conf).unwrap_or_default();
    let hosts = nsswitch.lines().find_map(|l| l.trim().strip_prefix("hosts:")).unwrap_or_default();
    if hosts.split_whitespace().any(|word| word == "resolve") {
        return Ok(format!("it runs, and {} asks it", options.nsswitch_conf.display()));
    }
    let target = std::fs::canonicalize(&options.resolv_conf).unwrap_or_default();
    let content = std::fs::read_to_string(&options.resolv_conf).unwrap_or_default();
    let stub = |l: &str| {
        matches!(l.trim().strip_prefix("nameserver").map(str::trim), Some("127.0.0.53" | "127.0.0.54"))
    };
    if content.lines().any(stub) || target.ends_with("run/systemd/resolve/stub-resolv.conf") {
        return Ok(format!("it runs, and {} leads to it", options.resolv_conf.display()));
    }
    Err(format!(
        "systemd-resolved runs, but neither {} nor {} asks it",
        options.resolv_conf.display(),
        options.nsswitch_conf.display()
    ))
}

pub(super) fn set(bus: Option<&str>, settings: &Settings) -> Result<(), Error> {
    let index = link(settings.index)?;
    // (family, address in network order), as sd-bus wants them.
    let servers: Vec<(i32, Vec<u8>)> = settings
        .servers
        .iter()
        .map(|server| match server {
            IpAddr::V4(a) => (libc_family(4), a.octets().to_vec()),
            IpAddr::V6(a) => (libc_family(6), a.octets().to_vec()),
        })
        .collect();
    // A domain that is "routing only" decides who is asked, without being searched; "." is every name.
    let mut domains: Vec<(&str, bool)> = settings.domains.iter().map(|d| (d.as_str(), false)).collect();
    domains.extend(settings.unsearched.iter().map(|d| (d.as_str(), true)));
    if settings.exclusive {
        domains.push((".", true));
    }
    let bus = open(bus)?;
    zbus::block_on(async {
        bus.call_method(Some(NAME), PATH, Some(MANAGER), "SetLinkDNS", &(index, servers)).await?;
        bus.call_method(Some(NAME), PATH, Some(MANAGER), "SetLinkDomains", &(index, domains)).await?;
        bus.call_method(Some(NAME), PATH, Some(MANAGER), "SetLinkDefaultRoute", &(index, settings.exclusive))
            .await?;
        Ok(())
    })
    .map_err(|e: zbus::Error| Error::Resolved(e.to_string()))
}

pub(super) fn revert(bus: Option<&str>, index: u32) -> Result<(), Error> {
    let index = link(index)?;
    match zbus::block_on(open(bus)?.call_method(Some(NAME), PATH, Some(MANAGER), "RevertLink", &index)) {
        Ok(_) => Ok(()),
        // The link is gone, and all that belonged to it.
        Err(zbus::Error::MethodError(name, ..)) if name.as_str() == "org.freedesktop.resolve1.NoSuchLink" => {
            Ok(())
        }
        Err(e) => Err(Error::Resolved(e.to_string())),
    }
}

fn link(index: u32) -> Result<i32, Error> {
    i32::try_from(index).map_err(|_| Error::Resolved(format!("interface index {index} is out of range")))
}

/// `AF_INET` and `AF_INET6`.
fn libc_family(version: u8) -> i32 {
    let family = if version == 4 {
        nix::sys::socket::AddressFamily::Inet
    } else {
        nix::sys::socket::AddressFamily::Inet6
    };
    family as i32
}

fn open(address: Option<&str>) -> Result<zbus::Connection, Error> {
    dbus::connect(address, PATIENCE).map_err(|e| Error::Resolved(e.to_string()))
}
