//! What the daemon changes on the machine: addresses and routes of the tunnel interface, policy rules, DNS, and what it answers
//! for in local networks. Owns undoing all of it, also what an earlier run left behind.

use crate::forward::Forward;
use crate::neighbours::Neighbours;
use anyhow::{Context, Result};
use dormouse_ike::config_payload::AssignedConfig;
use dormouse_io::netlink::{
    Found, InterfaceName, Ledger, Link, MAIN, MARK, Monitor, Netlink, Route, TABLE, local_rule,
    own_side_rule, transit_rule, tunnel_rules,
};
use dormouse_io::resolver::{Guard, GuardReply, Settings};
use dormouse_io::tun::Tun;
use dormouse_node::config::block::whole;
use dormouse_node::config::file::{DnsMode, Proxy, Routes};
use dormouse_node::host::REVERSE;
use dormouse_sansio::{Carrier, Path};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

#[cfg(feature = "hip")]
mod hip;

/// MTU of a link that says nothing about itself.
const ETHERNET: u16 = 1500;

/// What a client connection has installed.
#[derive(Debug)]
struct Configured {
    assigned: AssignedConfig,
    /// Addresses besides.
    more: Vec<IpAddr>,
    routes: Vec<Route>,
    /// Routes besides, which may change while it lasts.
    led: Vec<Route>,
}

/// The tunnel's share of the machine.
#[derive(Debug)]
pub(crate) struct Machine {
    ledger: Ledger,
    /// What others change. Registered with the poller by the loop.
    pub(crate) monitor: Monitor,
    /// DNS is set by a helper process, which keeps the privileges that the daemon gives up.
    pub(crate) guard: Option<Guard>,
    /// Gateway.
    pub(crate) neighbours: Option<Neighbours>,
    /// Gateway.
    pub(crate) forward: Option<Forward>,
    tun: u32,
    interface: String,
    /// Who installs addresses and routes.
    routes: Routes,
    /// Where another program does: by which interface the daemon's own packets leave, IPv4 and IPv6.
    leaves: [Option<u32>; 2],
    configured: BTreeMap<String, Configured>,
    /// Local networks, which have rules.
    local: BTreeSet<IpNet>,
    /// What [`Machine::keep_own_side`] keeps.
    own_side: BTreeSet<IpNet>,
    /// Gateway: this machine's own addresses inside the tunnel.
    own: BTreeSet<IpAddr>,
    /// What [`Machine::network_changed`] found last.
    outer: Vec<IpAddr>,
    /// Gateway: where the routes to peers have a source.
    sources: BTreeMap<IpNet, IpAddr>,
    /// The name server of the peers of HIP, and their domain.
    peer_names: Option<(IpAddr, String)>,
    /// What was ordered last of DNS has been done.
    installed: bool,
    /// Why DNS is done as it is.
    pub(crate) resolver_in_use: String,
}

impl Machine {
    /// Takes over the interface; first removes what an earlier run left behind.
    ///
    /// # Errors
    /// The kernel's, naming the step.
    pub(crate) fn new(tun: &Tun, dns: DnsMode, routes: Routes) -> Result<Self> {
        let mut ledger = match routes {
            Routes::Auto => Ledger::new(TABLE)?,
            Routes::Off => Ledger::left_alone()?,
        };
        let stale = ledger.remove_stale().context("removing what an earlier run left behind")?;
        if stale > 0 {
            tracing::info!(stale, "routes and rules of an earlier run were removed");
        }
        let index = tun.index()?;
        let mut monitor = Monitor::new()?;
        monitor.ignore(index);
        let (guard, resolver_in_use) = match dns {
            DnsMode::Off => (None, "off (daemon.dns)".to_owned()),
            DnsMode::Auto => match start_guard(tun.name()) {
                Ok((guard, choice)) => (Some(guard), choice),
                Err(e) => {
                    tracing::warn!("DNS is left alone: {}", dormouse_io::causes(&*e));
                    (None, format!("off: {e}"))
                }
            },
        };
        for v6 in [false, true] {
            for rule in tunnel_rules(v6, TABLE, MARK) {
                if let Err(e) = ledger.add_rule(rule) {
                    if !v6 {
                        return Err(e.into());
                    }
                    tracing::info!(%e, "no IPv6 policy rules here: the tunnel carries IPv4 only");
                    break;
                }
            }
        }
        let interface = tun.name().to_owned();
        Ok(Self {
            ledger,
            monitor,
            guard,
            neighbours: None,
            forward: None,
            tun: index,
            interface,
            routes,
            leaves: [None; 2],
            configured: BTreeMap::new(),
            local: BTreeSet::new(),
            own_side: BTreeSet::new(),
            outer: Vec::new(),
            own: BTreeSet::new(),
            sources: BTreeMap::new(),
            peer_names: None,
            installed: false,
            resolver_in_use,
        })
    }

