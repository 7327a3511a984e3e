//! The names of the peers of HIP, for programs of this host: a name server at an address that is only there behind the tunnel's interface,
//! which the host answers itself. There is no socket, so no other machine can ask: a question comes from a program here, or not at all.
//!
//! Owns which name has which addresses, and the other way round. It knows one domain, and the tags: which tags are asked for is no one else's
//! business. It refuses everything else, so that a resolver asks its next server. What it says is not to be kept (TTL 0): the answer is made here, and a reload counts at once. Must never send a question anywhere.

use dormouse_sansio::packet::Plan;
use dormouse_wire::dns::{
    A, AAAA, ANY, AUTHORITATIVE, FORMAT_ERROR, HEADER_LEN, Header, IN, Message, NO_NAME, NOT_IMPLEMENTED,
    Name, OPT, PTR, Question, RECURSION_DESIRED, REFUSED, RESPONSE, SOA, Section,
};
use dormouse_wire::ip::{Packet, icmp, protocol, udp};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// DNS.
const PORT: u16 = 53;
/// Bits of [`Header::flags`] that hold the operation.
const OPCODE: u16 = 0x7800;
/// What is taken over UDP with EDNS, in bytes; no answer comes near it, nor to the 512 bytes without (RFC 1035 section 4.2.1).
const TAKEN: u16 = 1_232;
/// The response code of a version of EDNS that is not 0, in the upper bits that an OPT record holds (RFC 6891 section 6.1.3).
const BAD_VERSION: u8 = 1;

/// The domains of reverse look-ups (RFC 3596 section 2.5) for tags of version 2 and of version 1.
pub const REVERSE: [&str; 2] = ["2.0.0.1.0.0.2.ip6.arpa", "1.0.0.1.0.0.2.ip6.arpa"];
/// Bytes of the reverse name of an address: 32 digits, `ip6.arpa` and the root.
const REVERSED: usize = 32 * 2 + 10;

/// Addresses of a peer: its tag, and its local-scope identifier if it has one.
pub type Found = (Ipv6Addr, Option<Ipv4Addr>);

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerNames {
    server: Ipv6Addr,
    /// From where questions are taken: this host's own tags.
    ours: BTreeSet<Ipv6Addr>,
    /// In lower case, as on the wire.
    domain: Vec<u8>,
    /// By name, likewise; none for a name that only has names below it.
    names: BTreeMap<Vec<u8>, Option<Found>>,
    /// The first name of each address, by its reverse name.
    reverse: BTreeMap<Vec<u8>, Vec<u8>>,
    /// [`REVERSE`] on the wire.
    tags: Vec<Vec<u8>>,
}

impl PeerNames {
    /// The names of these peers, below `domain`, if that can be the name of one. A peer's name that ends in it is taken as it is. What cannot
    /// be a name in DNS has none.
    #[must_use]
    pub fn new<'a>(
        server: Ipv6Addr,
        ours: impl IntoIterator<Item = Ipv6Addr>,
        domain: &str,
        peers: impl IntoIterator<Item = (&'a str, Found)>,
    ) -> Option<Self> {
        let domain = lower(&Name::from_labels(domain.split('.')).ok()?);
        let (mut names, mut reverse) = (BTreeMap::from([(domain.clone(), None)]), BTreeMap::new());
        for (name, found) in peers {
            let Some(name) = below(name, &domain) else { continue };
            for parent in parents(&name, &domain) {
                names.entry(parent.to_vec()).or_insert(None);
            }
            for address in [Some(IpAddr::V6(found.0)), found.1.map(IpAddr::V4)].into_iter().flatten() {
                reverse.entry(reversed(address)).or_insert_with(|| name.clone());
            }
            names.insert(name, Some(found));
        }
        let tags = REVERSE.iter().filter_map(|zone| Some(lower(&Name::from_labels(zone.split('.')).ok()?)));
        let ours = ours.into_iter().collect();
        Some(Self { server, ours, domain, names, reverse, tags: tags.collect() })
    }

