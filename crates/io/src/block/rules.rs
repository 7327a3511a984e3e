//! The rules as text for `nft`. Owns what is refused and what is excepted; never runs anything.
//!
//! Names from outside (interfaces, connections) come into this text only through [`fit_interface`] and [`chain`]: a quotation mark in one
//! would be a rule of its own.

use super::TABLE;
use crate::netlink::MARK;
use dormouse_sansio::fit_interface;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// Begins the name of the chain of each connection that something is held for.
const HELD: &str = "held.";

/// The whole table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rules {
    /// The tunnel interface: what leaves by it is not held.
    pub tunnel: String,
    /// The interface beside it by which the kernel's own ESP is reached, if that is used; and the port of NAT traversal, from which it sends.
    #[serde(default)]
    pub kernel: Option<(String, u16)>,
    /// Whose marked packets are the tunnel's own, besides root's: the mark alone takes no more than `CAP_NET_RAW`, which many a `ping` has.
    pub user: u32,
    /// For whom something is held.
    pub held: Vec<Blocked>,
    /// The local networks.
    pub on_link: Vec<OnLink>,
    /// What is open for a while.
    pub portal: Option<Portal>,
}

/// What is held for one connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Blocked {
    /// The connection's name.
    pub connection: String,
    /// What the tunnel should carry.
    pub carried: Vec<IpNet>,
    /// Of that, what no local network counts for: less than all of a family.
    pub exact: Vec<IpNet>,
    /// Our own side of the tunnel, where that lies inside of `carried`: it stays here.
    pub own: Vec<IpNet>,
    /// The local networks can be reached.
    pub local_network: bool,
    /// Name servers in them too: the gateway gives none.
    pub local_names: bool,
    /// Before the first connection, without a daemon, and at boot too.
    pub always: bool,
    /// Nor does anything come from or for `carried` but by the tunnel: the kernel takes what is for an address of this machine from any
    /// interface.
    #[serde(default)]
    pub inward: bool,
}

/// A local network: private addresses that are neighbours over an interface.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct OnLink {
    /// Over which interface.
    pub interface: String,
    /// Which addresses.
    pub net: IpNet,
}

/// Addresses that are open for a while, so that a captive portal can be answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Portal {
    /// Which.
    pub addresses: Vec<IpAddr>,
    /// Until when, on the clock that counts suspended time ([`crate::clock::BootClock`]), since boot. The kernel closes by itself.
    pub until: Duration,
}

/// A connection's name as the name of a chain: what `nft` does not take is written as its bytes.
fn chain(connection: &str) -> String {
    connection.bytes().fold(String::new(), |mut out, b| {
        if b.is_ascii_alphanumeric() || b == b'-' || b == b'_' {
            out.push(char::from(b));
        } else {
            let _ = write!(out, ".{b:02x}");
        }
        out
    })
}

/// The connections of a table as `nft` lists it.
pub(super) fn held_in(listing: &str) -> Vec<String> {
    let name = |line: &str| {
        let encoded = line.trim().strip_prefix("chain ")?.strip_prefix(HELD)?.strip_suffix(" {")?;
        let mut parts = encoded.split('.');
        let mut bytes = parts.next()?.as_bytes().to_vec();
        for part in parts {
            bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
            bytes.extend_from_slice(part.get(2..)?.as_bytes());
        }
        String::from_utf8(bytes).ok()
    };
    listing.lines().filter_map(name).collect()
}

impl Rules {
    /// What is held without a daemon, and before there is a network.
    #[must_use]
    pub fn always(&self) -> Self {
        let held = self.held.iter().filter(|held| held.always).cloned().collect();
        let (tunnel, kernel) = (self.tunnel.clone(), self.kernel.clone());
        Self { tunnel, kernel, user: self.user, held, ..Self::default() }
    }

