//! Multicast DNS and NetBIOS names, and DNS.

mod common;

use common::*;
use dormouse_standin::{Class, Kind, Limits, Reason, StandIn, Verdict};
use dormouse_wire::dns::{
    AUTHORITATIVE, Header, IN, Message, Name, Question, REFUSED, RESPONSE, Record, Section, TOP_BIT,
};
use dormouse_wire::ip::Packet;
use dormouse_wire::netbios::{NB, NBSTAT, NetbiosName};
use std::net::IpAddr;

const GROUP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(224, 0, 0, 251));
const A: u16 = 1;

fn name(labels: &[&str]) -> Name {
    Name::from_labels(labels).expect("a name")
}

fn address_record(ttl: u32, class: u16, last: u8) -> Record {
    let data = vec![10, 55, 0, last];
    Record { section: Section::Answer, name: name(&["laptop", "local"]), kind: A, class, ttl, data }
}

fn message(header: Header, questions: &[Question], records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    Header { questions: questions.len() as u16, answers: records.len() as u16, ..header }.emit(&mut out);
    questions.iter().for_each(|q| q.emit(&mut out));
    records.iter().for_each(|r| r.emit(r.ttl, &mut out).expect("short"));
    out
}

fn announce(standin: &mut StandIn, millis: u64, records: &[Record]) {
    let header = Header { flags: RESPONSE | AUTHORITATIVE, ..Header::default() };
    let packet = datagram((ADDRESS, 5353), (GROUP, 5353), &message(header, &[], records));
    standin.observe_inbound(at(millis), DEVICE, &packet);
}

fn question(class: u16) -> Question {
    Question { name: name(&["LAPTOP", "local"]), kind: A, class }
}

fn query(port: u16, to: IpAddr, class: u16, known: &[Record]) -> Vec<u8> {
    query_of(NEIGHBOUR, port, to, class, known)
}

fn query_of(asker: IpAddr, port: u16, to: IpAddr, class: u16, known: &[Record]) -> Vec<u8> {
    datagram(
        (asker, port),
        (to, 5353),
        &message(Header { id: 77, ..Header::default() }, &[question(class)], known),
    )
}

#[test]
fn an_announced_record_is_repeated_with_what_is_left_of_its_time() {
    let mut standin = enrolled(Limits::default());
    announce(&mut standin, 0, &[address_record(120, IN | TOP_BIT, 7)]);
    sleep(&mut standin, at(10_000));
    let (verdict, answer) = give(&mut standin, at(50_000), &query(5353, ADDRESS, IN | TOP_BIT, &[]));
    assert_eq!(verdict, Verdict::Answered(Kind::Mdns));
    let told = Message::parse(&payload(&answer, (ADDRESS, 5353), (NEIGHBOUR, 5353))).expect("DNS");
    assert_eq!((told.header.id, told.questions.len()), (0, 0));
    assert_eq!(told.records, [address_record(70, IN | TOP_BIT, 7)]);
    assert_eq!(Packet::parse(&answer).expect("a packet").hop_limit(), 255);
    let (verdict, _) = give(&mut standin, at(120_000), &query(5353, ADDRESS, IN, &[]));
    assert_eq!(verdict, Verdict::Dropped(Reason::Discovery), "its time is over");
}

#[test]
fn a_question_to_the_group_is_answered_to_the_group() {
    let mut standin = enrolled(Limits::default());
    announce(&mut standin, 0, &[address_record(120, IN | TOP_BIT, 7)]);
    sleep(&mut standin, at(0));
    let (_, answer) = give(&mut standin, at(1_000), &query(5353, GROUP, IN, &[]));
    payload(&answer, (ADDRESS, 5353), (GROUP, 5353));
    let (_, answer) = give(&mut standin, at(2_000), &query(5353, GROUP, IN | TOP_BIT, &[]));
    payload(&answer, (ADDRESS, 5353), (NEIGHBOUR, 5353));
}

