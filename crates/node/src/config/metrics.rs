//! Where numbers can be read for Prometheus. Owns how that is written, and who may read them there; the numbers are the daemon's.

use super::{ConfigError, file};
use schemars::JsonSchema;
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An address with its port, the path of a Unix socket, or nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum Metrics {
    /// Nowhere.
    #[default]
    Off,
    /// At this address of the machine.
    Tcp(SocketAddr),
    /// At this socket.
    Unix(PathBuf),
}

impl Metrics {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::Off),
            path if path.starts_with('/') => Some(Self::Unix(path.into())),
            // Port 0 would be another one with each start.
            address => address.parse().ok().filter(|at: &SocketAddr| at.port() != 0).map(Self::Tcp),
        }
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => Ok(()),
            Self::Tcp(at) => at.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let expected = &"an address with its port such as \"127.0.0.1:9717\" or \"[::1]:9717\", or a path that begins with a '/'";
        Self::parse(&text).ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), expected))
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// Who may read them there.
///
/// # Errors
/// If others could without being named, or the wrong ones are named.
pub(super) fn validate(d: &file::Daemon) -> Result<(), ConfigError> {
    let wrong = |key: &str, problem: String| Err(ConfigError::new(format!("daemon.{key}"), problem));
    let group = !d.metrics_group.is_empty();
    match &d.metrics {
        Metrics::Tcp(at) if !at.ip().is_loopback() && d.metrics_from.is_empty() => {
            let problem = format!(
                "{at} can be reached from other machines; name those that may read in daemon.metrics_from, or use 127.0.0.1"
            );
            wrong("metrics", problem)
        }
        Metrics::Tcp(at) if at.ip().is_loopback() && !d.metrics_from.is_empty() => {
            wrong("metrics_from", format!("daemon.metrics = \"{at}\" is reached from this machine alone"))
        }
        Metrics::Tcp(at) if group => wrong(
            "metrics_group",
            format!("is for a path; daemon.metrics = \"{at}\" is open to all users of this machine"),
        ),
        Metrics::Off | Metrics::Unix(_) if !d.metrics_from.is_empty() => {
            wrong("metrics_from", "is for an address with a port in daemon.metrics".into())
        }
        Metrics::Off if group => wrong("metrics_group", "is for a path in daemon.metrics".into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::File;
    use super::*;

    fn read(keys: &str) -> Result<File, toml::de::Error> {
        toml::from_str(&format!("[daemon]\n{keys}\n"))
    }

    #[test]
    fn it_is_an_address_or_a_path_or_nothing() {
        for (text, meant) in [
            ("", Metrics::Off),
            ("127.0.0.1:9717", Metrics::Tcp(([127, 0, 0, 1], 9717).into())),
            ("[::1]:9717", Metrics::Tcp(([0u16, 0, 0, 0, 0, 0, 0, 1], 9717).into())),
            ("/run/dormouse/metrics.sock", Metrics::Unix("/run/dormouse/metrics.sock".into())),
        ] {
            let file = read(&format!("metrics = \"{text}\"")).unwrap();
            assert_eq!((file.daemon.metrics.to_string().as_str(), &file.daemon.metrics), (text, &meant));
        }
        assert_eq!(File::default().daemon.metrics, Metrics::Off);
        for text in ["9717", "localhost:9717", "127.0.0.1", "127.0.0.1:0", "run/x.sock", "::1:9717x", "off"] {
            let problem = read(&format!("metrics = \"{text}\"")).unwrap_err().to_string();
            assert!(problem.contains("such as \"127.0.0.1:9717\""), "{text}: {problem}");
        }
    }

    #[test]
    fn who_may_read_is_said_where_others_could_and_only_there() {
        let problem = |keys: &str| validate(&read(keys).unwrap().daemon).map_err(|e| e.key).err();
        for (keys, key) in [
            ("metrics = \"0.0.0.0:9717\"", Some("daemon.metrics")),
            ("metrics = \"[2001:db8::1]:9717\"", Some("daemon.metrics")),
            ("metrics = \"10.0.0.1:9717\"\nmetrics_from = [\"10.0.0.9/32\"]", None),
            ("metrics = \"127.0.0.1:9717\"", None),
            ("metrics = \"127.0.0.1:9717\"\nmetrics_from = [\"10.0.0.9/32\"]", Some("daemon.metrics_from")),
            ("metrics = \"127.0.0.1:9717\"\nmetrics_group = \"adm\"", Some("daemon.metrics_group")),
            ("metrics = \"/run/m.sock\"\nmetrics_group = \"adm\"", None),
            ("metrics = \"/run/m.sock\"\nmetrics_from = [\"10.0.0.9/32\"]", Some("daemon.metrics_from")),
            ("metrics_from = [\"10.0.0.9/32\"]", Some("daemon.metrics_from")),
            ("metrics_group = \"adm\"", Some("daemon.metrics_group")),
        ] {
            assert_eq!(problem(keys).as_deref(), key, "{keys}");
        }
    }
}
