//! What a node tells its driver. Owns the names; an event is a fact that the driver applies to the machine.

use crate::devices::Kept;
use crate::ladder::Rung;
use dormouse_ike::auth::SignOrder;
use dormouse_ike::config_payload::AssignedConfig;
use dormouse_ike::{LoadReport, SleepFlags};
use dormouse_keying::SaId;
use dormouse_sansio::Instant;
use ipnet::IpNet;
use std::net::IpAddr;
use std::time::Duration;

/// A fact for the driver. Events come in the order in which they must be applied.
#[derive(Debug)]
pub enum Event {
    /// Client: the tunnel carries these addresses, routes and name servers from now on. Comes again only if something changed.
    Configure {
        /// The connection.
        connection: String,
        /// Addresses and name servers.
        assigned: AssignedConfig,
        /// Prefixes that lead into the tunnel.
        routes: Vec<IpNet>,
        /// The only address of this machine from which anything is taken there: in transport mode.
        source: Option<IpAddr>,
    },
    /// Client: take addresses, routes and name servers back.
    Unconfigure {
        /// The connection.
        connection: String,
    },
    /// Gateway: these addresses are reached through the tunnel.
    PeerRoutes {
        /// Prefixes of the client.
        routes: Vec<IpNet>,
        /// As in [`Event::Configure`].
        source: Option<IpAddr>,
    },
    /// Gateway: they no longer are.
    PeerGone {
        /// Prefixes of the client.
        routes: Vec<IpNet>,
    },
    /// Packets that were held can be sent now.
    Flowing,
    /// Client: the gateway has told its addresses ([`crate::Node::gateway_addresses`]); tell the ways to them.
    GatewayAddresses {
        /// The connection.
        connection: String,
    },
    /// Client: these packets were sent under an SA that the gateway had lost. Hold them before all others, until
    /// [`Event::Flowing`].
    Resend {
        /// Whole inner packets, oldest first.
        packets: Vec<Vec<u8>>,
    },
    /// Write the ticket where only its owner can read it; `None`: remove it.
    Ticket {
        /// The connection.
        connection: String,
        /// The ticket with its secrets, encoded.
        bytes: Option<dormouse_crypto::Secret>,
    },
    /// Gateway: a ticket was used up. Append the record to the spent tickets *before* sending anything that
    /// [`crate::Node::poll_transmit`] gives: then no crash lets a ticket be used twice.
    TicketSpent {
        /// The record.
        record: Vec<u8>,
    },
    /// Gateway: the ticket keys were rotated. Write them before a ticket under them leaves.
    TicketKeys {
        /// All keys that still open tickets, encoded.
        exported: dormouse_crypto::Secret,
    },
    /// [`SignOrder::sign`] beside the loop, and hand the result to [`crate::Node::signed`].
    Sign {
        /// What it is for.
        sa: SaId,
        /// What to sign.
        order: Box<SignOrder>,
    },
    /// Fetch this and hand what came to [`crate::Node::fetched`].
    Fetch {
        /// Names it there.
        id: u64,
        /// `http://...`
        url: String,
        /// The question to an OCSP responder; `None`: a CRL.
        body: Option<Vec<u8>>,
    },
    /// Write down who is revoked, for [`crate::Node::restore_revocations`].
    Revocations {
        /// Its name: the next one of this name replaces it.
        name: String,
        /// The content.
        content: Vec<u8>,
    },
    /// Client: the radio may go off now ([`crate::Node::suspend`]). Exactly one follows each
    /// [`crate::Node::prepare_sleep`].
    SleepReady {
        /// The connection.
        connection: String,
        /// What the gateway does with the session meanwhile.
        verdict: SleepVerdict,
    },
    /// Client: the gateway sent so many packets while the radio slept, and they are lost: the gap in the sequence numbers of the
    /// first packet after a wake shows it. A gateway that keeps packets for a sleeping device leaves none.
    Missed {
        /// The connection.
        connection: String,
        /// How many.
        packets: u64,
    },
    /// Client: the gateway's estimate of how long sessions take to come back, now and in the half hours to come. New with
    /// each session and each announced sleep.
    LoadReport {
        /// The connection.
        connection: String,
        /// The estimate and its forecast.
        report: LoadReport,
    },
    /// Gateway: a client's device goes to sleep. Until [`Event::PeerAwake`], or until its session ends, it hears nothing:
    /// [`crate::Node::is_peer_asleep`] says so of its children.
    PeerSleeps {
        /// Its session.
        sa: SaId,
        /// Who.
        peer: String,
        /// Prefixes that lead to it.
        routes: Vec<IpNet>,
        /// When the session ends if it does not wake before. A session that was not held ends soon after.
        until: Instant,
        /// Whether the session is held; if not, the device comes back by ticket, with a new session.
        held: bool,
        /// What it was granted besides.
        flags: SleepFlags,
        /// How long it said that it may sleep; `None`: it does not know.
        expect: Option<Duration>,
    },
    /// Gateway: the device has woken up, in the same session.
    PeerAwake {
        /// Its session.
        sa: SaId,
        /// Who.
        peer: String,
        /// Prefixes that lead to it.
        routes: Vec<IpNet>,
    },
    /// Gateway: a device is back, and this is what was kept for it: seal and send it, in this order and in one burst, after what
    /// [`crate::Node::poll_transmit`] gives (it may be what brings the session back).
    Deliver {
        /// What was kept.
        packets: Vec<Kept>,
    },
    /// The state of a connection or session changed: for the log, for `watch` and for `wait`.
    Changed(Change),
}

