//! What a host hands back. Owns the names; an output is carried out by the driver before it asks for the next one.

use crate::event::{Change, SleepVerdict};
use crate::{pool, sleeper};
use dormouse_crypto::Secret;
use dormouse_ike::auth::SignOrder;
use dormouse_ike::config_payload::AssignedConfig;
use dormouse_keying::SaId;
use dormouse_sansio::Path;
use ipnet::IpNet;
use std::net::IpAddr;

/// The next thing that [`super::Host::poll`] wants done.
#[derive(Debug)]
pub enum Output {
    /// Send what stands in the buffer. If it cannot be sent: [`super::Host::not_sent`].
    Datagram(Datagram),
    /// Write the packet that stands in the buffer to the inner side. Lost if there is no room, as on any network.
    Inner(Origin),
    /// Do this to the machine.
    Order(Order),
    /// People may want to know this.
    News(News),
}

/// See [`Output::Datagram`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Where to.
    pub path: Path,
    /// The ECN bits of the outer header.
    pub ecn: u8,
    /// Size of each datagram in the buffer, in bytes, if there is more than one.
    pub segment: Option<usize>,
    /// Whether IP may cut it into fragments: key management may be, ESP may not.
    pub fragmentable: bool,
}

/// Where a packet for the inner side comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Out of a tunnel.
    Tunnel,
    /// Made here, for a device that sleeps.
    StandIn,
    /// An ICMP error for a sender.
    Error,
}

/// Something to do to the machine.
#[derive(Debug)]
pub enum Order {
    /// Write this down. It must be durable before the next [`Output::Datagram`] leaves.
    Store(Store),
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
    /// Look up the name of the connection's gateway.
    Resolve {
        /// The connection.
        connection: String,
    },
    /// The name of the connection's gateway is not needed any more.
    ForgetName {
        /// The connection.
        connection: String,
    },
    /// Find the ways to all gateways and report them by [`super::Host::find_ways`], if they are known at once. `fresh`: the network
    /// may be another one, so names that were looked up in vain are looked up again.
    FindWays {
        /// The network may be another one.
        fresh: bool,
    },
    /// Have this signed beside the loop ([`SignOrder::sign`]), and hand the result to [`crate::Node::signed`].
    Sign {
        /// What it is for.
        sa: SaId,
        /// What to sign.
        order: Box<SignOrder>,
    },
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
    /// Switch the radio, or look at it.
    Radio(Radio),
    /// Read the energy meter and report it by [`super::Host::metered`].
    ReadMeter,
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
    /// Gateway: a ticket was used up. Append the record to the log of spent tickets.
    SpentTicket {
        /// The record.
        record: Vec<u8>,
    },
    /// Gateway: the ticket keys were rotated.
    TicketKeys {
        /// All keys that still open tickets, encoded.
        exported: Secret,
    },
    /// Gateway: an inner address was leased or given up.
    Lease(pool::Change),
    /// Who is revoked, by a source of this name.
    Revocations {
        /// The name.
        name: String,
        /// The content.
        content: Vec<u8>,
    },
    /// Gateway: what was learned about load and latency.
    LoadHistory(Vec<u8>),
    /// Device: what the sleeper has learned.
    SleepHistory(Vec<u8>),
}

/// An order to the radio. Answered by [`super::Host::radio_off`], [`super::Host::radio_on`] or [`super::Host::radio_failed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Radio {
    /// Off.
    Off,
    /// On.
    On,
    /// Say [`super::Host::radio_on`] if it is on: the user or another program may have switched it.
    Look,
}

/// Something that people may want to know.
#[derive(Debug)]
pub enum News {
    /// The state of a connection or session changed.
    Changed(Change),
    /// The radio's controller has decided something.
    Sleep(sleeper::Event),
    /// The gateway has answered the announcement of a sleep, or will not.
    Announced {
        /// The connection.
        connection: String,
        /// What the gateway does with the session meanwhile.
        verdict: SleepVerdict,
    },
    /// So many packets were lost while the radio slept.
    Missed {
        /// The connection.
        connection: String,
        /// How many.
        packets: u64,
    },
    /// Packets that were sent under an SA that the gateway had lost wait to be sent again.
    Resending {
        /// How many.
        packets: usize,
    },
}
