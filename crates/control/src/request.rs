//! Requests: what the command line asks the daemon.

use crate::{ConnectionState, Error, ErrorKind, KeysOf, MAX_REQUEST, SleepMode, VERSION, WakeRung};
use serde::{Deserialize, Serialize};

/// One line from the command line to the daemon.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`] of the asking program.
    pub version: u32,
    /// What is asked.
    #[serde(flatten)]
    pub verb: Verb,
}

/// What is asked. `connection: None` means the only client connection there is; with several it is an error that lists them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Verb {
    /// Bring a client connection up. Answered [`crate::Reply::Done`] at once; `wait` waits.
    Up {
        /// The name of the connection.
        connection: Option<String>,
    },
    /// Take it down: the SA is deleted at both ends and the ticket destroyed. With `peer`, which needs `connection`: a gateway ends the
    /// session of this one peer and refuses its tickets; [`ErrorKind::NotConnected`] if there is no such peer.
    Down {
        /// The name of the connection.
        connection: Option<String>,
        /// Whose session, by the identity that it proved or an inner address of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<String>,
    },
    /// Gateway: delete one CHILD SA of a peer; its session goes on. Answered [`crate::Reply::Done`] at once; [`ErrorKind::NotConnected`] if there
    /// is no such peer, it sleeps, or has no such CHILD SA.
    DownChild {
        /// The name of the connection.
        connection: String,
        /// As in `down`.
        peer: String,
        /// The SPI of what the gateway receives: the first one of [`crate::SaStatus::spi`].
        spi: u32,
    },
    /// Make new keys now. Answered [`crate::Reply::Done`] at once; the exchanges follow. With `peer`, which needs `connection`: a gateway does
    /// so for this one peer. [`ErrorKind::NotConnected`] if there is no session, or its other end cannot be reached now.
    Rekey {
        /// The name of the connection.
        connection: Option<String>,
        /// As in `down`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<String>,
        /// For which SAs.
        #[serde(default)]
        keys: KeysOf,
    },
    /// Gateway: send the clients of a connection that are there to another gateway (RFC 5685), or the one that `peer` means. Answered
    /// [`crate::Reply::Redirected`] at once; those that go end their sessions by themselves.
    Redirect {
        /// The name of the connection.
        connection: String,
        /// As in `down`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<String>,
        /// The name or the address of the other gateway.
        to: String,
    },
    /// Gateway that shares its database with others: sends its clients to them, hands devices that sleep over with what waits for them, and ends the
    /// daemon. Answered [`crate::Reply::Drained`] just before that. [`ErrorKind::NotConnected`] if there is no other gateway: nothing has changed then.
    Drain {
        /// So many seconds clients have to go.
        within_seconds: u32,
    },
    /// Gateway: whom `whom` means is not admitted from now on, until `allow`: its sessions end at once, its tickets are refused. Answered
    /// [`crate::Reply::Denied`] when that is durable. With `whom: None` nothing changes, and [`crate::Reply::Denials`] says who is denied.
    Deny {
        /// An identity as it is displayed, or the SHA-256 fingerprint of a certificate.
        whom: Option<String>,
    },
    /// Gateway: takes a denial back. [`ErrorKind::NotConnected`] if there is none.
    Allow {
        /// As it was denied.
        whom: String,
    },
    /// Gateway: no ticket counts any more that was given until now, as after a restore of old state. Sessions go on; each peer's next one
    /// begins by a full exchange. Answered [`crate::Reply::Done`] when that is ordered.
    ForgetTickets,
    /// Gateway: who was given this inner address and has a session: [`crate::Reply::Holder`].
    Holder {
        /// The address.
        address: std::net::IpAddr,
    },
    /// Gateway: to be put on record by the program that renews clients' certificates, which is root: one was given out, or refused. Answered
    /// [`crate::Reply::Done`].
    Renewal {
        /// By which connection.
        connection: String,
        /// Whose; of a refusal, as far as it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<String>,
        /// The inner address that has asked, and its port.
        from: std::net::SocketAddr,
        /// What came of it.
        outcome: crate::Renewal,
    },
    /// HIP: begin an association with a peer. Answered [`crate::Reply::Done`] when ESP flows, or at once without a time; an error says why it
    /// came to nothing, [`ErrorKind::Timeout`] that the time is over.
    HipUp {
        /// Its name or HIT.
        peer: String,
        /// How long to wait for it, in seconds.
        timeout_seconds: Option<f64>,
    },
    /// HIP: end the association with a peer; the next packet for it begins another.
    HipDown {
        /// Its name or HIT.
        peer: String,
    },
    /// Gateway: the device `peer` is behind this access router now, which gets its header keys: a registration says so.
    /// [`ErrorKind::NotConnected`] if there is no such session, or the router is none of its zones'.
    KeysAt {
        /// The identity that it proved, or an inner address of it.
        peer: String,
        /// The router's identity.
        router: String,
    },
    /// Access router: the device has registered here, or asks to be registered if `previous` is there. When the device's next packet names its SA: if this
    /// router has no header keys for it, it asks the router `previous` for them, and the gateway if `previous` has none; otherwise it reports to the
    /// gateway that the device is here, once it has registered.
    KeysHere {
        /// The device's outer address: with Mobile IP its home address.
        device: std::net::IpAddr,
        /// The identity of the router where it was before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous: Option<String>,
    },
    /// Access router: the device has left. Packets that still come for it ask for no keys.
    KeysGone {
        /// As it came.
        device: std::net::IpAddr,
    },
    /// The radio is about to be switched off: nothing is due until `resume`.
    Suspend,
    /// The radio is back.
    Resume,
    /// Everything as it stands: [`crate::Reply::Status`], but of a gateway's sessions only the first.
    Status,
    /// Gateway: sessions that a status or the last answer left out: [`crate::Reply::Sessions`].
    Sessions {
        /// [`crate::Gateway::more`] or [`crate::Sessions::more`].
        after: u64,
    },
    /// A stream of [`crate::Event`]s, beginning with one `snapshot` for each connection.
    Watch,
    /// Answered when the connection reaches `state`, or fails, or the time is over ([`ErrorKind::Timeout`]).
    Wait {
        /// The name of the connection.
        connection: Option<String>,
        /// What is waited for.
        state: ConnectionState,
        /// For how long, in seconds; 0 asks without waiting, absent waits for ever.
        timeout_seconds: Option<f64>,
    },
    /// Climb one rung of a session that is up, to measure it. Answered [`crate::Reply::Done`] at once, or [`ErrorKind::NotConnected`] if it
    /// cannot be done now; an `up` event follows.
    Exercise {
        /// The name of the connection.
        connection: Option<String>,
        /// Which rung.
        rung: WakeRung,
    },
    /// Change when the radio sleeps; at once. Answered [`crate::Reply::Done`]. With `mode: None` it is left as it is, and
    /// [`crate::Reply::Mode`] says what it is.
    Mode {
        /// To what.
        mode: Option<SleepMode>,
    },
    /// Open the way to the local routers, and to `addresses`, for a captive portal; it closes by itself after `seconds`, also without the
    /// daemon. 0 closes it now. [`crate::Reply::Portal`].
    Portal {
        /// Besides the routers.
        #[serde(default)]
        addresses: Vec<std::net::IpAddr>,
        /// For so long, 3,600 at most.
        seconds: u32,
    },
    /// What the daemon knows about its surroundings: [`crate::Reply::Doctor`].
    Doctor,
    /// Counters since the start: [`crate::Reply::Stats`].
    Stats,
    /// Read the configuration again: all of it counts from now on, or nothing of it. Sessions that it still wants are not touched.
    /// [`crate::Reply::Reloaded`] when it is in force.
    Reload,
    /// Stop in good order.
    Shutdown,
}

