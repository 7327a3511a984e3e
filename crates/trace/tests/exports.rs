//! NetFlow and IPFIX on the wire: a capture of a router's exports is read as flows, and says so.

mod common;

use common::{PHONE, SERVER, TALK, Temporary, options, pcap, report, talk_on_ethernet};
use dormouse_trace::report::json::Report;

const COLLECTOR: [u8; 4] = [10, 0, 0, 9];

/// A datagram from a router to its collector, on Ethernet.
fn datagram(router: u8, port: u16, payload: &[u8]) -> Vec<u8> {
    let total = (28 + payload.len() as u16).to_be_bytes();
    let mut f = [&[2, 0, 0, 0, 1, 9][..], &[2, 0, 0, 0, 1, router], &[8, 0]].concat();
    f.extend([0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, router]);
    f.extend(COLLECTOR);
    f.extend(40_000u16.to_be_bytes());
    f.extend(port.to_be_bytes());
    f.extend((8 + payload.len() as u16).to_be_bytes());
    f.extend([0, 0]);
    f.extend(payload);
    f
}

fn ends(out: bool) -> ([u8; 4], [u8; 4]) {
    if out { (PHONE, SERVER) } else { (SERVER, PHONE) }
}

/// A message of version 5 with one flow of one packet.
fn v5(at: u64, out: bool) -> Vec<u8> {
    let (src, dst) = ends(out);
    let uptime = ((1_000_000_000 + at - TALK[0].0) as u32 / 1000).to_be_bytes();
    let mut m =
        [&[0, 5, 0, 1][..], &1_300_000u32.to_be_bytes(), &1_600_000_300u32.to_be_bytes(), &[0; 12]].concat();
    m.extend(
        [&src[..], &dst, &[0; 8], &[0, 0, 0, 1, 0, 0, 0, 60], &uptime, &uptime, &[15, 160, 1, 187]].concat(),
    );
    m.extend([[0, 0, 17, 0], [0; 4], [0; 4]].concat());
    m
}

/// An IPFIX message of one set.
fn ipfix(set: &[u8]) -> Vec<u8> {
    let length = (16 + set.len() as u16).to_be_bytes();
    [&[0, 10][..], &length, &1_600_000_300u32.to_be_bytes(), &[0; 8], set].concat()
}

fn ipfix_template(swapped: bool) -> Vec<u8> {
    let (first, second) = if swapped { (12, 8) } else { (8, 12) };
    ipfix(&[0, 2, 0, 24, 1, 0, 0, 4, 0, first, 0, 4, 0, second, 0, 4, 0, 152, 0, 8, 0, 153, 0, 8])
}

fn ipfix_data(at: u64, out: bool, swapped: bool) -> Vec<u8> {
    let (src, dst) = if out == swapped { (SERVER, PHONE) } else { (PHONE, SERVER) };
    let time = (at / 1000).to_be_bytes();
    ipfix(&[&[1, 0, 0, 28][..], &src, &dst, &time, &time].concat())
}

fn read(name: &str, frames: &[(u64, Vec<u8>)]) -> Report {
    let file = Temporary::with(name, &pcap(1, frames));
    report(&[file.input()], &options())
}

/// Every datagram is sent a minute after its flow.
fn later(at: u64) -> u64 {
    at + 60_000_000
}

fn is_the_talk(report: &Report) {
    assert_eq!(report.lost_total, 0, "{:?}", report.lost);
    let clients: Vec<_> = report.clients.iter().map(|c| (c.client.as_str(), c.packets)).collect();
    assert_eq!(clients, [("192.168.7.20", 8)]);
    assert!((report.clients[0].idle_seconds - 199.6).abs() < 0.01, "{}", report.clients[0].idle_seconds);
}

#[test]
fn version_5_is_read_from_its_usual_ports() {
    for port in [2055, 9995] {
        let frames: Vec<_> =
            TALK.iter().map(|(at, out)| (later(*at), datagram(1, port, &v5(*at, *out)))).collect();
        let report = read("v5.pcap", &frames);
        is_the_talk(&report);
        let file = &report.files[0];
        assert_eq!((file.format, file.export_datagrams, file.exported_flows), (Some("pcap"), 8, 8));
    }
}

#[test]
fn two_exporters_with_the_same_template_number_are_kept_apart() {
    let begin = TALK[0].0;
    let mut frames = vec![
        (begin, datagram(1, 4739, &ipfix_template(false))),
        (begin, datagram(2, 4739, &ipfix_template(true))),
    ];
    for (n, (at, out)) in TALK.iter().enumerate() {
        let swapped = n % 2 == 1;
        frames.push((later(*at), datagram(1 + u8::from(swapped), 4739, &ipfix_data(*at, *out, swapped))));
    }
    let report = read("ipfix.pcap", &frames);
    is_the_talk(&report);
    assert_eq!(report.files[0].export_datagrams, 10);
}

#[test]
fn without_the_port_they_are_the_routers_packets() {
    let frames: Vec<_> =
        TALK.iter().map(|(at, out)| (later(*at), datagram(1, 2055, &v5(*at, *out)))).collect();
    let file = Temporary::with("off.pcap", &pcap(1, &frames));
    let report = report(&[file.input().with_export_ports(&[])], &options());
    let clients: Vec<_> = report.clients.iter().map(|c| (c.client.as_str(), c.packets)).collect();
    assert_eq!((report.files[0].export_datagrams, clients), (0, vec![("10.0.0.1", 8)]));
}

#[test]
fn a_packet_to_such_a_port_that_is_no_export_stays_a_packet() {
    let mut frames = talk_on_ethernet();
    frames.insert(1, (TALK[0].0 + 10, datagram(1, 2055, b"\0\x05\0\x09hello, this is something else")));
    frames.insert(2, (TALK[0].0 + 20, datagram(1, 2055, b"")));
    let report = read("other.pcap", &frames);
    assert_eq!((report.files[0].export_datagrams, report.lost_total, report.files[0].records), (0, 0, 10));
}

#[test]
fn what_the_capture_cut_off_an_export_is_lost_and_said_to_be() {
    let mut message = v5(TALK[0].0, true);
    let record = message[24..].to_vec();
    message[3] = 3;
    message.extend([&record[..], &record].concat());
    let mut frame = datagram(1, 2055, &message);
    frame.truncate(frame.len() - 50);
    let report = read("cut.pcap", &[(later(TALK[0].0), frame)]);
    assert_eq!((report.files[0].exported_flows, report.lost_total), (1, 1));
    let reason = &report.lost[0].reason;
    assert!(reason.contains("in an export datagram") && reason.contains("after 1"), "{reason}");
    assert_eq!((report.lost[0].offset, report.lost[0].record), (24, 1));
}
