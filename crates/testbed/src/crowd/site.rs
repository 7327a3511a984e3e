//! Where a crowd meets a gateway, or several: a host for each, with an address for every client. Owns the network between them and the
//! gateway's connection; must never start anything by itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use dormouse_io::udp::Udp;
use dormouse_sansio::Carrier;

use super::{Crowd, DOMAIN, GATEWAY_NAME, Pki, Settings};
use crate::{Host, Testbed};

/// The outer addresses of gateways begin so; the gateway's number follows, so that each has a network of 256 to itself.
const GATEWAYS: [u8; 2] = [10, 0];
/// Answers pings behind the gateway: it is the gateway's own address on that side.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// NAT traversal.
const PORT: u16 = 4500;
/// In so many networks clients can be ([`Settings::networks`]).
pub const NETWORKS: usize = 512;
/// Where clients are, and where they move to and back: each a range of 131,072 addresses.
const HOMES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 2, 0, 0), Ipv4Addr::new(10, 4, 0, 0)];

/// The end of the gateway's link to the clients (1) or of theirs (2).
fn outer(gateway: u8, end: u8) -> Ipv4Addr {
    let [a, b] = GATEWAYS;
    Ipv4Addr::new(a, b, gateway, end)
}

fn gateway(bed: &mut Testbed, clients: &Host, name: &str, number: u8) -> Result<Host> {
    let (host, dev) = (bed.host(name)?, format!("eth{number}"));
    let [here, there] = [1, 2].map(|end| format!("{}/24", outer(number, end)));
    bed.link((&host, "wan", &[&here]), (clients, &dev, &[&there]))?;
    host.ip(&format!("addr add {SERVER}/32 dev lo"))?;
    for home in HOMES {
        host.ip(&format!("route add {home}/15 via {}", outer(number, 2)))?;
    }
    Ok(host)
}

/// See the module.
pub struct Site {
    /// The gateway's host.
    pub gateway: Host,
    /// The crowd's.
    pub clients: Host,
}

impl Site {
    /// Builds both hosts.
    ///
    /// # Errors
    /// Without root or network namespaces.
    pub fn new(bed: &mut Testbed) -> Result<Self> {
        let clients = bed.host("clients")?;
        for home in HOMES {
            // Every address of the range is the clients' host's own, without being assigned one by one.
            clients.ip(&format!("route add local {home}/15 dev lo"))?;
        }
        let gateway = gateway(bed, &clients, "gateway", 0)?;
        Ok(Self { gateway, clients })
    }

    /// Builds the host of another gateway, number 1 and up, beside those that are there, with the same [`SERVER`] behind it.
    ///
    /// # Errors
    /// As [`Site::new`].
    pub fn another(&self, bed: &mut Testbed, number: u8) -> Result<Host> {
        gateway(bed, &self.clients, &format!("gateway{number}"), number)
    }

    /// Where clients reach the gateway of this number; [`Site::gateway`] is number 0.
    #[must_use]
    pub fn address(number: u8) -> SocketAddr {
        (outer(number, 1), PORT).into()
    }

    /// The connection of a gateway of `pki`, whose files are put beside those of the testbed. All of it is as it ships, but where the
    /// crowd comes from.
    ///
    /// # Errors
    /// If a file cannot be written, or `pki` has no certificates.
    pub fn connection(&self, bed: &Testbed, pki: &Pki) -> Result<String> {
        let keys = bed.dir().join("pki");
        pki.write_gateway(&keys)?;
        Ok(format!(
            "[connection.crowd]\nrole = \"gateway\"\n\
             [connection.crowd.local]\nid = \"{GATEWAY_NAME}\"\ncertificate = {:?}\nkey = {:?}\n\
             [connection.crowd.remote]\nid = \"*.{DOMAIN}\"\nca = [{:?}]\n\
             [connection.crowd.child]\nlocal = [\"{SERVER}/32\"]\nremote = [\"dynamic\"]\n\
             [connection.crowd.pool]\naddresses = [\"10.64.0.0/14\"]\n",
            keys.join("gateway.pem"),
            keys.join("gateway.key"),
            keys.join("ca.pem"),
        ))
    }

    /// `count` clients without sessions, in their host, spread over so many `networks` ([`Settings::networks`]).
    ///
    /// # Errors
    /// As [`Crowd::new`], or if there is a socket of another crowd.
    pub fn crowd(
        &self,
        pki: &Pki,
        count: usize,
        networks: usize,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Crowd> {
        let bind = || Udp::bind((Ipv4Addr::UNSPECIFIED, PORT).into(), Carrier::NatT);
        let socket = self.clients.run(bind)??;
        let settings = Settings {
            count,
            gateway: Self::address(0),
            homes: HOMES,
            networks,
            server: SERVER,
            retransmission: Default::default(),
            interrupted: interrupted.clone(),
        };
        Crowd::new(pki, socket, settings)
    }

    /// Datagrams that the kernel dropped at a socket of the gateway's host and of the clients', because it was full, since there are these hosts.
    ///
    /// # Errors
    /// If `/proc` cannot be read there.
    pub fn overruns(&self) -> Result<[u64; 2]> {
        let of = |host: &Host| -> Result<u64> {
            let text = host.sh("cat /proc/net/snmp")?;
            let mut lines = text.lines().filter_map(|l| l.strip_prefix("Udp: ")).map(str::split_whitespace);
            let (heads, values) = lines.next().zip(lines.next()).context("/proc/net/snmp")?;
            let found = heads.zip(values).find(|(head, _)| *head == "RcvbufErrors");
            Ok(found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0))
        };
        Ok([of(&self.gateway)?, of(&self.clients)?])
    }
}
