//! The words that keys of the `ike` section of a connection take. Owns no key.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// When ESP is carried in UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EspInUdp {
    /// Where a NAT asks for it, and between our own ends.
    #[default]
    Auto,
    /// Where a NAT asks for it.
    Nat,
    /// With every peer.
    Always,
}

/// Whether the first CHILD SA is made with the session or after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Childless {
    /// With it.
    Never,
    /// With it; a client may choose.
    #[default]
    Allow,
    /// After it where the gateway can; a client may choose.
    Prefer,
    /// After it.
    Force,
}

/// NAT keepalives: `"auto"`, `"off"`, or seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum Keepalive {
    /// Found by probing the NAT.
    Auto,
    /// None are sent.
    Off,
    /// A fixed interval in seconds.
    Every(u32),
}

impl<'de> Deserialize<'de> for Keepalive {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Keepalive;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\", \"off\" or a number of seconds from 1 to 86400")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Keepalive, E> {
                match text {
                    "auto" => Ok(Keepalive::Auto),
                    "off" => Ok(Keepalive::Off),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Keepalive, E> {
                match u32::try_from(n) {
                    Ok(n @ 1..=86_400) => Ok(Keepalive::Every(n)),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Signed(n), &self)),
                }
            }
        }
        d.deserialize_any(Visitor)
    }
}

impl Serialize for Keepalive {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => s.serialize_str("auto"),
            Self::Off => s.serialize_str("off"),
            Self::Every(n) => s.serialize_u32(*n),
        }
    }
}
