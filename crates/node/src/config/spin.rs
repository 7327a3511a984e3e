//! For how long the daemon looks for the next packet without rest. Owns how that is written; what it costs and brings stands at its key.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// Looking for packets without rest for longer than this after each is no better than always, in microseconds.
const MOST: u32 = 10_000;

/// A time of at most ten milliseconds: text with its unit (`"50us"`, `"2ms"`), or a number of microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, schemars::JsonSchema)]
#[schemars(with = "String")]
pub struct Spin {
    microseconds: u32,
}

impl Spin {
    /// Of so many microseconds; `None` if these are more than 10,000.
    #[must_use]
    pub const fn new(microseconds: u32) -> Option<Self> {
        if microseconds > MOST { None } else { Some(Self { microseconds }) }
    }

    /// The time; `None` if it is zero, and the daemon never looks without rest.
    #[must_use]
    pub fn time(self) -> Option<Duration> {
        (self.microseconds > 0).then(|| Duration::from_micros(self.microseconds.into()))
    }

    fn parse(text: &str) -> Option<Self> {
        let (digits, factor) = match text.strip_suffix("us") {
            Some(digits) => (digits, 1),
            None => (text.strip_suffix("ms")?, 1_000),
        };
        // A sign is no part of a time.
        let number: u32 = digits.parse().ok().filter(|_| !digits.starts_with('+'))?;
        Self::new(number.checked_mul(factor)?)
    }
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.microseconds)
    }
}

impl<'de> Deserialize<'de> for Spin {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Time;
        impl Visitor<'_> for Time {
            type Value = Spin;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a time such as \"50us\", or a number of microseconds, of at most {MOST}")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Spin, E> {
                Spin::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
            fn visit_i64<E: Error>(self, n: i64) -> Result<Spin, E> {
                let spin = u32::try_from(n).ok().and_then(Spin::new);
                spin.ok_or_else(|| E::invalid_value(Unexpected::Signed(n), &self))
            }
        }
        d.deserialize_any(Time)
    }
}

impl Serialize for Spin {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::File;
    use super::*;

    fn read(value: &str) -> Result<Spin, toml::de::Error> {
        toml::from_str::<File>(&format!("[daemon]\nspin = {value}\n")).map(|file| file.daemon.spin)
    }

    #[test]
    fn it_is_text_with_a_unit_or_a_number_of_microseconds() {
        for (value, microseconds) in
            [("0", 0), ("50", 50), ("10000", 10_000), ("\"0us\"", 0), ("\"50us\"", 50), ("\"10ms\"", 10_000)]
        {
            let spin = read(value).unwrap();
            assert_eq!(spin, Spin::new(microseconds).unwrap(), "{value}");
            assert_eq!(read(&format!("\"{spin}\"")).unwrap(), spin, "it is written as it is read");
        }
        assert_eq!(File::default().daemon.spin.time(), None);
        assert_eq!(read("\"2ms\"").unwrap().time(), Some(Duration::from_millis(2)));
    }

    #[test]
    fn what_is_no_such_time_is_refused_and_says_what_would_be_one() {
        for value in [
            "10001",
            "-1",
            "0.5",
            "true",
            "\"\"",
            "\"us\"",
            "\"50\"",
            "\"50s\"",
            "\"+5us\"",
            "\"-5us\"",
            "\"5 us\"",
            "\"11ms\"",
            "\"4294968ms\"",
        ] {
            let problem = read(value).unwrap_err().to_string();
            assert!(problem.contains("such as \"50us\""), "{value}: {problem}");
        }
    }
}
