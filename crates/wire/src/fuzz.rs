//! The bodies of the fuzz targets, as plain functions: `fuzz/` drives them with libFuzzer, and a test replays the committed
//! corpora through the same code. Each panics if a property of the parsers does not hold; none is for use in a program.

use crate::hip::{Draft, HEADER_LEN, Packet, parse_params};
use crate::ike::{self, Message, Sealing};
use crate::{dhcp, dns, esp, ip, mobileip, netbios};

/// What is left of an input out of which a fuzz target of another crate reads its steps.
#[derive(Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// The next bytes: so many, or as many as there are.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// A length of one byte, and the bytes behind it.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.byte()?;
        Some(self.take(len.into()))
    }
}

/// Any bytes as an IKE message, and as a chain of decrypted payloads: what is accepted must survive emission.
///
/// # Panics
/// If a property does not hold.
pub fn ike(data: &[u8]) {
    dormancy(data);
    puzzle(data);
    if let Ok(message) = Message::parse(data) {
        let emitted = emit(&message, data);
        assert_eq!(emitted.len(), data.len(), "emission changed the length of {message:?}");
        assert_eq!(Message::parse(&emitted).as_ref(), Ok(&message), "emission changed the meaning");
    }
    let Some((first, chain)) = data.split_first() else { return };
    if let Ok(payloads) = ike::parse_payloads((*first).into(), chain) {
        let mut emitted = Vec::new();
        let kind = ike::emit_payloads(&payloads, &mut emitted);
        assert_eq!(kind, Ok(payloads.first().map_or(ike::PayloadType::None, ike::Payload::kind)));
        assert_eq!(emitted.len(), chain.len(), "emission changed the length of {payloads:?}");
        assert_eq!(
            ike::parse_payloads((*first).into(), &emitted),
            Ok(payloads),
            "emission changed the meaning"
        );
    }
}

/// Any bytes as a HIP packet, and as bare parameters: what is accepted survives emission.
///
/// # Panics
/// If a property does not hold.
pub fn hip(data: &[u8]) {
    let Ok(packet) = Packet::parse(data) else {
        let _ = parse_params(data, 0);
        return;
    };
    let version = packet.header.version;
    let mut draft = Draft::new(&packet.header);
    let mut read = Vec::new();
    for raw in packet.params() {
        assert!(raw.at >= HEADER_LEN && packet.covered_by(raw.kind, &[]).is_some_and(|c| c.len() <= raw.at));
        let Ok(param) = raw.read(version) else { return };
        assert_eq!(param.kind(), raw.kind);
        draft.add(&param);
        read.push(param);
    }
    let _ = packet.unsupported_critical();
    let emitted = draft.finish().expect("what was read can be written");
    assert_eq!(emitted.len(), packet.as_bytes().len(), "emission changed the length of {packet:?}");
    let again = Packet::parse(&emitted).expect("what was written can be read");
    assert_eq!(again.header, packet.header);
    let read_again: Vec<_> = again.params().iter().map(|raw| raw.read(version)).collect();
    assert_eq!(read_again, read.into_iter().map(Ok).collect::<Vec<_>>(), "emission changed the meaning");
}

/// Any bytes as a Mobile IP message, and as a packet with an agent advertisement: what is accepted survives emission.
///
/// # Panics
/// If a property does not hold.
pub fn mobileip(data: &[u8]) {
    if let Ok(packet) = mobileip::Packet::parse(data) {
        let mut emitted = Vec::new();
        packet.message.emit(&mut emitted);
        for extension in &packet.extensions {
            assert!(extension.end() <= data.len() && packet.authorized().len() <= data.len());
            assert!(extension.authentication().is_none() || extension.covered() <= data.len());
            mobileip::extension(extension.kind, extension.data, &mut emitted)
                .expect("what was read can be written");
        }
        let again = mobileip::Packet::parse(&emitted).expect("what was written can be read");
        assert_eq!(again.message, packet.message, "emission changed the meaning");
        let plain = |p: &mobileip::Packet<'_>| {
            p.extensions.iter().map(|e| (e.kind, e.data.to_vec())).collect::<Vec<_>>()
        };
        assert_eq!(plain(&again), plain(&packet), "emission changed the extensions");
    }
    let Ok(outer) = ip::Ipv4::parse(data) else { return };
    let _ = mobileip::is_solicitation(&outer);
    let _ = ip::icmp::parse_error(&outer).map(|e| assert!(e.quoted.len() >= 20));
    if let Ok(advertisement) = mobileip::Advertisement::parse(&outer) {
        let mut emitted = Vec::new();
        advertisement.emit(outer.src(), outer.dst(), &mut emitted).expect("what was read can be written");
        let again = ip::Ipv4::parse(&emitted).and_then(|p| mobileip::Advertisement::parse(&p));
        assert_eq!(again, Ok(advertisement), "emission changed the meaning");
    }
}

