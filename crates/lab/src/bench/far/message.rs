//! What the two machines say to each other: orders and answers. Owns their form, their framing and their bounds; must never
//! let through an order that a plan could not contain.
//!
//! A message is four bytes of length, big endian, and so many bytes of JSON. Nothing in it names an address, a file or a
//! program of the machine that obeys.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dormouse_crypto::measure::Suite;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bench::cpu::Cost;
use crate::bench::tls;
use crate::bench::traffic::{HEADER, Pace};
use crate::results::format::{Encapsulation, Machine};

/// The version of the conversation.
pub(super) const PROTOCOL: u32 = 1;
/// Bytes of a message, at most.
pub(super) const MOST: usize = 16 << 10;
/// Bytes of a UDP payload, at most: what a plan's packets may have.
const LARGEST: u32 = 9_000;
/// How long a sender sends, at most.
pub(in crate::bench) const LONGEST: Duration = Duration::from_secs(3_600);

/// The client's first words, after the handshake.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Hello {
    /// See [`super::secret`].
    pub(super) proof: String,
    /// The connection as the client sees it: its own end...
    pub(super) from: SocketAddr,
    /// ...and the server's. Where the server sees another, a NAT stands between the two.
    pub(super) to: SocketAddr,
}

/// The server's answer to that.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Welcome {
    /// Orders may come.
    Granted {
        /// See [`super::secret`].
        proof: String,
        /// What the far machine is.
        machine: Box<Machine>,
        /// How its program was built.
        build: String,
    },
    /// They may not; why.
    Refused(String),
}

/// A tunnel between the two ends of the connection that orders it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Tunnel {
    /// The suite by name; `none` forwards without ESP, if it is not encapsulated.
    pub(super) suite: String,
    /// How packets are wrapped.
    pub(super) encapsulation: Encapsulation,
    /// What both ends derive keys from.
    pub(super) run: [u8; 32],
}

/// UDP packets to be sent.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Sending {
    /// Number of the measurement.
    pub(super) run: u32,
    /// Payload of each packet.
    pub(super) bytes: u32,
    /// How fast.
    pub(super) pace: Pace,
    /// For how long.
    pub(super) millis: u64,
}

impl Sending {
    /// For how long.
    pub(super) const fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }
}

/// What the far machine is told to do.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Order {
    /// Take away what stands, and set this tunnel up; without one, the bare link is measured.
    Lay {
        /// The tunnel.
        tunnel: Option<Tunnel>,
    },
    /// Serve files through what stands, in TLS of this suite if there is one.
    Serve {
        /// Name of the suite.
        tls: Option<String>,
    },
    /// Fetch the known stream of bytes from the client's server, and compare.
    Check {},
    /// From now on count CPU time...
    Open {},
    /// ...until now.
    Close {},
    /// Count the packets of this run.
    Receive {
        /// Number of the measurement.
        run: u32,
        /// Payload of each packet.
        bytes: u32,
        /// Whether to tell the sender how far they are.
        acknowledge: bool,
    },
    /// No more than so many come: what has arrived?
    Received {
        /// Packets that were sent.
        sent: u64,
    },
    /// Send packets.
    Send(Sending),
}

/// What it has to say.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Answer {
    /// It is done.
    Done {},
    /// Files are served, under this certificate (DER, hexadecimal) if in TLS.
    Serving {
        /// The certificate.
        certificate: Option<String>,
    },
    /// What was counted.
    Spent(Cost),
    /// Packets that arrived.
    Arrived(Arrived),
    /// Packets that were sent.
    Sent(Sent),
    /// It cannot be done.
    Failed(String),
}

/// Packets that arrived at a receiver.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Arrived {
    /// How many.
    pub(super) packets: u64,
    /// In seconds.
    pub(super) jitter: f64,
    /// Seconds from the first to the last.
    pub(super) span: f64,
    /// What they cost the receiver.
    pub(super) cost: Cost,
}

/// Packets that a sender sent.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Sent {
    /// How many.
    pub(super) packets: u64,
    /// Seconds from the first to the last.
    pub(super) span: f64,
    /// What they cost the sender.
    pub(super) cost: Cost,
}

impl Order {
    /// Whether a plan could contain it.
    ///
    /// # Errors
    /// Where it could not, with what was found and what is expected.
    pub(super) fn check(&self) -> Result<()> {
        let size = |bytes: u32| {
            let least = u32::try_from(HEADER).unwrap_or(u32::MAX);
            ensure!(
                (least..=LARGEST).contains(&bytes),
                "packets of {bytes} bytes: expected {least} to {LARGEST}"
            );
            Ok(())
        };
        match self {
            Self::Lay { tunnel: Some(tunnel) } => {
                let suite: Suite = tunnel.suite.parse()?;
                let bare = tunnel.encapsulation == Encapsulation::None;
                ensure!(!bare || suite == Suite::NONE, "{suite} without ESP to carry it");
            }
            Self::Serve { tls: Some(name) } => _ = tls::find(name)?,
            Self::Receive { bytes, .. } => size(*bytes)?,
            Self::Send(sending) => {
                size(sending.bytes)?;
                let longest = u64::try_from(LONGEST.as_millis()).unwrap_or(u64::MAX);
                ensure!(
                    sending.millis <= longest,
                    "{} ms of packets: expected at most {longest}",
                    sending.millis
                );
                if let Pace::Rate(rate) = sending.pace {
                    ensure!((1e3..=1e12).contains(&rate), "a rate of {rate} bit/s: expected 1e3 to 1e12");
                }
            }
            Self::Lay { tunnel: None }
            | Self::Serve { tls: None }
            | Self::Check {}
            | Self::Open {}
            | Self::Close {}
            | Self::Received { .. } => {}
        }
        Ok(())
    }
}