#[test]
fn an_ordinary_resolver_gets_an_ordinary_answer() {
    let mut standin = enrolled(Limits::default());
    announce(&mut standin, 0, &[address_record(120, IN | TOP_BIT, 7)]);
    sleep(&mut standin, at(0));
    let (_, answer) = give(&mut standin, at(1_000), &query(33_333, ADDRESS, IN, &[]));
    let told = Message::parse(&payload(&answer, (ADDRESS, 5353), (NEIGHBOUR, 33_333))).expect("DNS");
    assert_eq!((told.header.id, &told.questions[..]), (77, &[question(IN)][..]));
    assert_eq!(told.records, [address_record(10, IN, 7)]);
}

#[test]
fn what_the_asker_knows_is_not_repeated() {
    let mut standin = enrolled(Limits::default());
    announce(&mut standin, 0, &[address_record(120, IN, 7)]);
    sleep(&mut standin, at(0));
    let known = query(5353, GROUP, IN, &[address_record(100, IN, 7)]);
    assert_eq!(give(&mut standin, at(1_000), &known).0, Verdict::Dropped(Reason::Discovery));
    let fading = query(5353, GROUP, IN, &[address_record(10, IN, 7)]);
    assert_eq!(give(&mut standin, at(2_000), &fading).0, Verdict::Answered(Kind::Mdns));
}

#[test]
fn goodbyes_and_newer_records_end_older_ones() {
    let mut standin = enrolled(Limits::default());
    announce(&mut standin, 0, &[address_record(120, IN | TOP_BIT, 7)]);
    announce(&mut standin, 10, &[address_record(120, IN | TOP_BIT, 8)]);
    sleep(&mut standin, at(20));
    let (_, answer) = give(&mut standin, at(30), &query(5353, ADDRESS, IN, &[]));
    let told = Message::parse(&payload(&answer, (ADDRESS, 5353), (NEIGHBOUR, 5353))).expect("DNS");
    assert_eq!(told.records.iter().map(|r| r.data[3]).collect::<Vec<_>>(), [8]);
    standin.wakes(at(40), DEVICE);
    announce(&mut standin, 50, &[address_record(0, IN | TOP_BIT, 8)]);
    sleep(&mut standin, at(60));
    assert_eq!(
        give(&mut standin, at(70), &query(5353, ADDRESS, IN, &[])).0,
        Verdict::Dropped(Reason::Discovery)
    );
}

/// Before, any host that could send to the device's address got its records, several times the length of the question, to any address that
/// it claimed.
#[test]
fn askers_beyond_the_link_are_not_answered() {
    let mut standin = enrolled(Limits::default());
    announce(&mut standin, 0, &[address_record(120, IN, 7)]);
    sleep(&mut standin, at(0));
    for to in [ADDRESS, GROUP] {
        for port in [5353, 33_333] {
            let asked = query_of(PEER, port, to, IN, &[]);
            assert_eq!(give(&mut standin, at(1), &asked), (Verdict::Dropped(Reason::Discovery), vec![]));
        }
    }
    let neighbour = query_of(IpAddr::from([169, 254, 1, 1]), 5353, GROUP, IN, &[]);
    assert_eq!(give(&mut standin, at(2), &neighbour).0, Verdict::Answered(Kind::Mdns));
    // A device that is in no network has no neighbours.
    standin.set_links(Vec::new());
    assert_eq!(
        give(&mut standin, at(3), &query(5353, ADDRESS, IN, &[])).0,
        Verdict::Dropped(Reason::Discovery)
    );
}

#[test]
fn others_announcements_teach_nothing() {
    let mut standin = enrolled(Limits::default());
    let header = Header { flags: RESPONSE, ..Header::default() };
    let forged =
        datagram((PEER, 5353), (ADDRESS, 5353), &message(header, &[], &[address_record(120, IN, 66)]));
    standin.observe_outbound(at(0), DEVICE, &forged);
    sleep(&mut standin, at(1));
    assert_eq!(
        give(&mut standin, at(2), &query(5353, ADDRESS, IN, &[])).0,
        Verdict::Dropped(Reason::Discovery)
    );
}

