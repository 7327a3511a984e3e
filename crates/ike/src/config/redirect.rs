//! Gateways to which a client may be sent by another one (RFC 5685). Owns the patterns.

use core::fmt;
use core::str::FromStr;

use dormouse_wire::ike::{Gateway, NoGateway};
use ipnet::IpNet;

/// A pattern of gateways.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RedirectTarget {
    /// An address of this prefix.
    Net(IpNet),
    /// This name.
    Name(String),
    /// A name below this one, written `*.example.org`.
    Below(String),
}

impl RedirectTarget {
    /// Whether it means this gateway. A name is not looked up for that: who permits addresses does not permit names that lead there.
    #[must_use]
    pub fn means(&self, gateway: &Gateway) -> bool {
        match (self, gateway) {
            (Self::Net(net), Gateway::Address(address)) => net.contains(address),
            (Self::Name(ours), Gateway::Name(name)) => ours == name,
            (Self::Below(suffix), Gateway::Name(name)) => name
                .strip_suffix(suffix.as_str())
                .is_some_and(|front| front.len() > 1 && front.ends_with('.')),
            _ => false,
        }
    }
}

impl FromStr for RedirectTarget {
    type Err = NoGateway;

    fn from_str(text: &str) -> Result<Self, NoGateway> {
        if let Ok(net) = text.parse::<IpNet>() {
            return Ok(Self::Net(net.trunc()));
        }
        let below = text.strip_prefix("*.");
        match (below.unwrap_or(text).parse()?, below) {
            (Gateway::Address(_), Some(_)) => Err(NoGateway),
            (Gateway::Address(address), None) => Ok(Self::Net(address.into())),
            (Gateway::Name(name), Some(_)) => Ok(Self::Below(name)),
            (Gateway::Name(name), None) => Ok(Self::Name(name)),
        }
    }
}

impl fmt::Display for RedirectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(net) => net.fmt(f),
            Self::Name(name) => f.pad(name),
            Self::Below(suffix) => write!(f, "*.{suffix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_what_it_says_and_no_more() {
        let means = |pattern: &str, gateway: &str| {
            let pattern: RedirectTarget = pattern.parse().unwrap();
            assert_eq!(pattern.to_string().parse(), Ok(pattern.clone()));
            pattern.means(&gateway.parse().unwrap())
        };
        for (pattern, gateway, expected) in [
            ("192.0.2.0/24", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.0/24", "192.0.3.7", false),
            ("2001:db8::/32", "2001:db8::1", true),
            ("gw2.example.org", "GW2.example.org", true),
            ("gw2.example.org", "gw3.example.org", false),
            ("*.example.org", "gw2.example.org", true),
            ("*.example.org", "a.b.example.org", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "badexample.org", false),
            ("*.example.org", "192.0.2.7", false),
            ("0.0.0.0/0", "gw2.example.org", false),
        ] {
            assert_eq!(means(pattern, gateway), expected, "{pattern} {gateway}");
        }
        for wrong in ["", "*", "*.192.0.2.1", "a b", "*.*.example.org"] {
            assert_eq!(wrong.parse::<RedirectTarget>(), Err(NoGateway), "{wrong}");
        }
    }
}
