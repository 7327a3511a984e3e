//! Where a crowd meets a gateway: a host for each, with an address for every client. Owns the network between them and the gateway's
//! connection; must never start anything by itself.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use dormouse_io::udp::Udp;
use dormouse_sansio::Carrier;

use super::{Crowd, DOMAIN, GATEWAY_NAME, Pki, Settings};
use crate::{Host, Testbed};

/// The gateway's outer address.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Answers pings behind the gateway: it is the gateway's own address on that side.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// NAT traversal.
const PORT: u16 = 4500;
/// In so many networks clients can be ([`Settings::networks`]).
pub const NETWORKS: usize = 512;
/// Where clients are, and where they move to and back: each a range of 131,072 addresses.
const HOMES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 2, 0, 0), Ipv4Addr::new(10, 4, 0, 0)];

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
        let (gateway, clients) = (bed.host("gateway")?, bed.host("clients")?);
        bed.link((&gateway, "wan", &["10.0.0.1/24"]), (&clients, "eth0", &["10.0.0.2/24"]))?;
        gateway.ip(&format!("addr add {SERVER}/32 dev lo"))?;
        for home in HOMES {
            // Every address of the range is the clients' host's own, without being assigned one by one.
            clients.ip(&format!("route add local {home}/15 dev lo"))?;
            gateway.ip(&format!("route add {home}/15 via 10.0.0.2"))?;
        }
        Ok(Self { gateway, clients })
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
            gateway: (GATEWAY, PORT).into(),
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
