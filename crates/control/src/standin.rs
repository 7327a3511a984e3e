//! What a gateway does for devices that sleep, as `status` reports it. Times are in seconds from now.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is done for one device.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StandIn {
    /// Its sleep; absent while it is awake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asleep: Option<DeviceSleep>,
    /// Packets that came for it while it slept, since it connected.
    pub handled: u64,
    /// Packets delivered when it woke.
    pub delivered: u64,
    /// Answers in its place, by kind: `echo`, `tcp-keep-alive`, `tcp-hold`, ... The names are stable; a reader ignores those that
    /// it does not know.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub answered: BTreeMap<String, u64>,
    /// Packets dropped, by reason: `expired`, `evicted`, `rate-limited`, ...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, u64>,
}

/// A device's sleep.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DeviceSleep {
    /// Since it began.
    pub since_seconds: f64,
    /// Until the device is given up.
    pub until_seconds: f64,
    /// Packets that wait for it.
    pub packets: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// A device that sleeps without a session: it comes back by ticket.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AbsentDevice {
    /// The connection that it came in by.
    pub connection: String,
    /// The device's identity.
    pub peer: String,
    /// Addresses and prefixes that are left to it.
    pub routes: Vec<String>,
    /// What is done for it.
    pub stand_in: StandIn,
}
