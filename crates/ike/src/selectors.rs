//! Traffic selectors (RFC 7296, section 2.9): from configuration to what is proposed, and from a proposal to what both sides
//! accept. Owns the arithmetic of selectors; must never look at a packet (ESP does that).

use core::fmt;
use core::net::IpAddr;

use dormouse_wire::ike::{TrafficSelector, TsRange};
use ipnet::IpNet;

use crate::config::SelectorSpec;
use crate::limits::SELECTORS_MAX;

/// What [`SelectorSpec::Dynamic`] stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dynamic<'a> {
    /// These addresses.
    Known(&'a [IpAddr]),
    /// Not known yet, as in the initiator's request: any address of the families for which one is asked (RFC 7296, section
    /// 2.19); the responder narrows it to what it assigns.
    Any {
        /// IPv4.
        v4: bool,
        /// IPv6.
        v6: bool,
    },
}

/// The selectors that a policy means, in its order.
#[must_use]
pub fn resolve(specs: &[SelectorSpec], dynamic: Dynamic<'_>) -> Vec<TsRange> {
    let mut ranges = Vec::new();
    for spec in specs {
        match *spec {
            SelectorSpec::Net(net) => ranges.push(of_net(net)),
            SelectorSpec::Narrow { net, protocol, ports: (start_port, end_port) } => {
                ranges.push(TsRange { protocol, start_port, end_port, ..of_net(net) });
            }
            SelectorSpec::Dynamic => match dynamic {
                Dynamic::Known(addresses) => {
                    ranges.extend(addresses.iter().map(|&a| TsRange::addresses(a, a)));
                }
                Dynamic::Any { v4, v6 } => {
                    ranges.extend(v4.then_some(TsRange::any_v4()));
                    ranges.extend(v6.then_some(TsRange::any_v6()));
                }
            },
        }
    }
    ranges.truncate(SELECTORS_MAX);
    ranges
}

fn of_net(net: IpNet) -> TsRange {
    TsRange::addresses(net.network(), net.broadcast())
}

/// As payload.
#[must_use]
pub fn to_wire(ranges: &[TsRange]) -> Vec<TrafficSelector> {
    ranges.iter().copied().map(TrafficSelector::from).collect()
}

/// What both select, if anything.
///
/// Protocol 0 is any; ports 0 to 65535 are any; OPAQUE ports (65535 to 0) meet OPAQUE and any. ICMP types and codes are the
/// high and low byte of "ports" and need no rule of their own (section 3.13.1).
#[must_use]
pub fn intersection(a: &TsRange, b: &TsRange) -> Option<TsRange> {
    if !well_formed(a) || !well_formed(b) || a.start.is_ipv4() != b.start.is_ipv4() {
        return None;
    }
    let (start, end) = (a.start.max(b.start), a.end.min(b.end));
    let protocol = match (a.protocol, b.protocol) {
        (0, p) | (p, 0) => p,
        (p, q) if p == q => p,
        _ => return None,
    };
    let (start_port, end_port) = match (a.opaque_ports(), b.opaque_ports()) {
        (true, true) => (u16::MAX, 0),
        (true, false) if b.any_port() => (u16::MAX, 0),
        (false, true) if a.any_port() => (u16::MAX, 0),
        (false, false) => {
            let ports = (a.start_port.max(b.start_port), a.end_port.min(b.end_port));
            (ports.0 <= ports.1).then_some(ports)?
        }
        _ => return None,
    };
    (start <= end).then_some(TsRange { protocol, start_port, end_port, start, end })
}

/// A selector that selects something: addresses of one family in order, ports in order or OPAQUE, and no ports without a
/// protocol to have them.
fn well_formed(range: &TsRange) -> bool {
    range.start.is_ipv4() == range.end.is_ipv4()
        && range.start <= range.end
        && (range.start_port <= range.end_port || range.opaque_ports())
        && (range.protocol != 0 || range.any_port())
}

/// Whether `outer` selects everything that `inner` does.
#[must_use]
pub fn covers(outer: &TsRange, inner: &TsRange) -> bool {
    intersection(outer, inner).is_some_and(|common| common == *inner)
}

