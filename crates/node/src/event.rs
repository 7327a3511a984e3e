//! What a node tells its driver. Owns the names; an event is a fact that the driver applies to the machine.

use crate::handover::Handover;
use crate::ladder::Rung;
use crate::pool;
use crate::radius::SocketOrder;
use crate::record::Record;
use dormouse_crypto::Secret;
use dormouse_esp::Loan;
use dormouse_ike::LoadReport;
use dormouse_ike::config_payload::AssignedConfig;
use dormouse_ike::takeover::Takeover;
use dormouse_ike::ticket::lineage::Operation;
use dormouse_ike::work::Order as Work;
use dormouse_keying::{ChildId, HeaderOrder, SaId, SleepVerdict};
use dormouse_sansio::Path;
use dormouse_standin::DeviceId;
use ipnet::IpNet;
use std::net::IpAddr;

/// A fact for the driver. Events come in the order in which they must be applied.
#[derive(Debug)]
pub enum Event {
    /// Something to do to the machine, for the driver of the host.
    Order(Order),
    /// Client: the name of the connection's gateway is to be looked up, if it is not.
    NameNeeded {
        /// The connection.
        connection: String,
    },
    /// Packets that were held can be sent now.
    Flowing,
    /// Client: these packets were sent under an SA that the gateway had lost. Hold them before all others, until
    /// [`Event::Flowing`].
    Resend {
        /// Whole inner packets, oldest first.
        packets: Vec<Vec<u8>>,
    },
    /// The session with this peer of the key manager beside IKE was ended by a command: what is held for it is dropped, or would begin
    /// another.
    Ended {
        /// Its inner address.
        peer: IpAddr,
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
    LoadReport(LoadReport),
    /// Gateway: a device is back, and this is what was kept for it: seal and send it, in this order and in one burst, after what
    /// [`crate::Node::poll_transmit`] gives (it may be what brings the session back).
    Deliver {
        /// What was kept.
        packets: Vec<Kept>,
    },
    /// Gateway: whether the client of a session that was resumed at once has it now. Its packets have waited
    /// ([`crate::Node::unconfirmed`]): they are delivered, or dropped.
    Judged {
        /// The session.
        sa: SaId,
        /// It has.
        granted: bool,
    },
    /// The state of a connection or session changed: for the log, for `watch` and for `wait`.
    Changed(Change),
    /// Gateway: something to put on record.
    Record(Box<Record>),
}

/// A packet that was kept for a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Whose it is: it goes through no session of another.
    pub device: DeviceId,
    /// The whole packet.
    pub packet: Box<[u8]>,
}

