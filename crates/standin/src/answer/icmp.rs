//! ICMP and ICMPv6: echo and neighbour solicitations are answered, the first if the device itself answers it. The rest is kept for a
//! while, of each flow that it is about the newest, and takes no room from anything else: a host that knows a connection can make errors
//! about it.

use dormouse_wire::ip::icmp::Echo;
use dormouse_wire::ip::nd::Solicitation;
use dormouse_wire::ip::{Flow, Ipv4, Ipv6, Packet};

use super::{Asked, Step};
use crate::buffer::{Alike, Keep};
use crate::class::Class;
use crate::counters::{Kind, Reason};
use crate::knowledge::{Knowledge, is_for_many};

const ECHO_V4: u8 = 8;
const ECHO_V6: u8 = 128;
/// Router and neighbour discovery, and redirects: of a link on which the device is not.
const LINK_V6: core::ops::RangeInclusive<u8> = 133..=137;
/// Router advertisement and solicitation, and redirects.
const LINK_V4: [u8; 3] = [5, 9, 10];

pub(super) fn decide(asked: &Asked<'_>, knowledge: &Knowledge, out: &mut Vec<u8>) -> Step {
    let packet = &asked.packet;
    let v6 = matches!(packet, Packet::V6(_));
    let Some(kind) = packet.payload().first().copied() else { return Step::Drop(Reason::Malformed) };
    if let Some(solicitation) = Solicitation::parse(packet.as_bytes()) {
        let known = asked.addresses.contains(&solicitation.target.into());
        return match known && solicitation.advertise(None, out).is_ok() {
            true => Step::Answer(Kind::Neighbour),
            false => Step::Drop(Reason::Discovery),
        };
    }
    let link = if v6 { LINK_V6.contains(&kind) } else { LINK_V4.contains(&kind) };
    if is_for_many(packet.dst()) || link {
        return Step::Drop(Reason::Discovery);
    }
    if kind == if v6 { ECHO_V6 } else { ECHO_V4 } && asked.own && knowledge.echo.answers(v6) {
        return match Echo::parse(packet.as_bytes()) {
            Some(echo) if echo.answer().build(out).is_ok() => Step::Answer(Kind::Echo),
            _ => Step::Drop(Reason::Malformed),
        };
    }
    let about = quoted(packet).unwrap_or_else(|| packet.flow());
    Step::Keep(Keep { class: Class::Notice, age: None, alike: Alike::Replaces(about) })
}

/// The flow of the packet that an error is about.
fn quoted(packet: &Packet<'_>) -> Option<Flow> {
    let message = packet.payload();
    let (kind, quoted) = (message.first()?, message.get(8..)?);
    let inner = match packet {
        Packet::V4(_) if matches!(kind, 3 | 11 | 12) => Packet::V4(Ipv4::parse_header(quoted).ok()?),
        Packet::V6(_) if *kind < ECHO_V6 => Packet::V6(Ipv6::parse_header(quoted).ok()?),
        _ => return None,
    };
    Some(inner.flow())
}