    /// Where questions go.
    #[must_use]
    pub fn server(&self) -> IpAddr {
        self.server.into()
    }

    /// What becomes of a packet for the server.
    pub(super) fn answer(&self, packet: &[u8]) -> Plan {
        let Ok(parsed) = Packet::parse(packet) else { return Plan::Drop };
        let local = matches!(parsed.src(), IpAddr::V6(src) if self.ours.contains(&src));
        if !local || parsed.fragment().is_some() {
            return Plan::Drop;
        }
        let mut out = Vec::new();
        let answered = match udp::Udp::parse(&parsed) {
            Ok(asked) if asked.dst_port == PORT => self.reply(asked.payload).is_some_and(|reply| {
                let from = SocketAddr::new(self.server.into(), PORT);
                udp::build(from, SocketAddr::new(parsed.src(), asked.src_port), &reply, &mut out).is_ok()
            }),
            Err(_) if parsed.protocol() == protocol::UDP => false,
            // Who tries TCP, or another port, learns at once that there is nothing.
            _ => icmp::port_unreachable(packet, &mut out),
        };
        if answered { Plan::Answer(out) } else { Plan::Drop }
    }

    /// The answer to a message; none to what is no question.
    fn reply(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let [i0, i1, f0, f1, ..] = *bytes.get(..HEADER_LEN)? else { return None };
        let asked = Header {
            id: u16::from_be_bytes([i0, i1]),
            flags: u16::from_be_bytes([f0, f1]),
            ..Header::default()
        };
        if asked.is_response() {
            return None;
        }
        let code = |code| Some(reply(asked, code, Reply::default()));
        if asked.opcode() != 0 {
            return code(NOT_IMPLEMENTED);
        }
        let Ok(message) = Message::parse(bytes) else { return code(FORMAT_ERROR) };
        let [question] = message.questions.as_slice() else { return code(FORMAT_ERROR) };
        let mut options = message.section(Section::Additional).filter(|record| record.kind == OPT);
        let edns = options.next().map(|record| if record.ttl >> 16 & 0xff == 0 { 0 } else { BAD_VERSION });
        if options.next().is_some() {
            return code(FORMAT_ERROR);
        }
        let base = Reply { question: Some(question), edns, ..Reply::default() };
        if edns == Some(BAD_VERSION) {
            return Some(reply(asked, 0, base));
        }
        let name = lower(&question.name);
        let within = |zone: &&Vec<u8>| name == **zone || parents(&name, zone).count() > 0;
        let zone = [&self.domain].into_iter().chain(&self.tags).find(within);
        let reversed = self.reverse.get(&name);
        if (zone.is_none() && reversed.is_none()) || ![IN, ANY].contains(&question.class) {
            return Some(reply(asked, REFUSED, base));
        }
        let (mut answers, wanted) = (Vec::new(), |kind| question.kind == kind || question.kind == ANY);
        let known = self.names.get(&name);
        if let Some(Some((tag, lsi))) = known {
            if wanted(AAAA) {
                answers.push((AAAA, tag.octets().to_vec()));
            }
            answers.extend(lsi.filter(|_| wanted(A)).map(|lsi| (A, lsi.octets().to_vec())));
        }
        answers.extend(reversed.filter(|_| wanted(PTR)).map(|name| (PTR, name.clone())));
        // Where the zone stands in the question, which is never compressed; that of a local-scope identifier is itself.
        let zone = zone.unwrap_or(&name);
        let apex = u16::try_from(HEADER_LEN + name.len() - zone.len()).ok()?;
        if name == *zone && wanted(SOA) {
            answers.push((SOA, start(apex)));
        }
        let authority = answers.is_empty().then_some(apex);
        let unknown = match *zone == self.domain {
            true => known.is_none(),
            // What is shorter than an address has addresses below it.
            false => reversed.is_none() && name.len() >= REVERSED,
        };
        let code = if unknown { NO_NAME } else { 0 };
        Some(reply(asked, code | AUTHORITATIVE, Reply { answers, authority, ..base }))
    }
}