    /// What `nft -f -` reads: everything in one transaction. `now` is [`Portal::until`]'s clock.
    ///
    /// # Errors
    /// If something is to be held and the tunnel interface has a name that cannot stand in a rule.
    pub(super) fn text_at(&self, now: Duration) -> io::Result<String> {
        // Made before it is deleted, so that it is no error if it was not there.
        let mut out = format!("table inet {TABLE}\ndelete table inet {TABLE}\n");
        if self.held.is_empty() {
            return Ok(out);
        }
        if !self.interfaces().all(fit_interface) {
            let what = format!("\"{}\" cannot stand in a rule as the tunnel interface's name", self.tunnel);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let _ = writeln!(out, "table inet {TABLE} {{");
        let seconds = |p: &Portal| p.until.saturating_sub(now).as_secs();
        let open = self.portal.iter().filter(|p| seconds(p) > 0);
        let open: Vec<(IpAddr, u64)> =
            open.flat_map(|p| p.addresses.iter().map(|a| (*a, seconds(p)))).collect();
        for (family, v4) in [(4, true), (6, false)] {
            let nets = self.local_networks(v4).into_iter();
            let nets = nets.map(|(interface, net)| format!("\"{interface}\" . {net}"));
            let kind = format!("ifname . ipv{family}_addr; flags interval");
            set(&mut out, &format!("local{family}"), &kind, nets);
            let open = open.iter().filter(|(a, _)| a.is_ipv4() == v4);
            let open = open.map(|(a, s)| format!("{a} timeout {s}s"));
            set(&mut out, &format!("portal{family}"), &format!("ipv{family}_addr; flags timeout"), open);
        }
        self.chains(&mut out);
        out.push_str("}\n");
        Ok(out)
    }

    /// By which what is carried leaves and comes.
    fn interfaces(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.tunnel.as_str()).chain(self.kernel.iter().map(|(name, _)| name.as_str()))
    }

    /// Of each interface, without overlaps: a set refuses them.
    fn local_networks(&self, v4: bool) -> Vec<(&str, IpNet)> {
        let mut by: BTreeMap<&str, Vec<IpNet>> = BTreeMap::new();
        for one in self.on_link.iter().filter(|o| o.net.addr().is_ipv4() == v4 && fit_interface(&o.interface))
        {
            by.entry(&one.interface).or_default().push(one.net);
        }
        by.iter()
            .flat_map(|(name, nets)| IpNet::aggregate(nets).into_iter().map(|net| (*name, net)))
            .collect()
    }

    /// [`Rules::text_at`] now.
    ///
    /// # Errors
    /// As that.
    pub(super) fn text(&self) -> io::Result<String> {
        self.text_at(crate::clock::BootClock::now() - dormouse_sansio::Instant::ZERO)
    }

    fn chains(&self, out: &mut String) {
        // Programs are refused at once; what comes from elsewhere, or from an address that has gone, is dropped without an answer, which
        // would quote the packet to the present holder of that address.
        out.push_str(
            " chain refuse {\n  fib saddr type local counter reject with icmpx admin-prohibited\n  counter drop\n }\n",
        );
        for held in &self.held {
            held.chains(out);
        }
        out.push_str(" chain leave {\n  ip daddr @portal4 accept\n  ip6 daddr @portal6 accept\n");
        for held in &self.held {
            let _ = writeln!(out, "  jump {HELD}{}", chain(&held.connection));
        }
        out.push_str(" }\n");
        let inward = self.held.iter().filter(|held| held.inward).flat_map(|held| held.carried.clone());
        let inward: Vec<IpNet> = inward.collect();
        if !inward.is_empty() {
            let _ = write!(
                out,
                " chain enter {{\n  type filter hook prerouting priority raw; policy accept;\n{}  iifname \"lo\" accept\n",
                self.interfaces().map(|name| format!("  iifname \"{name}\" accept\n")).collect::<String>()
            );
            addresses(out, "saddr", &inward, "counter drop");
            addresses(out, "daddr", &inward, "counter drop");
            out.push_str(" }\n");
        }
        // First, as most packets go there, and without a set, whose look-up costs more than two comparisons.
        let inside =
            self.interfaces().map(|name| format!("  oifname \"{name}\" accept\n")).collect::<String>()
                + "  oifname \"lo\" accept\n";
        // What the kernel makes of a program's packet is that program's: the mark, and what takes more rights than a program has, tell it apart.
        let by_kernel = self.kernel.as_ref().map(|(_, port)| {
            format!(
                "  meta mark {MARK} meta l4proto esp accept\n  meta mark {MARK} udp sport {port} accept\n"
            )
        });
        let by_kernel = by_kernel.unwrap_or_default();
        // Containers and virtual machines may send from any port: what keeps this machine itself in its network is excepted for it alone.
        let own = format!(
            "  meta mark {MARK} meta l4proto {{ udp, esp, 139 }} meta skuid {{ 0, {} }} accept\n\
             \x20 meta nfproto ipv4 udp sport 68 udp dport 67 accept\n\
             \x20 ip6 daddr {{ ff02::1:2, fe80::/10 }} udp sport 546 udp dport 547 accept\n\
             \x20 ip6 hoplimit 255 icmpv6 type {{ nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert }} accept\n\
             \x20 ip6 daddr ff02::/16 icmpv6 type {{ mld-listener-report, mld-listener-done, mld2-listener-report }} accept\n",
            self.user
        );
        for (hook, excepted) in [("output", format!("{own}{by_kernel}")), ("forward", String::new())] {
            let _ = writeln!(
                out,
                " chain {hook} {{\n  type filter hook {hook} priority filter; policy accept;\n{inside}{excepted}  jump leave\n }}"
            );
        }
    }
}

