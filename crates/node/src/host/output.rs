//! What a host hands back. Owns the names; an output is carried out by the driver before it asks for the next one.

use super::router::Side;
use crate::event::{Change, Order};
use crate::record::Record;
use crate::sleeper;
use dormouse_keying::SleepVerdict;
use dormouse_sansio::Path;

/// The next thing that [`super::Host::poll`] wants done.
#[derive(Debug)]
pub enum Output {
    /// Send what stands in the buffer. If it cannot be sent: [`super::Host::not_sent`].
    Datagram(Datagram),
    /// Write the packet that stands in the buffer to the inner side. Lost if there is no room, as on any network.
    Inner(Origin),
    /// Access router: the packet that stands in the buffer goes on to this side. Lost if there is no room.
    Transit(Side),
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

/// Something that people may want to know.
#[derive(Debug)]
pub enum News {
    /// The state of a connection or session changed.
    Changed(Change),
    /// Gateway: something to put on record.
    Record(Box<Record>),
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
