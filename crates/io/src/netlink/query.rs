//! Questions: links, addresses, routes, rules, neighbours, and the way to a destination.

use super::message::{About, LinkMessage, Message};
use super::{
    Address, Error, Found, InterfaceName, Link, Neighbour, Netlink, PROTOCOL, Route, RouteKind, Rule,
};
use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::LinkFlags;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use nix::errno::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Netlink {
    /// All interfaces.
    ///
    /// # Errors
    /// The kernel's.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let answers = self.0.dump("ip link show", &Message::get(LinkMessage::default()))?;
        Ok(answers
            .iter()
            .filter_map(|m| if let About::Link(m) = &m.about { Some(link(m)) } else { None })
            .collect())
    }

    /// The interface of this name.
    ///
    /// # Errors
    /// The kernel's: `ENODEV` if there is none.
    pub fn link(&mut self, name: &str) -> Result<Link, Error> {
        let found = self.links()?.into_iter().find(|l| l.name == name);
        found.ok_or_else(|| Error { what: format!("ip link show {name}"), source: Errno::ENODEV.into() })
    }

    /// All addresses.
    ///
    /// # Errors
    /// The kernel's.
    pub fn addresses(&mut self) -> Result<Vec<Address>, Error> {
        let answers = self.0.dump("ip address show", &Message::get(AddressMessage::default()))?;
        Ok(answers
            .iter()
            .filter_map(|m| if let About::Address(m) = &m.about { address(m) } else { None })
            .collect())
    }

    /// All routes of all tables, IPv4 first.
    ///
    /// # Errors
    /// The kernel's.
    pub fn routes(&mut self) -> Result<Vec<Route>, Error> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let answers = self.0.dump("ip route show table all", &Message::get(message))?;
            routes.extend(
                answers.iter().filter_map(|m| if let About::Route(m) = &m.about { route(m) } else { None }),
            );
        }
        Ok(routes)
    }

    /// All policy rules that send packets to a table, IPv4 first.
    ///
    /// # Errors
    /// The kernel's.
    pub fn rules(&mut self) -> Result<Vec<Rule>, Error> {
        let mut rules = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RuleMessage::default();
            message.header.family = family;
            let answers = self.0.dump("ip rule show", &Message::get(message))?;
            rules.extend(
                answers.iter().filter_map(|m| if let About::Rule(m) = &m.about { rule(m) } else { None }),
            );
        }
        Ok(rules)
    }

    /// What is answered for in the place of others, as far as it is ours ([`super::PROTOCOL`]).
    ///
    /// # Errors
    /// The kernel's.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, Error> {
        let mut message = NeighbourMessage::default();
        message.header.flags = NeighbourFlags::Proxy;
        let answers = self.0.dump("ip neigh show proxy", &Message::get(message))?;
        Ok(answers
            .iter()
            .filter_map(|m| if let About::Neighbour(m) = &m.about { neighbour(m) } else { None })
            .collect())
    }

    /// How packets with `mark` reach `destination`; `None` if they do not. With [`super::MARK`] this is the way outside the tunnel.
    ///
    /// # Errors
    /// The kernel's.
    pub fn route_to(&mut self, destination: IpAddr, mark: u32) -> Result<Option<Found>, Error> {
        self.route_by(destination, mark, None)
    }

    /// The same over one interface.
    pub(super) fn route_by(
        &mut self,
        destination: IpAddr,
        mark: u32,
        index: Option<u32>,
    ) -> Result<Option<Found>, Error> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = if destination.is_ipv4() { 32 } else { 128 };
        message.attributes =
            vec![RouteAttribute::Destination(destination.into()), RouteAttribute::Mark(mark)];
        message.attributes.extend(index.map(RouteAttribute::Oif));
        let what = || format!("ip route get {destination} mark {mark}");
        let answer = match self.0.ask(&what, Message::get(message)) {
            Ok(answer) => answer,
            Err(e) if [Errno::ENETUNREACH, Errno::EHOSTUNREACH, Errno::EACCES].iter().any(|n| e.is(*n)) => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let Some(Message { about: About::Route(answer), .. }) = answer else { return Ok(None) };
        let found = route(&answer).and_then(|r| {
            let (source, index) = (r.source?, r.index?);
            // IPv6 answers an unreachable destination with a route that says so.
            let way = answer.header.kind == RouteType::Unicast || answer.header.kind == RouteType::Local;
            way.then_some(Found { source, index, gateway: r.gateway, mtu: r.mtu })
        });
        Ok(found)
    }
}

