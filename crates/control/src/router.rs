//! The access router, as `status` reports it.

use serde::{Deserialize, Serialize};

/// What stands between a radio and the network. Counts are of packets since the daemon started, unless said otherwise.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RouterStatus {
    /// The interface towards devices.
    pub device: String,
    /// The interface towards the network.
    pub network: String,
    /// How the radio is repaired: `none`, `snoop` or `esp-arq`.
    pub repair: String,
    /// Sent to devices, repetitions included.
    pub to_device: u64,
    /// Sent to the network.
    pub to_network: u64,
    /// Dropped because too many waited for the radio.
    pub dropped: u64,
    /// Waiting for the radio now.
    pub waiting: usize,
    /// Packets of which a copy was kept.
    pub kept: u64,
    /// Sent again from here.
    pub repeated: u64,
    /// Acknowledgements that did not go on.
    pub suppressed: u64,
    /// With `esp-arq`: reports of devices.
    #[serde(default)]
    pub reports: u64,
    /// TCP connections followed now; with `esp-arq` SAs that are reported.
    pub connections: usize,
    /// Copies held now, in bytes.
    pub held_bytes: usize,
    /// Of `connections` those with the latest packet, that one first; no more than 16 of them.
    #[serde(default)]
    pub flows: Vec<RepairedFlow>,
    /// Whose header was read with the keys of a gateway.
    pub read: u64,
    /// Which the keys here did not open.
    pub closed: u64,
    /// Questions to gateways for header keys.
    pub asked: u64,
    /// The header keys.
    pub keys: Vec<HeaderKeys>,
}

/// A TCP connection, or with `esp-arq` an SA, whose packets to a device are repeated. Counts are of packets since it is followed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RepairedFlow {
    /// The device: of a connection its address and port, of an SA the address from which its last report came.
    pub device: String,
    /// Of a connection the other end's address and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<String>,
    /// Of a connection in ESP the addresses between which that goes: the gateway's and the device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub esp: Option<[String; 2]>,
    /// Of an SA the SPI of what goes to the device, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spi: Option<String>,
    /// Copies held now.
    pub held: usize,
    /// Packets of which a copy was kept.
    pub kept: u64,
    /// Sent again from here.
    pub repeated: u64,
    /// Acknowledgements that did not go on; none of an SA.
    pub suppressed: u64,
    /// The round trip over the radio, smoothed; absent while none was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_seconds: Option<f64>,
    /// Since its last packet, either way; of an SA since the last one to the device, or the last report.
    pub quiet_seconds: f64,
}

/// Header keys of one SA.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HeaderKeys {
    /// The SPIs in hexadecimal: of what goes to the device, and of what comes from it.
    pub spi: String,
    /// `fit`; `stale`: packets no longer open; `used-up`: headers can be read, and no longer changed. For the latter two others are asked
    /// for.
    pub state: String,
}