// ---- NetBIOS ----------------------------------------------------------------------------------------------------------

const LAPTOP: NetbiosName = NetbiosName(*b"LAPTOP         \0");

fn netbios(opcode: u16, own: NetbiosName, address: [u8; 4], kind: u16, from: IpAddr, to: IpAddr) -> Vec<u8> {
    let mut out = Vec::new();
    let registration = opcode != 0;
    let additionals = u16::from(registration);
    Header { id: 5, flags: opcode << 11 | 0x0110, questions: 1, additionals, ..Header::default() }
        .emit(&mut out);
    Question { name: own.to_dns(), kind, class: IN }.emit(&mut out);
    if registration {
        let data = [&[0x00, 0x00][..], &address].concat();
        let record =
            Record { section: Section::Additional, name: own.to_dns(), kind: NB, class: IN, ttl: 0, data };
        record.emit(300_000, &mut out).expect("short");
    }
    datagram((from, 137), (to, 137), &out)
}

#[test]
fn a_registered_name_is_answered_for_and_defended() {
    let mut standin = enrolled(Limits::default());
    let broadcast = IpAddr::from([10, 55, 0, 255]);
    standin.observe_inbound(at(0), DEVICE, &netbios(5, LAPTOP, [10, 55, 0, 7], NB, ADDRESS, broadcast));
    sleep(&mut standin, at(1));

    let (verdict, answer) = give(&mut standin, at(2), &netbios(0, LAPTOP, [0; 4], NB, PEER, ADDRESS));
    assert_eq!(verdict, Verdict::Answered(Kind::NetBiosName));
    let told = Message::parse_netbios(&payload(&answer, (ADDRESS, 137), (PEER, 137))).expect("a response");
    assert_eq!((told.header.id, told.header.flags, told.header.answers), (5, 0x8500, 1));
    assert_eq!(told.records[0].data, [0, 0, 10, 55, 0, 7]);

    let (_, answer) = give(&mut standin, at(3), &netbios(0, NetbiosName::ANY, [0; 4], NBSTAT, PEER, ADDRESS));
    let told = Message::parse_netbios(&payload(&answer, (ADDRESS, 137), (PEER, 137))).expect("a response");
    let status = &told.records[0].data;
    assert_eq!(
        (status[0], &status[1..17], &status[17..19], status.len()),
        (1, &LAPTOP.0[..], &[4, 0][..], 19 + 46)
    );

    let claim = netbios(5, LAPTOP, [10, 99, 0, 2], NB, PEER, ADDRESS);
    let (_, answer) = give(&mut standin, at(4), &claim);
    let told = Message::parse_netbios(&payload(&answer, (ADDRESS, 137), (PEER, 137))).expect("a response");
    assert_eq!((told.header.opcode(), told.header.rcode(), told.records[0].data[5]), (5, 6, 7));
}

#[test]
fn a_name_that_was_never_registered_or_was_released_is_not_answered_for() {
    let mut standin = enrolled(Limits::default());
    standin.observe_inbound(at(0), DEVICE, &netbios(5, LAPTOP, [10, 55, 0, 7], NB, ADDRESS, ADDRESS));
    standin.observe_inbound(at(1), DEVICE, &netbios(6, LAPTOP, [10, 55, 0, 7], NB, ADDRESS, ADDRESS));
    // Not its own address.
    standin.observe_inbound(
        at(2),
        DEVICE,
        &netbios(5, NetbiosName(*b"OTHER          \0"), [10, 99, 0, 2], NB, ADDRESS, ADDRESS),
    );
    sleep(&mut standin, at(3));
    for asked in [LAPTOP, NetbiosName(*b"OTHER          \0")] {
        let (verdict, answer) = give(&mut standin, at(4), &netbios(0, asked, [0; 4], NB, PEER, ADDRESS));
        assert_eq!((verdict, answer.len()), (Verdict::Dropped(Reason::Discovery), 0));
    }
}