/// What stands behind the header of an answer.
#[derive(Default)]
struct Reply<'a> {
    question: Option<&'a Question>,
    /// Type and data.
    answers: Vec<(u16, Vec<u8>)>,
    /// "Name servers authoritative for a zone MUST include the SOA record of the zone in the authority section of the response when reporting an
    /// NXDOMAIN or indicating that no data of the requested type exists." (RFC 2308 section 3) Where the zone's name stands.
    authority: Option<u16>,
    /// The upper bits of the response code, if the question had an OPT record.
    edns: Option<u8>,
}

fn reply(asked: Header, flags: u16, parts: Reply<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let header = Header {
        id: asked.id,
        flags: RESPONSE | asked.flags & (OPCODE | RECURSION_DESIRED) | flags,
        questions: parts.question.is_some().into(),
        answers: parts.answers.len() as u16,
        authorities: parts.authority.is_some().into(),
        additionals: parts.edns.is_some().into(),
    };
    header.emit(&mut out);
    if let Some(question) = parts.question {
        question.emit(&mut out);
    }
    for (kind, data) in &parts.answers {
        record(HEADER_LEN as u16, *kind, data, &mut out);
    }
    if let Some(apex) = parts.authority {
        record(apex, SOA, &start(apex), &mut out);
    }
    if let Some(code) = parts.edns {
        let ([k0, k1], [t0, t1]) = (OPT.to_be_bytes(), TAKEN.to_be_bytes());
        out.extend_from_slice(&[0, k0, k1, t0, t1, code, 0, 0, 0, 0, 0]);
    }
    out
}

/// A record whose name stands at `name` already.
fn record(name: u16, kind: u16, data: &[u8], out: &mut Vec<u8>) {
    for word in [0xc000 | name, kind, IN, 0, 0, data.len() as u16] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(data);
}

/// The data of the SOA record, of the zone whose name stands at `apex`: nothing of it may be kept, and there is no other server.
fn start(apex: u16) -> Vec<u8> {
    let mut data = [0xc000 | apex; 2].map(u16::to_be_bytes).concat();
    for word in [1_u32, 3_600, 600, 86_400, 0] {
        data.extend_from_slice(&word.to_be_bytes());
    }
    data
}

/// Lengths of labels are below the codes of letters.
fn lower(name: &Name) -> Vec<u8> {
    name.as_bytes().to_ascii_lowercase()
}

/// A peer's name in the domain.
fn below(name: &str, domain: &[u8]) -> Option<Vec<u8>> {
    let whole = lower(&Name::from_labels(name.trim_end_matches('.').split('.')).ok()?);
    if parents(&whole, domain).count() > 0 {
        return Some(whole);
    }
    let labels = whole.get(..whole.len().checked_sub(1)?)?;
    let name = [labels, domain].concat();
    (name.len() <= dormouse_wire::dns::MAX_NAME).then_some(name)
}

/// The name under which an address is looked up (RFC 3596 section 2.5, RFC 1035 section 3.5).
fn reversed(address: IpAddr) -> Vec<u8> {
    let mut name = Vec::new();
    let (labels, end): (Vec<String>, &[u8]) = match address {
        IpAddr::V4(address) => (address.octets().iter().rev().map(u8::to_string).collect(), b"\x07in-addr"),
        IpAddr::V6(address) => {
            let digits = format!("{:032x}", address.to_bits());
            (digits.chars().rev().map(String::from).collect(), b"\x03ip6")
        }
    };
    for label in labels {
        name.push(label.len() as u8);
        name.extend_from_slice(label.as_bytes());
    }
    name.extend_from_slice(end);
    name.extend_from_slice(b"\x04arpa\0");
    name
}

