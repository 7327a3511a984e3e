//! What a gateway's machine does for its clients beside the tunnel: it forwards, and translates their addresses to its own. Owns the
//! nftables table [`TABLE`] and the kernel's switches for forwarding; never decides for whom.
//!
//! Both need root, and are undone when the daemon ends, however it ends: a process of its own does it ([`Guard`]). The table's rules open
//! nothing that another table drops: nftables has no such rule. [`closed`] finds chains that do.

mod guard;
mod switches;

pub use guard::{Guard, News, serve};

use crate::nft;
use dormouse_sansio::fit_interface;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;

/// The table's name, in the family `inet`.
pub const TABLE: &str = "dormouse_forward";

/// What is to be done. By default nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rules {
    /// The tunnel interface.
    pub tunnel: String,
    /// Those beside it, by which what other engines carry comes and goes: the kernel's ESP, and workers.
    pub beside: Vec<String>,
    /// IPv4 is forwarded.
    pub v4: bool,
    /// IPv6 is forwarded.
    pub v6: bool,
    /// What clients send from these prefixes leaves from this machine's own addresses.
    pub translated: Vec<IpNet>,
    /// Where this machine renews clients' certificates: at these of its addresses nothing else is let in, and that from the tunnel alone.
    pub renewals: BTreeSet<SocketAddr>,
}

impl Rules {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.forwards() && self.renewals.is_empty()
    }

    /// Whether clients reach anything behind this machine by it.
    #[must_use]
    pub const fn forwards(&self) -> bool {
        self.v4 || self.v6 || !self.translated.is_empty()
    }

    /// Whether there is a table.
    fn has_table(&self) -> bool {
        !self.translated.is_empty() || !self.renewals.is_empty()
    }

    /// Which families are forwarded, IPv4 and IPv6: without the table none of those that are to be translated.
    fn forwarded(&self, has_table: bool) -> (bool, bool) {
        let fit = |v4: bool| has_table || !self.translated.iter().any(|net| net.addr().is_ipv4() == v4);
        (self.v4 && fit(true), self.v6 && fit(false))
    }

    /// What `nft -f -` reads: everything in one transaction.
    ///
    /// # Errors
    /// If something is to be translated and the tunnel interface has a name that cannot stand in a rule.
    fn text(&self) -> io::Result<String> {
        // Made before it is deleted, so that it is no error if it was not there.
        let mut out = format!("table inet {TABLE}\ndelete table inet {TABLE}\n");
        if !self.has_table() {
            return Ok(out);
        }
        for name in self.tunnels() {
            if !fit_interface(name) {
                let what = format!("\"{name}\" cannot stand in a rule as the tunnel interface's name");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        }
        let _ = writeln!(out, "table inet {TABLE} {{");
        self.translation(&mut out);
        self.own(&mut out);
        out.push_str("}\n");
        Ok(out)
    }

    fn tunnels(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.tunnel).chain(&self.beside)
    }

    /// The set of them, as a rule has it.
    fn among_tunnels(&self) -> String {
        let names: Vec<String> = self.tunnels().map(|name| format!("\"{name}\"")).collect();
        format!("{{ {} }}", names.join(", "))
    }

    /// What goes from client to client stays as it is, whichever engine carries it.
    fn translation(&self, out: &mut String) {
        if self.translated.is_empty() {
            return;
        }
        out.push_str(" chain translate {\n  type nat hook postrouting priority srcnat; policy accept;\n");
        let inside = self.among_tunnels();
        for net in IpNet::aggregate(&self.translated) {
            let family = if net.addr().is_ipv4() { "ip" } else { "ip6" };
            let _ = writeln!(out, "  {family} saddr {net} oifname != {inside} masquerade");
        }
        out.push_str(" }\n");
    }

    /// What comes for the addresses where certificates are renewed. Linux takes what is for an address by any interface: a neighbour outside the tunnel
    /// could send to it.
    fn own(&self, out: &mut String) {
        if self.renewals.is_empty() {
            return;
        }
        out.push_str(" chain renewals {\n  type filter hook input priority filter; policy accept;\n");
        for at in &self.renewals {
            let (ip, port) = (at.ip(), at.port());
            let (family, icmp) = if ip.is_ipv4() { ("ip", "icmp") } else { ("ip6", "ipv6-icmp") };
            let from = format!("iifname {}", self.among_tunnels());
            let _ = writeln!(out, "  {family} daddr {ip} {from} tcp dport {port} accept");
            let _ = writeln!(out, "  {family} daddr {ip} {from} meta l4proto {icmp} accept");
            let _ = writeln!(out, "  {family} daddr {ip} iifname != \"lo\" drop");
        }
        out.push_str(" }\n");
    }
}

