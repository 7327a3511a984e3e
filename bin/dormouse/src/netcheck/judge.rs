//! What the answers to `dormouse netcheck` mean, and what to change. Owns the judgement; asks nothing.

use super::look::{By, Family, Mtu, Nat, Port, Rejection, Reply};
use dormouse_control::{Check, CheckOutcome};
use std::net::IpAddr;

/// Smallest MTU that carries IPv6, in bytes (RFC 8200, section 5).
const IPV6_MINIMUM: u32 = 1280;

fn name(v4: bool, what: &str) -> String {
    format!("{} {what}", if v4 { "IPv4" } else { "IPv6" })
}

fn check(name: String, outcome: CheckOutcome, found: impl Into<String>, change: Option<String>) -> Check {
    Check { name, outcome, found: found.into(), change }
}

fn answers(port: &Port) -> bool {
    matches!(port.heard, Reply::Answered { .. })
}

/// Whether a session can be had by this address: it begins at the one port, and goes on at the other.
fn reachable(family: &Family) -> bool {
    family.ports.len() == 2 && family.ports.iter().all(answers)
}

/// All checks, of the gateway's first address in each family. `literal`: it was named by an address, which has one family.
pub(super) fn judge(families: &[Family], literal: bool) -> Vec<Check> {
    let any = families.iter().any(reachable);
    let mut checks = Vec::new();
    for v4 in [true, false] {
        match families.iter().find(|family| family.address.is_ipv4() == v4) {
            Some(family) => one(family, any, &mut checks),
            None if literal => {}
            None => {
                let found = "not asked: the gateway's name has no such address";
                checks.push(check(name(v4, "way"), CheckOutcome::Skipped, found, None));
            }
        }
    }
    checks.push(verdict(families, any));
    checks
}

/// What is wrong with one address is a failure only if no other one is right: a session goes by that.
fn one(family: &Family, any: bool, checks: &mut Vec<Check>) {
    let v4 = family.address.is_ipv4();
    let bad = if any { CheckOutcome::Warning } else { CheckOutcome::Failure };
    let Some(way) = &family.way else {
        let found = format!("none from here to {}", family.address);
        let outcome = if any { CheckOutcome::Skipped } else { CheckOutcome::Failure };
        checks.push(check(name(v4, "way"), outcome, found, Some("connect to a network that has one".into())));
        return;
    };
    let found = format!("to {} from {} by {}", family.address, way.source, way.interface);
    checks.push(check(name(v4, "way"), CheckOutcome::Ok, found, None));
    for (i, port) in family.ports.iter().enumerate() {
        checks.push(of_port(v4, family, port, i == 1, bad));
    }
    if family.ports.iter().any(answers) {
        checks.push(nat(v4, family, way.source));
        checks.push(mtu(v4, family.mtu));
    }
}

fn of_port(v4: bool, family: &Family, port: &Port, marked: bool, bad: CheckOutcome) -> Check {
    let named = name(v4, &format!("UDP {}", port.port));
    let other = family.ports.iter().any(|other| other.port != port.port && answers(other));
    match &port.heard {
        Reply::Answered { milliseconds, refusal, .. } => {
            let refused = refusal
                .as_ref()
                .map_or(String::new(), |what| format!(" by a refusal{} ({what})", of_algorithms(what)));
            check(named, CheckOutcome::Ok, format!("answers{refused} after {milliseconds} ms"), None)
        }
        Reply::Rejected(why) => {
            let found = match why {
                Rejection::NobodyListens => {
                    "rejected by ICMP: no service listens there, or a firewall says so"
                }
                Rejection::Forbidden => "rejected by ICMP: something on the way forbids it",
                Rejection::Unreachable => "rejected by ICMP: a router cannot or will not reach the gateway",
            };
            let change = "at the gateway: dormouse doctor; else a firewall between here and there".to_owned();
            check(named, bad, found, Some(change))
        }
        Reply::Held(why) => check(
            named,
            CheckOutcome::Skipped,
            format!("not asked: this machine did not let it out: {why}"),
            None,
        ),
        Reply::Silent if other => {
            let why = if marked {
                "without it there is no session behind a NAT"
            } else {
                "sessions begin there, and only tickets come back without it"
            };
            let change = format!("let UDP {} through on the way: {why}", port.port);
            let found = "no answer, while the other port answers: this port is dropped on the way";
            check(named, bad, found, Some(change))
        }
        Reply::Silent => check(named, bad, "no answer, and no word why", None),
    }
}

