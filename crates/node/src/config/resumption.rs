//! The `resumption` section of a connection: whether and how sessions come back by ticket. Owns its keys.

use super::file::Seconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Session resumption (RFC 5723).
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Resumption {
    /// `strict` follows RFC 5723; `libreswan` talks to libreswan 5.2 and later, which computes the resumed authentication
    /// differently; `off` neither asks for tickets nor grants them.
    pub mode: ResumptionMode,
    /// Gateway: how long a ticket is good. It bounds what a stolen ticket key gives.
    pub ticket_lifetime: Seconds,
    /// `fresh`: each resumption between Dormouse ends has a key exchange of its own, so that ticket keys and tickets that leak later
    /// do not open it; a gateway takes none without. `none`: without one, if the other end says so too, which saves some 50 µs at
    /// either end.
    pub key_exchange: KeyExchange,
    /// Gateway: whether ends that do not speak version 2 of the dormancy extension may resume by plain RFC 5723, which has no
    /// forward secrecy until the IKE SA is rekeyed.
    pub plain: bool,
}

impl Default for Resumption {
    fn default() -> Self {
        Self {
            mode: ResumptionMode::Strict,
            ticket_lifetime: Seconds(24 * 3600),
            key_exchange: KeyExchange::Fresh,
            plain: true,
        }
    }
}

/// Whether a resumption has a key exchange of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KeyExchange {
    /// Always.
    Fresh,
    /// Not, if both ends say so.
    None,
}

/// Which resumption is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResumptionMode {
    /// RFC 5723.
    Strict,
    /// As libreswan deviates from it.
    Libreswan,
    /// None.
    Off,
}
