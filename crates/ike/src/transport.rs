//! Transport mode through NATs (RFC 7296 section 2.23.1). Its selectors are the outer addresses, which the two ends do not see alike
//! where a NAT lies between them. Owns what either end makes of the other's addresses; must never widen a selector, and never
//! touches a packet (ESP corrects the checksums, by [`Original`]).
//!
//! ```text
//! client IP1 ---- NAT A IPN1 ---- IPN2 NAT B ---- IP2 server
//! ```
//!
//! A message names the addresses that its sender sees: the request IP1 and IPN2, the answer IPN1 and IP2. Its receiver puts
//! in their place those that it sees itself, and remembers what it read: the checksums of the peer's packets are over those.
//!
//! A CHILD SA keeps its addresses for life, and leaves them to the one that replaces it, wherever IKE has moved since: the
//! sockets of both hosts are bound to them, and neither end could tell the other of new ones before the next negotiation.

use core::net::IpAddr;

use dormouse_keying::Original;
use dormouse_sansio::Path;
use dormouse_wire::ike::{TrafficSelector, TsRange};

use crate::natd::Detection;
use crate::selectors;

/// The two addresses between which a CHILD SA in transport mode carries, as we see them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    local: End,
    remote: End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct End {
    address: IpAddr,
    /// The peer knows it by another.
    translated: bool,
}

/// The selectors of transport mode, as we see them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Carried {
    pub(crate) local: Vec<TsRange>,
    pub(crate) remote: Vec<TsRange>,
    /// `None`: the peer sees the same.
    pub(crate) original: Option<Original>,
}

impl Ends {
    /// Those of the IKE SA, for a new CHILD SA.
    pub(crate) const fn of(path: &Path, nat: Detection) -> Self {
        Self {
            local: End { address: path.local.ip(), translated: nat.local },
            remote: End { address: path.remote.ip(), translated: nat.remote },
        }
    }

    /// Those of a CHILD SA in transport mode, for the one that replaces it. What the peer knows them by stands in its message,
    /// whichever NATs were between us then or are now. `None`: it has not one address on each side, so was not made here.
    pub(crate) fn kept(local: &[TsRange], remote: &[TsRange]) -> Option<Self> {
        let end = |list: &[TsRange]| {
            let address = only_address(list)?;
            Some(End { address, translated: true })
        };
        Some(Self { local: end(local)?, remote: end(remote)? })
    }

    /// What transport mode can carry of what a policy covers; `None`: it does not cover both ends.
    /// "The TSi entries MUST have exactly one IP address, and that MUST match the source address of the IKE SA." (RFC 7296
    /// section 2.23.1)
    /// "The TSr entries MUST have exactly one IP address, and that MUST match the destination address of the IKE SA." (RFC 7296
    /// section 2.23.1)
    pub(crate) fn of_policy(
        &self,
        local: &[TsRange],
        remote: &[TsRange],
    ) -> Option<(Vec<TsRange>, Vec<TsRange>)> {
        let side = |end: End, policy: &[TsRange]| {
            let only = TsRange::addresses(end.address, end.address);
            let within: Vec<_> = policy.iter().filter_map(|ts| selectors::intersection(ts, &only)).collect();
            (!within.is_empty()).then_some(within)
        };
        Some((side(self.local, local)?, side(self.remote, remote)?))
    }

    /// As responder: what the policy accepts of the peer's proposal of transport mode; `None`: nothing. Then the proposal is
    /// looked at again as it came, for tunnel mode:
    /// "If no SPD entry was found, or (if found) the SPD entry does not allow transport mode, undo the Traffic Selector
    /// substitutions." (RFC 7296 section 2.23.1)
    pub(crate) fn narrow(
        &self,
        proposed: (&[TrafficSelector], &[TrafficSelector]),
        policy: (&[TsRange], &[TsRange]),
    ) -> Option<Carried> {
        let (local, remote, original) = self.substitute(proposed)?;
        let (policy_local, policy_remote) = self.of_policy(policy.0, policy.1)?;
        let local = selectors::narrow(&local, &policy_local);
        let remote = selectors::narrow(&remote, &policy_remote);
        (!local.is_empty() && !remote.is_empty()).then_some(Carried { local, remote, original })
    }

    /// The peer's selectors of our side and of its own, as we see them, and the addresses that were in them. `None`: a NAT has
    /// changed an address of which there is not exactly one.
    /// "Do address substitution before using those Traffic Selectors for anything other than storing original content of them."
    /// (RFC 7296 section 2.23.1)
    pub(crate) fn substitute(
        &self,
        (local, remote): (&[TrafficSelector], &[TrafficSelector]),
    ) -> Option<(Vec<TrafficSelector>, Vec<TrafficSelector>, Option<Original>)> {
        let (local, local_was) = self.local.substitute(local)?;
        let (remote, remote_was) = self.remote.substitute(remote)?;
        let changed = (local_was, remote_was) != (self.local.address, self.remote.address);
        let original = changed.then_some(Original { local: local_was, remote: remote_was });
        Some((local, remote, original))
    }
}

