//! `dormouse netcheck`: what the network between here and a gateway lets through. Owns which gateway is asked, and how it is said. It needs neither the
//! daemon nor root, and leaves a session of the daemon alone: it asks from a port of its own.

mod judge;
mod look;

use crate::connections::of_connections;
use crate::control_verbs::Output;
use crate::enrol::place::CONFIG;
use crate::enrol::{names, wrong};
use crate::render;
use clap::Args;
use dormouse_control::{CheckOutcome, Error, ErrorKind, ExitCode};
use dormouse_ike::proposal::{IkeProposal, default_ike_proposals};
use dormouse_node::config;
use dormouse_node::config::file::{Connection, File, Ike, Role};
use ipnet::IpNet;
use look::{Asked, Family};
use serde_json::json;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

/// Most addresses of `--seen-as`: some seconds of a processor.
const MOST_SEEN: usize = 256;

/// Check what the network lets through to a gateway: its two UDP ports, NATs, the path's MTU, IPv4 and IPv6
///
/// It asks by first messages of IKE, from a port of its own and outside of any tunnel. No session is made, and one of the daemon is left
/// alone; the gateway forgets within half a minute that it was asked. Exit code 1: no session can be had by this network.
#[derive(Debug, Args)]
pub(crate) struct NetcheckArgs {
    /// Whose gateway [default: the only client connection]
    #[arg(add = of_connections())]
    connection: Option<String>,
    /// A gateway by its name or address, without a connection
    #[arg(long, value_name = "HOST", conflicts_with = "connection")]
    gateway: Option<String>,
    /// Address, or prefix of at most 256, by which the world knows this network: finds out which port its NAT gives us for each port of the
    /// gateway
    #[arg(long, value_name = "PREFIX")]
    seen_as: Option<String>,
    /// The configuration that has the connection
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
}

pub(crate) fn run(args: &NetcheckArgs, json: bool) -> Result<ExitCode, Error> {
    let seen_as = args.seen_as.as_deref().map(prefix).transpose()?.unwrap_or_default();
    let (host, asked) = match &args.gateway {
        Some(host) => (host.clone(), asked(&Ike::default(), "", seen_as)?),
        None => configured(&args.config, args.connection.as_deref(), seen_as)?,
    };
    let literal = host.parse::<IpAddr>().is_ok();
    let families = ask(&addresses(&host)?, &asked);
    let checks = judge::judge(&families, literal);
    let failed = checks.iter().any(|check| check.outcome == CheckOutcome::Failure);
    let answer = json!({ "version": 1, "gateway": host, "families": families, "checks": checks });
    let out = Output::new(json);
    out.print(&format!("{answer}\n"), || render::checks(&checks, out.style))?;
    Ok(if failed { ExitCode::Failure } else { ExitCode::Ok })
}

fn prefix(text: &str) -> Result<Vec<IpAddr>, Error> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let net = net.map_err(|_| wrong(format!("{} is neither an address nor a prefix", names::shown(text))))?;
    let all: Vec<IpAddr> = net.hosts().take(MOST_SEEN + 1).collect();
    if all.len() > MOST_SEEN {
        return Err(wrong(format!("{net} has more than {MOST_SEEN} addresses")));
    }
    Ok(all)
}

/// What is asked of a gateway with these settings of a connection.
fn asked(ike: &Ike, name: &str, seen_as: Vec<IpAddr>) -> Result<Asked, Error> {
    let one = |text: &String| {
        text.parse::<IkeProposal>().map_err(|e| wrong(format!("connection.{name}.ike.proposals: {e}")))
    };
    let mut proposals = ike.proposals.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    if proposals.is_empty() {
        proposals = default_ike_proposals();
    }
    Ok(Asked { proposals, ports: [ike.peer_ike_port, ike.peer_nat_t_port], seen_as })
}

