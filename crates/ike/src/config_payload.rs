//! Configuration payloads (RFC 7296, sections 2.19 and 3.15; RFC 8598 for domains): inner addresses, name servers and split
//! routes. Owns the translation between payloads and plain values; must never lease an address itself (the pool does) nor touch
//! the system (the driver does).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dormouse_crypto::cert::Identity;
use dormouse_wire::ike::{Config, ConfigAttribute, ConfigAttributeType as Type, ConfigType};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::config::{AddressRequest, Connection, OfferedConfig};
use crate::limits::{CONFIG_ENTRIES_MAX, DOMAIN_MAX};

/// What a gateway assigned to a client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AssignedConfig {
    /// The inner IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// The inner IPv6 address and its prefix length.
    pub v6: Option<(Ipv6Addr, u8)>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// Domains that those servers are to be asked for; empty: all.
    pub domains: Vec<String>,
    /// Prefixes behind the gateway; empty: it does not say.
    pub subnets: Vec<IpNet>,
}

impl AssignedConfig {
    /// The inner addresses.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let v4 = self.v4.map(IpAddr::V4);
        v4.into_iter().chain(self.v6.map(|(address, _)| IpAddr::V6(address))).collect()
    }
}

/// What a client asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeaseRequest {
    /// An IPv4 address.
    pub v4: bool,
    /// An IPv6 address.
    pub v6: bool,
    /// Addresses that it would like to have, because it had them before.
    pub wanted: Vec<IpAddr>,
    /// Addresses that its ticket names: those of the session that it resumes.
    pub kept: Vec<IpAddr>,
    /// The IPv4 address that it is to have, if the pool can give it, whatever it had: who knows its user says so.
    pub fixed: Option<Ipv4Addr>,
    /// Who asks has not shown yet that it is there.
    pub tentative: bool,
}

/// What a pool gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lease {
    /// An IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// An IPv6 address and the length of its prefix (128 unless the client gets a whole network).
    pub v6: Option<(Ipv6Addr, u8)>,
}

/// Where inner addresses come from. Synchronous and pure: the driver writes leases down behind it, in its own time.
pub trait AddressPool {
    /// Leases an address of each family asked for, out of the prefixes that the policy of `conn` names, if there is one left. An
    /// identity gets the address that it had in this connection, whether it asks for it or not; a wish is honoured if that
    /// address is free. What is given is in use until it has been released as often: no other identity gets it.
    /// A [`LeaseRequest::tentative`] one only learns what is its identity's already, and nothing changes: anybody can repeat a recorded
    /// request. It asks again when its client is there.
    fn lease(&mut self, conn: &Connection, identity: &Identity, request: &LeaseRequest) -> Lease;

    /// Whether what was leased is still to be written down. What tells the client of it waits until
    /// [`Endpoint::leases_written`](crate::Endpoint::leases_written) finds that it is not: a crash must not give the address to another.
    fn is_unwritten(&self, _lease: &Lease) -> bool {
        false
    }

    /// One session that had the lease is gone. The address stays reserved for its identity as long as the
    /// pool can afford.
    fn release(&mut self, lease: &Lease);

    /// Whether a peer of `conn` may have this address by the policy of today.
    fn gives(&self, _conn: &Connection, _address: IpAddr) -> bool {
        true
    }

    /// Packets wait for the holder of this address, which may have no session: no other identity gets it until it is unpinned. False if
    /// it is no lease, or the pool never takes an address back anyway; then it is not unpinned.
    fn pin(&mut self, _address: IpAddr) -> bool {
        false
    }

    /// Takes one pin back.
    fn unpin(&mut self, _address: IpAddr) {}
}

