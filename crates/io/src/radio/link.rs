//! The radio as a link: its interface is taken down and up (rtnetlink). For wired test hosts, and for radios without a switch:
//! an 802.11 device whose last interface is down has no power.
//!
//! Taking a link down makes the kernel forget its routes and IPv6 addresses. Where a network manager has the interface they
//! come back by themselves; elsewhere [`Link::on`] puts the routes back, and the kernel is asked to keep the addresses.

use super::interface::Interface;
use super::{Attempt, Options, Power, RadioError, RadioState, Switch};
use crate::netlink::{Netlink, Route, RouteKind};
use nix::errno::Errno;
use std::path::PathBuf;

pub(super) const NAME: &str = "link";

/// Routing protocols whose routes come back by themselves: those of the kernel (2), and of router advertisements (9).
const BY_THEMSELVES: [u8; 2] = [2, 9];

#[derive(Debug)]
pub(super) struct Link {
    interface: String,
    index: u32,
    kept: Option<Kept>,
}

/// What is to be undone.
#[derive(Debug, Default)]
struct Kept {
    routes: Vec<Route>,
    /// `keep_addr_on_down` of the interface as it was, if it was changed.
    addresses: Option<String>,
}

pub(super) fn find(_: &Options, interface: &Interface) -> Attempt {
    let name = &interface.name;
    let why = match (interface.named, &interface.phy) {
        (true, None) => format!("{name} is named, and is no radio"),
        (true, Some(_)) => format!("{name} is named"),
        (false, Some(phy)) => format!("{name} is the interface of {phy}"),
        (false, None) => return Err(format!("{name} is no radio; it is used only where it is named")),
    };
    Ok((Box::new(Link { interface: name.clone(), index: interface.index, kept: None }), why))
}

impl Link {
    fn netlink(&self) -> Result<Netlink, RadioError> {
        Netlink::new().map_err(|e| RadioError::step(NAME, &self.interface, e))
    }

    fn fail(&self, e: impl std::fmt::Display) -> RadioError {
        RadioError::step(NAME, &self.interface, e)
    }

    fn sysctl(&self) -> PathBuf {
        ["/proc/sys/net/ipv6/conf", &self.interface, "keep_addr_on_down"].iter().collect()
    }

    /// Asks the kernel to keep IPv6 addresses; returns what the setting was if it was another. A machine without IPv6 has none.
    fn keep_addresses(&self) -> Option<String> {
        let path = self.sysctl();
        let before = std::fs::read_to_string(&path).ok()?.trim().to_owned();
        if before == "1" {
            return None;
        }
        std::fs::write(&path, "1").ok().map(|()| before)
    }

    fn restore(&self, netlink: &mut Netlink, kept: &Kept) -> Result<(), RadioError> {
        netlink.set_up(self.index, true).map_err(|e| self.fail(e))?;
        for route in &kept.routes {
            match netlink.put_back_route(route) {
                Ok(()) => {}
                Err(e) if e.errno() == Some(Errno::EEXIST) => {}
                // The network may be another one now: a route that does not fit it is not worth a failure.
                Err(e) => tracing::warn!(%e, "a route does not come back"),
            }
        }
        if let Some(value) = &kept.addresses
            && let Err(e) = std::fs::write(self.sysctl(), value)
        {
            tracing::warn!(%e, "{}", self.sysctl().display());
        }
        Ok(())
    }
}

impl Switch for Link {
    fn name(&self) -> &'static str {
        NAME
    }

    fn off(&mut self) -> Result<(), RadioError> {
        let mut netlink = self.netlink()?;
        let link = netlink.link(&self.interface).map_err(|e| self.fail(e))?;
        self.index = link.index;
        if !link.up {
            return Ok(());
        }
        let routes = netlink.routes().map_err(|e| self.fail(e))?;
        let lost = |r: &Route| {
            r.index == Some(self.index)
                && r.kind == RouteKind::Unicast
                && !BY_THEMSELVES.contains(&r.protocol)
        };
        let mut routes: Vec<Route> = routes.into_iter().filter(lost).collect();
        // A route by a next hop needs the one that reaches the next hop.
        routes.sort_by_key(|r| r.gateway.is_some());
        let kept = Kept { routes, addresses: self.keep_addresses() };
        if let Err(e) = netlink.set_up(self.index, false) {
            let _ = self.restore(&mut netlink, &kept);
            return Err(self.fail(e));
        }
        self.kept = Some(kept);
        Ok(())
    }

    fn on(&mut self) -> Result<(), RadioError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let mut netlink = self.netlink()?;
        // By name: a card that was pulled and put back has another index.
        let index = netlink.link(&self.interface).map_err(|e| self.fail(e))?.index;
        let kept = Kept {
            routes: kept.routes.iter().map(|r| Route { index: Some(index), ..*r }).collect(),
            addresses: kept.addresses.clone(),
        };
        self.index = index;
        self.restore(&mut netlink, &kept)?;
        self.kept = None;
        Ok(())
    }

    fn state(&mut self) -> Result<RadioState, RadioError> {
        let link = self.netlink()?.link(&self.interface).map_err(|e| self.fail(e))?;
        let power = match (link.up, self.holds()) {
            (true, _) => Power::On,
            (false, true) => Power::Off,
            (false, false) => Power::Blocked,
        };
        Ok(RadioState { power, attached: Some(link.up && link.carrier), network: None })
    }

    fn holds(&self) -> bool {
        self.kept.is_some()
    }

    fn adopt(&mut self, _: Option<String>) {
        self.kept.get_or_insert_default();
    }
}
