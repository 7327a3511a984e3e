//! What a gateway is to be: the answers, what they leave open, and the configuration that they make. Owns the defaults; asks through a
//! function that is handed in, and writes nothing.

use super::look::Surroundings;
use crate::enrol::bundle::{list, quoted};
use crate::enrol::place::PASSWORDS;
use crate::enrol::{names, wrong};
use dormouse_control::Error;
use dormouse_crypto::cert::Identity;
use dormouse_node::config::renewals::first_host;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The connection that is made.
pub(super) const CONNECTION: &str = "devices";
/// How users' names end where the gateway has an address alone.
const NAMELESS: &str = "devices.internal";
/// Pools, the first that is free: what hotels and homes seldom have.
const POOLS: [&str; 4] = ["10.10.0.0/24", "10.177.16.0/24", "172.29.77.0/24", "192.168.177.0/24"];
/// The port of renewals: none that is assigned.
const RENEWALS: u16 = 4510;
/// Most prefixes and addresses of one answer.
const MOST: usize = 64;

/// Answers that are there already; the others are asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) name: Option<String>,
    pub(super) reach: Vec<String>,
    pub(super) pool: Vec<String>,
    pub(super) dns: Vec<String>,
    /// Users with passwords are taken too; not asked for.
    pub(super) passwords: bool,
    /// Devices do not renew their certificates themselves; not asked for.
    pub(super) no_renewals: bool,
}

/// What the gateway is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    /// Its identity: its name or address.
    pub(super) id: Identity,
    /// What devices reach; empty: everything.
    pub(super) reach: Vec<IpNet>,
    /// Addresses of devices.
    pub(super) pool: Vec<IpNet>,
    /// Name servers of devices.
    pub(super) dns: Vec<IpAddr>,
    /// What to say of these.
    pub(super) notes: Vec<String>,
    /// It takes users with passwords beside those with certificates.
    pub(super) passwords: bool,
    /// Where devices renew their certificates, inside the tunnel.
    pub(super) renewals: Option<SocketAddr>,
}

/// Asks a question that has an answer already, if return is all that is pressed. `None`: there is no terminal to ask on.
pub(super) type Ask<'a> = dyn FnMut(&str, &str) -> Result<Option<String>, Error> + 'a;
/// Whether a name server is of use.
pub(super) type Try<'a> = dyn FnMut(IpAddr, &str) -> Result<(), String> + 'a;

/// What was said, or else the answer to a question, or else what is usual.
type Question<'a> = dyn FnMut(Vec<String>, &str, String) -> Result<Vec<String>, Error> + 'a;

fn words(answers: &[String]) -> Vec<&str> {
    answers
        .iter()
        .flat_map(|answer| answer.split([',', ' ']))
        .map(str::trim)
        .filter(|w| !w.is_empty())
        .collect()
}

fn bounded<T>(list: Vec<T>) -> Result<Vec<T>, Error> {
    if list.len() > MOST { Err(wrong(format!("more than {MOST} of one kind"))) } else { Ok(list) }
}

fn prefixes(words: &[&str]) -> Result<Vec<IpNet>, Error> {
    let one = |word: &&str| {
        let single = || word.parse::<IpAddr>().map(IpNet::from);
        let net = word.parse::<IpNet>().or_else(|_| single());
        net.map(|net| net.trunc()).map_err(|_| {
            wrong(format!("{} is no prefix, such as 10.20.0.0/16 or fd20::/48", names::shown(word)))
        })
    };
    bounded(words.iter().map(one).collect::<Result<_, _>>()?)
}

fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