/// What a gateway does with the session of a device that has announced a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SleepVerdict {
    /// It holds the session for so long, counted from the announcement: after a shorter sleep no exchange is needed.
    Held {
        /// Until then, by this end's clock.
        until: Instant,
        /// What it does meanwhile.
        flags: SleepFlags,
    },
    /// It lets the session go: the next wake begins with the ticket.
    Released,
    /// No answer in time.
    Unanswered,
    /// It does not know the dormancy extension, or there is no session to announce a sleep on.
    Unsupported,
}

/// Something that people want to know.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// The session is up.
    Up {
        /// The connection.
        connection: String,
        /// How it came up.
        rung: Rung,
        /// Milliseconds from the wake, or the first attempt.
        took_ms: u64,
    },
    /// A rung failed, and why.
    RungFailed {
        /// The connection.
        connection: String,
        /// Which.
        rung: Rung,
        /// Why, in words.
        why: String,
        /// What kind of failure, for the exit code.
        kind: FailureKind,
        /// What was offered, and what would have been accepted.
        offer: Offer,
    },
    /// The session is down.
    Down {
        /// The connection.
        connection: String,
        /// Why, in words.
        why: String,
    },
    /// Gateway: a client came.
    PeerUp {
        /// The connection.
        connection: String,
        /// Who.
        peer: String,
        /// By ticket?
        resumed: bool,
    },
    /// Gateway: a client went.
    PeerDown {
        /// The connection.
        connection: String,
        /// Who.
        peer: String,
        /// Why, in words.
        why: String,
    },
    /// Gateway: a peer was refused.
    PeerRefused {
        /// From where.
        from: IpAddr,
        /// Who it said it was.
        claimed: Option<String>,
        /// Why, in words.
        why: String,
    },
}

impl Change {
    /// The connection, if a full exchange with its gateway was not answered.
    pub(crate) fn unanswered_full_exchange(&self) -> Option<&str> {
        match self {
            Self::RungFailed {
                connection,
                rung: Rung::Full,
                kind: FailureKind::Timeout | FailureKind::AnswersLost,
                ..
            } => Some(connection),
            _ => None,
        }
    }
}

/// What was offered in a negotiation that failed, and what would have been accepted; empty where it is not known, or not what
/// it failed for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offer {
    /// Offered, in the words of the configuration.
    pub offered: Vec<String>,
    /// Acceptable.
    pub acceptable: Vec<String>,
}

impl Offer {
    pub(crate) fn of(error: &dormouse_ike::NegotiationError) -> Self {
        let (offered, acceptable) = error.offer();
        Self { offered, acceptable }
    }
}

/// What kind of failure, for exit codes and retries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// One end could not prove who it is.
    Authentication,
    /// The two ends have no algorithms or traffic in common.
    Proposal,
    /// No answer at all.
    Timeout,
    /// The gateway answered, and then no more: what either end sends later is lost on the way.
    AnswersLost,
    /// A message is too big for the path and was not sent.
    TooBig,
    /// Anything else.
    Other,
}
