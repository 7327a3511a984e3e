//! Changes: links, addresses, routes, rules, neighbours. Each request is of one thing and is either done or not.

use super::message::{self, LinkMessage, Message, nested};
use super::query::family;
use super::{Error, Neighbour, Netlink, PROTOCOL, Route, RouteKind, Rule};
use ipnet::IpNet;
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::LinkFlags;
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourFlags, NeighbourMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use nix::errno::Errno;
use std::fmt::Write as _;

impl Netlink {
    /// Switches an interface on or off.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_ADMIN`, `ENODEV`.
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), Error> {
        let mut message = LinkMessage::of(index);
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        message.header.change_mask = LinkFlags::Up;
        let what = || format!("ip link set {} {}", name(index), if up { "up" } else { "down" });
        self.0.change(&what, Message::set(message), 0)
    }

    /// Makes an interface whose packets the kernel's IPsec protects: states and policies with this `if_id`. It gets no address of its own.
    ///
    /// # Errors
    /// The kernel's: `EOPNOTSUPP` if it has no such interfaces, `EEXIST`.
    pub fn add_xfrm_link(&mut self, name: &str, if_id: u32, mtu: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            DefaultNla::new(message::NAME, [name.as_bytes(), &[0]].concat()),
            number(message::MTU, mtu),
            nested(
                message::INFO,
                &[
                    DefaultNla::new(message::INFO_KIND, message::XFRM.into()),
                    nested(
                        message::INFO_DATA,
                        &[number(message::XFRM_LINK, 0), number(message::XFRM_IF_ID, if_id)],
                    ),
                ],
            ),
        ];
        let what = || format!("ip link add {name} type xfrm if_id {if_id}");
        self.0.change(&what, Message::new(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Keeps the kernel from giving an interface an IPv6 address by itself.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_without_addresses(&mut self, index: u32) -> Result<(), Error> {
        let mut message = LinkMessage::of(index);
        let mode = DefaultNla::new(message::ADDRESS_MODE, vec![message::ADDRESS_MODE_NONE]);
        message.attributes = vec![nested(message::FAMILIES, &[nested(message::INET6, &[mode])])];
        let what = || format!("ip link set {} addrgenmode none", name(index));
        self.0.change(&what, Message::set(message), 0)
    }

    /// Removes an interface. It is no error if it is gone.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete_link(&mut self, index: u32) -> Result<(), Error> {
        let message = LinkMessage::of(index);
        gone(self.0.change(&|| format!("ip link delete {}", name(index)), Message::delete(message), 0))
    }

    /// Adds a route with protocol [`PROTOCOL`] in the place of the one to that destination with that metric in that table: no packet is without one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn replace_route(&mut self, route: &Route) -> Result<(), Error> {
        let what = || format!("ip route replace {}", route_text(route));
        self.0.change(&what, Message::new(route_message(route)), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Sets the MTU of an interface, in bytes.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` if the interface cannot have it.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), Error> {
        let mut message = LinkMessage::of(index);
        message.attributes = vec![number(message::MTU, mtu)];
        self.0.change(&|| format!("ip link set {} mtu {mtu}", name(index)), Message::set(message), 0)
    }

    /// Gives an interface an address. No route comes with it, and IPv6 does not look for duplicates: no other host shares the tunnel's link.
    ///
    /// # Errors
    /// The kernel's: `EEXIST` if it has it already.
    pub fn add_address(&mut self, index: u32, net: IpNet) -> Result<(), Error> {
        let mut message = address(index, net);
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad | AddressFlags::Noprefixroute));
        let what = || format!("ip address add {net} dev {}", name(index));
        self.0.change(&what, Message::new(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Takes an address away. It is no error if it, or the interface, is gone already.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete_address(&mut self, index: u32, net: IpNet) -> Result<(), Error> {
        let what = || format!("ip address delete {net} dev {}", name(index));
        gone(self.0.change(&what, Message::delete(address(index, net)), 0))
    }

    /// Adds a route with protocol [`PROTOCOL`].
    ///
    /// # Errors
    /// The kernel's: `EEXIST` if there is one to that destination with that metric in that table.
    pub fn add_route(&mut self, route: &Route) -> Result<(), Error> {
        let what = || format!("ip route add {}", route_text(route));
        self.0.change(&what, Message::new(route_message(route)), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Adds a route again that another program had installed, under its own protocol number.
    ///
    /// # Errors
    /// As [`Netlink::add_route`].
    pub(crate) fn put_back_route(&mut self, route: &Route) -> Result<(), Error> {
        let what = || format!("ip route add {} proto {}", route_text(route), route.protocol);
        let mut message = route_message(route);
        message.header.protocol = RouteProtocol::from(route.protocol);
        self.0.change(&what, Message::new(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Removes a route of ours ([`PROTOCOL`]); never another program's. It is no error if it is gone already.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), Error> {
        let mut message = route_message(route);
        if route.kind == RouteKind::Other {
            // What kind it was does not matter: destination, table, metric and protocol say which.
            message.header.kind = RouteType::Unspec;
        }
        gone(self.0.change(&|| format!("ip route delete {}", route_text(route)), Message::delete(message), 0))
    }

    /// Adds a policy rule with protocol [`PROTOCOL`].
    ///
    /// # Errors
    /// The kernel's: `EEXIST` if the same is there.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<(), Error> {
        let what = || format!("ip rule add {}", rule_text(rule));
        self.0.change(&what, Message::new(rule_message(rule)), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Removes a policy rule of ours. It is no error if it is gone already.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<(), Error> {
        gone(self.0.change(
            &|| format!("ip rule delete {}", rule_text(rule)),
            Message::delete(rule_message(rule)),
            0,
        ))
    }

    /// Answers ARP or neighbour discovery for an address, with protocol [`PROTOCOL`]. The kernel does so for IPv4 only while it
    /// forwards and its route to the address leads over another interface; for IPv6 only while `proxy_ndp` is set.
    ///
    /// # Errors
    /// The kernel's: `ENODEV` if the interface has gone.
    pub fn add_neighbour(&mut self, neighbour: Neighbour) -> Result<(), Error> {
        let what = || format!("ip neigh add proxy {} dev {}", neighbour.address, name(neighbour.index));
        self.0.change(&what, Message::new(neighbour_message(neighbour)), NLM_F_CREATE)
    }

    /// Answers for it no longer. It is no error if it is gone already.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete_neighbour(&mut self, neighbour: Neighbour) -> Result<(), Error> {
        let what = || format!("ip neigh delete proxy {} dev {}", neighbour.address, name(neighbour.index));
        gone(self.0.change(&what, Message::delete(neighbour_message(neighbour)), 0))
    }
}

/// An attribute that is a number.
fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

/// What is already gone need not be removed.
fn gone(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(e)
            if [Errno::ESRCH, Errno::ENOENT, Errno::ENODEV, Errno::EADDRNOTAVAIL]
                .iter()
                .any(|n| e.is(*n)) =>
        {
            Ok(())
        }
        result => result,
    }
}

fn address(index: u32, net: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(net.addr());
    message.header.prefix_len = net.prefix_len();
    message.header.index = index;
    message.attributes = vec![AddressAttribute::Local(net.addr()), AddressAttribute::Address(net.addr())];
    message
}

fn route_message(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = family(route.destination.addr());
    header.destination_prefix_length = route.destination.prefix_len();
    header.protocol = RouteProtocol::from(PROTOCOL);
    header.kind =
        if route.kind == RouteKind::Unreachable { RouteType::Unreachable } else { RouteType::Unicast };
    // Without a next hop the destination is on the link, as far as IPv4 is concerned.
    header.scope = if route.gateway.is_none()
        && route.kind == RouteKind::Unicast
        && route.destination.addr().is_ipv4()
    {
        RouteScope::Link
    } else {
        RouteScope::Universe
    };
    message.attributes.push(RouteAttribute::Destination(route.destination.network().into()));
    message.attributes.push(RouteAttribute::Table(route.table));
    message.attributes.extend(route.gateway.map(|g| RouteAttribute::Gateway(g.into())));
    message.attributes.extend(route.index.map(RouteAttribute::Oif));
    message.attributes.extend(route.source.map(|s| RouteAttribute::PrefSource(s.into())));
    message.attributes.extend((route.metric != 0).then_some(RouteAttribute::Priority(route.metric)));
    message.attributes.extend(route.mtu.map(|mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)])));
    message
}

fn rule_message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    let header = &mut message.header;
    header.family = if rule.v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    header.action = RuleAction::ToTable;
    header.dst_len = rule.to.map_or(0, |net| net.prefix_len());
    if rule.invert {
        header.flags = RuleFlags::Invert;
    }
    message.attributes = vec![
        RuleAttribute::Priority(rule.priority),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Protocol(RouteProtocol::from(PROTOCOL)),
    ];
    message.attributes.extend(rule.mark.map(RuleAttribute::FwMark));
    message.attributes.extend(rule.to.map(|net| RuleAttribute::Destination(net.network())));
    let from = rule.from_interface.map(|name| RuleAttribute::Iifname(name.as_str().to_owned()));
    message.attributes.extend(from);
    message.attributes.extend(rule.suppress_prefix_length.map(RuleAttribute::SuppressPrefixLen));
    message
}

fn neighbour_message(neighbour: Neighbour) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(neighbour.address);
    message.header.ifindex = neighbour.index;
    message.header.flags = NeighbourFlags::Proxy;
    message.attributes = vec![
        NeighbourAttribute::Destination(neighbour.address.into()),
        NeighbourAttribute::Protocol(RouteProtocol::from(PROTOCOL)),
    ];
    message
}

/// The name of an interface for an error message; its number if it has gone.
fn name(index: u32) -> String {
    match nix::net::if_::if_indextoname(index) {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => format!("interface {index}"),
    }
}

fn route_text(route: &Route) -> String {
    let kind = if route.kind == RouteKind::Unreachable { "unreachable " } else { "" };
    let mut out = format!("{kind}{}", route.destination);
    let _ = route.gateway.map(|g| write!(out, " via {g}"));
    let _ = route.index.map(|i| write!(out, " dev {}", name(i)));
    let _ = write!(out, " table {}", route.table);
    let _ = route.source.map(|s| write!(out, " src {s}"));
    out
}

fn rule_text(rule: &Rule) -> String {
    let mut out = format!("{}priority {}", if rule.v6 { "(IPv6) " } else { "" }, rule.priority);
    out.push_str(if rule.invert { " not" } else { "" });
    let _ = rule.to.map(|to| write!(out, " to {to}"));
    let _ = rule.from_interface.map(|name| write!(out, " iif {}", name.as_str()));
    let _ = rule.mark.map(|m| write!(out, " fwmark {m}"));
    let _ = write!(out, " lookup {}", rule.table);
    let _ = rule.suppress_prefix_length.map(|n| write!(out, " suppress_prefixlength {n}"));
    out
}
