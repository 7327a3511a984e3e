//! What is said to a packet towards a sleeping device, or that it is kept. Owns the decision for each protocol; must never keep or
//! send anything itself, and never answer for an address that is not the device's.

mod icmp;
mod mdns;
mod netbios;
pub(crate) mod tcp;
mod udp;

use core::net::{IpAddr, SocketAddr};

use dormouse_sansio::Instant;
use dormouse_wire::ip::udp::{self as udp_wire, Udp};
use dormouse_wire::ip::{Packet, protocol};

use crate::buffer::Keep;
use crate::class::Class;
use crate::counters::{Kind, Reason};
use crate::knowledge::{Knowledge, Share, is_for_many};

/// What becomes of a packet. An answer has been appended to the buffer then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Answered, and nothing else.
    Answer(Kind),
    /// Answered on a connection of the device.
    AnswerTcp(Kind),
    /// Kept, and answered on a connection of the device.
    KeepAndAnswer(Keep, Kind),
    /// Kept.
    Keep(Keep),
    /// Taken care of without an answer.
    Done(Kind),
    /// Not worth keeping.
    Drop(Reason),
}

/// Everything that a decision needs.
pub(crate) struct Asked<'a> {
    pub(crate) now: Instant,
    pub(crate) packet: Packet<'a>,
    pub(crate) addresses: &'a [IpAddr],
    /// The packet is for one of the device's own addresses.
    pub(crate) own: bool,
    /// Its sender is in a network that the device is in.
    pub(crate) on_link: bool,
    pub(crate) share: Share<'a>,
    pub(crate) hold_tcp: bool,
}

impl Asked<'_> {
    /// The address to answer from: the one that was asked, or one of the same family for a broadcast or multicast.
    fn source(&self) -> Option<IpAddr> {
        let dst = self.packet.dst();
        let fits = |a: &&IpAddr| if self.own { **a == dst } else { a.is_ipv4() == dst.is_ipv4() };
        self.addresses.iter().find(fits).copied()
    }

    /// Appends a datagram back to the sender of `datagram`, from the address and port that it was sent to; whether it fits.
    fn reply(&self, datagram: &Udp<'_>, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(source) = self.source() else { return false };
        let from = SocketAddr::new(source, datagram.dst_port);
        let to = SocketAddr::new(self.packet.src(), datagram.src_port);
        datagram.src_port != 0 && udp_wire::build(from, to, payload, out).is_ok()
    }
}

/// Decides, and appends the answer if there is one.
pub(crate) fn decide(asked: &Asked<'_>, knowledge: &mut Knowledge, out: &mut Vec<u8>) -> Step {
    let packet = &asked.packet;
    let src = packet.src();
    if src.is_unspecified() || is_for_many(src) || src.is_loopback() {
        return Step::Drop(Reason::Malformed);
    }
    if packet.fragment().is_some() {
        let lost = is_for_many(packet.dst());
        return if lost { Step::Drop(Reason::Discovery) } else { Step::Keep(Keep::plain(Class::Fragment)) };
    }
    match packet.protocol() {
        protocol::TCP if !is_for_many(packet.dst()) => tcp::decide(asked, knowledge, out),
        protocol::UDP => udp::decide(asked, knowledge, out),
        protocol::ICMP | protocol::ICMPV6 => icmp::decide(asked, knowledge, out),
        _ if is_for_many(packet.dst()) => Step::Drop(Reason::Discovery),
        _ => Step::Keep(Keep::plain(other(packet))),
    }
}

/// The class of a packet that nothing more is known of.
fn other(packet: &Packet<'_>) -> Class {
    // "Expedited forwarding" (RFC 3246): late is lost.
    const EXPEDITED: u8 = 46;
    if packet.traffic_class() >> 2 == EXPEDITED { Class::RealTime } else { Class::Datagram }
}

/// A packet that only the newest of its flow is worth of.
fn newest(class: Class, packet: &Packet<'_>) -> Step {
    let alike = crate::buffer::Alike::Replaces(packet.flow());
    Step::Keep(Keep { class, age: None, alike })
}
