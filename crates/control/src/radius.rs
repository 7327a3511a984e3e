//! RADIUS servers, as `status` reports them.

use serde::{Deserialize, Serialize};

/// The servers that a gateway asks about users, and tells of sessions.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RadiusStatus {
    /// What the gateway is called there.
    pub nas_identifier: String,
    /// A server that has not answered is asked again after this time.
    pub timeout_seconds: f64,
    /// How often a server is asked.
    pub tries: u32,
    /// How often sessions are reported on, unless a user's server says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interim_seconds: Option<f64>,
    /// Who know the users.
    pub servers: Vec<RadiusServer>,
    /// Who are told of sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounting: Vec<RadiusServer>,
    /// Questions that wait for an answer now.
    pub questions: usize,
    /// Reports that no server has taken yet.
    pub reports: usize,
    /// Reports that were lost since the daemon started.
    pub reports_lost: u64,
}

/// One server. Counts are since the daemon started, or since the servers were others.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RadiusServer {
    /// Where it listens.
    pub address: String,
    /// Requests that it answered.
    pub answered: u64,
    /// Requests that it did not.
    pub unanswered: u64,
    /// Datagrams from there that were no answers: forged, or sealed with another secret.
    pub discarded: u64,
    /// When it last answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_seconds_ago: Option<f64>,
    /// It did not answer the last time, for this reason, and others are asked before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
}