/// Any bytes as the payloads and notifications of multi-layered IPsec's key management: what is accepted survives emission.
///
/// # Panics
/// If a property does not hold.
pub fn mlike(data: &[u8]) {
    use ike::mlike::{self, Distribute, Map, Migrate, Refused, Request, Secret};
    if let Ok(map) = Map::parse(data) {
        assert_eq!(Map::parse(&map.emit()), Ok(map), "emission changed the meaning");
    }
    if let Ok(secret) = Secret::parse(data) {
        let ike::Payload::Unknown { body, .. } = secret.payload() else { return };
        assert!(Secret::parse(&body) == Ok(secret), "emission changed the meaning");
    }
    if let Ok(told) = Distribute::parse(data) {
        assert_eq!(Distribute::parse(&told.emit()), Ok(told), "emission changed the meaning");
    }
    if let Ok(asked) = Request::parse(data) {
        assert_eq!(Request::parse(&asked.emit()), Ok(asked), "emission changed the meaning");
    }
    if let Ok(to) = mlike::parse_given(data) {
        assert_eq!(mlike::parse_given(&mlike::emit_given(1, &to)), Ok(to), "emission changed the meaning");
    }
    if let Ok(refused) = Refused::parse(data) {
        assert_eq!(Refused::parse(&refused.emit()), Ok(refused), "emission changed the meaning");
    }
    if let Ok(asked) = Migrate::parse(data) {
        assert!(ike::mlike::Excerpt::of(&asked.seen.packet()).is_some_and(|seen| seen == asked.seen));
        assert_eq!(Migrate::parse(&asked.emit()), Ok(asked), "emission changed the meaning");
    }
    if let Ok(names) = mlike::parse_names(data) {
        assert_eq!(mlike::parse_names(&mlike::emit_names(&names)), Ok(names), "emission changed the meaning");
    }
    if let Ok(ids) = mlike::parse_neighbours(data) {
        let emitted = mlike::emit_neighbours(&ids);
        assert_eq!(mlike::parse_neighbours(&emitted), Ok(ids), "emission changed the meaning");
    }
    if let Some(opened) = mlike::opened(&[ike::Payload::VendorId(data.to_vec())]) {
        assert!((1..=mlike::VERSION).contains(&opened.version));
    }
}

/// Any bytes as the data of the dormancy extension's notifications: what is accepted survives emission.
///
/// # Panics
/// If a property does not hold.
pub fn dormancy(data: &[u8]) {
    use crate::sleep::{HoldGrant, Sleeping};
    use ike::dormancy::LoadReport;
    if let Ok(sleeping) = Sleeping::parse(data) {
        assert_eq!(Sleeping::parse(&sleeping.emit()), Ok(sleeping), "emission changed the meaning");
    }
    if let Ok(held) = HoldGrant::parse(data) {
        assert_eq!(HoldGrant::parse(&held.emit()), Ok(held), "emission changed the meaning");
    }
    if let Ok(report) = LoadReport::parse(data) {
        assert!(report.clients_in(core::time::Duration::from_secs(data.len() as u64 * 600)) >= 1.0);
        assert_eq!(LoadReport::parse(&report.emit()), Ok(report), "emission changed the meaning");
    }
}

/// Any bytes as the data of a PUZZLE notification and of its solution.
///
/// # Panics
/// If a property does not hold.
pub fn puzzle(data: &[u8]) {
    let notify = ike::Notify::new(ike::NotifyType::Puzzle, data);
    if let Some(puzzle) = ike::Puzzle::of(&notify) {
        assert_eq!(puzzle.notify(), notify, "emission changed the meaning");
    }
    if let Some(keys) = ike::puzzle_keys(data) {
        assert_eq!(keys.concat(), data);
    }
}