impl Plan {
    /// Fills in what was not said. `random` makes the prefix of IPv6 one that no other site has (RFC 4193).
    ///
    /// # Errors
    /// If an answer cannot be meant, or one is missing and there is no terminal to ask on.
    pub(super) fn make(
        said: &Said,
        around: &Surroundings,
        random: [u8; 5],
        ask: &mut Ask<'_>,
        answers: &mut Try<'_>,
    ) -> Result<Self, Error> {
        let mut question = |said: Vec<String>, words: &str, usual: String| -> Result<Vec<String>, Error> {
            if !said.is_empty() {
                return Ok(said);
            }
            Ok(vec![ask(words, &usual)?.filter(|answer| !answer.trim().is_empty()).unwrap_or(usual)])
        };
        let usual = around.name.clone().or_else(|| around.outer.first().map(ToString::to_string));
        let name = question(
            said.name.iter().cloned().collect(),
            "Name or address at which devices reach this gateway",
            usual.unwrap_or_default(),
        )?;
        let name = name.first().map(|name| name.trim()).unwrap_or_default();
        if name.is_empty() {
            return Err(
                wrong("the gateway's name or address is not known").with_change("--name vpn.example.org")
            );
        }
        let id = names::gateway(name)?;
        let reach = question(
            said.reach.clone(),
            "What devices reach through it: everything, or networks",
            "everything".into(),
        )?;
        let reach = match words(&reach)[..] {
            ["everything"] => Vec::new(),
            ref nets => prefixes(nets)?,
        };
        let leads = |v4: bool| {
            if reach.is_empty() {
                v4 || around.has(false)
            } else {
                reach.iter().any(|n| n.addr().is_ipv4() == v4)
            }
        };
        let usual = default_pools(around, random).into_iter().filter(|net| leads(net.addr().is_ipv4()));
        let usual: Vec<String> = usual.map(|net| net.to_string()).collect();
        let pool =
            question(said.pool.clone(), "Addresses for the devices, one prefix a family", usual.join(", "))?;
        let pool = checked_pool(prefixes(&words(&pool))?, around)?;
        let (dns, notes) = name_servers(said, around, &reach, &id, &mut question, answers)?;
        let first = pool.iter().find_map(first_host).filter(|_| !said.no_renewals);
        let renewals = first.map(|own| SocketAddr::new(own, RENEWALS));
        Ok(Self { id, reach, pool, dns, notes, passwords: said.passwords, renewals })
    }

    /// The configuration.
    pub(super) fn configuration(&self, dir: &std::path::Path) -> String {
        let file = |name: &str| quoted(&dir.join(name).display().to_string());
        let mut out = String::from(
            "# Made by dormouse gateway init. Users: dormouse user add NAME. All keys: docs/configuration.md.\n",
        );
        let _ = write!(
            out,
            "[connection.{CONNECTION}]\nrole = \"gateway\"\n\n\
             [connection.{CONNECTION}.local]\nid = {}\ncertificate = {}\nkey = {}\n\n\
             [connection.{CONNECTION}.remote]\nid = {}\nca = [{}]\n{}\n\
             [connection.{CONNECTION}.child]\nlocal = {}\n\n\
             [connection.{CONNECTION}.pool]\naddresses = {}\ndns = {}\n\
             # Forwarding is on while the daemon runs, and devices leave under this machine's own addresses. \"route\": under theirs.\n\
             forward = \"translate\"\n",
            quoted(&self.id.to_string()),
            file("gateway.pem"),
            file("gateway.key"),
            quoted(&self.pattern()),
            file("ca.pem"),
            if self.passwords {
                format!("auth = \"eap-mschapv2\"\nusers = {}\n", file(PASSWORDS))
            } else {
                String::new()
            },
            list(&self.local()),
            list(&self.pool),
            list(&self.dns),
        );
        if let Some(at) = self.renewals {
            let _ = write!(
                out,
                "\n# Devices renew their certificates there (dormouse renew), inside the tunnel: dormouse-renewals.service answers them.\n\
                 [connection.{CONNECTION}.renewals]\nat = {}\n",
                quoted(&at.to_string())
            );
        }
        out
    }

    /// Whose identities are taken: how users' names end.
    pub(super) fn pattern(&self) -> String {
        match &self.id {
            Identity::Fqdn(name) => format!("*.{name}"),
            _ => format!("*.{NAMELESS}"),
        }
    }

    fn local(&self) -> Vec<IpNet> {
        if !self.reach.is_empty() {
            let own = self.renewals.map(|at| IpNet::from(at.ip()));
            let own = own.filter(|own| !self.reach.iter().any(|net| net.contains(own)));
            return self.reach.iter().copied().chain(own).collect();
        }
        let has = |v4: bool| self.pool.iter().any(|net| net.addr().is_ipv4() == v4);
        let all = [(true, Ipv4Net::default().into()), (false, Ipv6Net::default().into())];
        all.into_iter().filter(|(v4, _)| has(*v4)).map(|(_, net)| net).collect()
    }
}

fn default_pools(around: &Surroundings, random: [u8; 5]) -> Vec<IpNet> {
    let free = |net: &IpNet| !around.networks.iter().any(|other| overlap(net, other));
    let v4 = POOLS.iter().filter_map(|text| text.parse().ok()).find(free);
    let mut bytes = [0; 16];
    bytes[0] = 0xfd;
    bytes[1..6].copy_from_slice(&random);
    let v6 = Ipv6Net::new(Ipv6Addr::from(bytes), 64).ok().map(IpNet::from);
    v4.into_iter().chain(v6.filter(free)).collect()
}

