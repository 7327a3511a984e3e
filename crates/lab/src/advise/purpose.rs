//! What a device is used for, and what decides for that use. Owns the uses; must never look at a measurement.

use std::fmt;

use serde::Serialize;

use crate::results::esp::Metric;

/// What the device is used for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Large transfers: throughput of large packets.
    #[default]
    Bulk,
    /// Calls, games, remote shells: throughput of small packets.
    SmallPackets,
    /// A device on its battery: energy per byte of middling packets, or CPU where energy was not measured.
    Battery,
    /// A sensor: energy per byte of small packets, and bytes on the air where that is a tie.
    Sensor,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bulk, Self::SmallPackets, Self::Battery, Self::Sensor];

    /// As users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::SmallPackets => "small-packets",
            Self::Battery => "battery",
            Self::Sensor => "sensor",
        }
    }

    /// The packet size that stands for it, in bytes of the inner packet; the nearest measured one is taken.
    #[must_use]
    pub const fn packet_bytes(self) -> u32 {
        match self {
            Self::Bulk => 1_420,
            Self::SmallPackets => 180,
            Self::Battery => 1_024,
            Self::Sensor => 128,
        }
    }

    /// What decides, in order: a later figure counts only where the earlier ones are ties.
    #[must_use]
    pub const fn objectives(self) -> [Metric; 3] {
        match self {
            Self::Bulk | Self::SmallPackets => [Metric::Throughput, Metric::Cpu, Metric::Energy],
            Self::Battery | Self::Sensor => [Metric::Energy, Metric::Cpu, Metric::Throughput],
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The use.
    pub purpose: Purpose,
    /// Also what is SHOULD NOT or on its way out (MUST-). What is MUST NOT stays out.
    pub allow_discouraged: bool,
}
