//! What a node tells its driver. Owns the names; an event is a fact that the driver applies to the machine.

use crate::ladder::Rung;
use dormouse_ike::config_payload::AssignedConfig;
use ipnet::IpNet;
use std::net::IpAddr;

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
    },
    /// Gateway: they no longer are.
    PeerGone {
        /// Prefixes of the client.
        routes: Vec<IpNet>,
    },
    /// Packets that were held can be sent.
    Flowing,
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
    /// The state of a connection or session changed: for the log, for `watch` and for `wait`.
    Changed(Change),
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
    /// Gateway: somebody was refused.
    PeerRefused {
        /// From where.
        from: IpAddr,
        /// Who it said it was.
        claimed: Option<String>,
        /// Why, in words.
        why: String,
    },
}

/// What kind of failure, for exit codes and retries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// One end could not prove who it is.
    Authentication,
    /// The two ends have no algorithms or traffic in common.
    Proposal,
    /// No answer.
    Timeout,
    /// Anything else.
    Other,
}
