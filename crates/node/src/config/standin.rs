//! The `[standin]` section: what the gateway does for devices that sleep. Owns its keys.

use super::file::Seconds;
use dormouse_standin::Limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Gateway, or host of HIP: what is done for a device whose radio is off, if it said so (both ends must be Dormouse).
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StandIn {
    /// Answer for sleeping devices what they would answer themselves (pings, keep-alives, their names), and keep packets for
    /// them. `false`: packets to a sleeping device are lost.
    pub enabled: bool,
    /// Tell TCP peers of a sleeping device that there is no room for more, so that connections outlast the sleep. `false`: their
    /// data is kept without a word, and they repeat it until they give up.
    pub hold_tcp: bool,
    /// KiB that may wait for one device.
    pub device_kib: usize,
    /// Packets that may wait for one device.
    pub device_packets: usize,
    /// MiB that may wait for all devices.
    pub total_mib: usize,
    /// Nothing is kept, and no device stood in for, longer than this.
    pub longest: Seconds,
}

impl Default for StandIn {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            enabled: true,
            hold_tcp: limits.hold_tcp,
            device_kib: limits.device_bytes / 1024,
            device_packets: limits.device_packets,
            total_mib: limits.total_bytes / (1024 * 1024),
            longest: Seconds(4 * 3600),
        }
    }
}

impl StandIn {
    /// The bounds, for at most `devices` devices; `None` if there is to be no stand-in.
    #[must_use]
    pub fn limits(&self, devices: usize) -> Option<(Limits, Duration)> {
        let defaults = Limits::default();
        let total_bytes = self.total_mib.saturating_mul(1024 * 1024);
        let limits = Limits {
            devices,
            device_bytes: self.device_kib.saturating_mul(1024),
            device_packets: self.device_packets,
            total_bytes,
            // As many as the bytes let through at the usual thousand bytes each.
            total_packets: (total_bytes / 1024).max(1),
            hold_tcp: self.hold_tcp,
            ..defaults
        };
        self.enabled.then(|| (limits, Duration::from_secs(self.longest.0.into())))
    }
}
