//! Which interface is the radio's. Looks at sysfs and routes; changes nothing.

use super::Options;
use crate::netlink::{MAIN, Netlink};
use std::path::Path;

/// The radio's interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: u32,
    /// The 802.11 device behind it, such as `phy0`; `None` for a wire.
    pub(super) phy: Option<String>,
    /// The configuration names it.
    pub(super) named: bool,
}

/// The interface that is named, else the only 802.11 interface, else the one with the default route.
pub(super) fn find(options: &Options) -> Result<Interface, String> {
    let mut netlink = Netlink::new().map_err(|e| e.to_string())?;
    let links = netlink.links().map_err(|e| e.to_string())?;
    let made = |name: &str, index, named| Interface {
        phy: phy_of(&options.sysfs, name),
        name: name.to_owned(),
        index,
        named,
    };
    if let Some(name) = &options.interface {
        let link = links.iter().find(|l| l.name == *name);
        let link = link.ok_or_else(|| format!("there is no interface {name}"))?;
        return Ok(made(name, link.index, true));
    }
    let radios: Vec<Interface> =
        links.iter().map(|l| made(&l.name, l.index, false)).filter(|i| i.phy.is_some()).collect();
    if let [only] = radios.as_slice() {
        return Ok(only.clone());
    }
    let routes = netlink.routes().map_err(|e| e.to_string())?;
    let out = routes.iter().filter(|r| r.table == MAIN && r.destination.prefix_len() == 0);
    let index = out.filter(|r| r.index.is_some()).min_by_key(|r| r.metric).and_then(|r| r.index);
    let names: Vec<&str> = radios.iter().map(|r| r.name.as_str()).collect();
    match index.and_then(|index| links.iter().find(|l| l.index == index)) {
        Some(link) if radios.is_empty() || names.contains(&link.name.as_str()) => {
            Ok(made(&link.name, link.index, false))
        }
        _ if radios.is_empty() => Err("there is no radio, and no default route".into()),
        _ => Err(format!(
            "there are several radios, and none has the default route: name one of {}",
            names.join(", ")
        )),
    }
}

/// The 802.11 device behind an interface.
pub(super) fn phy_of(sysfs: &Path, interface: &str) -> Option<String> {
    let device = std::fs::canonicalize(sysfs.join("class/net").join(interface).join("phy80211")).ok()?;
    Some(device.file_name()?.to_string_lossy().into_owned())
}