/// Emits a message as it was parsed, the encrypted body copied from `original`.
fn emit(message: &Message, original: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match &message.protected {
        None => assert_eq!(Message::emit(&message.header, &message.payloads, &mut out), Ok(())),
        Some(protected) => {
            let (header, cleartext) = (&message.header, message.payloads.as_slice());
            let sealing = Sealing { header, cleartext, first: protected.first, fragment: protected.fragment };
            let body = sealing.emit(protected.body.len(), &mut out);
            assert_eq!(body.as_ref(), Ok(&protected.body), "the encrypted body moved");
            if let (Some(to), Some(from)) =
                (out.get_mut(protected.body.clone()), original.get(protected.body.clone()))
            {
                to.copy_from_slice(from);
            }
        }
    }
    out
}

/// Any bytes as a datagram on the NAT-traversal port: every byte is accounted for.
///
/// # Panics
/// If a property does not hold.
pub fn natt(data: &[u8]) {
    match esp::classify_natt(data) {
        esp::NatT::Keepalive => assert_eq!(data, esp::KEEPALIVE),
        esp::NatT::Ike(message) => {
            assert_eq!([&esp::NON_ESP_MARKER, message].concat(), data);
            ike(message);
        }
        esp::NatT::Esp(packet) => {
            assert_eq!(packet, data);
            let header = esp::Header::parse(packet);
            assert!(header.is_ok_and(|h| h.spi != 0 && data.starts_with(&h.to_bytes())));
        }
        esp::NatT::Malformed => assert!(data.len() < esp::HEADER_LEN, "nothing but a stump is malformed"),
    }
}

/// Any bytes as an IP packet: views agree with each other, MSS clamping changes a SYN only and keeps its checksum's verdict,
/// and an ICMP error built about the packet can be read back. All of it once more with the checksums that the packet should have,
/// which chance does not find.
///
/// # Panics
/// If a property does not hold.
pub fn ip(data: &[u8]) {
    packet(data);
    packet(&with_checksums(data));
}

/// The packet with a right checksum in its TCP, UDP or ICMP header, if it has one; its UDP length decides what that covers.
#[must_use]
pub fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut mended = data.to_vec();
    let Ok(view) = ip::Packet::parse(data) else { return mended };
    let upper = view.payload();
    let (field, len, pseudo) = match view.protocol() {
        ip::protocol::TCP => (16, upper.len(), true),
        ip::protocol::UDP => {
            let stated = upper.get(4..6).map_or(0, |l| usize::from(l[0]) << 8 | usize::from(l[1]));
            (6, stated.min(upper.len()), true)
        }
        ip::protocol::ICMP => (2, upper.len(), false),
        ip::protocol::ICMPV6 => (2, upper.len(), true),
        _ => return mended,
    };
    let start = view.payload_offset();
    let Some(covered) = mended.get_mut(start..start + len).filter(|c| c.len() >= field + 2) else {
        return mended;
    };
    covered[field..field + 2].fill(0);
    let sum = if pseudo { view.pseudo_header(len) } else { ip::checksum::Sum::default() };
    let sum = sum.add_bytes(covered).finish();
    covered[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    mended
}

fn packet(data: &[u8]) {
    let Ok(packet) = ip::Packet::parse(data) else {
        assert_eq!(ip::flow(data), None);
        let mut copy = data.to_vec();
        assert!(!ip::tcp::clamp_mss(&mut copy, 0, 0) && copy == data, "clamped what is no packet");
        return;
    };
    assert!(packet.total_len() <= data.len() && packet.payload_offset() <= packet.total_len());
    let flow = ip::flow(data);
    assert_eq!(
        flow.map(|f| (f.src, f.dst, f.protocol)),
        Some((packet.src(), packet.dst(), packet.protocol()))
    );
    let _ = ip::udp::Udp::parse(&packet);
    if let Some(echo) = ip::icmp::Echo::parse(data) {
        let mut built = Vec::new();
        assert!(echo.build(&mut built).is_err() || ip::icmp::Echo::parse(&built) == Some(echo));
    }
    if let Some(asked) = ip::nd::Solicitation::parse(data) {
        let mut told = Vec::new();
        assert_eq!(asked.advertise(Some([2; 6]), &mut told), Ok(()));
        assert!(ip::Packet::parse(&told).is_ok_and(|t| t.protocol() == ip::protocol::ICMPV6));
    }
    clamping(data, &packet);
    too_big(data, &packet);
}

