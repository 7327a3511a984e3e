//! NetBIOS name service (RFC 1002): questions about the device's names, and others that want them.

use core::net::IpAddr;

use dormouse_wire::dns::{AUTHORITATIVE, Header, IN, Message, RECURSION_DESIRED, RESPONSE, Record, Section};
use dormouse_wire::ip::udp::Udp;
use dormouse_wire::netbios::{ACTIVE, ACTIVE_ERROR, GROUP, NB, NBSTAT, NetbiosName, STATISTICS_LEN, opcode};

use super::{Asked, Step};
use crate::counters::{Kind, Reason};
use crate::knowledge::netbios::{Names, Registered, registration};

/// Seconds for which an asker may keep an answer. The usual three days would outlive the device's stay.
const NAME_TTL: u32 = 300;
/// The flags that a node status shows of those of a name: group bit and node type.
const SHOWN: u16 = 0xe000;

pub(super) fn decide(
    asked: &Asked<'_>,
    names: &Names,
    datagram: &Udp<'_>,
    out: &mut Vec<u8>,
) -> Option<Step> {
    let message = Message::parse_netbios(datagram.payload).ok()?;
    if message.header.is_response() {
        return None;
    }
    let answer = match message.header.opcode() {
        opcode::QUERY => query(asked, names, &message),
        opcode::REGISTRATION => defend(asked, names, &message),
        _ => None,
    };
    Some(match answer {
        Some(bytes) if asked.reply(datagram, &bytes, out) => Step::Answer(Kind::NetBiosName),
        _ => Step::Drop(Reason::Discovery),
    })
}

fn query(asked: &Asked<'_>, names: &Names, message: &Message) -> Option<Vec<u8>> {
    let [question] = message.questions.as_slice() else { return None };
    let name = NetbiosName::from_dns(&question.name)?;
    match question.kind {
        NB => {
            let known = names.get(name).filter(|r| is_ours(asked, r))?;
            Some(answer(message, RECURSION_DESIRED, known.record(NAME_TTL), NAME_TTL))
        }
        NBSTAT => {
            let own: Vec<&Registered> = names.all().iter().filter(|r| is_ours(asked, r)).collect();
            if own.is_empty() || (name != NetbiosName::ANY && names.get(name).is_none()) {
                return None;
            }
            let mut data = vec![u8::try_from(own.len()).ok()?];
            for registered in own {
                data.extend_from_slice(&registered.name.0);
                data.extend_from_slice(&(registered.flags & SHOWN | ACTIVE).to_be_bytes());
            }
            // Link address and counters: not known here, zero as from a node that does not tell.
            data.resize(data.len() + STATISTICS_LEN, 0);
            let record = Record {
                section: Section::Answer,
                name: question.name.clone(),
                kind: NBSTAT,
                class: IN,
                ttl: 0,
                data,
            };
            Some(answer(message, 0, record, 0))
        }
        _ => None,
    }
}

/// Another host registers a name that is the device's alone: "the name is owned by another node" (section 4.2.6).
fn defend(asked: &Asked<'_>, names: &Names, message: &Message) -> Option<Vec<u8>> {
    let claim = registration(message)?;
    let known = names.get(claim.name).filter(|r| is_ours(asked, r))?;
    let both_groups = claim.flags & known.flags & GROUP != 0;
    (!both_groups && claim.address != known.address)
        .then(|| answer(message, RECURSION_DESIRED | ACTIVE_ERROR, known.record(0), 0))
}

fn is_ours(asked: &Asked<'_>, registered: &Registered) -> bool {
    asked.addresses.contains(&IpAddr::V4(registered.address))
}

/// A response with one record.
fn answer(to: &Message, flags: u16, record: Record, ttl: u32) -> Vec<u8> {
    let flags = RESPONSE | AUTHORITATIVE | to.header.opcode() << 11 | flags;
    let mut out = Vec::new();
    Header { id: to.header.id, flags, answers: 1, ..Header::default() }.emit(&mut out);
    // A few hundred bytes at most: 16 names.
    let _fits = record.emit(ttl, &mut out);
    out
}

impl Registered {
    fn record(&self, ttl: u32) -> Record {
        let mut data = self.flags.to_be_bytes().to_vec();
        data.extend_from_slice(&self.address.octets());
        Record { section: Section::Answer, name: self.name.to_dns(), kind: NB, class: IN, ttl, data }
    }
}
