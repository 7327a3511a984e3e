//! UDP towards a sleeping device: which service a datagram belongs to, and what is kept of the rest.

use dormouse_wire::dhcp::{self, Dhcp};
use dormouse_wire::dns::{Header, Message, RECURSION_DESIRED, REFUSED, RESPONSE};
use dormouse_wire::ip::udp::Udp;
use dormouse_wire::netbios;

use super::{Asked, Step, mdns, netbios as names, newest, other};
use crate::buffer::{Alike, Keep};
use crate::class::Class;
use crate::counters::{Kind, Reason};
use crate::knowledge::{DNS_PORT, Knowledge, MDNS_PORT, is_for_many};

pub(super) fn decide(asked: &Asked<'_>, knowledge: &mut Knowledge, out: &mut Vec<u8>) -> Step {
    let packet = &asked.packet;
    let Ok(datagram) = Udp::parse(packet) else { return Step::Drop(Reason::Malformed) };
    let for_many = is_for_many(packet.dst());
    let service = match (datagram.src_port, datagram.dst_port) {
        (_, MDNS_PORT) if asked.own || for_many => mdns::decide(asked, &knowledge.mdns, &datagram, out),
        // A LAN's own broadcast address looks like any other.
        (_, netbios::NAME_PORT) => names::decide(asked, &knowledge.netbios, &datagram, out),
        (dhcp::SERVER_PORT, dhcp::CLIENT_PORT) => lease(asked, knowledge, &datagram),
        (DNS_PORT, _) => late_answer(asked, knowledge, &datagram),
        (_, DNS_PORT) if asked.own && knowledge.dns.refuses() => refuse(asked, &datagram, out),
        _ => None,
    };
    match service {
        Some(step) => step,
        None if for_many => Step::Drop(Reason::Discovery),
        None if is_real_time(&datagram) => Step::Keep(Keep::plain(Class::RealTime)),
        None => Step::Keep(Keep::plain(other(packet))),
    }
}

/// Media over RTP (RFC 3550), by its look: version 2, a payload type that RTP or RTCP uses, ports that are not a service's.
fn is_real_time(datagram: &Udp<'_>) -> bool {
    const LARGEST_CALL_PACKET: usize = 1_300;
    let &[first, second, _, _, _, _, _, _, _, _, _, _, ..] = datagram.payload else { return false };
    let kind = second & 0x7f;
    let media = matches!(kind, 0..=34 | 96..=127);
    let control = matches!(second, 192..=223);
    first >> 6 == 2
        && (media || control)
        && datagram.src_port >= 1024
        && datagram.dst_port >= 1024
        && datagram.payload.len() <= LARGEST_CALL_PACKET
}

/// From a DHCP server.
fn lease(asked: &Asked<'_>, knowledge: &mut Knowledge, datagram: &Udp<'_>) -> Option<Step> {
    let (now, src) = (asked.now, asked.packet.src());
    let message = Dhcp::parse(datagram.payload).ok()?;
    let awaited = knowledge.dhcp.asked_for(&message);
    if knowledge.dhcp.consents(now, src, datagram.payload) {
        return Some(Step::Done(Kind::Dhcp));
    }
    let from_its_server = knowledge.dhcp.is_server(src);
    match message.kind {
        dhcp::kind::FORCE_RENEW if from_its_server => Some(newest(Class::Control, &asked.packet)),
        dhcp::kind::NAK if awaited => Some(newest(Class::Control, &asked.packet)),
        _ if awaited => Some(newest(Class::Reply, &asked.packet)),
        _ => None,
    }
}

/// An answer from a name server: kept as such if the device waits for it.
fn late_answer(asked: &Asked<'_>, knowledge: &Knowledge, datagram: &Udp<'_>) -> Option<Step> {
    let src = asked.packet.src();
    let age = knowledge.dns.waits_for(asked.now, src, datagram.dst_port, datagram.payload)?;
    Some(Step::Keep(Keep { class: Class::Reply, age: Some(age), alike: Alike::Never }))
}

/// A question to a device that was seen to refuse the last one.
fn refuse(asked: &Asked<'_>, datagram: &Udp<'_>, out: &mut Vec<u8>) -> Option<Step> {
    let message = Message::parse(datagram.payload).ok()?;
    let [question] = message.questions.as_slice() else { return None };
    if message.header.is_response() || message.header.opcode() != 0 {
        return None;
    }
    let flags = RESPONSE | message.header.flags & RECURSION_DESIRED | REFUSED;
    let mut answer = Vec::new();
    Header { id: message.header.id, flags, questions: 1, ..Header::default() }.emit(&mut answer);
    question.emit(&mut answer);
    asked.reply(datagram, &answer, out).then_some(Step::Answer(Kind::Dns))
}
