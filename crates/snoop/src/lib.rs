//! Repair of a radio hop at the access router, so that the two ends of a connection do not take what the radio loses for congestion.
//!
//! Owns copies of packets on their way to a device, until the device has them, and the timers that say when one is sent again. Pure:
//! no clock, no sockets, no randomness. Must never change a packet, send one that it was not given (but for answers to the reports of [`arq`]), or make an acknowledgement.
//!
//! - [`tcp::Agent`] is SNOOP (Balakrishnan, Seshan, Amir and Katz, "Improving TCP/IP Performance over Wireless Networks", MobiCom 1995):
//!   it reads TCP headers: of plain packets, and of ESP packets in zones of whose first zone it was given the keys (multi-layered IPsec); in a bridge it
//!   does so in frames of Ethernet ([`tcp::Agent::in_bridge`]).
//! - [`arq`] needs no TCP: ESP's sequence numbers are in clear, and the device says which of them came. [`arq::Agent`] takes the keys of first zones to
//!   tell a device's packets from forged ones.
//!
//! # Driving contract
//! The agent stands between the router's queue and the radio: it keeps a packet when the radio takes it, not when it begins to wait.
//! So its round-trip times are those of the radio alone, what it repeats overtakes the queue, and what the queue drops it never had:
//! congestion stays visible to the ends. Only the first zone of a packet is opened before, when the packet arrives, and not again: from then on it has
//! passed here, for who asks whether it has.
//!
//! - Show every packet for the device to [`Repair::arrive`] when it comes, before it may be dropped, and keep what that says beside it.
//! - Whenever the radio is idle: [`Repair::poll_transmit`]; what that gives is sent first. If it gives nothing, send the next
//!   packet of the queue, and hand it to [`Repair::radio_takes`]. [`Repair::to_device`] is both, where there is no queue or nothing asks what has passed.
//! - When keys come or go ([`Repair::obey`]), what was read of packets that wait is out of date: [`Repair::arrive_again`].
//! - Show every packet from the device to [`Repair::from_device`], and send it on unless that says otherwise.
//! - [`Repair::handle_timeout`] when [`Repair::poll_timeout`] is due.

pub mod arq;
mod followed;
pub mod fuzz;
mod outer;
mod reader;
mod rtt;
mod sequence;
pub mod tcp;

use dormouse_esp::{GrantError, HeaderZones};
use dormouse_keying::HeaderOrder;
use dormouse_sansio::{Deadline, Instant};
pub use followed::{Done, Ends, Followed};
pub use reader::{FirstZone, Reader, Unknown};

/// Where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToDevice,
    FromDevice,
}

/// What becomes of a packet from the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes on to the fixed host.
    Forward,
    /// It does not: it says only that something is missing which is being repeated from here.
    Suppress,
}

/// How a radio hop is repaired, at the access router.
#[derive(Debug, Default)]
pub enum Repair {
    /// Not at all.
    #[default]
    None,
    /// By TCP's headers.
    Snoop(Box<tcp::Agent>),
    /// By the numbers of ESP, with the help of one device.
    EspArq(Box<arq::Router>),
    /// The same for all devices whose packets are in zones that can be read.
    Reported(Box<arq::Agent>),
}

impl Repair {
    /// What it can read in ESP, if it reads.
    pub fn reader(&mut self) -> Option<&mut Reader> {
        match self {
            Self::None | Self::EspArq(_) => None,
            Self::Snoop(agent) => Some(agent.reader()),
            Self::Reported(agent) => Some(agent.reader()),
        }
    }

    /// The same, to look at.
    #[must_use]
    pub fn readable(&self) -> Option<&HeaderZones> {
        match self {
            Self::None | Self::EspArq(_) => None,
            Self::Snoop(agent) => Some(agent.readable()),
            Self::Reported(agent) => Some(agent.readable()),
        }
    }

    /// Takes keys of a first zone, or forgets them.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn obey(&mut self, order: &HeaderOrder) -> Result<(), GrantError> {
        match self {
            Self::None | Self::EspArq(_) => Ok(()),
            Self::Snoop(agent) => agent.reader().zones().apply(order),
            Self::Reported(agent) => agent.obey(order),
        }
    }

    /// A packet for the device has arrived, and is to wait for the radio: it is opened.
    pub fn arrive(&mut self, packet: &[u8]) -> FirstZone {
        self.reader().map_or(FirstZone::Unread, |reader| reader.open(packet, Way::ToDevice))
    }

    /// Other keys have come while it waits, which may open it.
    pub fn arrive_again(&mut self, packet: &[u8]) -> FirstZone {
        self.reader().map_or(FirstZone::Unread, |reader| reader.open_again(packet))
    }

    /// The radio takes a packet for the device now, of which `first` was read when it arrived.
    pub fn radio_takes(&mut self, now: Instant, packet: &[u8], first: &FirstZone) {
        match self {
            Self::None => {}
            Self::Snoop(agent) => agent.radio_takes(now, packet, first),
            Self::EspArq(router) => router.to_device(now, packet),
            Self::Reported(agent) => agent.radio_takes(now, packet, first),
        }
    }

    /// A packet for the device has arrived, and the radio takes it at once.
    pub fn to_device(&mut self, now: Instant, packet: &[u8]) {
        let first = self.arrive(packet);
        self.radio_takes(now, packet, &first);
    }

    /// A packet of the device has arrived.
    pub fn from_device(&mut self, now: Instant, packet: &[u8]) -> Verdict {
        match self {
            Self::None => Verdict::Forward,
            Self::Snoop(agent) => agent.from_device(now, packet),
            Self::EspArq(router) => router.from_device(now, packet),
            Self::Reported(agent) => agent.from_device(now, packet),
        }
    }

    /// Appends a packet to be sent to the device before any other; false if there is none.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        match self {
            Self::None => false,
            Self::Snoop(agent) => agent.poll_transmit(now, out),
            Self::EspArq(router) => router.poll_transmit(now, out),
            Self::Reported(agent) => agent.poll_transmit(now, out),
        }
    }

    /// Whether [`Self::poll_transmit`] has something now.
    #[must_use]
    pub fn is_due(&self) -> bool {
        match self {
            Self::None => false,
            Self::Snoop(agent) => agent.is_due(),
            Self::EspArq(router) => router.is_due(),
            Self::Reported(agent) => agent.is_due(),
        }
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        match self {
            Self::None => None,
            Self::Snoop(agent) => agent.poll_timeout(),
            Self::EspArq(router) => router.poll_timeout(),
            Self::Reported(agent) => agent.poll_timeout(),
        }
    }

    /// Every timer that runs; [`Self::poll_timeout`] is the first of them.
    #[must_use]
    pub fn timers(&self) -> Vec<Deadline> {
        match self {
            Self::None => Vec::new(),
            Self::Snoop(agent) => agent.timers().collect(),
            Self::EspArq(router) => router.timers().collect(),
            Self::Reported(agent) => agent.timers().collect(),
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::None => {}
            Self::Snoop(agent) => agent.handle_timeout(now),
            Self::EspArq(router) => router.handle_timeout(now),
            Self::Reported(agent) => agent.handle_timeout(now),
        }
    }
}