/// Something to do to the machine.
#[derive(Debug)]
pub enum Order {
    /// Write this down. It must be durable before the next output is asked for.
    Store(Store),
    /// Gateway: an inner address was leased or given up. Write this down, after what was ordered before, and tell
    /// [`crate::host::Host::leased`] when it is durable, or cannot be. Answers that depend on it wait until then, and nothing else does.
    Lease {
        /// Which change it is.
        number: u64,
        /// What changed.
        change: pool::Change,
    },
    /// Gateway: do this to the store of lineages, after what was ordered before, and tell [`crate::host::Host::stored`] what became of
    /// it if an SA waits for that. Nothing else waits.
    Lineage(Operation),
    /// Gateway: what the store that gateways share is to do about an IKE SA that can outlive this gateway. Nothing waits for it.
    Takeover(Takeover),
    /// Gateway: to the gateway that has this lineage now, if there is one. Nothing waits for it.
    HandOver(Box<Handover>),
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
        /// As in [`Order::Configure`].
        source: Option<IpAddr>,
    },
    /// Gateway: they no longer are.
    PeerGone {
        /// Prefixes of the client.
        routes: Vec<IpNet>,
    },
    /// Look up a gateway's name, or its address, and hand the answer to [`crate::host::Host::resolved`].
    Resolve {
        /// As it was configured.
        name: String,
    },
    /// Find the ways to all gateways and report them by [`crate::host::Host::find_ways`], if they are known at once.
    /// `fresh`: the network may be another one; before that, say so ([`crate::host::Host::network_is_new`]).
    FindWays {
        /// The network may be another one.
        fresh: bool,
    },
    /// Access router: what the headers of a device's packets can be read with, from now on or no longer. Of a [`crate::host::Host`] it goes to
    /// what reads them there.
    Header(HeaderOrder),
    /// Have this done beside the loop ([`Work::carry_out`]), and hand what comes of it to [`crate::Node::done`], once.
    Work {
        /// What it is for.
        sa: SaId,
        /// What to do.
        order: Box<Work>,
    },
    /// Gateway: send something to a RADIUS server, or close a socket.
    Radius(SocketOrder),
    /// Fetch this by HTTP, with bounds on size and time, and hand what came to [`crate::Node::fetched`]: with a body by POST, as
    /// `application/ocsp-request`.
    Fetch {
        /// Names it there.
        id: u64,
        /// `http://...`
        url: String,
        /// The body.
        body: Option<Vec<u8>>,
    },
    /// Another engine is to carry this SA from now on. If it cannot: [`crate::host::Host::not_lent`].
    Lend(Box<Lend>),
    /// Say what the engine has carried of it, by [`crate::host::Host::loan_read`].
    ReadLoan {
        /// The SA.
        child: ChildId,
    },
    /// The engine is to stop, and [`crate::host::Host::returned`] to be told how far it has come.
    Recall {
        /// The SA.
        child: ChildId,
    },
    /// A datagram has come here that is the engine's: it takes it.
    PassOn {
        /// How it came.
        path: Path,
        /// It.
        datagram: Vec<u8>,
    },
    /// Switch the radio, or look at it.
    Radio(Radio),
    /// Read the energy meter and report it by [`crate::host::Host::metered`].
    ReadMeter,
    /// Read the signal of the radio and report it by [`crate::host::Host::set_signal`]: it decides which CHILD SA sends.
    ReadSignal,
}

/// An SA for another engine, with what leads to it.
#[derive(Debug)]
pub struct Lend {
    /// Keys, numbers and path.
    pub loan: Loan,
    /// The client connection whose routes lead to it; on a gateway `None`.
    pub connection: Option<String>,
    /// Our side of the traffic.
    pub local: Vec<IpNet>,
    /// The peer's side.
    pub remote: Vec<IpNet>,
}

/// What must outlive the process.
#[derive(Debug)]
pub enum Store {
    /// Client: the ticket of a connection, where only its owner can read it; `None`: remove it.
    Ticket {
        /// The connection.
        connection: String,
        /// The ticket with its secrets, encoded.
        bytes: Option<Secret>,
    },
    /// Gateway: the ticket keys were rotated.
    TicketKeys {
        /// All keys that still open tickets, encoded.
        exported: Secret,
    },
    /// Who is revoked, by a source of this name, for [`crate::Node::restore_revocations`].
    Revocations {
        /// The name: the next one of this name replaces it.
        name: String,
        /// The content.
        content: Vec<u8>,
    },
    /// Gateway: what was learned about load and latency.
    LoadHistory(Vec<u8>),
    /// Device: what the sleeper has learned.
    SleepHistory(Vec<u8>),
}

/// An order to the radio. Answered by [`crate::host::Host::radio_off`], [`crate::host::Host::radio_on`] or
/// [`crate::host::Host::radio_failed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Radio {
    /// Off.
    Off,
    /// On.
    On,
    /// Say [`crate::host::Host::radio_on`] if it is on: the user or another program may have switched it.
    Look,
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
    /// HIP: nothing was established with a peer that was called.
    PeerFailed {
        /// The connection.
        connection: String,
        /// Who was called.
        peer: String,
        /// What kind of failure, for the exit code.
        kind: FailureKind,
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
    /// The gateway has no time for us now, and is tried again soon.
    Busy,
    /// Anything else.
    Other,
}

impl From<dormouse_keying::Failure> for FailureKind {
    fn from(failure: dormouse_keying::Failure) -> Self {
        use dormouse_keying::Failure;
        match failure {
            Failure::Authentication => Self::Authentication,
            Failure::Proposal => Self::Proposal,
            Failure::Timeout => Self::Timeout,
            Failure::Other => Self::Other,
        }
    }
}