impl Request {
    /// A request of this version.
    #[must_use]
    pub const fn new(verb: Verb) -> Self {
        Self { version: VERSION, verb }
    }

    /// Reads one line.
    ///
    /// # Errors
    /// [`ErrorKind::Request`] with the position of the mistake; [`ErrorKind::Version`] naming both versions.
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Probe {
            version: u32,
        }
        if line.len() > MAX_REQUEST {
            let message = format!("a request of {} bytes is longer than {MAX_REQUEST}", line.len());
            return Err(Error::new(ErrorKind::Request, message));
        }
        let bad = |e: serde_json::Error| {
            Error::new(ErrorKind::Request, format!("the request is not understood: {e}"))
        };
        // The version first: another version may well have verbs that this one cannot read.
        let probe: Probe = serde_json::from_slice(line).map_err(bad)?;
        if probe.version != VERSION {
            let message = format!(
                "the request is of protocol version {}, the daemon speaks version {VERSION}",
                probe.version
            );
            return Err(Error::new(ErrorKind::Version, message)
                .with_change("install dormouse and dormoused of the same release"));
        }
        let request: Self = serde_json::from_slice(line).map_err(bad)?;
        match &request.verb {
            Verb::Wait { timeout_seconds: Some(t), .. } | Verb::HipUp { timeout_seconds: Some(t), .. }
                if !t.is_finite() || *t < 0.0 =>
            {
                Err(Error::new(ErrorKind::Request, format!("a timeout of {t} s is not a time")))
            }
            // An older daemon would overlook the peer, and must not guess which connection is meant.
            Verb::Down { connection: None, peer: Some(peer) }
            | Verb::Rekey { connection: None, peer: Some(peer), .. } => Err(Error::new(
                ErrorKind::Request,
                format!("the connection is missing whose peer '{peer}' is meant"),
            )),
            _ => Ok(request),
        }
    }
}