    /// These prefixes, and no others, are on our own side of a tunnel whose other side contains them: they stay where they are.
    pub(crate) fn keep_own_side(&mut self, prefixes: BTreeSet<IpNet>) {
        for net in prefixes.difference(&self.own_side) {
            report(self.ledger.add_rule(own_side_rule(*net)), "rule", net);
        }
        for net in self.own_side.difference(&prefixes) {
            report(self.ledger.remove_rule(own_side_rule(*net)), "rule", net);
        }
        self.own_side = prefixes;
    }

    /// Gateway: these addresses, and no others, are this machine's inside the tunnel.
    pub(crate) fn keep_own(&mut self, addresses: BTreeSet<IpAddr>) {
        for address in addresses.difference(&self.own) {
            report(self.ledger.add_address(self.tun, IpNet::from(*address)), "address", address);
        }
        for address in self.own.difference(&addresses) {
            report(self.ledger.remove_address(self.tun, IpNet::from(*address)), "address", address);
        }
        self.own = addresses;
    }

    /// Gateway: clients may have addresses in local networks. As root, before privileges are given away.
    pub(crate) fn serve_clients(&mut self, proxy: Proxy) {
        if proxy == Proxy::Auto {
            match Neighbours::new(self.tun, self.ledger.netlink()) {
                Ok(neighbours) => self.neighbours = Some(neighbours),
                Err(e) => tracing::warn!(
                    "clients are not answered for in local networks: {}",
                    dormouse_io::causes(&*e)
                ),
            }
        }
    }

    /// Access router: what comes in by `interface` and is for others goes into the interface `tun`; `side`: 0 or 1, another for each.
    ///
    /// # Errors
    /// The kernel's, for IPv4.
    pub(crate) fn lead_transit(&mut self, interface: InterfaceName, side: u32, tun: u32) -> Result<()> {
        for all in [IpNet::from(Ipv4Net::default()), IpNet::from(Ipv6Net::default())] {
            let v6 = all.addr().is_ipv6();
            let rule = transit_rule(v6, interface, side);
            let led = self.ledger.add_route(Route { table: rule.table, ..Route::over(tun, all) });
            match led.and_then(|()| self.ledger.add_rule(rule)) {
                Err(e) if v6 => tracing::info!(%e, "IPv6 in transit is left to the kernel"),
                result => result?,
            }
        }
        Ok(())
    }

