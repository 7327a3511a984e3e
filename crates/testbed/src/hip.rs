//! HIP hosts of a testbed: their keys, by the real command line, and the configuration of a daemon. Owns where a host's key is.

use std::fmt::Display;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::daemon::binary;
use crate::host::Host;

/// One end.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The host identity tag.
    pub hit: std::net::Ipv6Addr,
    key: std::path::PathBuf,
}

impl Identity {
    /// A new key of this kind, as `dormouse hip keygen --kind` names it, in the host's directory. RSA has 2,048 bits, the fewest that
    /// version 2 of HIP takes.
    ///
    /// # Errors
    /// What the program says.
    pub fn new(host: &Host, kind: &str) -> Result<Self> {
        let key = host.dir().join(format!("hip-{kind}.key"));
        let (program, to) = (binary("dormouse"), key.display());
        let bits = if kind == "rsa" { " --bits 2048" } else { "" };
        let line = format!("{} --json hip keygen {to} --kind {kind}{bits}", program.display());
        let answer: Value = serde_json::from_str(&host.sh(&line)?)?;
        let hit = answer.pointer("/result/hip-key/hit").and_then(Value::as_str).context("no HIT")?;
        Ok(Self { hit: hit.parse()?, key })
    }

    /// A configuration without peers. `more`: lines of the section.
    #[must_use]
    pub fn alone(&self, more: &str) -> String {
        format!("[connection.home]\nrole = \"hip\"\n[connection.home.hip]\nkey = {:?}\n{more}\n", self.key)
    }

    /// The same with one peer and its address.
    #[must_use]
    pub fn facing(&self, peer: &Self, address: impl Display, more: &str) -> String {
        format!(
            "{}[[connection.home.hip.peers]]\nhit = \"{}\"\nname = \"peer\"\naddresses = [\"{address}\"]\n",
            self.alone(more),
            peer.hit
        )
    }
}