impl Blocked {
    fn chains(&self, out: &mut String) {
        let name = chain(&self.connection);
        let _ = writeln!(out, " chain carried.{name} {{");
        addresses(out, "daddr", &self.carried, "goto refuse");
        let _ = writeln!(out, " }}\n chain {HELD}{name} {{");
        addresses(out, "daddr", &self.own, "return");
        addresses(out, "daddr", &self.exact, "goto refuse");
        if self.local_network {
            if !self.local_names {
                let _ =
                    writeln!(out, "  meta l4proto {{ tcp, udp }} th dport {{ 53, 853 }} goto carried.{name}");
            }
            // What never passes a router, and the addresses at which services of a local network are looked for.
            out.push_str(
                "  ip daddr { 169.254.0.0/16, 224.0.0.0/24, 239.255.255.250, 255.255.255.255 } return\n\
                 \x20 ip6 daddr { fe80::/10, ff02::/16 } return\n\
                 \x20 oifname . ip daddr @local4 return\n  oifname . ip6 daddr @local6 return\n",
            );
        }
        let _ = writeln!(out, "  goto carried.{name}\n }}");
    }
}

fn set(out: &mut String, name: &str, kind: &str, elements: impl Iterator<Item = String>) {
    let elements: Vec<String> = elements.collect();
    let list = if elements.is_empty() {
        String::new()
    } else {
        format!(" elements = {{ {} }};", elements.join(", "))
    };
    let _ = writeln!(out, " set {name} {{ type {kind};{list} }}");
}

/// A rule for each family that `nets` has anything of.
fn addresses(out: &mut String, field: &str, nets: &[IpNet], verdict: &str) {
    for (word, v4) in [("ip", true), ("ip6", false)] {
        let of = IpNet::aggregate(&nets.iter().filter(|n| n.addr().is_ipv4() == v4).copied().collect());
        if !of.is_empty() {
            let _ = writeln!(out, "  {word} {field} {{ {} }} {verdict}", join(&of));
        }
    }
}