/// Puts `rules` in the place of those that are there, in one step; the table goes if nothing is translated.
///
/// # Errors
/// If `nft` is missing, refuses, or takes too long; everything is as it was then.
fn load(rules: &Rules) -> io::Result<()> {
    nft::load(&rules.text()?)
}

/// Whether the table is there.
///
/// # Errors
/// If `nft` is missing, refuses, or takes too long: root alone may ask.
pub fn translates() -> io::Result<bool> {
    nft::table(TABLE).map(|found| found.is_some())
}

/// Chains of the machine's firewall that drop or reject what no rule of theirs lets through, and in whose tables none of `words` stands: by
/// hook, `input` or `forward`.
///
/// # Errors
/// If `nft` is missing, refuses, takes too long, or lists more than is looked at: root alone may ask.
pub fn closed(hook: &str, words: &[&str]) -> io::Result<Vec<String>> {
    Ok(closed_in(&nft::listing(&["-s", "list", "ruleset"])?, hook, words))
}

/// A chain of the hook that is asked for, as far as it has been read.
struct Chain {
    name: String,
    drops: bool,
}

fn closed_in(listing: &str, hook: &str, words: &[&str]) -> Vec<String> {
    let (mut table, mut found) = ("", Vec::new());
    // A table whose rules mention one of the words, in whichever of its chains, was made with the tunnel in mind.
    let mut names_us = false;
    let mut closed: Vec<String> = Vec::new();
    let (mut name, mut chain) = ("", None::<Chain>);
    for line in listing.lines().chain(["table"]) {
        let rule = line.trim();
        if let Some(rest) = line.strip_prefix("table") {
            if !names_us {
                found.append(&mut closed);
            }
            closed.clear();
            (table, names_us) = (rest.trim().trim_end_matches(" {"), false);
        } else if let Some(rest) = rule.strip_prefix("chain ") {
            name = rest.trim_end_matches(" {");
        } else if rule.contains(&format!(" hook {hook} ")) {
            chain = Some(Chain { name: format!("{table} {name}"), drops: rule.contains("policy drop") });
        } else if rule == "}" {
            closed.extend(chain.take().filter(|chain| chain.drops).map(|chain| chain.name));
        } else {
            let parts = || rule.split(|c: char| c.is_whitespace() || c == ',');
            names_us |= parts().any(|part| words.contains(&part));
            if let Some(chain) = &mut chain {
                // A rule without a condition decides about all that is left.
                chain.drops |= ["drop", "reject"].iter().any(|end| parts().next() == Some(end));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(tunnel: &str, nets: &[&str]) -> Rules {
        let translated = nets.iter().map(|n| n.parse().unwrap()).collect();
        let (tunnel, beside) = (tunnel.into(), vec!["esp0".into()]);
        Rules { tunnel, beside, v4: true, v6: true, translated, renewals: BTreeSet::new() }
    }

    #[test]
    fn clients_of_both_families_are_translated_where_they_leave_by_another_interface() {
        let text = rules("t0", &["10.10.0.0/25", "10.10.0.128/25", "fd10::/64"]).text().unwrap();
        for line in [
            "  type nat hook postrouting priority srcnat; policy accept;\n",
            "  ip saddr 10.10.0.0/24 oifname != { \"t0\", \"esp0\" } masquerade\n",
            "  ip6 saddr fd10::/64 oifname != { \"t0\", \"esp0\" } masquerade\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(text.matches("masquerade").count(), 2, "{text}");
        assert!(text.starts_with(&format!("table inet {TABLE}\ndelete table inet {TABLE}\n")), "in one step");
    }

    #[test]
    fn where_certificates_are_renewed_the_tunnel_alone_comes_in_and_to_one_port() {
        let at = |text: &str| text.parse().unwrap();
        let only = Rules { v4: false, v6: false, renewals: [at("10.9.0.1:45")].into(), ..rules("t0", &[]) };
        assert!(!only.is_empty() && !only.forwards());
        assert_eq!(
            only.text().unwrap().lines().skip(2).collect::<Vec<_>>(),
            [
                "table inet dormouse_forward {",
                " chain renewals {",
                "  type filter hook input priority filter; policy accept;",
                "  ip daddr 10.9.0.1 iifname { \"t0\", \"esp0\" } tcp dport 45 accept",
                "  ip daddr 10.9.0.1 iifname { \"t0\", \"esp0\" } meta l4proto icmp accept",
                "  ip daddr 10.9.0.1 iifname != \"lo\" drop",
                " }",
                "}",
            ]
        );
        let six = Rules { renewals: [at("[fd09::1]:45")].into(), ..rules("t0", &["fd09::/64"]) };
        let text = six.text().unwrap();
        assert!(text.contains("ip6 daddr fd09::1 iifname != \"lo\" drop") && text.contains("masquerade"));
        assert!(Rules { beside: vec!["esp0".into(), "a b".into()], ..only }.text().is_err());
    }

    #[test]
    fn what_cannot_be_translated_is_not_forwarded() {
        let both = rules("t0", &["10.0.0.0/8", "fd10::/64"]);
        assert_eq!([both.forwarded(true), both.forwarded(false)], [(true, true), (false, false)]);
        assert_eq!(rules("t0", &["10.0.0.0/8"]).forwarded(false), (false, true));
        assert_eq!(rules("t0", &[]).forwarded(false), (true, true), "routed alone");
    }

    #[test]
    fn nothing_translated_is_no_table_and_a_name_is_no_rule() {
        assert_eq!(rules("t0", &[]).text().unwrap().lines().count(), 2);
        assert!(!rules("t0", &[]).is_empty() && Rules::default().is_empty());
        assert!(rules("a\" accept", &["10.0.0.0/8"]).text().is_err());
    }

    #[test]
    fn chains_that_drop_what_they_do_not_know_are_found() {
        let docker = "table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy drop;\n\t\tjump DOCKER\n\t}\n}\n";
        let open = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n\t}\n}\n";
        let ours = "table inet fw {\n\tchain input {\n\t\ttype filter hook input priority filter; policy drop;\n\t\tudp dport { 500, 4500 } accept\n\t}\n\
                    \tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n\t\tiifname \"dormouse0\" accept\n\t}\n}\n";
        let all = format!("{docker}{open}{ours}");
        assert_eq!(closed_in(&all, "forward", &["\"dormouse0\""]), ["ip filter FORWARD"]);
        assert_eq!(closed_in(&all, "input", &["4500"]), Vec::<String>::new());
        assert_eq!(closed_in(&ours.replace("4500", "4501"), "input", &["4500"]), ["inet fw input"]);
        assert_eq!(closed_in("", "input", &[]), Vec::<String>::new());
        assert_eq!(
            closed_in(&ours.replace("4500", "14500"), "input", &["4500"]),
            ["inet fw input"],
            "another port"
        );
        // As firewalld ends its chains.
        let rejecting = "table inet firewalld {\n\tchain filter_INPUT {\n\t\ttype filter hook input priority filter + 10; policy accept;\n\
                         \t\tct state established,related accept\n\t\treject with icmpx admin-prohibited\n\t}\n}\n";
        assert_eq!(closed_in(rejecting, "input", &["4500"]), ["inet firewalld filter_INPUT"]);
        assert_eq!(
            closed_in(&rejecting.replace("\t\treject", "\t\ttcp dport 7 reject"), "input", &["4500"]).len(),
            0
        );
    }
}