fn nats(family: &Family) -> Vec<(u16, Nat)> {
    let of = |port: &Port| match port.heard {
        Reply::Answered { nat: Some(nat), .. } => Some((port.port, nat)),
        _ => None,
    };
    family.ports.iter().filter_map(of).collect()
}

/// What is refused, if the refusal says so (RFC 7296, section 1.2).
fn of_algorithms(refusal: &str) -> &'static str {
    if ["NO_PROPOSAL_CHOSEN", "INVALID_KE_PAYLOAD"].contains(&refusal) { " of our algorithms" } else { "" }
}

fn nat(v4: bool, family: &Family, source: IpAddr) -> Check {
    let named = name(v4, "NAT");
    let all = nats(family);
    let Some((first_port, first)) = all.first().copied() else {
        let refusal = family.ports.iter().find_map(|port| match &port.heard {
            Reply::Answered { refusal, .. } => refusal.as_deref(),
            _ => None,
        });
        let algorithms = refusal.map(of_algorithms).unwrap_or_default();
        let what = refusal.map_or("the gateway's answer", |_| "a refusal");
        let change = "connection.NAME.ike.proposals as the gateway takes them";
        let change = (!algorithms.is_empty()).then(|| change.to_owned());
        let found = format!("not known: {what}{algorithms} says nothing of it");
        return check(named, CheckOutcome::Skipped, found, change);
    };
    let gateways = if first.gateways { "; the gateway's address is translated too" } else { "" };
    if let Some((port, _)) = all.iter().find(|(_, nat)| nat.ours != first.ours) {
        let treated = if first.ours { first_port } else { *port };
        let found = format!(
            "our address is translated for port {treated} alone: a router treats IKE in a way of its own{gateways}"
        );
        let change = "switch off \"IPsec passthrough\", or whatever it is called, in that router".to_owned();
        return check(named, CheckOutcome::Warning, found, Some(change));
    }
    if !first.ours {
        let found = format!("none: the gateway sees {source} as it is{gateways}");
        return check(named, CheckOutcome::Ok, found, None);
    }
    let seen: Vec<_> = all.iter().filter_map(|(_, nat)| nat.seen).collect();
    let how = match seen[..] {
        [one, two] if one == two => format!("to {one}, the same for both ports of the gateway"),
        [one, two] => format!(
            "to {one} for one port of the gateway and {two} for the other: a NAT that makes a mapping for each"
        ),
        [one] => format!("to {one}"),
        _ => "to what, the gateway alone knows (--seen-as ADDRESS finds the port of an address)".into(),
    };
    check(named, CheckOutcome::Ok, format!("our address {source} is translated {how}{gateways}"), None)
}

fn mtu(v4: bool, mtu: Option<Mtu>) -> Check {
    let named = name(v4, "path MTU");
    let Some(Mtu { bytes, by }) = mtu else {
        let found = "not known: no question of a size was answered, and the kernel has learned nothing";
        return check(named, CheckOutcome::Skipped, found, None);
    };
    let small =
        if bytes < IPV6_MINIMUM { format!(", too small for IPv6 ({IPV6_MINIMUM})") } else { String::new() };
    let outcome = if small.is_empty() { CheckOutcome::Ok } else { CheckOutcome::Warning };
    match by {
        By::Link => check(
            named,
            outcome,
            format!("{bytes} bytes towards the gateway: all that the interface takes was answered{small}"),
            None,
        ),
        By::Refusal => check(
            named,
            outcome,
            format!(
                "{bytes} bytes towards the gateway: answered, and larger ones refused with that size{small}"
            ),
            None,
        ),
        By::Silence => {
            let found = format!(
                "{bytes} bytes towards the gateway: answered, and larger ones vanish without a word{small}"
            );
            let change = "let ICMP \"fragmentation needed\" and \"packet too big\" through on the way; or, here, the interface's MTU".to_owned();
            check(named, CheckOutcome::Warning, found, Some(change))
        }
        By::Cache => check(
            named,
            outcome,
            format!("{bytes} bytes, as the kernel has learned; no question of a size was answered{small}"),
            None,
        ),
    }
}

