//! What is kept from leaving outside of the tunnel, and what leaves in clear.

use serde::{Deserialize, Serialize};

/// When what a connection should carry is kept in its tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockMode {
    /// Never.
    Off,
    /// From the first connection on.
    Connected,
    /// Always.
    Always,
}

impl BlockMode {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Connected => "connected",
            Self::Always => "always",
        }
    }
}

/// The block of one client connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockStatus {
    /// By its configuration.
    pub mode: BlockMode,
    /// The rules are in the kernel.
    pub holds: bool,
}

/// Something that leaves outside of the tunnel now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InClear {
    /// Whose tunnel should carry it.
    pub connection: String,
    /// What leaves.
    pub what: String,
    /// Why.
    pub why: String,
    /// The configuration or the user says so in so many words; otherwise it is a state to look at.
    pub intended: bool,
}

/// What `dormouse portal` has opened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Portal {
    /// These addresses can be reached outside of the tunnel.
    pub addresses: Vec<std::net::IpAddr>,
    /// Until it closes by itself.
    pub seconds: f64,
}