/// The initiator's request. `previous` are the addresses of an earlier session: "the client can request the address it was using
/// earlier, and if possible, the gateway SHOULD honor the request" (RFC 5723, section 5, note 5).
#[must_use]
pub fn request(want: AddressRequest, previous: &[IpAddr]) -> Config {
    let mut attributes = Vec::new();
    if want.v4 {
        attributes.push(previous.iter().find_map(v4).map_or_else(
            || ConfigAttribute::empty(Type::InternalIp4Address),
            |address| ConfigAttribute::ipv4(Type::InternalIp4Address, address),
        ));
    }
    if want.v6 {
        attributes.push(previous.iter().find_map(v6).map_or_else(
            || ConfigAttribute::empty(Type::InternalIp6Address),
            |address| ConfigAttribute::ipv6_prefix(Type::InternalIp6Address, address, 128),
        ));
    }
    if want.dns {
        attributes.extend(
            [Type::InternalIp4Dns, Type::InternalIp6Dns, Type::InternalDnsDomain].map(ConfigAttribute::empty),
        );
    }
    attributes.extend(want.v4.then(|| ConfigAttribute::empty(Type::InternalIp4Subnet)));
    attributes.extend(want.v6.then(|| ConfigAttribute::empty(Type::InternalIp6Subnet)));
    Config::new(ConfigType::Request, attributes)
}

const fn v4(address: &IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    }
}

const fn v6(address: &IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(*address),
        IpAddr::V4(_) => None,
    }
}

/// What a received request asks a pool for; `None` if it is not a request.
#[must_use]
pub fn parse_request(config: &Config) -> Option<LeaseRequest> {
    if config.kind != ConfigType::Request {
        return None;
    }
    let mut request = LeaseRequest::default();
    for attribute in &config.attributes {
        let wish = match attribute.kind {
            Type::InternalIp4Address => {
                request.v4 = true;
                attribute.to_ipv4().map(IpAddr::V4)
            }
            Type::InternalIp6Address => {
                request.v6 = true;
                attribute.to_ipv6().map(IpAddr::V6)
            }
            _ => None,
        };
        if let Some(wish) = wish.filter(|a| !a.is_unspecified() && request.wanted.len() < CONFIG_ENTRIES_MAX)
        {
            request.wanted.push(wish);
        }
    }
    Some(request)
}

/// The responder's answer, and what it assigns. Only what was asked for is sent (RFC 7296, section 2.19).
#[must_use]
pub fn reply(request: &Config, lease: Lease, offer: &OfferedConfig) -> (Config, AssignedConfig) {
    let asked = |kind| request.of_kind(kind).next().is_some();
    let mut assigned = AssignedConfig {
        v4: lease.v4.filter(|_| asked(Type::InternalIp4Address)),
        v6: lease.v6.filter(|_| asked(Type::InternalIp6Address)),
        ..AssignedConfig::default()
    };
    let mut attributes = Vec::new();
    attributes.extend(assigned.v4.map(|a| ConfigAttribute::ipv4(Type::InternalIp4Address, a)));
    attributes
        .extend(assigned.v6.map(|(a, len)| ConfigAttribute::ipv6_prefix(Type::InternalIp6Address, a, len)));
    for server in offer.dns.iter().take(CONFIG_ENTRIES_MAX) {
        let attribute = match server {
            IpAddr::V4(a) if asked(Type::InternalIp4Dns) => ConfigAttribute::ipv4(Type::InternalIp4Dns, *a),
            IpAddr::V6(a) if asked(Type::InternalIp6Dns) => ConfigAttribute::ipv6(Type::InternalIp6Dns, *a),
            _ => continue,
        };
        attributes.push(attribute);
        assigned.dns.push(*server);
    }
    if asked(Type::InternalDnsDomain) && !assigned.dns.is_empty() {
        for domain in offer.domains.iter().filter(|d| is_domain(d)).take(CONFIG_ENTRIES_MAX) {
            attributes
                .push(ConfigAttribute { kind: Type::InternalDnsDomain, value: domain.as_bytes().to_vec() });
            assigned.domains.push(domain.clone());
        }
    }
    for net in offer.subnets.iter().take(CONFIG_ENTRIES_MAX) {
        let attribute = match net {
            IpNet::V4(net) if assigned.v4.is_some() => {
                ConfigAttribute::ipv4_subnet(net.network(), net.prefix_len())
            }
            IpNet::V6(net) if assigned.v6.is_some() => {
                ConfigAttribute::ipv6_prefix(Type::InternalIp6Subnet, net.network(), net.prefix_len())
            }
            _ => continue,
        };
        attributes.push(attribute);
        assigned.subnets.push(*net);
    }
    (Config::new(ConfigType::Reply, attributes), assigned)
}