fn join(list: &[impl Display]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(connection: &str, carried: &[&str]) -> Blocked {
        let carried = carried.iter().map(|n| n.parse().unwrap()).collect();
        Blocked {
            connection: connection.into(),
            carried,
            exact: Vec::new(),
            own: Vec::new(),
            local_network: false,
            local_names: false,
            always: false,
            inward: false,
        }
    }

    #[test]
    fn names_come_back_from_a_listing_and_cannot_write_rules() {
        for name in ["office", "a b", "\"; accept", "büro.1", "."] {
            let encoded = chain(name);
            assert!(encoded.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)), "{encoded}");
            let listing = format!(
                "table inet {TABLE} {{\n\tchain carried.x {{\n\t}}\n\tchain {HELD}{encoded} {{\n\t}}\n}}"
            );
            assert_eq!(held_in(&listing), [name]);
        }
        for bad in ["", "a\" accept", "eth*", "a b", "sixteen-letters-", "vpn+0", "büro0"] {
            assert!(!fit_interface(bad), "{bad}");
            let rules = Rules { tunnel: bad.into(), held: vec![held("a", &["::/0"])], ..Rules::default() };
            assert!(rules.text_at(Duration::ZERO).is_err(), "nothing would be held: {bad}");
            assert_eq!(rules.always().text_at(Duration::ZERO).unwrap().lines().count(), 2, "nothing to hold");
        }
        let on_link = vec![OnLink { interface: "e\" accept".into(), net: "10.0.0.0/8".parse().unwrap() }];
        let rules =
            Rules { tunnel: "t0".into(), held: vec![held("a", &["::/0"])], on_link, ..Rules::default() };
        assert!(!rules.text_at(Duration::ZERO).unwrap().contains("accept\""));
    }

    #[test]
    fn each_protocol_of_the_tunnels_own_packets_passes() {
        let rules = Rules { tunnel: "t0".into(), held: vec![held("a", &["::/0"])], ..Rules::default() };
        let text = rules.text_at(Duration::ZERO).unwrap();
        // ESP and HIP without UDP: protocols 50 and 139.
        let own = format!("meta mark {MARK} meta l4proto {{ udp, esp, 139 }} meta skuid {{ 0, 0 }} accept");
        assert!(text.contains(&own), "{text}");
        // What goes into the tunnel, or stays in the machine, is asked about first, of programs and of what is forwarded.
        let inside = "  oifname \"t0\" accept\n  oifname \"lo\" accept\n";
        for (hook, next) in [("output", "  meta mark"), ("forward", "  jump leave")] {
            let begins = format!("type filter hook {hook} priority filter; policy accept;\n{inside}{next}");
            assert!(text.contains(&begins), "{text}");
        }
        assert!(!text.contains("prerouting"), "{text}");
    }

    #[test]
    fn what_the_tunnel_alone_brings_is_dropped_elsewhere() {
        let one = Blocked { inward: true, ..held("a", &["2001:20::/28"]) };
        let rules = Rules { tunnel: "t0".into(), held: vec![held("b", &["::/0"]), one], ..Rules::default() };
        let text = rules.text_at(Duration::ZERO).unwrap();
        let chain = text.split("chain enter {").nth(1).unwrap().split('}').collect::<Vec<_>>().join("}");
        let lines: Vec<&str> = chain.lines().map(str::trim).skip(1).take(5).collect();
        assert_eq!(
            lines,
            [
                "type filter hook prerouting priority raw; policy accept;",
                "iifname \"t0\" accept",
                "iifname \"lo\" accept",
                "ip6 saddr { 2001:20::/28 } counter drop",
                "ip6 daddr { 2001:20::/28 } counter drop",
            ]
        );
    }

    #[test]
    fn what_is_named_comes_before_what_is_local_and_the_own_side_before_both() {
        let net = |n: &str| n.parse::<IpNet>().unwrap();
        let exact = vec![net("10.0.0.0/8")];
        let one = Blocked {
            exact,
            own: vec![net("10.88.0.0/16")],
            local_network: true,
            ..held("a", &["0.0.0.0/0"])
        };
        let nets =
            ["192.168.0.0/16", "192.168.1.0/24"].map(|n| OnLink { interface: "w0".into(), net: net(n) });
        let rules = Rules { tunnel: "t0".into(), held: vec![one], on_link: nets.into(), ..Rules::default() };
        let text = rules.text_at(Duration::ZERO).unwrap();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part}: {text}"));
        assert!(at("{ 10.88.0.0/16 } return") < at("{ 10.0.0.0/8 } goto refuse"));
        assert!(at("{ 10.0.0.0/8 } goto refuse") < at("@local4 return"));
        assert!(at("th dport { 53, 853 }") < at("@local4 return"));
        assert!(text.contains("{ \"w0\" . 192.168.0.0/16 }"), "a set refuses overlaps: {text}");
    }

    #[test]
    fn nothing_held_is_no_table_and_a_portal_has_what_is_left_of_its_time() {
        let empty = Rules { tunnel: "t0".into(), ..Rules::default() };
        assert_eq!(empty.text_at(Duration::ZERO).unwrap().lines().count(), 2);
        let until = Duration::from_secs(100);
        let portal =
            Portal { addresses: vec!["10.1.0.1".parse().unwrap(), "fe80::1".parse().unwrap()], until };
        let rules =
            Rules { held: vec![held("a", &["0.0.0.0/1", "128.0.0.0/1"])], portal: Some(portal), ..empty };
        let text = rules.text_at(Duration::from_secs(40)).unwrap();
        assert!(text.contains("10.1.0.1 timeout 60s") && text.contains("fe80::1 timeout 60s"), "{text}");
        assert!(text.contains("ip daddr { 0.0.0.0/0 } goto refuse"), "{text}");
        assert!(
            !rules.text_at(until).unwrap().contains("timeout 0s"),
            "a set without a time would be open for ever"
        );
    }
}
