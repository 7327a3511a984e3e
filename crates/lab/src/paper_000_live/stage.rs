//! One gateway process and a crowd before it. Asks the gateway what it has; all of it is removed with the stage.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_testbed::crowd::{Crowd, Pki, Site};
use dormouse_testbed::{Dormoused, Testbed};
use serde_json::Value;

/// The gateway in its namespace, and the crowd in another.
pub(super) struct Stage {
    gateway: Dormoused,
    site: Site,
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
        let site = Site::new(&mut bed)?;
        let gateway = Dormoused::start(&site.gateway, "dns = \"off\"\n", &site.connection(&bed, pki)?)?;
        Ok(Self { gateway, site, _bed: bed })
    }

    /// `count` clients without sessions, in their host.
    pub(super) fn crowd(&self, pki: &Pki, count: usize, interrupted: &Arc<AtomicBool>) -> Result<Crowd> {
        self.site.crowd(pki, count, 1, interrupted)
    }

    /// The gateway is killed with SIGKILL and started again. It has lost every session and what it knew about load, and with
    /// `tickets_too` also its ticket keys.
    pub(super) fn restart(&mut self, tickets_too: bool) -> Result<()> {
        self.gateway.process().kill();
        let state = self.site.gateway.dir().join("state");
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
    pub(super) fn overruns(&self) -> Result<[u64; 2]> {
        self.site.overruns()
    }
}