    /// Addresses or routes of the machine may have changed: looks at them, also once at the start. Returns the addresses at which peers
    /// anywhere can reach this machine, if they are others than at the last call.
    pub(crate) fn network_changed(&mut self) -> Option<Vec<IpAddr>> {
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.network_changed(self.ledger.netlink());
        }
        self.keep_local_networks();
        match self.ledger.netlink().outer_addresses(self.tun) {
            Ok(found) if found != self.outer => {
                tracing::debug!(addresses = ?found, "peers anywhere can reach this machine");
                self.outer.clone_from(&found);
                Some(found)
            }
            Ok(_) => None,
            Err(e) => {
                tracing::debug!(%e, "the machine's own addresses");
                None
            }
        }
    }

    /// What is a neighbour's stays outside of a tunnel's default route; other routes that a network announces do not count.
    fn keep_local_networks(&mut self) {
        let Ok(found) = self.ledger.netlink().local_networks(self.tun) else { return };
        let found: BTreeSet<IpNet> = found.into_iter().map(|(_, net)| net).collect();
        for gone in self.local.difference(&found) {
            report(self.ledger.remove_rule(local_rule(*gone)), "rule", gone);
        }
        for new in found.difference(&self.local) {
            report(self.ledger.add_rule(local_rule(*new)), "rule", new);
        }
        self.local = found;
    }

    /// Client: the tunnel carries these addresses, routes and name servers now. Packets of this machine itself leave with `source`, if
    /// nothing else is taken there, or with what the gateway assigned, or with an address out of `local`, the prefixes on our side of
    /// the tunnel. What a person should know of it is returned.
    pub(crate) fn configure(
        &mut self,
        connection: &str,
        assigned: AssignedConfig,
        nets: &[IpNet],
        (source, local): (Option<IpAddr>, &[IpNet]),
    ) -> Vec<String> {
        self.unconfigure(connection);
        let netlink = self.ledger.netlink();
        let (links, there) = (netlink.links().unwrap_or_default(), netlink.routes().unwrap_or_default());
        let tunnel = links.iter().find(|l| l.index == self.tun).map_or("", |l| l.name.as_str());
        let overlaps = dormouse_io::netlink::overlaps(nets, local, tunnel, &links, &there);
        let inner = assigned.addresses();
        for address in &inner {
            let result = self.ledger.add_address(self.tun, IpNet::from(*address));
            report(result, "address", address);
        }
        let mut routes = Vec::new();
        for net in &whole(nets.to_vec()) {
            let same = |a: &IpAddr| a.is_ipv4() == net.addr().is_ipv4();
            let inner_address = || inner.iter().copied().find(same);
            let source = source.filter(same).or_else(inner_address).or_else(|| self.own_address(local, same));
            // A family without an inner address would leave with an outer one that the gateway does not accept.
            if source.is_none() && !inner.is_empty() {
                continue;
            }
            let route = Route { source, ..Route::over(self.tun, *net) };
            report(self.ledger.add_route(route), "route", net);
            routes.push(route);
        }
        self.configured
            .insert(connection.into(), Configured { assigned, more: Vec::new(), routes, led: Vec::new() });
        self.set_dns();
        overlaps.iter().map(|overlap| format!("{connection}: {overlap}")).collect()
    }

    /// An address of this machine that lies in one of `prefixes` and is of the family that `fits`.
    fn own_address(&mut self, prefixes: &[IpNet], fits: impl Fn(&IpAddr) -> bool) -> Option<IpAddr> {
        let addresses = self.ledger.netlink().addresses().unwrap_or_default();
        let mut own = addresses.iter().filter(|a| a.global).map(|a| a.net.addr());
        own.find(|a| fits(a) && prefixes.iter().any(|p| p.prefix_len() > 0 && p.contains(a)))
    }

    /// Client: take them back.
    pub(crate) fn unconfigure(&mut self, connection: &str) {
        let Some(Configured { assigned, more, routes, led }) = self.configured.remove(connection) else {
            return;
        };
        for route in led.into_iter().chain(routes) {
            report(self.ledger.remove_route(route), "route", route.destination);
        }
        for address in assigned.addresses().into_iter().chain(more) {
            report(self.ledger.remove_address(self.tun, IpNet::from(address)), "address", address);
        }
        self.set_dns();
    }

    /// Gateway: these prefixes are reached through the tunnel; from `source`, if nothing else is taken there.
    pub(crate) fn peer_routes(&mut self, routes: &[IpNet], source: Option<IpAddr>) {
        for net in routes {
            let source = source.filter(|a| a.is_ipv4() == net.addr().is_ipv4());
            self.sources.remove(net);
            self.sources.extend(source.map(|a| (*net, a)));
            report(self.ledger.add_route(Route { source, ..Route::over(self.tun, *net) }), "route", net);
        }
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.clients(routes, true);
        }
    }

    /// Gateway: they no longer are.
    pub(crate) fn peers_gone(&mut self, routes: &[IpNet]) {
        for net in routes {
            let source = self.sources.remove(net);
            let route = Route { source, ..Route::over(self.tun, *net) };
            report(self.ledger.remove_route(route), "route", net);
        }
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.clients(routes, false);
        }
    }

    /// Whether all that goes into the tunnel to these prefixes goes there by routes of its own, which [`Self::lead_over`] can turn.
    pub(crate) fn leads_to(&self, nets: &[IpNet]) -> bool {
        let routes: Vec<IpNet> = self.ledger.routes_over(self.tun).map(|route| route.destination).collect();
        let within = |route: &IpNet| nets.iter().any(|net| net.contains(route));
        routes.iter().any(within)
            && routes.iter().all(|route| within(route) || !nets.iter().any(|net| route.contains(net)))
    }

    /// The routes into the tunnel that lead to these prefixes lead over another interface from now on, each at once. There, packets of more than `mtu` bytes
    /// do not fit.
    ///
    /// # Errors
    /// The kernel's, of the first that stays.
    pub(crate) fn lead_over(&mut self, index: u32, nets: &[IpNet], mtu: usize) -> Result<()> {
        let mtu = u32::try_from(mtu).ok();
        self.turn_routes(self.tun, nets, |route| Route { index: Some(index), mtu, ..route })
    }

    /// They lead into the tunnel again.
    pub(crate) fn lead_back(&mut self, index: u32, nets: &[IpNet]) {
        let tun = self.tun;
        let led = self.turn_routes(index, nets, |route| Route { index: Some(tun), mtu: None, ..route });
        report(led, "routes", "");
    }

    fn turn_routes(&mut self, from: u32, nets: &[IpNet], turned: impl Fn(Route) -> Route) -> Result<()> {
        let leads = |route: &Route| nets.iter().any(|net| net.contains(&route.destination));
        let routes: Vec<Route> = self.ledger.routes_over(from).filter(leads).collect();
        let mut first = Ok(());
        for route in routes {
            let replaced = self.ledger.replace_route(route, turned(route));
            first = first.and(replaced.with_context(|| format!("the route to {}", route.destination)));
        }
        first
    }

    /// For changes that need not be undone.
    pub(crate) fn netlink(&mut self) -> &mut Netlink {
        self.ledger.netlink()
    }

    /// Routes of a connection into the tunnel.
    pub(crate) fn routes(&self, connection: &str) -> Vec<IpNet> {
        self.configured
            .get(connection)
            .map(|c| c.routes.iter().map(|r| r.destination).collect())
            .unwrap_or_default()
    }

    /// The domains that a connection's name servers are to be asked for; none: all.
    pub(crate) fn domains(&self, connection: &str) -> Vec<String> {
        self.configured.get(connection).map(|c| c.assigned.domains.clone()).unwrap_or_default()
    }

    fn set_dns(&mut self) {
        let Some(guard) = &mut self.guard else { return };
        let mut servers: Vec<IpAddr> =
            self.configured.values().flat_map(|c| c.assigned.dns.iter().copied()).collect();
        let mut domains: Vec<String> =
            self.configured.values().flat_map(|c| c.assigned.domains.iter().cloned()).collect();
        let mut unsearched = Vec::new();
        if let Some((server, domain)) = self.peer_names.as_ref().filter(|_| servers.is_empty()) {
            (servers, domains) = (vec![*server], vec![domain.clone()]);
            unsearched = REVERSE.map(str::to_owned).to_vec();
        }
        let result = if servers.is_empty() {
            guard.revert()
        } else {
            // Everything is asked in the tunnel unless the gateway names the domains that it is good for.
            let exclusive = domains.is_empty();
            let settings = Settings {
                interface: self.interface.clone(),
                index: self.tun,
                servers,
                domains,
                unsearched,
                exclusive,
            };
            guard.set(settings)
        };
        report(result, "DNS", "");
    }

    /// Takes the answers of the DNS guard. False if it is gone.
    pub(crate) fn dns_answers(&mut self) -> bool {
        let Some(guard) = &mut self.guard else { return false };
        loop {
            match guard.next() {
                Ok(Some(GuardReply::Done(choice))) => {
                    self.installed = true;
                    self.resolver_in_use = choice.to_string();
                }
                Ok(Some(GuardReply::Reverted)) => self.installed = false,
                Ok(Some(GuardReply::Failed(why))) => {
                    self.installed = false;
                    tracing::warn!(%why, "DNS");
                }
                Ok(None) => return true,
                Err(e) => {
                    tracing::warn!(%e, "DNS is left alone from now on");
                    self.resolver_in_use = format!("off: {e}");
                    self.guard = None;
                    return false;
                }
            }
        }
    }

    /// Whether this machine is in a network at all: a link beside the tunnel is up and leads somewhere.
    pub(crate) fn online(&mut self) -> bool {
        let (tun, netlink) = (self.tun, self.ledger.netlink());
        let links = netlink.links().unwrap_or_default();
        let leads = |index: u32| {
            let alive = |l: &Link| l.index == index && l.up && l.carrier && !l.loopback;
            links.iter().any(|l| alive(l) && !is_tunnel(l, tun))
        };
        let routes = netlink.routes().unwrap_or_default();
        let scope = |r: &Route| r.destination.addr().is_ipv4() || r.destination.prefix_len() == 0;
        routes.iter().any(|r| r.table == MAIN && scope(r) && r.index.is_some_and(leads))
    }

    /// The way to a gateway outside the tunnel, from one UDP port to another, and what its link carries; `None` without a network.
    /// Where the routes are another program's, sockets must be told by which interface they leave ([`Self::leaves`]).
    pub(crate) fn way_to(&mut self, gateway: IpAddr, ports: (u16, u16)) -> Option<(Path, u16)> {
        let (path, mtu, index) = self.way(gateway, ports)?;
        self.leaves[usize::from(gateway.is_ipv6())] = Some(index).filter(|_| self.routes == Routes::Off);
        Some((path, mtu))
    }

    /// By which interface each family's packets leave, where that must be said.
    pub(crate) const fn leaves(&self) -> [Option<u32>; 2] {
        self.leaves
    }

    fn way(&mut self, gateway: IpAddr, (from, to): (u16, u16)) -> Option<(Path, u16, u32)> {
        let (tun, netlink) = (self.tun, self.ledger.netlink());
        let found = match self.routes {
            Routes::Auto => netlink.route_to(gateway, MARK),
            Routes::Off => netlink.route_outside(gateway, MARK, |link| is_tunnel(link, tun)),
        };
        let found = match found {
            Ok(found) => found?,
            Err(e) => {
                tracing::debug!(%e, %gateway, "no way to the gateway");
                return None;
            }
        };
        let Found { source, index, mtu, .. } = found;
        let links = self.ledger.netlink().links().unwrap_or_default();
        let link = links.iter().find(|l| l.index == index)?;
        if !link.up || !link.carrier {
            return None;
        }
        let mtu = mtu.unwrap_or(link.mtu).min(link.mtu);
        let path = Path {
            local: SocketAddr::new(source, from),
            remote: SocketAddr::new(gateway, to),
            carrier: Carrier::Ike,
        };
        // Loopback claims 65,536 bytes; the real path behind any link is believed to be an Ethernet's at most.
        Some((path, u16::try_from(mtu).unwrap_or(ETHERNET).min(ETHERNET), index))
    }

    /// The helpers begin to undo what is theirs, all at the same time.
    pub(crate) fn release_helpers(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.release();
        }
        if let Some(guard) = self.neighbours.as_mut().and_then(|neighbours| neighbours.guard.as_mut()) {
            guard.release();
        }
        if let Some(guard) = self.forward.as_mut().and_then(|forward| forward.guard.as_mut()) {
            guard.release();
        }
    }

    /// Undoes everything.
    pub(crate) fn restore(&mut self) {
        // Its end restores DNS.
        self.guard = None;
        self.neighbours = None;
        self.forward = None;
        report(self.ledger.remove_all(), "routes, rules and addresses", "");
    }
}

/// Ours, or that of a daemon beside this one (`dormouse-nm`).
fn is_tunnel(link: &Link, tun: u32) -> bool {
    link.index == tun || link.name.starts_with("dormouse-")
}

fn start_guard(interface: &str) -> Result<(Guard, String)> {
    let mut guard = Guard::spawn(&std::env::current_exe()?, &[crate::DNS_GUARD])?;
    guard.choose(interface)?;
    let choice = match guard.wait()? {
        GuardReply::Done(choice) => choice.to_string(),
        GuardReply::Reverted => String::new(),
        GuardReply::Failed(why) => anyhow::bail!(why),
    };
    Ok((guard, choice))
}

fn report<E: std::fmt::Display>(result: Result<(), E>, what: &str, which: impl std::fmt::Display) {
    if let Err(e) = result {
        tracing::warn!(%e, %which, "{what}");
    }
}
