//! Traffic selectors applied to packets (RFC 4301 sections 4.4.1.1 and 5, RFC 7296 section 3.13). Owns the matching; must never
//! narrow or negotiate: that is IKE's.

use core::net::IpAddr;

use dormouse_wire::ike::TsRange;
use dormouse_wire::ip::Flow;

/// The traffic of one CHILD SA: what matches one of our selectors on our side and one of the peer's on the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selectors {
    local: Vec<TsRange>,
    remote: Vec<TsRange>,
}

impl Selectors {
    /// The selectors as negotiated.
    #[must_use]
    pub const fn new(local: Vec<TsRange>, remote: Vec<TsRange>) -> Self {
        Self { local, remote }
    }

    /// Whether a packet that we send belongs here.
    #[must_use]
    pub fn match_outbound(&self, flow: &Flow) -> bool {
        self.local.iter().any(|ts| selects(ts, flow.protocol, flow.src, flow.src_port))
            && self.remote.iter().any(|ts| selects(ts, flow.protocol, flow.dst, flow.dst_port))
    }

    /// Whether a packet that we received belongs here.
    #[must_use]
    pub fn match_inbound(&self, flow: &Flow) -> bool {
        self.remote.iter().any(|ts| selects(ts, flow.protocol, flow.src, flow.src_port))
            && self.local.iter().any(|ts| selects(ts, flow.protocol, flow.dst, flow.dst_port))
    }

    /// Our side.
    #[must_use]
    pub fn local(&self) -> &[TsRange] {
        &self.local
    }

    /// The peer's side.
    #[must_use]
    pub fn remote(&self) -> &[TsRange] {
        &self.remote
    }

    /// Whether they are of addresses alone: of every protocol and port.
    #[must_use]
    pub fn are_addresses(&self) -> bool {
        self.local.iter().chain(&self.remote).all(|ts| ts.protocol == 0 && ts.any_port())
    }

    /// Whether some address is on the peer's side of both.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.remote.iter().any(|ts| other.remote.iter().any(|of| meet(ts, of)))
    }

    /// How many addresses the peer's selectors hold (saturating): the fewer, the more specific.
    #[must_use]
    pub fn breadth(&self) -> u128 {
        self.remote.iter().map(breadth).fold(0, u128::saturating_add)
    }
}

fn meet(one: &TsRange, other: &TsRange) -> bool {
    let same = [one.end, other.start, other.end].iter().all(|at| at.is_ipv4() == one.start.is_ipv4());
    same && bits(one.start).max(bits(other.start)) <= bits(one.end).min(bits(other.end))
}

fn breadth(ts: &TsRange) -> u128 {
    bits(ts.end).saturating_sub(bits(ts.start)).saturating_add(1)
}

/// The address as a number. Addresses of different families are never compared by it.
pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn selects(ts: &TsRange, protocol: u8, address: IpAddr, port: Option<u16>) -> bool {
    ts.start.is_ipv4() == address.is_ipv4()
        && bits(ts.start) <= bits(address)
        && bits(address) <= bits(ts.end)
        && (ts.protocol == 0 || ts.protocol == protocol)
        && match port {
            Some(port) => ts.start_port <= port && port <= ts.end_port,
            // RFC 4301 section 4.4.1.1: a packet whose ports cannot be seen matches ANY and OPAQUE.
            None => ts.any_port() || ts.opaque_ports(),
        }
}