/// Writes a message.
///
/// # Errors
/// If it is too long, or the connection is gone.
pub(super) fn write(to: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(message)?;
    ensure!(text.len() <= MOST, "a message of {} bytes: expected at most {MOST}", text.len());
    let mut framed = u32::try_from(text.len())?.to_be_bytes().to_vec();
    framed.extend(text);
    to.write_all(&framed)?;
    Ok(to.flush()?)
}

/// Reads a message; nothing if the other side has gone instead of beginning one.
///
/// # Errors
/// For one that is too long, ends early or makes no sense; what it said is not repeated.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length[..1]) {
        Ok(()) => {}
        Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            return Ok(None);
        }
        Err(e) => return Err(e.into()),
    }
    from.read_exact(&mut length[1..]).context("in the middle of a message")?;
    let length = usize::try_from(u32::from_be_bytes(length))?;
    if length > MOST {
        bail!("a message of {length} bytes: expected at most {MOST}");
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text).context("in the middle of a message")?;
    match serde_json::from_slice(&text) {
        Ok(message) => Ok(Some(message)),
        Err(e) => bail!("a message that makes no sense: line {}, column {}", e.line(), e.column()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(bytes: &[u8]) -> Result<Option<Order>> {
        read(&mut &bytes[..])
    }

    fn framed(text: &str) -> Vec<u8> {
        let mut bytes = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(text.as_bytes());
        bytes
    }

    fn refused(bytes: &[u8]) -> String {
        format!("{:#}", heard(bytes).err().expect("no order"))
    }

    #[test]
    fn an_order_survives_its_frame_and_an_end_between_two_is_no_fault() {
        let sending = Sending { run: 7, bytes: 1_000, pace: Pace::Rate(2e6), millis: 400 };
        let mut bytes = Vec::new();
        write(&mut bytes, &Order::Send(sending)).unwrap();
        let order = heard(&bytes).unwrap();
        assert!(matches!(order, Some(Order::Send(same)) if same == sending));
        assert!(heard(&[]).unwrap().is_none());
    }

    #[test]
    fn what_is_too_long_or_cut_short_or_makes_no_sense_is_refused() {
        assert_eq!(refused(&[0xff; 8]), "a message of 4294967295 bytes: expected at most 16384");
        for cut in [&[0, 0][..], &[0, 0, 0, 9], &framed("{\"check\":{}}")[..9]] {
            assert!(refused(cut).starts_with("in the middle of a message"), "{cut:?}");
        }
        for nonsense in [
            "",
            "null",
            "{\"erase\":{}}",
            "{\"check\":{\"file\":\"/etc/passwd\"}}",
            "{\"send\":{\"run\":-1}}",
            "{\"lay\":{\"tunnel\":{\"suite\":\"none\",\"encapsulation\":\"udp\",\"run\":[1,2,3]}}}",
        ] {
            assert!(refused(&framed(nonsense)).starts_with("a message that makes no sense"), "{nonsense}");
        }
        let deep = "[".repeat(10_000);
        assert!(refused(&framed(&deep)).starts_with("a message that makes no sense"));
        let long = Answer::Failed("x".repeat(MOST));
        assert!(write(&mut Vec::new(), &long).is_err(), "nobody would hear it");
    }

    #[test]
    fn what_no_plan_contains_is_no_order() {
        let tunnel = |suite: &str, encapsulation| Order::Lay {
            tunnel: Some(Tunnel { suite: suite.into(), encapsulation, run: [0; 32] }),
        };
        let sending = |bytes, pace, millis| Order::Send(Sending { run: 1, bytes, pace, millis });
        for (order, why) in [
            (tunnel("rot13", Encapsulation::Udp), "unknown suite"),
            (tunnel("aes128gcm16", Encapsulation::None), "without ESP to carry it"),
            (Order::Serve { tls: Some("ssl3".into()) }, "no TLS suite"),
            (Order::Receive { run: 1, bytes: 15, acknowledge: true }, "packets of 15 bytes"),
            (Order::Receive { run: 1, bytes: u32::MAX, acknowledge: true }, "expected 16 to 9000"),
            (sending(9_001, Pace::Free, 1), "packets of 9001 bytes"),
            (sending(1_000, Pace::Free, u64::MAX), "expected at most 3600000"),
            (sending(1_000, Pace::Rate(0.0), 1), "a rate of 0 bit/s"),
            (sending(1_000, Pace::Rate(f64::NAN), 1), "a rate of NaN bit/s"),
        ] {
            let error = format!("{:#}", order.check().unwrap_err());
            assert!(error.contains(why), "{error}: expected {why}");
        }
        tunnel("none", Encapsulation::None).check().unwrap();
        tunnel("des-md5", Encapsulation::UdpTransport).check().unwrap();
    }
}