fn checked_pool(pool: Vec<IpNet>, around: &Surroundings) -> Result<Vec<IpNet>, Error> {
    if pool.is_empty() {
        return Err(wrong("no address is left for devices").with_change("--pool 10.10.0.0/24"));
    }
    for net in &pool {
        if net.prefix_len() + 2 > net.max_prefix_len() {
            return Err(wrong(format!(
                "{net} has no room for devices: /{} or shorter",
                net.max_prefix_len() - 2
            )));
        }
        if let Some(other) = around.networks.iter().find(|other| overlap(net, other)) {
            let message = format!("{net} overlaps {other}, which this machine reaches already");
            return Err(wrong(message).with_change("another --pool"));
        }
    }
    Ok(pool)
}

/// Name servers for devices, and what is to be said of them.
fn name_servers(
    said: &Said,
    around: &Surroundings,
    reach: &[IpNet],
    id: &Identity,
    question: &mut Question<'_>,
    answers: &mut Try<'_>,
) -> Result<(Vec<IpAddr>, Vec<String>), Error> {
    // A question that any server can answer.
    let name = if let Identity::Fqdn(name) = id { name.as_str() } else { "." };
    let within = |a: &&IpAddr| reach.is_empty() || reach.iter().any(|net| net.contains(*a));
    let (mut good, mut notes) = (Vec::new(), Vec::new());
    for server in around.name_servers.iter().filter(within) {
        match answers(*server, name) {
            Ok(()) => good.push(server.to_string()),
            Err(why) => notes.push(format!("{server} {why}: not given to devices")),
        }
    }
    let usual = if good.is_empty() { "none".to_owned() } else { good.join(", ") };
    let chosen = question(said.dns.clone(), "Name servers for the devices, or none", usual.clone())?;
    let chosen = words(&chosen);
    if chosen == ["none"] {
        // Nobody has chosen that, and everything of theirs goes here.
        if reach.is_empty() && said.dns.is_empty() && usual == "none" {
            let found = if notes.is_empty() {
                "this machine has none that others could ask".to_owned()
            } else {
                notes.join("; ")
            };
            let message = format!("no name server for devices: {found}");
            return Err(wrong(message).with_change("--dns ADDRESS, or --dns none"));
        }
        return Ok((Vec::new(), notes));
    }
    let parse = |word: &&str| {
        word.parse::<IpAddr>()
            .map_err(|_| wrong(format!("{} is no address of a name server", names::shown(word))))
    };
    let dns: Vec<IpAddr> = bounded(chosen.iter().map(parse).collect::<Result<_, _>>()?)?;
    for server in dns.iter().filter(|a| !good.contains(&a.to_string())) {
        if !within(&server) {
            return Err(wrong(format!("{server} is not among what devices reach"))
                .with_change(format!("--reach {server}")));
        }
        if let Err(why) = answers(*server, name) {
            notes.push(format!("{server} {why}: given to devices all the same"));
        }
    }
    Ok((dns, notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        Surroundings {
            name: Some("gw.example.net".into()),
            outer: vec!["203.0.113.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            networks: vec!["10.10.0.0/16".parse().unwrap(), "203.0.113.0/30".parse().unwrap()],
            name_servers: vec!["192.0.2.53".parse().unwrap()],
        }
    }

    fn said(name: &str, reach: &str, pool: &str, dns: &str) -> Said {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let list = |text: &str| some(text).into_iter().collect();
        Said {
            name: some(name),
            reach: list(reach),
            pool: list(pool),
            dns: list(dns),
            passwords: false,
            no_renewals: false,
        }
    }

    fn plan(said: &Said, around: &Surroundings) -> Result<Plan, Error> {
        Plan::make(said, around, [1, 2, 3, 4, 5], &mut |_, _| Ok(None), &mut |server, _| {
            if server == IpAddr::from([192, 0, 2, 53]) { Ok(()) } else { Err("does not answer".into()) }
        })
    }

    fn texts<T: ToString>(list: &[T]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_are_found_in_both_families() {
        let plan = plan(&Said::default(), &around()).unwrap();
        assert_eq!(plan.id.to_string(), "gw.example.net");
        assert_eq!(texts(&plan.pool), ["10.177.16.0/24", "fd01:203:405::/64"], "the first is taken here");
        assert_eq!((texts(&plan.dns), plan.notes.len()), (vec!["192.0.2.53".to_owned()], 0));
        let text = plan.configuration("/etc/dormouse".as_ref());
        for line in [
            "id = \"gw.example.net\"\n",
            "id = \"*.gw.example.net\"\n",
            "local = [\"0.0.0.0/0\", \"::/0\"]\n",
            "key = \"/etc/dormouse/gateway.key\"\n",
            "dns = [\"192.0.2.53\"]\nforward",
            "forward = \"translate\"\n",
        ] {
            assert!(
                text.replace("dns = [\"192.0.2.53\"]\n#", "dns = [\"192.0.2.53\"]\nforward#").contains(line),
                "{line}: {text}"
            );
        }
        dormouse_node::config::parse(&text).unwrap();
    }

    #[test]
    fn a_machine_without_ipv6_gives_none() {
        let four = Surroundings { outer: vec!["203.0.113.1".parse().unwrap()], name: None, ..around() };
        let plan = plan(&Said::default(), &four).unwrap();
        assert_eq!((plan.id.to_string(), plan.pool.len()), ("203.0.113.1".into(), 1));
        let text = plan.configuration("/x".as_ref());
        assert!(
            text.contains("local = [\"0.0.0.0/0\"]") && text.contains("\"*.devices.internal\""),
            "{text}"
        );
    }

    #[test]
    fn some_networks_give_their_families_and_a_name_server_among_them_alone() {
        let inner = said("", "10.20.0.0/16", "", "");
        let found = plan(&inner, &around()).unwrap();
        assert_eq!((texts(&found.pool), texts(&found.dns)), (vec!["10.177.16.0/24".to_owned()], vec![]));
        let found = plan(&said("", "10.20.0.0/16, 192.0.2.0/24 fd20::/48", "", ""), &around()).unwrap();
        assert_eq!((found.pool.len(), texts(&found.dns)), (2, vec!["192.0.2.53".to_owned()]));
    }

    #[test]
    fn what_is_asked_has_an_answer_and_another_one_counts() {
        let mut asked = Vec::new();
        let mut answers = ["vpn.example.org", "", "10.99.0.0/24", "9.9.9.9"].into_iter();
        let plan = Plan::make(
            &Said::default(),
            &around(),
            [0; 5],
            &mut |question, usual| {
                asked.push(format!("{question} [{usual}]"));
                Ok(answers.next().map(str::to_owned))
            },
            &mut |_, _| Err("does not answer".into()),
        )
        .unwrap();
        assert_eq!(
            (plan.id.to_string(), texts(&plan.pool)),
            ("vpn.example.org".into(), vec!["10.99.0.0/24".to_owned()])
        );
        assert_eq!(asked.len(), 4, "{asked:?}");
        assert!(asked[1].ends_with("[everything]") && asked[3].ends_with("[none]"), "{asked:?}");
        assert_eq!(
            plan.notes,
            [
                "192.0.2.53 does not answer: not given to devices",
                "9.9.9.9 does not answer: given to devices all the same"
            ]
        );
    }

    #[test]
    fn each_answer_that_cannot_be_meant_is_said() {
        let bare = Surroundings::default();
        for (said, around, message) in [
            (said("a b", "", "", ""), around(), "\"a b\" is neither a host name"),
            (said("a.b", "10.0.0.0/40", "", ""), around(), "\"10.0.0.0/40\" is no prefix"),
            (
                said("a.b", "", "10.10.3.0/24", ""),
                around(),
                "10.10.3.0/24 overlaps 10.10.0.0/16, which this machine reaches already",
            ),
            (
                said("a.b", "", "10.99.0.0/31", ""),
                around(),
                "10.99.0.0/31 has no room for devices: /30 or shorter",
            ),
            (said("a.b", "", ",", ""), around(), "no address is left for devices"),
            (said("a.b", "", "", "one"), around(), "\"one\" is no address of a name server"),
            (said("a.b", "10.20.0.0/16", "", "9.9.9.9"), around(), "9.9.9.9 is not among what devices reach"),
            (said("", "", "", "none"), bare.clone(), "the gateway's name or address is not known"),
            (
                said("a.b", "", "", ""),
                bare,
                "no name server for devices: this machine has none that others could ask",
            ),
            (said("a.b", &"10.0.0.1 ".repeat(65), "", ""), around(), "more than 64 of one kind"),
        ] {
            let error = plan(&said, &around).expect_err(message);
            assert!(error.message.contains(message), "{message}: {error}");
        }
        let silent = Surroundings { name_servers: vec!["198.51.100.9".parse().unwrap()], ..around() };
        let error = plan(&Said::default(), &silent).unwrap_err();
        assert!(
            error.message.contains("198.51.100.9 does not answer")
                && error.change.unwrap().contains("--dns none")
        );
        assert_eq!(plan(&said("", "", "", "none"), &silent).unwrap().dns, Vec::<IpAddr>::new());
    }
}