/// The one line that counts.
fn verdict(families: &[Family], any: bool) -> Check {
    const NAME: &str = "gateway";
    let say = |outcome, found: &str, change: Option<&str>| {
        check(NAME.into(), outcome, found, change.map(str::to_owned))
    };
    if any {
        let by = families.iter().filter(|family| reachable(family)).map(|family| family.address.to_string());
        let by = by.collect::<Vec<_>>().join(" and ");
        return say(CheckOutcome::Ok, &format!("reachable at {by}"), None);
    }
    let ports = || families.iter().flat_map(|family| &family.ports);
    if families.is_empty() || families.iter().all(|family| family.way.is_none()) {
        return say(CheckOutcome::Failure, "no network leads there", Some("connect to a network"));
    }
    if ports().any(answers) {
        return say(CheckOutcome::Failure, "only one of its two ports can be reached", None);
    }
    if ports().any(|port| matches!(port.heard, Reply::Rejected(_))) {
        return say(CheckOutcome::Failure, "not reachable: rejected", None);
    }
    if ports().any(|port| matches!(port.heard, Reply::Held(_))) {
        let found = "could not be asked: this machine lets nothing of this user's out beside its tunnel";
        return say(
            CheckOutcome::Failure,
            found,
            Some("run it as root, as what the daemon holds (block) demands; else this machine's firewall"),
        );
    }
    if families.iter().any(|family| family.tcp == Some(true)) {
        let found = "UDP is blocked: its machine answers TCP and no UDP";
        return say(
            CheckOutcome::Failure,
            found,
            Some("another network; or at the gateway: dormouse doctor (its firewall, the daemon)"),
        );
    }
    let found =
        "nothing comes back, neither by UDP nor by TCP: a network that lets nothing out, or no gateway there";
    say(CheckOutcome::Failure, found, Some("open a web page, to log in to the network; dormouse portal"))
}

#[cfg(test)]
mod tests {
    use super::super::look::Way;
    use super::*;
    use CheckOutcome::{Failure, Ok, Skipped, Warning};

    fn answered(ours: bool, seen: Option<&str>) -> Reply {
        let nat = Nat { ours, gateways: false, seen: seen.map(|seen| seen.parse().unwrap()) };
        Reply::Answered { milliseconds: 9, nat: Some(nat), refusal: None }
    }

    fn family(address: &str, ike: Reply, natt: Reply) -> Family {
        let way = Way {
            source: "10.0.0.2".parse().unwrap(),
            interface: "wlan0".into(),
            link_mtu: 1500,
            cached_mtu: None,
        };
        Family {
            address: address.parse().unwrap(),
            way: Some(way),
            ports: vec![Port { port: 500, heard: ike }, Port { port: 4500, heard: natt }],
            tcp: None,
            mtu: Some(Mtu { bytes: 1500, by: By::Link }),
        }
    }

