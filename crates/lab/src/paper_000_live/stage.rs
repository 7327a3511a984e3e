//! One gateway process and the network to it: two hosts, one with the gateway, the other with an address for every client. Owns
//! the gateway's configuration, and asks it what it has; all of it is removed with the stage.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_io::udp::Udp;
use dormouse_sansio::Carrier;
use dormouse_testbed::crowd::{Crowd, DOMAIN, GATEWAY_NAME, Pki, Settings};
use dormouse_testbed::{Dormoused, Host, Testbed};
use serde_json::Value;

/// The gateway's outer address.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Answers pings behind the gateway: it is the gateway's own address on that side.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// NAT traversal.
const PORT: u16 = 4500;
/// Where clients are, and where they move to and back.
const HOMES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 0), Ipv4Addr::new(10, 2, 0, 0)];

/// The gateway in its namespace, and the crowd in another.
pub(super) struct Stage {
    gateway: Dormoused,
    gateway_host: Host,
    clients: Host,
    // Last: namespaces are removed after the process in them.
    _bed: Testbed,
}

impl Stage {
    /// Builds the network and starts the gateway of `pki`.
    ///
    /// # Errors
    /// Without root or network namespaces, or if `dormoused` does not come up.
    pub(super) fn build(pki: &Pki) -> Result<Self> {
        let mut bed = Testbed::new()?;
        let (gateway_host, clients) = (bed.host("gateway")?, bed.host("clients")?);
        bed.link((&gateway_host, "wan", &["10.0.0.1/24"]), (&clients, "eth0", &["10.0.0.2/24"]))?;
        gateway_host.ip(&format!("addr add {SERVER}/32 dev lo"))?;
        for home in HOMES {
            // Every address of the range is the clients' host's own, without being assigned one by one.
            clients.ip(&format!("route add local {home}/16 dev lo"))?;
            gateway_host.ip(&format!("route add {home}/16 via 10.0.0.2"))?;
        }
        let keys = bed.dir().join("pki");
        pki.write_gateway(&keys)?;
        let toml = format!(
            "[connection.crowd]\nrole = \"gateway\"\n\
             [connection.crowd.local]\nid = \"{GATEWAY_NAME}\"\ncertificate = {:?}\nkey = {:?}\n\
             [connection.crowd.remote]\nid = \"*.{DOMAIN}\"\nca = [{:?}]\n\
             [connection.crowd.child]\nlocal = [\"{SERVER}/32\"]\nremote = [\"dynamic\"]\n\
             [connection.crowd.pool]\naddresses = [\"10.64.0.0/16\"]\n",
            keys.join("gateway.pem"),
            keys.join("gateway.key"),
            keys.join("ca.pem"),
        );
        let gateway = Dormoused::start(&gateway_host, "dns = \"off\"\n", &toml)?;
        Ok(Self { gateway, gateway_host, clients, _bed: bed })
    }

    /// `count` clients without sessions, in their host.
    pub(super) fn crowd(&self, pki: &Pki, count: usize, interrupted: &Arc<AtomicBool>) -> Result<Crowd> {
        let bind = || Udp::bind((Ipv4Addr::UNSPECIFIED, PORT).into(), Carrier::NatT);
        let socket = self.clients.run(bind)??;
        let settings = Settings {
            count,
            gateway: (GATEWAY, PORT).into(),
            homes: HOMES,
            server: SERVER,
            retransmission: Default::default(),
            interrupted: interrupted.clone(),
        };
        Crowd::new(pki, socket, settings)
    }

    /// The gateway is killed with SIGKILL and started again. It has lost every session and what it knew about load, and with
    /// `tickets_too` also its ticket keys.
    pub(super) fn restart(&mut self, tickets_too: bool) -> Result<()> {
        self.gateway.process().kill();
        let state = self.gateway_host.dir().join("state");
        let lost = if tickets_too {
            std::fs::remove_dir_all(&state)
        } else {
            std::fs::remove_file(state.join("load-history"))
        };
        if let Err(e) = lost
            && e.kind() != std::io::ErrorKind::NotFound
        {
            return Err(e).with_context(|| state.display().to_string());
        }
        self.gateway.restart()
    }

    /// CPU time of the gateway process so far.
    pub(super) fn gateway_cpu(&self) -> Duration {
        self.gateway.cpu()
    }

    /// The gateway has exactly `count` sessions, each of which has carried packets both ways; all of them were resumed, if
    /// `resumed` says how that should be; the first of `at` are where they should be.
    pub(super) fn check(
        &self,
        count: usize,
        resumed: Option<bool>,
        at: impl Iterator<Item = Ipv4Addr>,
    ) -> Result<()> {
        let status = self.gateway.ok(&["status", "--json"])?;
        let sessions = status.json.pointer("/result/status/gateway/sessions").and_then(Value::as_array);
        let sessions = sessions.context("no sessions in the status")?;
        ensure!(sessions.len() == count, "the gateway has {} sessions of {count}", sessions.len());
        for session in sessions {
            let traffic = |key: &str| session["traffic"][key].as_u64().unwrap_or(0);
            let both = traffic("packets_in") > 0 && traffic("packets_out") > 0;
            ensure!(both, "a session without traffic: {session}");
            let was = session["resumed"].as_bool();
            ensure!(
                resumed.is_none() || was == resumed,
                "resumed: {was:?} instead of {resumed:?}: {session}"
            );
        }
        let paths: String = sessions.iter().filter_map(|s| s["path"].as_str()).collect::<Vec<_>>().join("\n");
        for address in at {
            ensure!(
                paths.contains(&format!(" {address}:")),
                "the gateway does not know that one is at {address}"
            );
        }
        Ok(())
    }

    /// A counter of the gateway's statistics.
    pub(super) fn counter(&self, name: &str) -> Result<u64> {
        let stats = self.gateway.ok(&["stats", "--json"])?;
        let counters =
            stats.json.pointer("/result/stats/counters").context("no counters in the statistics")?;
        Ok(counters.get(name).and_then(Value::as_u64).unwrap_or(0))
    }

    /// Datagrams that the kernel dropped at a socket of the gateway and of the clients, because it was full, since the stage was built.
    pub(super) fn overruns(&self) -> Result<(u64, u64)> {
        let of = |host: &Host| -> Result<u64> {
            let text = host.sh("cat /proc/net/snmp")?;
            let mut lines = text.lines().filter_map(|l| l.strip_prefix("Udp: ")).map(str::split_whitespace);
            let (heads, values) = lines.next().zip(lines.next()).context("/proc/net/snmp")?;
            let found = heads.zip(values).find(|(head, _)| *head == "RcvbufErrors");
            Ok(found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0))
        };
        Ok((of(&self.gateway_host)?, of(&self.clients)?))
    }
}