// ---- DNS --------------------------------------------------------------------------------------------------------------

fn dns(from: (IpAddr, u16), to: (IpAddr, u16), id: u16, answers: &[Record]) -> Vec<u8> {
    let flags = if from.1 == 53 { RESPONSE } else { 0x0100 };
    datagram(from, to, &message(Header { id, flags, ..Header::default() }, &[question(IN)], answers))
}

#[test]
fn a_late_answer_is_kept_as_long_as_its_records_last() {
    let mut standin = enrolled(Limits::default());
    for (id, port) in [(1, 4_001), (2, 4_002), (3, 4_003)] {
        standin.observe_inbound(at(0), DEVICE, &dns((ADDRESS, port), (PEER, 53), id, &[]));
    }
    // Answered while it was awake: another answer is a stray one.
    standin.observe_outbound(at(50), DEVICE, &dns((PEER, 53), (ADDRESS, 4_003), 3, &[]));
    sleep(&mut standin, at(100));
    let late = |id, port, ttl| dns((PEER, 53), (ADDRESS, port), id, &[address_record(ttl, IN, 9)]);
    assert_eq!(give(&mut standin, at(200), &late(1, 4_001, 8)).0, Verdict::Buffered(Class::Reply));
    assert_eq!(give(&mut standin, at(200), &late(2, 4_002, 3_600)).0, Verdict::Buffered(Class::Reply));
    assert_eq!(give(&mut standin, at(200), &late(3, 4_003, 3_600)).0, Verdict::Buffered(Class::Datagram));
    assert_eq!(give(&mut standin, at(200), &late(9, 4_001, 3_600)).0, Verdict::Buffered(Class::Datagram));
    let kept = standin.wakes(at(20_000), DEVICE);
    assert!(!kept.contains(&late(1, 4_001, 8).into()) && kept.contains(&late(2, 4_002, 3_600).into()));
}

/// Before, the answer was given in the place of every device that was never seen to serve names, also of one that drops such questions.
#[test]
fn a_device_is_answered_for_that_refuses_questions_and_one_that_serves_is_waited_for() {
    let mut standin = enrolled(Limits::default());
    let asked = dns((PEER, 5_000), (ADDRESS, 53), 321, &[]);
    sleep(&mut standin, at(0));
    assert_eq!(give(&mut standin, at(1), &asked), (Verdict::Buffered(Class::Datagram), vec![]));
    standin.wakes(at(2), DEVICE);
    let refusal = Header { id: 321, flags: RESPONSE | REFUSED, ..Header::default() };
    let refused = datagram((ADDRESS, 53), (PEER, 5_000), &message(refusal, &[question(IN)], &[]));
    standin.observe_inbound(at(3), DEVICE, &refused);
    sleep(&mut standin, at(4));
    let (verdict, answer) = give(&mut standin, at(5), &asked);
    assert_eq!(verdict, Verdict::Answered(Kind::Dns));
    let told = Message::parse(&payload(&answer, (ADDRESS, 53), (PEER, 5_000))).expect("DNS");
    assert_eq!((told.header.id, told.header.rcode(), told.header.is_response()), (321, 5, true));
    assert_eq!(told.questions, [question(IN)]);
    standin.wakes(at(6), DEVICE);
    let served = dns((ADDRESS, 53), (PEER, 5_000), 321, &[address_record(1, IN, 1)]);
    standin.observe_inbound(at(7), DEVICE, &served);
    sleep(&mut standin, at(8));
    assert_eq!(give(&mut standin, at(9), &asked), (Verdict::Buffered(Class::Datagram), vec![]));
}
