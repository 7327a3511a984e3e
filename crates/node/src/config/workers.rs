//! How many workers carry packets beside the daemon's loop. Owns how that is written, and how many are meant on a machine; what they do stands in
//! `docs/how-it-works.md`.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Most workers.
const MOST: u16 = 64;

/// A number of at most 64, or `"auto"`: one for each processor but the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, schemars::JsonSchema)]
#[schemars(with = "String")]
pub enum Workers {
    /// So many.
    Number(u16),
    /// As many as the machine has processors beside the loop's.
    Auto,
}

impl Default for Workers {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Workers {
    /// How many on a machine with so many processors.
    #[must_use]
    pub fn on(self, processors: usize) -> u16 {
        match self {
            Self::Number(number) => number,
            Self::Auto => u16::try_from(processors.saturating_sub(1)).unwrap_or(MOST).min(MOST),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Workers;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"auto\", or a number of at most {MOST}")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Workers, E> {
                let auto = (text == "auto").then_some(Workers::Auto);
                auto.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
            fn visit_i64<E: Error>(self, n: i64) -> Result<Workers, E> {
                let number = u16::try_from(n).ok().filter(|n| *n <= MOST);
                number.map(Workers::Number).ok_or_else(|| E::invalid_value(Unexpected::Signed(n), &self))
            }
        }
        d.deserialize_any(Number)
    }
}

impl Serialize for Workers {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => s.serialize_u16(*number),
            Self::Auto => s.serialize_str("auto"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::File;
    use super::*;

    #[test]
    fn a_number_or_auto() {
        let read = |value: &str| {
            toml::from_str::<File>(&format!("[daemon]\nworkers = {value}\n")).map(|file| file.daemon.workers)
        };
        assert_eq!(read("3").unwrap(), Workers::Number(3));
        assert_eq!(read("\"auto\"").unwrap(), Workers::Auto);
        for wrong in ["-1", "65", "\"3\"", "\"many\"", "1.5", "true"] {
            let refused = read(wrong).unwrap_err().to_string();
            assert!(refused.contains("\"auto\", or a number of at most 64"), "{wrong}: {refused}");
        }
        assert_eq!(File::default().daemon.workers, Workers::Number(0));
        for (processors, workers) in [(0, 0), (1, 0), (2, 1), (8, 7), (1_000, 64)] {
            assert_eq!((Workers::Auto.on(processors), Workers::Number(2).on(processors)), (workers, 2));
        }
    }
}