/// The gateway of a configured connection.
fn configured(path: &Path, wanted: Option<&str>, seen_as: Vec<IpAddr>) -> Result<(String, Asked), Error> {
    let shown = path.display();
    let fail = |kind: ErrorKind, why: String| {
        Error::new(kind, format!("{shown}: {why}")).with_change("--gateway HOST asks without a connection")
    };
    let text = std::fs::read_to_string(path).map_err(|e| {
        let denied = e.kind() == std::io::ErrorKind::PermissionDenied;
        fail(if denied { ErrorKind::Permission } else { ErrorKind::Other }, e.to_string())
    })?;
    let file = config::parse(&text).map_err(|e| fail(ErrorKind::Other, e.trim_end().to_owned()))?;
    let (name, c) = client(&file, wanted)?;
    let host = c.gateway.clone().ok_or_else(|| wrong(format!("connection.{name} has no gateway")))?;
    Ok((host, asked(&c.ike, name, seen_as)?))
}

/// The client connection of this name, or the only one.
fn client<'f>(file: &'f File, wanted: Option<&str>) -> Result<(&'f str, &'f Connection), Error> {
    let clients = || file.connection.iter().filter(|(_, c)| c.role == Role::Client);
    let error = |message: String| {
        let names = clients().map(|(name, _)| name.clone()).collect();
        Error::new(ErrorKind::UnknownConnection, message).with_offer(Vec::new(), names)
    };
    let mut fit = clients().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
    match (fit.next(), fit.next(), wanted) {
        (Some((name, c)), None, _) => Ok((name, c)),
        (Some(_), Some(_), _) => {
            Err(error("there are several client connections".into()).with_change("name one of them"))
        }
        (None, _, Some(wanted)) => {
            Err(error(format!("there is no client connection {}", names::shown(wanted))))
        }
        (None, _, None) => {
            Err(error("there is no client connection".into()).with_change("--gateway HOST asks without one"))
        }
    }
}

/// The gateway's first address in each family.
fn addresses(host: &str) -> Result<Vec<IpAddr>, Error> {
    let found = (host, 0).to_socket_addrs().map_err(|e| {
        let message = format!("the gateway's name {} leads to no address: {e}", names::shown(host));
        Error::new(ErrorKind::NotConnected, message)
            .with_change("dormouse portal, if the network wants a login first")
    })?;
    let all: Vec<IpAddr> = found.map(|a| a.ip()).collect();
    let first = |v4: bool| all.iter().copied().find(|a| a.is_ipv4() == v4);
    Ok([first(true), first(false)].into_iter().flatten().collect())
}

/// All of them at once.
fn ask(addresses: &[IpAddr], asked: &Asked) -> Vec<Family> {
    std::thread::scope(|scope| {
        let each = |address: &IpAddr| {
            let address = *address;
            scope.spawn(move || look::family(address, asked))
        };
        let all: Vec<_> = addresses.iter().map(each).collect();
        all.into_iter().filter_map(|one| one.join().ok()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        config::parse(text).unwrap()
    }

    #[test]
    fn the_only_client_connection_is_meant_and_of_several_one_is_named() {
        let one =
            "[connection.a]\nrole = \"client\"\ngateway = \"vpn.test\"\n[connection.g]\nrole = \"gateway\"\n";
        let two = format!("{one}[connection.b]\nrole = \"client\"\n");
        assert_eq!(client(&file(one), None).unwrap().0, "a");
        assert_eq!(client(&file(&two), Some("b")).unwrap().0, "b");
        let error = |text: &str, wanted| client(&file(text), wanted).map(|_| ()).unwrap_err().message;
        assert_eq!(error(&two, None), "there are several client connections");
        assert_eq!(error(&two, Some("g")), "there is no client connection \"g\"");
        assert_eq!(error("", None), "there is no client connection");
    }

    #[test]
    fn addresses_that_the_gateway_may_see_are_few() {
        assert_eq!(prefix("198.51.100.6").unwrap(), ["198.51.100.6".parse::<IpAddr>().unwrap()]);
        assert!(prefix("198.51.100.0/24").unwrap().contains(&"198.51.100.6".parse().unwrap()));
        assert_eq!(prefix("2001:db8::7").unwrap(), ["2001:db8::7".parse::<IpAddr>().unwrap()]);
        for (text, said) in
            [("10.0.0.0/8", "more than 256"), ("2001:db8::/64", "more than 256"), ("x", "neither an address")]
        {
            assert!(prefix(text).unwrap_err().message.contains(said));
        }
    }
}