    fn outcome(checks: &[Check], name: &str) -> (CheckOutcome, String) {
        let found =
            checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("{name}: {checks:#?}"));
        (found.outcome, found.found.clone())
    }

    #[test]
    fn an_open_network_is_all_good() {
        let all = [family("203.0.113.1", answered(false, None), answered(false, None))];
        let checks = judge(&all, true);
        assert!(checks.iter().all(|check| check.outcome == Ok), "{checks:#?}");
        assert_eq!(outcome(&checks, "gateway").1, "reachable at 203.0.113.1");
        let checks = judge(&all, false);
        assert_eq!(outcome(&checks, "IPv6 way").0, Skipped, "its name has no such address");
    }

    #[test]
    fn what_blocks_is_told_apart() {
        let one = |ike, natt| judge(&[family("203.0.113.1", ike, natt)], true);
        let checks = one(Reply::Silent, answered(false, None));
        let (found, words) = outcome(&checks, "IPv4 UDP 500");
        assert!(found == Failure && words.contains("this port is dropped on the way"), "{words}");
        assert_eq!(outcome(&checks, "gateway"), (Failure, "only one of its two ports can be reached".into()));
        let checks = one(answered(false, None), Reply::Silent);
        let change = checks.iter().find(|c| c.name == "IPv4 UDP 4500").unwrap().change.clone().unwrap();
        assert!(change.starts_with("let UDP 4500 through"), "{change}");

        let checks = one(Reply::Rejected(Rejection::NobodyListens), Reply::Rejected(Rejection::Forbidden));
        assert!(outcome(&checks, "IPv4 UDP 500").1.starts_with("rejected by ICMP: no service"));
        assert_eq!(outcome(&checks, "gateway").1, "not reachable: rejected");
        assert!(!checks.iter().any(|check| check.name.contains("NAT") || check.name.contains("MTU")));

        for (tcp, words) in [(Some(true), "UDP is blocked"), (Some(false), "nothing comes back")] {
            let silent = Family { tcp, ..family("203.0.113.1", Reply::Silent, Reply::Silent) };
            let checks = judge(&[silent], true);
            assert!(outcome(&checks, "gateway").1.starts_with(words), "{checks:#?}");
            assert_eq!(outcome(&checks, "IPv4 UDP 500"), (Failure, "no answer, and no word why".into()));
        }
        let checks = one(Reply::Held("Operation not permitted".into()), Reply::Silent);
        assert!(outcome(&checks, "gateway").1.starts_with("could not be asked"));
    }

    #[test]
    fn one_family_that_works_is_enough_and_the_other_is_warned_of() {
        let four = family("203.0.113.1", answered(true, None), answered(true, None));
        let six = Family { tcp: Some(false), ..family("2001:db8::1", Reply::Silent, Reply::Silent) };
        let checks = judge(&[four.clone(), six], false);
        assert_eq!((outcome(&checks, "gateway").0, outcome(&checks, "IPv6 UDP 500").0), (Ok, Warning));
        let none =
            Family { way: None, ports: Vec::new(), ..family("2001:db8::1", Reply::Silent, Reply::Silent) };
        let checks = judge(&[four, none.clone()], false);
        assert_eq!((outcome(&checks, "gateway").0, outcome(&checks, "IPv6 way").0), (Ok, Skipped));
        let checks = judge(&[none], false);
        assert_eq!(outcome(&checks, "gateway"), (Failure, "no network leads there".into()));
        assert_eq!(outcome(&checks, "IPv6 way").0, Failure);
    }

    #[test]
    fn the_kind_of_nat_is_said_as_far_as_it_can_be_seen() {
        let of = |ike, natt| outcome(&judge(&[family("203.0.113.1", ike, natt)], true), "IPv4 NAT");
        assert!(
            of(answered(false, None), answered(false, None)).1.starts_with("none: the gateway sees 10.0.0.2")
        );
        assert!(of(answered(true, None), answered(true, None)).1.contains("--seen-as"));
        let (one, two) = (Some("198.51.100.6:2000"), Some("198.51.100.6:2001"));
        assert!(of(answered(true, one), answered(true, one)).1.contains("the same for both ports"));
        assert!(of(answered(true, one), answered(true, two)).1.contains("a mapping for each"));
        let (found, words) = of(answered(true, None), answered(false, None));
        assert!(found == Warning && words.contains("for port 500 alone"), "{words}");
        for (refusal, words) in [
            (Some("NO_PROPOSAL_CHOSEN"), "a refusal of our algorithms says nothing of it"),
            (Some("INVALID_SYNTAX"), "a refusal says nothing of it"),
            (None, "the gateway's answer says nothing of it"),
        ] {
            let reply = Reply::Answered { milliseconds: 1, nat: None, refusal: refusal.map(str::to_owned) };
            let checks = judge(&[family("203.0.113.1", reply.clone(), reply)], true);
            assert_eq!(outcome(&checks, "IPv4 NAT"), (Skipped, format!("not known: {words}")));
            let ike = outcome(&checks, "IPv4 UDP 500").1;
            assert_eq!(ike.contains("of our algorithms"), refusal == Some("NO_PROPOSAL_CHOSEN"), "{ike}");
        }
    }

    #[test]
    fn a_size_says_how_it_is_known() {
        for (bytes, by, expected, words) in [
            (1500, By::Link, Ok, "all that the interface takes"),
            (1400, By::Refusal, Ok, "larger ones refused"),
            (1400, By::Silence, Warning, "vanish without a word"),
            (1200, By::Refusal, Warning, "too small for IPv6"),
            (1400, By::Cache, Ok, "as the kernel has learned"),
        ] {
            let found = mtu(true, Some(Mtu { bytes, by }));
            assert!(found.outcome == expected && found.found.contains(words), "{found:?}");
        }
        assert_eq!(mtu(true, None).outcome, Skipped);
    }
}
