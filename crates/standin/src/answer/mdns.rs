//! Multicast DNS queries about what the device announced (RFC 6762).

use core::net::{IpAddr, SocketAddr};

use dormouse_wire::dns::{AUTHORITATIVE, Header, Message, RESPONSE, Record, TOP_BIT, TRUNCATED};
use dormouse_wire::ip::set_hop_limit;
use dormouse_wire::ip::udp::{self, Udp};

use super::{Asked, Step};
use crate::counters::{Kind, Reason};
use crate::knowledge::MDNS_PORT;
use crate::knowledge::mdns::{Records, is_known};
use crate::limits::ANSWER_BYTES;

/// What an asker that is no multicast DNS node may keep of an answer (section 6.7).
const LEGACY_TTL: u32 = 10;

pub(super) fn decide(
    asked: &Asked<'_>,
    records: &Records,
    datagram: &Udp<'_>,
    out: &mut Vec<u8>,
) -> Option<Step> {
    let query = Message::parse(datagram.payload).ok()?;
    if query.header.is_response() || query.header.opcode() != 0 {
        return None;
    }
    // "Since it is possible for a unicast query to be received from a machine outside the local link, responders SHOULD check that
    // the source address in the query packet matches the local subnet for that link [...] and silently ignore the packet if not."
    // (RFC 6762 section 5.5) And what is for the group does not pass a router (section 11).
    if !asked.on_link {
        return Some(Step::Drop(Reason::Discovery));
    }
    // "More known answers follow" (section 7.2): rather silent than wrong, the asker repeats its question.
    let more = query.header.flags & TRUNCATED != 0;
    let legacy = datagram.src_port != MDNS_PORT;
    let mut body = Vec::new();
    let mut answers = 0;
    let mut given: Vec<&Record> = Vec::new();
    for (record, ttl) in query.questions.iter().flat_map(|q| records.answers(asked.now, q)) {
        let again = given.iter().any(|g| core::ptr::eq(*g, record));
        if again || more || (!legacy && is_known(&query, record, ttl)) || body.len() > ANSWER_BYTES {
            continue;
        }
        given.push(record);
        let before = body.len();
        // An asker that is no multicast DNS node does not know what the top bit means.
        let (class, ttl) =
            if legacy { (record.class & !TOP_BIT, ttl.min(LEGACY_TTL)) } else { (record.class, ttl) };
        let shown = Record { class, ..record.clone() };
        if shown.emit(ttl, &mut body).is_ok() && body.len() <= ANSWER_BYTES {
            answers += 1;
        } else {
            body.truncate(before);
        }
    }
    if answers == 0 {
        return Some(Step::Drop(Reason::Discovery));
    }
    let mut message = Vec::new();
    let (id, questions) = if legacy { (query.header.id, query.questions.as_slice()) } else { (0, &[][..]) };
    let count = u16::try_from(questions.len()).ok()?;
    let flags = RESPONSE | AUTHORITATIVE;
    Header { id, flags, questions: count, answers, ..Header::default() }.emit(&mut message);
    questions.iter().for_each(|q| q.emit(&mut message));
    message.extend_from_slice(&body);
    let by_unicast = query.questions.iter().any(|q| q.class & TOP_BIT != 0);
    let to = if asked.own || legacy || by_unicast {
        SocketAddr::new(asked.packet.src(), datagram.src_port)
    } else {
        SocketAddr::new(asked.packet.dst(), MDNS_PORT)
    };
    Some(if send(asked.source()?, to, &message, out) {
        Step::Answer(Kind::Mdns)
    } else {
        Step::Drop(Reason::Malformed)
    })
}

/// "All Multicast DNS responses (including responses sent via unicast) SHOULD be sent with IP TTL set to 255" (section 11).
fn send(from: IpAddr, to: SocketAddr, message: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let from = SocketAddr::new(from, MDNS_PORT);
    udp::build(from, to, message, out).is_ok() && set_hop_limit(out.get_mut(start..).unwrap_or_default(), 255)
}
