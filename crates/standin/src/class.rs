//! Kinds of traffic and what becomes of each while its receiver sleeps. Owns the policy table; must never look into a packet.

use core::time::Duration;

/// A kind of traffic, from what goes first when room is needed to what goes last.
///
/// | class | what it is | kept | of one flow | when room is needed |
/// |---|---|---|---|---|
/// | `Notice` | ICMP and ICMPv6 that is not answered: errors, and pings of a device that answers none | 30 s | the newest | the oldest goes |
/// | `RealTime` | RTP and RTCP by their look, anything marked "expedited" | 1 s | all | the oldest goes |
/// | `Opening` | TCP SYN | 60 s | the newest | the oldest goes |
/// | `Acknowledgement` | TCP without data | 15 min | the newest | the oldest goes |
/// | `Fragment` | fragments of IP packets: useless without the others | 30 s | all | the oldest goes |
/// | `Datagram` | UDP, and all that is nothing else; also TCP of connections that were never seen | 2 min | all | the oldest goes |
/// | `Reply` | answers to a DNS or DHCP question of the device | 30 s, a DNS answer no longer than its records last | all | the oldest goes |
/// | `Stream` | TCP data of a known connection | 15 min: longer than its sender repeats it | no byte twice | the newest is not taken |
/// | `Control` | FIN and RST of a known connection, DHCP's FORCERENEW and refusals | until wake | all | the newest is not taken |
///
/// Room is made in the order of the table; a packet never drives out one of a higher class, and no sender gets into the three highest
/// without naming a connection, a question or a server of the device. When the room of all devices is used
/// up, the device with the most waiting gives way, so a flood towards one device costs the others nothing.
///
/// Not kept at all: broadcasts and multicasts, requests of other hosts' DHCP, name service questions that there
/// is nothing to say to, and data again that waits already.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// What ICMP says of a path or a port; the device learns it again when it sends.
    Notice,
    /// Worthless when it is late.
    RealTime,
    /// A new TCP connection; its sender repeats it.
    Opening,
    /// TCP that acknowledges and nothing else.
    Acknowledgement,
    /// Part of an IP packet.
    Fragment,
    /// A datagram of no other kind.
    Datagram,
    /// What the device asked for.
    Reply,
    /// TCP data.
    Stream,
    /// What changes the state of a connection or a lease.
    Control,
}

/// Which packet of a class gives way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivesWay {
    /// The oldest: the newest is worth more.
    Oldest,
    /// The newest: it is worth nothing without the older ones.
    Newest,
}

impl Class {
    /// All classes, in their order.
    pub const ALL: [Self; 9] = [
        Self::Notice,
        Self::RealTime,
        Self::Opening,
        Self::Acknowledgement,
        Self::Fragment,
        Self::Datagram,
        Self::Reply,
        Self::Stream,
        Self::Control,
    ];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::RealTime => "real-time",
            Self::Opening => "opening",
            Self::Acknowledgement => "acknowledgement",
            Self::Fragment => "fragment",
            Self::Datagram => "datagram",
            Self::Reply => "reply",
            Self::Stream => "stream",
            Self::Control => "control",
        }
    }

    /// How long a packet is worth keeping.
    #[must_use]
    pub const fn max_age(self) -> Duration {
        match self {
            Self::RealTime => Duration::from_secs(1),
            Self::Opening => Duration::from_secs(60),
            Self::Acknowledgement | Self::Stream => Duration::from_secs(15 * 60),
            Self::Notice | Self::Fragment | Self::Reply => Duration::from_secs(30),
            Self::Datagram => Duration::from_secs(120),
            Self::Control => Duration::MAX,
        }
    }

    pub(crate) const fn gives_way(self) -> GivesWay {
        match self {
            Self::Stream | Self::Control => GivesWay::Newest,
            _ => GivesWay::Oldest,
        }
    }
}