/// The maximum segment size that a segment announces, in bytes.
fn announced(tcp: &ip::tcp::Tcp<'_>) -> Option<u16> {
    let at = ip::tcp::find_mss(tcp.options)?;
    tcp.options.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

fn clamping(data: &[u8], packet: &ip::Packet<'_>) {
    const LIMIT: u16 = 1000;
    let mut copy = data.to_vec();
    let changed = ip::tcp::clamp_mss(&mut copy, LIMIT, LIMIT);
    assert_eq!(changed, copy != data, "the answer tells whether the packet was changed");
    let Ok(before) = ip::tcp::Tcp::parse(packet) else {
        assert!(!changed);
        return;
    };
    let wanted = before.flags & ip::tcp::SYN != 0 && announced(&before).is_some_and(|m| m > LIMIT);
    assert_eq!(changed, wanted);
    if changed && let Ok(clamped) = ip::Packet::parse(&copy) {
        let mss = ip::tcp::Tcp::parse(&clamped).ok().and_then(|t| announced(&t));
        assert_eq!(mss, Some(LIMIT));
        let sum = |p: &ip::Packet<'_>| {
            let segment = p.payload();
            p.pseudo_header(segment.len()).add_bytes(segment).fold()
        };
        assert_eq!(sum(packet), sum(&clamped), "the checksum was as right, or as wrong, before");
    }
}

fn too_big(data: &[u8], packet: &ip::Packet<'_>) {
    let source = match packet {
        ip::Packet::V4(_) => core::net::Ipv4Addr::new(192, 0, 2, 1).into(),
        ip::Packet::V6(_) => core::net::Ipv6Addr::from_bits(0x2001_0db8 << 96 | 1).into(),
    };
    let mut error = Vec::new();
    if !ip::icmp::too_big(data, source, 1400, &mut error) {
        assert!(error.is_empty());
        return;
    }
    let built = ip::Packet::parse(&error).expect("an error that was built");
    let message = built.payload();
    assert_eq!((built.src(), built.dst()), (source, packet.src()));
    assert!(data.starts_with(&message[ip::icmp::HEADER_LEN..]), "the packet that it is about is quoted");
    if let ip::Packet::V4(v4) = &built {
        assert_eq!(ip::icmp::parse_error(v4).map(|report| report.mtu), Some(1400));
    } else {
        assert_eq!(message[4..8], 1400_u32.to_be_bytes());
        assert_eq!(built.pseudo_header(message.len()).add_bytes(message).finish(), 0);
    }
    let mut second = Vec::new();
    assert!(!ip::icmp::too_big(&error, source, 1400, &mut second), "an error answered with an error");
}

/// Any bytes as what a stand-in reads behind UDP and TCP: DNS in its two dialects, DHCP, NetBIOS. What is
/// accepted survives emission.
///
/// # Panics
/// If a property does not hold.
pub fn names(data: &[u8]) {
    for parse in [dns::Message::parse, dns::Message::parse_netbios] {
        let Ok(message) = parse(data) else { continue };
        for question in &message.questions {
            if let Some(name) = netbios::NetbiosName::from_dns(&question.name) {
                assert!(name.to_dns().matches(&question.name));
            }
        }
        let mut emitted = Vec::new();
        message.header.emit(&mut emitted);
        message.questions.iter().for_each(|q| q.emit(&mut emitted));
        if message.records.iter().all(|r| r.emit(r.ttl, &mut emitted).is_ok()) {
            assert_eq!(parse(&emitted), Ok(message), "emission changed the meaning");
        }
    }
    if let Ok(message) = dhcp::Dhcp::parse(data) {
        let renewal = dhcp::renewal(&message.client, message.your_address, message.transaction);
        let read = dhcp::Dhcp::parse(&renewal);
        assert!(read.is_ok_and(|r| r.client == message.client && r.client_address == message.your_address));
    }
    let _ = netbios::keep_alive(data);
}