/// What a received reply assigns. An attribute that is malformed or makes no sense as an address is passed over: the caller checks that
/// the addresses it needs are there. `None` if it is not a reply.
/// "[...] MUST ignore proposals that have configuration attribute type 5" (RFC 7296 section 1.7) (an expiry), as every type
/// that has no meaning here.
#[must_use]
pub fn parse_reply(config: &Config) -> Option<AssignedConfig> {
    if config.kind != ConfigType::Reply {
        return None;
    }
    let mut assigned = AssignedConfig::default();
    let mut netmask = None;
    for attribute in &config.attributes {
        match attribute.kind {
            Type::InternalIp4Address => {
                assigned.v4 = assigned.v4.or_else(|| attribute.to_ipv4().filter(is_host_v4))
            }
            Type::InternalIp4Netmask => netmask = attribute.to_ipv4(),
            Type::InternalIp6Address => {
                let address = attribute.to_ipv6_prefix().or_else(|| attribute.to_ipv6().map(|a| (a, 128)));
                assigned.v6 = assigned.v6.or_else(|| address.filter(|(a, _)| is_host_v6(a)));
            }
            Type::InternalIp4Dns => {
                push(&mut assigned.dns, attribute.to_ipv4().filter(is_host_v4).map(IpAddr::V4))
            }
            Type::InternalIp6Dns => {
                push(&mut assigned.dns, attribute.to_ipv6().filter(is_host_v6).map(IpAddr::V6))
            }
            Type::InternalIp4Subnet => {
                let net = attribute.to_ipv4_subnet().and_then(|(a, len)| Ipv4Net::new(a, len).ok());
                push(&mut assigned.subnets, net.map(|net| IpNet::V4(net.trunc())));
            }
            Type::InternalIp6Subnet => {
                let net = attribute.to_ipv6_prefix().and_then(|(a, len)| Ipv6Net::new(a, len).ok());
                push(&mut assigned.subnets, net.map(|net| IpNet::V6(net.trunc())));
            }
            Type::InternalDnsDomain => push(&mut assigned.domains, domain(&attribute.value)),
            _ => {}
        }
    }
    // An address with a netmask says the same as a subnet attribute (RFC 7296, section 3.15.1).
    if let (Some(address), Some(mask)) = (assigned.v4, netmask) {
        let net = Ipv4Net::with_netmask(address, mask).ok().filter(|net| net.prefix_len() < 32);
        push(&mut assigned.subnets, net.map(|net| IpNet::V4(net.trunc())));
    }
    if assigned.dns.is_empty() {
        assigned.domains.clear();
    }
    Some(assigned)
}

fn push<T: PartialEq>(list: &mut Vec<T>, item: Option<T>) {
    if let Some(item) = item.filter(|item| list.len() < CONFIG_ENTRIES_MAX && !list.contains(item)) {
        list.push(item);
    }
}

fn is_host_v4(address: &Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address.is_broadcast() || address.is_loopback())
}

fn is_host_v6(address: &Ipv6Addr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback())
}

/// A domain in presentation format (RFC 8598, section 3.1). It ends up in resolver configuration: nothing but host names passes.
fn domain(bytes: &[u8]) -> Option<String> {
    let text = core::str::from_utf8(bytes).ok()?;
    let text = text.strip_suffix('.').unwrap_or(text);
    is_domain(text).then(|| text.to_ascii_lowercase())
}

fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= DOMAIN_MAX && text.split('.').all(label)
}

#[cfg(test)]
mod tests;