impl End {
    fn substitute(self, selectors: &[TrafficSelector]) -> Option<(Vec<TrafficSelector>, IpAddr)> {
        if !self.translated {
            return Some((selectors.to_vec(), self.address));
        }
        let ranges: Vec<TsRange> = selectors
            .iter()
            .filter_map(|selector| match selector {
                TrafficSelector::Range(range) => Some(*range),
                TrafficSelector::Unknown { .. } => None,
            })
            .collect();
        let was = only_address(&ranges).filter(|was| was.is_ipv4() == self.address.is_ipv4())?;
        let here = |range: TsRange| TsRange { start: self.address, end: self.address, ..range };
        Some((ranges.into_iter().map(|range| here(range).into()).collect(), was))
    }
}

/// The one address that all of these select.
fn only_address(ranges: &[TsRange]) -> Option<IpAddr> {
    let first = ranges.first()?.start;
    ranges.iter().all(|range| range.start == first && range.end == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use dormouse_sansio::Carrier;

    use super::*;
    use crate::selectors::{show, show_wire, to_wire};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn ends(local: bool, remote: bool) -> Ends {
        let path = Path {
            local: "10.0.0.5:4500".parse().unwrap(),
            remote: "192.0.2.9:4500".parse().unwrap(),
            carrier: Carrier::NatT,
        };
        Ends::of(&path, Detection { supported: true, local, remote })
    }

    fn range(start: &str, end: &str) -> TsRange {
        TsRange::addresses(ip(start), ip(end))
    }

    fn tcp(address: &str, port: u16) -> TsRange {
        TsRange { protocol: 6, start_port: port, end_port: port, ..range(address, address) }
    }

    #[test]
    fn every_entry_gets_the_address_that_we_see_and_keeps_its_ports() {
        let theirs = to_wire(&[tcp("172.16.0.1", 80), tcp("172.16.0.1", 443)]);
        let ours = to_wire(&[range("10.0.0.5", "10.0.0.5")]);
        let (local, remote, original) = ends(false, true).substitute((&ours, &theirs)).unwrap();
        assert_eq!(show_wire(&remote), "192.0.2.9 tcp port 80, 192.0.2.9 tcp port 443");
        assert_eq!(local, ours);
        assert_eq!(original, Some(Original { local: ip("10.0.0.5"), remote: ip("172.16.0.1") }));
        let (_, remote, original) = ends(true, false).substitute((&theirs, &theirs)).unwrap();
        assert_eq!(remote, theirs);
        assert_eq!(original, Some(Original { local: ip("172.16.0.1"), remote: ip("192.0.2.9") }));
    }

    #[test]
    fn without_a_nat_nothing_changes() {
        let (ours, theirs) = (to_wire(&[tcp("10.0.0.5", 1)]), to_wire(&[tcp("192.0.2.9", 2)]));
        let (local, remote, original) = ends(false, false).substitute((&ours, &theirs)).unwrap();
        assert_eq!((local, remote, original), (ours.clone(), theirs.clone(), None));
        // A NAT that was made up to have ESP in UDP changes nothing either.
        assert_eq!(ends(true, true).substitute((&ours, &theirs)).unwrap().2, None);
    }

    #[test]
    fn behind_a_nat_there_must_be_exactly_one_address() {
        let ours = to_wire(&[range("10.0.0.5", "10.0.0.5")]);
        let several = [
            vec![range("172.16.0.0", "172.16.0.255")],
            vec![tcp("172.16.0.1", 80), tcp("172.16.0.2", 80)],
            vec![tcp("172.16.0.1", 80), range("0.0.0.0", "255.255.255.255")],
            vec![range("2001:db8::1", "2001:db8::1")],
            vec![],
        ];
        for theirs in several.map(|list| to_wire(&list)) {
            assert!(ends(false, true).substitute((&ours, &theirs)).is_none(), "{}", show_wire(&theirs));
        }
    }

    #[test]
    fn a_proposal_is_narrowed_to_the_two_ends() {
        let everything = [range("0.0.0.0", "255.255.255.255")];
        let wide = to_wire(&[range("192.0.2.0", "192.0.2.255")]);
        let ours = to_wire(&[range("10.0.0.5", "10.0.0.5")]);
        let carried = ends(false, false).narrow((&ours, &wide), (&everything, &everything)).unwrap();
        assert_eq!((show(&carried.local), show(&carried.remote)), ("10.0.0.5".into(), "192.0.2.9".into()));
        // Another address than the outer one, and a policy for another address than the outer one.
        let other = to_wire(&[range("192.0.2.8", "192.0.2.8")]);
        assert_eq!(ends(false, false).narrow((&ours, &other), (&everything, &everything)), None);
        let policy = [range("172.16.0.1", "172.16.0.1")];
        let hidden = to_wire(&policy);
        assert_eq!(ends(false, true).narrow((&ours, &hidden), (&everything, &policy)), None);
        let seen = [range("192.0.2.9", "192.0.2.9")];
        let carried = ends(false, true).narrow((&ours, &hidden), (&everything, &seen)).unwrap();
        assert_eq!(carried.original, Some(Original { local: ip("10.0.0.5"), remote: ip("172.16.0.1") }));
    }
}
