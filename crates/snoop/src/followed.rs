//! The flows that an agent follows, for people to look at. Owns their form and order; must never have a say in what becomes of a packet.

use core::cmp::Reverse;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use dormouse_sansio::Instant;

/// What was done for one flow since it is followed, in packets. A connection that begins again is followed anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Copies made.
    pub kept: u64,
    /// Sent again from here.
    pub repeated: u64,
    /// Acknowledgements that did not go on.
    pub suppressed: u64,
}

/// Whose packets they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ends {
    /// Those of a TCP connection.
    Tcp {
        /// The fixed host's end.
        fixed: SocketAddr,
        /// The device's.
        device: SocketAddr,
        /// If they are in ESP, the addresses between which that goes: the gateway's and the device's.
        esp: Option<(IpAddr, IpAddr)>,
    },
    /// Those of an SA.
    Esp {
        /// The SPI of what goes to the device.
        spi: u32,
        /// Where its last report came from.
        device: IpAddr,
    },
}

/// A flow as it stands now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    /// Whose packets they are.
    pub ends: Ends,
    /// Copies that are held now, in packets.
    pub held: usize,
    /// What was done for it.
    pub done: Done,
    /// The round trip over the radio, smoothed; `None` while none was measured.
    pub round_trip: Option<Duration>,
    /// When its last packet passed: of a connection either way, of an SA to the device; or when its last report came.
    pub heard: Instant,
}

/// At most `most` of them, the one with the latest packet first.
pub(crate) fn latest(all: impl Iterator<Item = Followed>, most: usize) -> Vec<Followed> {
    let mut all: Vec<Followed> = all.collect();
    all.sort_by_key(|of| (Reverse(of.heard), of.ends));
    all.truncate(most);
    all
}
