//! What a gateway's machine does for its clients beside the tunnel, as it is written and what it means. Must never do any of it.

use super::file::{Connection, Role};
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether the daemon has the machine forward what clients send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Forward {
    /// The machine's own settings count.
    #[default]
    Off,
    /// Forwarding is on.
    Route,
    /// Forwarding is on, and the clients' addresses become this machine's own.
    Translate,
}

/// What is to be done for the clients of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forwarding {
    /// The prefixes of the pool.
    pub pool: Vec<IpNet>,
    /// Their addresses become this machine's own.
    pub translate: bool,
}

impl Forwarding {
    /// `None` if nothing is to be done.
    #[must_use]
    pub fn of(c: &Connection) -> Option<Self> {
        let wanted = c.role == Role::Gateway && c.pool.forward != Forward::Off;
        let translate = c.pool.forward == Forward::Translate;
        wanted.then(|| Self { pool: c.pool.addresses.clone(), translate })
    }
}
