//! ICMP and ICMPv6: echo and neighbour solicitations are answered, errors about the device's connections are kept.

use dormouse_wire::ip::icmp::Echo;
use dormouse_wire::ip::nd::Solicitation;
use dormouse_wire::ip::{Flow, Ipv4, Ipv6, Packet, protocol};

use super::{Asked, Step, other};
use crate::buffer::Keep;
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
    if kind == if v6 { ECHO_V6 } else { ECHO_V4 } && asked.own {
        return match Echo::parse(packet.as_bytes()) {
            Some(echo) if echo.answer().build(out).is_ok() => Step::Answer(Kind::Echo),
            _ => Step::Drop(Reason::Malformed),
        };
    }
    let about_ours = quoted(packet).is_some_and(|flow| knowledge.tcp.contains(&flow));
    Step::Keep(Keep::plain(if about_ours { Class::Control } else { other(packet) }))
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
    let &[s0, s1, d0, d1, ..] = inner.payload() else { return None };
    (inner.protocol() == protocol::TCP && inner.has_upper_header()).then(|| Flow {
        src: inner.src(),
        dst: inner.dst(),
        protocol: protocol::TCP,
        src_port: Some(u16::from_be_bytes([s0, s1])),
        dst_port: Some(u16::from_be_bytes([d0, d1])),
    })
}