/// The names above `name`, as far as they are in the domain, its own among them; none if it is not below that.
fn parents<'a>(name: &'a [u8], domain: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let up = |name: &&'a [u8]| name.split_first().and_then(|(len, rest)| rest.get(usize::from(*len)..));
    let above = std::iter::successors(up(&name), up).take_while(|name| name.len() > 1);
    let is_below = above.clone().any(|name| name == domain);
    above.take_while(move |name| is_below && name.len() >= domain.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Ipv6Addr = Ipv6Addr::new(0x2001, 0x20, 0, 0, 0, 0, 0, 0x53);
    const OURS: Ipv6Addr = Ipv6Addr::new(0x2001, 0x22, 0, 0, 0, 0, 0, 1);
    const PEER: Ipv6Addr = Ipv6Addr::new(0x2001, 0x22, 0, 0, 0, 0, 0, 2);
    const LSI: Ipv4Addr = Ipv4Addr::new(1, 0, 0, 2);

    fn names() -> PeerNames {
        let (with, without) = ((PEER, Some(LSI)), (OURS, None));
        let peers = [("Server", with), ("old", without), ("a.b.deep", without), ("own.HIP", with)];
        let odd = [("a..b", with), ("", with), (".", with)];
        PeerNames::new(SERVER, [OURS], "hip", peers.into_iter().chain(odd)).expect("a domain")
    }

    fn name(text: &str) -> Name {
        Name::from_labels(text.split('.').filter(|label| !label.is_empty())).expect("a name")
    }

    fn query(text: &str, kind: u16, additional: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let additionals = (!additional.is_empty()).into();
        Header { id: 7, flags: RECURSION_DESIRED, questions: 1, additionals, ..Header::default() }
            .emit(&mut out);
        Question { name: name(text), kind, class: IN }.emit(&mut out);
        out.extend_from_slice(additional);
        out
    }

    fn ask(text: &str, kind: u16) -> Message {
        let reply = names().reply(&query(text, kind, &[])).expect("an answer");
        assert!(reply.len() <= 512);
        let message = Message::parse(&reply).expect("a message");
        assert_eq!((message.header.id, message.header.is_response()), (7, true));
        assert_eq!(message.questions, [Question { name: name(text), kind, class: IN }]);
        message
    }

    fn answers(message: &Message) -> Vec<(u16, Vec<u8>)> {
        let question = &message.questions[0].name;
        let ours = |r: &&dormouse_wire::dns::Record| r.name.matches(question) && r.ttl == 0;
        message.section(Section::Answer).filter(ours).map(|r| (r.kind, r.data.clone())).collect()
    }

    #[test]
    fn peers_have_their_addresses() {
        let (tag, lsi) = ((AAAA, PEER.octets().to_vec()), (A, LSI.octets().to_vec()));
        for (text, kind, expected) in [
            ("server.hip", AAAA, vec![tag.clone()]),
            ("SERVER.Hip", A, vec![lsi.clone()]),
            ("server.hip", ANY, vec![tag.clone(), lsi.clone()]),
            ("own.hip", AAAA, vec![tag]),
            ("old.hip", AAAA, vec![(AAAA, OURS.octets().to_vec())]),
            ("a.b.deep.hip", AAAA, vec![(AAAA, OURS.octets().to_vec())]),
        ] {
            let message = ask(text, kind);
            assert_eq!((message.header.rcode(), answers(&message)), (0, expected), "{text} {kind}");
            assert_ne!(message.header.flags & AUTHORITATIVE, 0);
        }
    }

    /// No such name, and a name without such a record, are two things (RFC 8020); both come with the start of the zone.
    #[test]
    fn what_is_not_there_is_said_so_that_it_is_believed() {
        for (text, kind, code) in [
            ("stranger.hip", AAAA, NO_NAME),
            ("x.server.hip", AAAA, NO_NAME),
            ("old.hip", A, 0),
            ("server.hip", 16, 0),
            ("deep.hip", AAAA, 0),
            ("b.deep.hip", AAAA, 0),
            ("hip", AAAA, 0),
        ] {
            let message = ask(text, kind);
            assert_eq!(message.header.rcode(), code, "{text}");
            let start: Vec<_> = message.records.iter().map(|r| (r.section, r.kind, r.name.clone())).collect();
            let [(Section::Authority, SOA, zone)] = start.as_slice() else { panic!("{message:?}") };
            assert!(
                zone.matches(&name("hip")) && message.records[0].data.ends_with(&[0; 4]),
                "nothing is kept"
            );
        }
        assert_eq!(answers(&ask("hip", SOA)).len(), 1);
    }

    /// Programs that show a name for an address ask for it, and no other server learns which.
    #[test]
    fn addresses_have_names() {
        let ptr = |text: &str| Some((PTR, lower(&name(text))));
        let of = |address: &str| {
            let name = reversed(address.parse().expect("an address"));
            let labels: Vec<_> = name.split(|b| *b < b'-').filter(|l| !l.is_empty()).collect();
            labels.iter().map(|l| String::from_utf8_lossy(l).into_owned()).collect::<Vec<_>>().join(".")
        };
        assert_eq!(of("1.0.0.2"), "2.0.0.1.in-addr.arpa");
        assert!(of("2001:22::2").ends_with(&format!(".2{}", &REVERSE[0][1..])), "{}", of("2001:22::2"));
        for (address, code, expected) in [
            ("2001:22::2", 0, ptr("server.hip")),
            ("1.0.0.2", 0, ptr("server.hip")),
            ("2001:22::1", 0, ptr("old.hip")),
            ("2001:22::3", NO_NAME, None),
            ("2001:1f::3", NO_NAME, None),
            ("2001:30::3", REFUSED, None),
            ("1.0.0.3", REFUSED, None),
        ] {
            let message = ask(&of(address), PTR);
            assert_eq!(message.header.rcode(), code, "{address}");
            assert_eq!(answers(&message).pop(), expected, "{address}");
        }
        assert_eq!(ask(REVERSE[0], PTR).header.rcode(), 0);
        assert_eq!(ask(&of("1.0.0.2"), A).header.rcode(), 0);
        assert_eq!(reversed(PEER.into()).len(), REVERSED);
    }

    /// So that a resolver asks its next server.
    #[test]
    fn everything_else_is_refused() {
        for text in ["example.org", "server", "server.hip.example.org", "xhip", "ship", ""] {
            let message = ask(text, AAAA);
            assert_eq!((message.header.rcode(), message.records.len()), (REFUSED, 0), "{text}");
        }
        let mut other = query("server.hip", AAAA, &[]);
        let class = other.len() - 1;
        other[class] = 3;
        assert_eq!(
            Message::parse(&names().reply(&other).expect("an answer")).map(|m| m.header.rcode()),
            Ok(REFUSED)
        );
    }

    #[test]
    fn a_question_with_edns_is_answered_with_it() {
        for (version, code) in [(0, 0), (1, BAD_VERSION)] {
            let opt = [0, 0, 41, 4, 0xd0, 0, version, 0x80, 0, 0, 0];
            let reply = names().reply(&query("server.hip", AAAA, &opt)).expect("an answer");
            let message = Message::parse(&reply).expect("a message");
            let said = message.section(Section::Additional).map(|r| (r.kind, (r.ttl >> 24) as u8));
            assert_eq!(said.collect::<Vec<_>>(), [(OPT, code)]);
            assert_eq!(answers(&message).len(), usize::from(code == 0));
        }
    }

    /// Any bytes: no panic, no answer to an answer, and an answer that is one.
    #[test]
    fn malformed_questions_are_answered_in_bounds_or_not_at_all() {
        let good = query("server.hip", AAAA, &[0, 0, 41, 4, 0xd0, 0, 0, 0x80, 0, 0, 0]);
        let it = names();
        let check = |bytes: &[u8]| {
            let Some(reply) = it.reply(bytes) else { return };
            assert!(reply.len() <= 512, "{bytes:02x?}");
            let message = Message::parse(&reply).expect("a message");
            assert!(message.header.is_response() && reply[..2] == bytes[..2]);
            assert_eq!(it.reply(&reply), None);
        };
        for at in 0..good.len() {
            check(&good[..at]);
            for value in 0..=255 {
                let mut bytes = good.clone();
                bytes[at] = value;
                check(&bytes);
            }
        }
        assert!(it.reply(&good[..HEADER_LEN - 1]).is_none());
        let code =
            |bytes: &[u8]| Message::parse(&it.reply(bytes).expect("an answer")).expect("one").header.rcode();
        assert_eq!(code(&good[..20]), FORMAT_ERROR);
        let mut notify = good.clone();
        notify[2] |= 0x20;
        assert_eq!(code(&notify), NOT_IMPLEMENTED);
        // The longest name there is, and two questions.
        let long = vec!["x".repeat(63); 3].join(".") + "." + &"x".repeat(57) + ".hip";
        assert_eq!(code(&query(&long, AAAA, &[])), NO_NAME);
        let mut two = query("server.hip", AAAA, &query("server.hip", AAAA, &[])[12..]);
        (two[5], two[11]) = (2, 0);
        assert_eq!(code(&two), FORMAT_ERROR);
    }

    fn packet(from: Ipv6Addr, port: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        udp::build((from, 4_000).into(), (SERVER, port).into(), payload, &mut packet).expect("it fits");
        packet
    }

    /// Programs of this host ask by its tag; what has another source came from elsewhere.
    #[test]
    fn only_this_host_is_answered() {
        let it = names();
        let question = query("server.hip", AAAA, &[]);
        let Plan::Answer(answer) = it.answer(&packet(OURS, PORT, &question)) else { panic!("no answer") };
        let parsed = Packet::parse(&answer).expect("a packet");
        assert_eq!((parsed.src(), parsed.dst()), (SERVER.into(), OURS.into()));
        let udp = udp::Udp::parse(&parsed).expect("its checksum is right");
        assert_eq!(
            (udp.src_port, udp.dst_port, udp.payload),
            (PORT, 4_000, &it.reply(&question).expect("one")[..])
        );
        for from in [PEER, SERVER, "2001:db8::1".parse().expect("an address")] {
            assert_eq!(it.answer(&packet(from, PORT, &question)), Plan::Drop, "{from}");
        }
        let mut wrong = packet(OURS, PORT, &question);
        wrong[60] ^= 1;
        assert_eq!(it.answer(&wrong), Plan::Drop, "its checksum is wrong");
        // Another port, and so another protocol: it is not there, and an answer is not answered.
        let Plan::Answer(error) = it.answer(&packet(OURS, 853, &question)) else { panic!("silence") };
        assert_eq!(error[40..42], [1, 4]);
        assert_eq!(it.answer(&packet(OURS, PORT, &it.reply(&question).expect("one"))), Plan::Drop);
        assert_eq!(it.answer(&error), Plan::Drop);
    }

    #[test]
    fn a_domain_may_be_deeper_and_must_be_a_name() {
        let (peers, found) = (["server", "server.x", "x.hosts.example"], (PEER, None));
        let make = |domain: &str| PeerNames::new(SERVER, [OURS], domain, peers.map(|name| (name, found)));
        let it = make("hosts.example").expect("a domain");
        let there = |text: &str| it.names.get(&lower(&name(text))).copied();
        assert_eq!(there("server.hosts.example"), Some(Some(found)));
        assert_eq!(there("server.x.hosts.example"), Some(Some(found)));
        assert_eq!(there("x.hosts.example"), Some(Some(found)), "one that is above another too");
        assert_eq!(it.names.len(), 4);
        assert!(make("").is_none() && make("a..b").is_none() && make(&"x".repeat(64)).is_none());
    }
}
