//! How recordings are read: the same options for every verb that takes some. Owns their names and what they mean.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use dormouse_energy::account::SESSION;
use dormouse_lab::Reading;
use dormouse_trace::flow::Spread;
use dormouse_trace::fold::Sessions;
use dormouse_trace::input::EXPORT_PORTS;

/// How recordings are read. The argument that names them is called `files`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReadingArgs {
    /// Recordings with the same label are of one site, where one address is one client; otherwise each is its own (repeatable; FILE may be a pattern)
    #[arg(long = "site", value_name = "FILE=LABEL", requires = "files")]
    sites: Vec<String>,
    /// Whom to account: an address, a prefix, a link-layer address, or a name (repeatable); by default clients are found
    #[arg(long = "client", value_name = "PREFIX", requires = "files")]
    wanted: Vec<String>,
    /// A silence longer than this is absence and ends a session, in seconds; 0: no silence does
    #[arg(long, value_name = "SECONDS", default_value_t = SESSION.as_secs_f64(), requires = "files")]
    session: f64,
    /// What else ends a session: nothing (silence), joining the network anew (association: 802.11, or DHCP without an address), or each
    /// connection is one (connection: Zeek's uid, Suricata's flow_id)
    #[arg(
        long,
        value_name = "silence|association|connection",
        default_value = "silence",
        requires = "files"
    )]
    session_by: Sessions,
    /// How a flow's packets are placed: even (worst case) or edges
    #[arg(long, value_name = "even|edges", default_value = "even", requires = "files")]
    flows: Spread,
    /// UDP port on which a capture's NetFlow and IPFIX exports are looked for (repeatable; 0: nowhere)
    #[arg(long = "netflow-port", value_name = "PORT", default_values_t = EXPORT_PORTS, requires = "files")]
    netflow_ports: Vec<u16>,
}

impl ReadingArgs {
    /// What they mean, where idle periods begin at `min_idle` seconds.
    ///
    /// # Errors
    /// If the silence is no number of seconds.
    pub(crate) fn reading(&self, min_idle: f64) -> anyhow::Result<Reading> {
        let session = if self.session == 0.0 {
            None
        } else {
            let longest = positive(self.session, "--session")?.max(min_idle);
            Some(Duration::try_from_secs_f64(longest).with_context(|| format!("--session {longest}"))?)
        };
        Ok(Reading {
            sites: self.sites.clone(),
            clients: self.wanted.clone(),
            session,
            session_by: self.session_by,
            flows: self.flows,
            netflow_ports: self.netflow_ports.iter().copied().filter(|port| *port != 0).collect(),
        })
    }
}

/// A number of seconds above 0.
///
/// # Errors
/// If it is none.
pub(crate) fn positive(seconds: f64, flag: &str) -> anyhow::Result<f64> {
    if seconds.is_finite() && seconds > 0.0 {
        Ok(seconds)
    } else {
        bail!("{flag} {seconds}: expected a positive number of seconds")
    }
}