/// What of the peer's proposal the policy accepts: the TS_UNACCEPTABLE case is an empty list.
///
/// The result is the whole intersection, so that it includes the peer's first selector, often the packet that caused the
/// exchange, wherever the policy allows it:
///
/// > If the responder's policy allows it to accept the first selector of TSi and TSr, then the responder MUST narrow the
/// > Traffic Selectors to a subset that includes the initiator's first choices. (RFC 7296, section 2.9)
///
/// Selectors inside others are left out; unknown kinds are passed over; at most [`SELECTORS_MAX`] are kept, those that come from
/// the peer's first selectors before others.
/// "[...] responders SHOULD narrow the selectors to an acceptable subset rather than use SINGLE_PAIR_REQUIRED" (RFC 7296
/// section 2.9)
#[must_use]
pub fn narrow(proposed: &[TrafficSelector], policy: &[TsRange]) -> Vec<TsRange> {
    let mut accepted: Vec<TsRange> = Vec::new();
    for proposed in proposed {
        let TrafficSelector::Range(proposed) = proposed else { continue };
        for common in policy.iter().filter_map(|ours| intersection(proposed, ours)) {
            if accepted.iter().any(|have| covers(have, &common)) {
                continue;
            }
            accepted.retain(|have| !covers(&common, have));
            if accepted.len() < SELECTORS_MAX {
                accepted.push(common);
            }
        }
    }
    // Most have one, and a gateway keeps it for each session.
    accepted.shrink_to_fit();
    accepted
}

/// Why a responder's selectors are refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectorError {
    /// None at all.
    #[error("the answer selects no traffic")]
    Empty,
    /// More than was proposed.
    #[error("the answer selects {got}, proposed was {proposed}")]
    Widened {
        /// The offending selector.
        got: String,
        /// What was proposed.
        proposed: String,
    },
}

/// Checks that the responder's selectors are a subset of what we proposed.
///
/// # Errors
/// [`SelectorError`]: the CHILD_SA must not be used.
pub fn verify(answer: &[TrafficSelector], proposed: &[TsRange]) -> Result<Vec<TsRange>, SelectorError> {
    if answer.is_empty() {
        return Err(SelectorError::Empty);
    }
    let widened = |got: String| SelectorError::Widened { got, proposed: show(proposed) };
    answer
        .iter()
        .map(|selector| match selector {
            TrafficSelector::Range(range) if proposed.iter().any(|ours| covers(ours, range)) => Ok(*range),
            TrafficSelector::Range(range) => Err(widened(Shown(range).to_string())),
            TrafficSelector::Unknown { kind, .. } => Err(widened(format!("selector of type {kind}"))),
        })
        .collect()
}

struct Shown<'a>(&'a TsRange);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = self.0;
        if range.start == range.end {
            write!(f, "{}", range.start)?;
        } else {
            match as_net(range) {
                Some(net) => write!(f, "{net}")?,
                None => write!(f, "{}-{}", range.start, range.end)?,
            }
        }
        match range.protocol {
            0 => return Ok(()),
            1 => f.write_str(" icmp")?,
            6 => f.write_str(" tcp")?,
            17 => f.write_str(" udp")?,
            58 => f.write_str(" icmpv6")?,
            other => write!(f, " protocol {other}")?,
        }
        match (range.start_port, range.end_port) {
            (0, u16::MAX) => Ok(()),
            (u16::MAX, 0) => f.write_str(" opaque"),
            (a, b) if matches!(range.protocol, 1 | 58) => {
                write!(f, " type {} code {} to type {} code {}", a >> 8, a & 0xff, b >> 8, b & 0xff)
            }
            (a, b) if a == b => write!(f, " port {a}"),
            (a, b) => write!(f, " ports {a}-{b}"),
        }
    }
}

/// The prefix that the addresses are, if they are exactly one.
fn as_net(range: &TsRange) -> Option<IpNet> {
    let (shared, bits) = match (range.start, range.end) {
        (IpAddr::V4(a), IpAddr::V4(b)) => ((a.to_bits() ^ b.to_bits()).leading_zeros(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => ((a.to_bits() ^ b.to_bits()).leading_zeros(), 128),
        _ => return None,
    };
    let net = IpNet::new(range.start, u8::try_from(shared.min(bits)).ok()?).ok()?;
    (net.network() == range.start && net.broadcast() == range.end).then_some(net)
}

/// Selectors in words, for errors and status.
#[must_use]
pub fn show(ranges: &[TsRange]) -> String {
    if ranges.is_empty() {
        return "nothing".to_owned();
    }
    ranges.iter().map(|range| Shown(range).to_string()).collect::<Vec<_>>().join(", ")
}

/// [`show`] for selectors as received.
#[must_use]
pub fn show_wire(selectors: &[TrafficSelector]) -> String {
    let ranges: Vec<_> = selectors
        .iter()
        .filter_map(|selector| match selector {
            TrafficSelector::Range(range) => Some(*range),
            TrafficSelector::Unknown { .. } => None,
        })
        .collect();
    show(&ranges)
}

#[cfg(test)]
mod tests;