pub(super) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

pub(super) fn link(message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    Link {
        index: message.header.index,
        name: message.name().unwrap_or_default(),
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp) && flags.contains(LinkFlags::Running),
        loopback: flags.contains(LinkFlags::Loopback),
        mtu: message.mtu().unwrap_or_default(),
        xfrm: message.if_id(),
    }
}

pub(super) fn address(message: &AddressMessage) -> Option<Address> {
    let (mut local, mut other) = (None, None);
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(a) => local = Some(*a),
            AddressAttribute::Address(a) => other = Some(*a),
            AddressAttribute::Flags(f) => flags = *f,
            _ => {}
        }
    }
    // On a point-to-point link ADDRESS is the other end; IPv6 without a peer has no LOCAL.
    let net = IpNet::new(local.or(other)?, message.header.prefix_len).ok()?;
    let unfit = AddressFlags::Tentative | AddressFlags::Deprecated | AddressFlags::Dadfailed;
    let optimistic = flags.contains(AddressFlags::Optimistic);
    Some(Address {
        index: message.header.index,
        net,
        global: message.header.scope == AddressScope::Universe,
        // IPv4 uses the same bit for a second address of a prefix.
        temporary: net.addr().is_ipv6() && flags.contains(AddressFlags::Secondary),
        preferred: !flags.intersects(unfit) || (optimistic && !flags.contains(AddressFlags::Dadfailed)),
    })
}

pub(super) fn route(message: &RouteMessage) -> Option<Route> {
    let v4 = match message.header.address_family {
        AddressFamily::Inet => true,
        AddressFamily::Inet6 => false,
        _ => return None,
    };
    let any = if v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let mut destination = any;
    let mut route = Route {
        kind: match message.header.kind {
            RouteType::Unicast => RouteKind::Unicast,
            RouteType::Unreachable => RouteKind::Unreachable,
            _ => RouteKind::Other,
        },
        table: u32::from(message.header.table),
        protocol: message.header.protocol.into(),
        destination: IpNet::from(any),
        gateway: None,
        index: None,
        metric: 0,
        source: None,
        mtu: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(a) => destination = ip(a)?,
            RouteAttribute::Gateway(a) => route.gateway = ip(a),
            RouteAttribute::PrefSource(a) => route.source = ip(a),
            RouteAttribute::Oif(index) => route.index = Some(*index),
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Metrics(metrics) => {
                route.mtu = metrics
                    .iter()
                    .find_map(|m| if let RouteMetric::Mtu(mtu) = m { Some(*mtu) } else { None });
            }
            _ => {}
        }
    }
    route.destination = IpNet::new(destination, message.header.destination_prefix_length).ok()?;
    Some(route)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(a) => Some((*a).into()),
        RouteAddress::Inet6(a) => Some((*a).into()),
        _ => None,
    }
}

fn neighbour(message: &NeighbourMessage) -> Option<Neighbour> {
    let (mut address, mut ours) = (None, false);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(a)) => address = Some((*a).into()),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => address = Some((*a).into()),
            NeighbourAttribute::Protocol(protocol) => ours = u8::from(*protocol) == PROTOCOL,
            _ => {}
        }
    }
    Some(Neighbour { index: message.header.ifindex, address: address.filter(|_| ours)? })
}

pub(super) fn rule(message: &RuleMessage) -> Option<Rule> {
    let header = &message.header;
    if header.action != RuleAction::ToTable {
        return None;
    }
    let mut rule = Rule {
        priority: 0,
        v6: header.family == AddressFamily::Inet6,
        mark: None,
        invert: header.flags.contains(RuleFlags::Invert),
        to: None,
        from_interface: None,
        table: u32::from(header.table),
        suppress_prefix_length: None,
        protocol: 0,
    };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::FwMark(mark) => rule.mark = Some(*mark),
            RuleAttribute::Destination(to) => rule.to = IpNet::new(*to, header.dst_len).ok(),
            RuleAttribute::Iifname(name) => rule.from_interface = InterfaceName::new(name),
            RuleAttribute::Table(table) => rule.table = *table,
            // The kernel says "none" as all ones.
            RuleAttribute::SuppressPrefixLen(n) => {
                rule.suppress_prefix_length = Some(*n).filter(|n| *n != u32::MAX)
            }
            RuleAttribute::Protocol(protocol) => rule.protocol = (*protocol).into(),
            _ => {}
        }
    }
    Some(rule)
}
