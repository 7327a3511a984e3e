//! One SA, and what went through a tunnel, as connections, sessions and HIP peers all report them; and which SAs a request means.

use serde::{Deserialize, Serialize};

/// One SA, IKE or CHILD.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SaStatus {
    /// The SPIs, ours first, in hexadecimal.
    pub spi: String,
    /// Its algorithms, in the words of the configuration.
    pub suite: String,
    /// Since it was set up.
    pub age_seconds: f64,
    /// Until it gets new keys; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rekey_in_seconds: Option<f64>,
    /// CHILD SA: `tunnel`, `transport` or `beet`; empty for an IKE SA.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// CHILD SA: how many zones of their own keys its packets have; 0: one key protects all.
    #[serde(default, skip_serializing_if = "is_none")]
    pub zones: usize,
    /// CHILD SA: all on the way can read what it carries: it is authenticated and not encrypted.
    #[serde(default, skip_serializing_if = "is_not")]
    pub readable: bool,
    /// CHILD SA: what is sent on it where others have the same selectors, in words; empty: what those leave.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub share: String,
    /// CHILD SA that sends all packets for a time: whether it does now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes_all: Option<bool>,
    /// CHILD SA that sends all packets while the signal is weak: the signal in dBm; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal_dbm: Option<i8>,
    /// CHILD SA: what went through it.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub traffic: Traffic,
    /// Gateway: access routers that hold the keys of its first zone, or are to: `identity: wanted`, `giving`, `held`, `refused`, `revoking`
    /// or `forgotten`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<String>,
}

/// Which SAs of a session get new keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeysOf {
    /// The IKE SA and its CHILD SAs.
    #[default]
    All,
    /// The IKE SA.
    Ike,
    /// The CHILD SAs.
    Child,
}

/// Whether there are no zones.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this shape")]
const fn is_none(zones: &usize) -> bool {
    *zones == 0
}

/// Whether it is not so.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this shape")]
const fn is_not(it: &bool) -> bool {
    !*it
}

/// Whether nothing went through.
fn is_nothing(traffic: &Traffic) -> bool {
    *traffic == Traffic::default()
}

/// Counters of one direction each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Inner packets received.
    pub packets_in: u64,
    /// Inner bytes received.
    pub bytes_in: u64,
    /// Inner packets sent.
    pub packets_out: u64,
    /// Inner bytes sent.
    pub bytes_out: u64,
    /// Packets dropped: not authentic, replayed, malformed, or for no policy.
    pub dropped: u64,
}
