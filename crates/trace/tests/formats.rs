//! The same eight packets in every format: always the same client, packets and idle periods.

mod common;

use std::io::Write as _;

use common::{
    PHONE, ROUTER_MAC, SERVER, TALK, Temporary, options, pcap, report, table, talk, talk_on_ethernet,
};
use dormouse_trace::decode::Next;
use dormouse_trace::read::Reader;
use dormouse_trace::report::json::Report;
use dormouse_trace::report::page::notes;

fn analysed(name: &str, content: &[u8]) -> Report {
    let file = Temporary::with(name, content);
    report(&[file.input()], &options())
}

/// Eight packets, four idle periods of 29.95, 0.3, 69.6 and 99.750001 s.
fn is_the_talk(report: &Report, client: &str) {
    assert_eq!(report.lost_total, 0, "{:?}", report.lost);
    assert_eq!(report.clients.len(), 1, "{:?}", report.clients);
    let row = &report.clients[0];
    assert_eq!(row.client, client);
    assert_eq!((row.packets, row.idle_periods), (8, 4));
    assert!((row.idle_seconds - 199.600_001).abs() < 1e-5, "{}", row.idle_seconds);
    let bound = &row.policies["clairvoyant"];
    assert_eq!(bound.cycles, 3);
    let saved = (29.95 - 22.3 + 69.6 - 22.3 + 99.750_001 - 22.3) / 199.600_001;
    assert!((bound.saved_fraction - saved).abs() < 1e-6);
}

#[test]
fn pcap_on_every_link() {
    let phone = "192.168.7.20";
    is_the_talk(&analysed("ethernet.pcap", &pcap(1, &talk_on_ethernet())), phone);
    let raw: Vec<_> = talk().into_iter().map(|(at, _, p)| (at, p)).collect();
    is_the_talk(&analysed("raw.pcap", &pcap(101, &raw)), phone);
    let null: Vec<_> = raw.iter().map(|(at, p)| (*at, [&[2, 0, 0, 0][..], p].concat())).collect();
    is_the_talk(&analysed("null.pcap", &pcap(0, &null)), phone);
    let cooked = |out: bool, p: &[u8]| {
        let kind = if out { 4 } else { 0 };
        [&[0, kind, 0, 1, 0, 6][..], &ROUTER_MAC, &[0, 0, 8, 0], p].concat()
    };
    let sll: Vec<_> = talk().into_iter().map(|(at, out, p)| (at, cooked(out, &p))).collect();
    is_the_talk(&analysed("cooked.pcap", &pcap(113, &sll)), phone);
    let cooked2 = |out: bool, p: &[u8]| {
        let kind = if out { 4 } else { 0 };
        [&[8, 0, 0, 0, 0, 0, 0, 2, 0, 1, kind, 6][..], &ROUTER_MAC, &[0, 0], p].concat()
    };
    let sll2: Vec<_> = talk().into_iter().map(|(at, out, p)| (at, cooked2(out, &p))).collect();
    is_the_talk(&analysed("cooked2.pcap", &pcap(276, &sll2)), phone);
    let tagged: Vec<_> = talk_on_ethernet()
        .iter()
        .map(|(at, f)| (*at, [&f[..12], &[0x81, 0, 0, 5], &f[12..]].concat()))
        .collect();
    is_the_talk(&analysed("vlan.pcap", &pcap(1, &tagged)), phone);
}

#[test]
fn radiotap_counts_data_and_not_beacons() {
    let access_point = [2, 9, 9, 9, 9, 9];
    let mut frames: Vec<(u64, Vec<u8>)> = Vec::new();
    for (at, out, packet) in talk() {
        let mut f = vec![0, 0, 8, 0, 0, 0, 0, 0]; // radiotap without fields
        f.extend([0x88, if out { 1 } else { 2 }, 0, 0]); // QoS data, to or from the distribution system
        let (one, two, three) = if out {
            (access_point, common::PHONE_MAC, ROUTER_MAC)
        } else {
            (common::PHONE_MAC, access_point, ROUTER_MAC)
        };
        f.extend([one, two, three].concat());
        f.extend([0, 0, 0, 0, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]);
        f.extend(packet);
        frames.push((at, f));
        frames.push((at + 10, [&[0, 0, 8, 0, 0, 0, 0, 0, 0x80, 0][..], &[0; 34]].concat())); // a beacon
    }
    let report = analysed("radiotap.pcap", &pcap(127, &frames));
    is_the_talk(&report, "192.168.7.20");
    assert_eq!(report.files[0].upkeep_frames, 8);
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = (body.len() as u32 + 12).to_be_bytes();
    [&kind.to_be_bytes()[..], &length, &body, &length].concat()
}

#[test]
fn pcapng_in_big_endian_with_its_own_clock() {
    let mut file =
        block(0x0a0d_0d0a, &[&0x1a2b_3c4du32.to_be_bytes()[..], &[0, 1, 0, 0], &[0xff; 8]].concat());
    file.extend(block(0xbad, b"an unknown block"));
    // Time stamps in units of 2^-20 s would not be exact; 10^-7 is, with an offset of 1.6 * 10^9 s.
    let options =
        [&[0, 9, 0, 1, 7, 0, 0, 0, 0, 14, 0, 8][..], &1_600_000_000i64.to_be_bytes(), &[0; 4]].concat();
    file.extend(block(1, &[&[0, 1, 0, 0, 0, 0, 0, 0][..], &options].concat()));
    for (at, frame) in talk_on_ethernet() {
        let units = (at - 1_600_000_000_000_000) * 10;
        let length = (frame.len() as u32).to_be_bytes();
        let head =
            [[0; 4], ((units >> 32) as u32).to_be_bytes(), (units as u32).to_be_bytes(), length, length]
                .concat();
        file.extend(block(6, &[&head[..], &frame].concat()));
    }
    is_the_talk(&analysed("big.pcapng", &file), "192.168.7.20");
}

#[test]
fn compressed_and_plain_text() {
    let mut csv = String::from("client,time,bytes,direction\n");
    for (at, out) in TALK {
        csv += &format!(
            "phone,{}.{:06},60,{}\n",
            at / 1_000_000,
            at % 1_000_000,
            if out { "out" } else { "in" }
        );
    }
    is_the_talk(&analysed("plain.csv", csv.as_bytes()), "phone");
    let headless = csv.split_once('\n').expect("a header").1.replace('\n', "\r\n");
    is_the_talk(&analysed("headless.csv", headless.as_bytes()), "phone");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(csv.as_bytes()).expect("memory");
    is_the_talk(&analysed("plain.csv.gz", &gz.finish().expect("memory")), "phone");
    is_the_talk(&analysed("plain.csv.zst", &zstd::encode_all(csv.as_bytes(), 1).expect("memory")), "phone");
}

#[test]
fn flow_logs_of_single_packets() {
    let nfdump: String = TALK
        .iter()
        .map(|(at, out)| {
            let (a, b) = if *out {
                ("192.168.7.20,203.0.113.9", "4000,443")
            } else {
                ("203.0.113.9,192.168.7.20", "443,4000")
            };
            let rest = at - 1_600_000_000_000_000;
            let time = format!(
                "2020-09-13 12:{:02}:{:02}.{:06}",
                26 + (40 + rest / 1_000_000) / 60,
                (40 + rest / 1_000_000) % 60,
                rest % 1_000_000
            );
            format!("{time},{time},0.000,{a},{b},UDP,......,0,0,1,60,0,0\n")
        })
        .collect();
    let nfdump = format!(
        "ts,te,td,sa,da,sp,dp,pr,flg,fwd,stos,ipkt,ibyt,opkt,obyt\n{nfdump}Summary\nflows,bytes\n8,480\n"
    );
    is_the_talk(&analysed("nfdump.csv", nfdump.as_bytes()), "192.168.7.20");
    let zeek: String = TALK
        .iter()
        .map(|(at, out)| {
            let (a, b) = if *out { ("192.168.7.20", "203.0.113.9") } else { ("203.0.113.9", "192.168.7.20") };
            format!(
                "{{\"ts\":{}.{:06},\"id.orig_h\":\"{a}\",\"id.orig_p\":1,\"id.resp_h\":\"{b}\",\"id.resp_p\":2,\"proto\":\"udp\",\"orig_pkts\":1,\"resp_pkts\":0}}\n",
                at / 1_000_000,
                at % 1_000_000
            )
        })
        .collect();
    let report = analysed("conn.json", zeek.as_bytes());
    let row = &report.clients[0];
    assert_eq!((row.client.as_str(), row.packets, report.lost_total), ("192.168.7.20", 8, 0));
}

#[test]
fn argus_records_of_single_packets() {
    let line = |at: u64, out: bool, style: fn(&str) -> String| {
        let (a, b) = if out { ("192.168.7.20", "203.0.113.9") } else { ("203.0.113.9", "192.168.7.20") };
        let rest = at - 1_600_000_000_000_000;
        let second = 40 + rest / 1_000_000;
        let time =
            format!("2020/09/13 12:{:02}:{:02}.{:06}", 26 + second / 60, second % 60, rest % 1_000_000);
        format!("{time},0.000000,{},{a},4000,   ->,{b},443,CON,0,,1,60,60,flow\n", style("udp"))
    };
    let plain = |text: &str| text.to_owned();
    let quoted = |text: &str| format!("\"{text}\"");
    let head = "StartTime,Dur,Proto,SrcAddr,Sport,Dir,DstAddr,Dport,State,sTos,dTos,TotPkts,TotBytes,SrcBytes,Label\n";
    for style in [plain as fn(&str) -> String, quoted] {
        let lines: String = TALK.iter().map(|(at, out)| line(*at, *out, style)).collect();
        // What is no traffic between hosts of IP: its own record, and a frame that it names by link-layer addresses.
        let management = "2020/09/13 12:26:40.0,0.0,man,0,0,   ->,0,0,STA,0,0,0,0,0,man\n";
        let frame = "2020/09/13 12:26:41.0,0.0,llc,00:1b:17:00:01:30,,->,01:80:c2:00:00:00,,INT,,,1,60,60,\n";
        let icmp = "2020/09/13 12:26:41.0,0.0,icmp,203.0.113.9,0x0303,->,203.0.113.7,0xcc2e,URP,,,1,60,60,\n";
        let report =
            analysed("argus.binetflow", format!("{head}{management}{lines}{frame}{icmp}").as_bytes());
        assert_eq!(report.files[0].format, Some("argus"));
        assert_eq!(report.files[0].records, 9);
        assert_eq!(
            notes(&report),
            [
                "1 packets belong to no client",
                "2 Argus records are the monitor's own or of frames without IP addresses, and passed over"
            ]
        );
        is_the_talk(&report, "192.168.7.20");
    }
}

#[test]
fn argus_divides_packets_as_bytes_are_divided() {
    let of = |packets: u64, bytes: u64, sent: u64| {
        let text = format!(
            "StartTime,Dur,Proto,SrcAddr,DstAddr,TotPkts,TotBytes,SrcBytes\n\
             1600000000.5,2.0,tcp,192.168.7.20,203.0.113.9,{packets},{bytes},{sent}\n"
        );
        let file = Temporary::with("divided.csv", text.as_bytes());
        let mut reader = Reader::open(&file.input(), None).expect("a recording");
        let Some(Next::Flow(flow)) = reader.record() else { panic!("no flow") };
        assert_eq!((flow.first.at, flow.end), (1_600_000_000_500_000_000, 1_600_000_002_500_000_000));
        (flow.forward, flow.back, flow.forward_bytes, flow.back_bytes)
    };
    assert_eq!(of(10, 1000, 300), (3, 7, 300, 700));
    assert_eq!(of(10, 100_000, 60), (1, 9, 60, 99_940));
    assert_eq!(of(10, 1000, 1000), (10, 0, 1000, 0));
    assert_eq!(of(10, 1000, 0), (0, 10, 0, 1000));
    assert_eq!(of(1, 100, 60), (1, 0, 60, 40));
    assert_eq!(of(5, 0, 0), (5, 0, 0, 0));
}

#[test]
fn suricata_flows_of_single_packets() {
    let event = |at: u64, out: bool| {
        let (a, b) = if out { ("192.168.7.20", "203.0.113.9") } else { ("203.0.113.9", "192.168.7.20") };
        let rest = at - 1_600_000_000_000_000;
        let second = 40 + rest / 1_000_000;
        let time =
            format!("2020-09-13T14:{:02}:{:02}.{:06}+0200", 26 + second / 60, second % 60, rest % 1_000_000);
        format!(
            "{{\"timestamp\":\"2020-09-13T15:00:00.000000+0200\",\"flow_id\":{rest},\"event_type\":\"flow\",\"src_ip\":\"{a}\",\"src_port\":4000,\
             \"dest_ip\":\"{b}\",\"dest_port\":443,\"proto\":\"UDP\",\"flow\":{{\"pkts_toserver\":1,\"pkts_toclient\":0,\"bytes_toserver\":60,\
             \"bytes_toclient\":0,\"start\":\"{time}\",\"end\":\"{time}\",\"age\":0}}}}\n"
        )
    };
    let stats = "{\"timestamp\":\"2020-09-13T15:00:00.000000+0200\",\"event_type\":\"stats\",\"stats\":{}}\n";
    let dns =
        "{\"timestamp\":\"x\",\"event_type\":\"dns\",\"src_ip\":\"192.168.7.20\",\"dest_ip\":\"8.8.8.8\"}\n";
    let lines: String = TALK.iter().map(|(at, out)| event(*at, *out)).collect();
    let report = analysed("eve.json", format!("{stats}{lines}{dns}").as_bytes());
    assert_eq!((report.files[0].format, report.files[0].records), (Some("suricata"), 8));
    assert_eq!(notes(&report), ["2 events of Suricata's log are no flows and passed over"]);
    is_the_talk(&report, "192.168.7.20");
}

/// The talk in whole milliseconds, which is all that v5 and v9 can say: the silence of 249.999 ms becomes one of 250.
fn is_the_talk_in_milliseconds(report: &Report) {
    assert_eq!(report.lost_total, 0, "{:?}", report.lost);
    let row = &report.clients[0];
    assert_eq!((row.client.as_str(), row.packets, row.idle_periods), ("192.168.7.20", 8, 4));
    assert!((row.idle_seconds - 199.6).abs() < 0.01, "{}", row.idle_seconds);
}

fn ends(out: bool) -> ([u8; 4], [u8; 4], [u8; 4]) {
    if out { (PHONE, SERVER, [15, 160, 1, 187]) } else { (SERVER, PHONE, [1, 187, 15, 160]) }
}

/// Milliseconds of up-time, for an exporter that booted a thousand seconds before the talk.
fn uptime(at: u64) -> [u8; 4] {
    ((1_000_000_000 + at - TALK[0].0) as u32 / 1000).to_be_bytes()
}

#[test]
fn netflow_version_5() {
    let mut file =
        [&[0, 5, 0, 8][..], &1_300_000u32.to_be_bytes(), &1_600_000_300u32.to_be_bytes(), &[0; 12]].concat();
    for (at, out) in TALK {
        let (src, dst, ports) = ends(out);
        let times = [uptime(at), uptime(at)].concat();
        file.extend(
            [&src[..], &dst, &[0; 8], &[0, 0, 0, 1, 0, 0, 0, 60], &times, &ports, &[0, 0, 17, 0], &[0; 8]]
                .concat(),
        );
    }
    is_the_talk_in_milliseconds(&analysed("v5.flows", &file));
}

#[test]
fn netflow_version_9_with_its_template_first() {
    let header = |count: u16| {
        [
            &[0, 9][..],
            &count.to_be_bytes(),
            &1_300_000u32.to_be_bytes(),
            &1_600_000_300u32.to_be_bytes(),
            &[0; 4],
            &[0, 0, 0, 7],
        ]
        .concat()
    };
    let fields: [u16; 16] = [8, 4, 12, 4, 7, 2, 11, 2, 4, 1, 2, 4, 22, 4, 21, 4];
    let template: Vec<u8> = [0u16, 40, 260, 8].iter().chain(&fields).flat_map(|n| n.to_be_bytes()).collect();
    let mut file = [header(1), template].concat();
    for (at, out) in TALK {
        let (src, dst, ports) = ends(out);
        let record = [&src[..], &dst, &ports, &[17, 0, 0, 0, 1], &uptime(at), &uptime(at)].concat();
        file.extend([header(1), [1u8, 4, 0, 32].to_vec(), record, vec![0; 3]].concat());
    }
    is_the_talk_in_milliseconds(&analysed("v9.flows", &file));
}

#[test]
fn ipfix_with_variable_fields_and_both_directions() {
    let message = |set: &[u8]| {
        let length = (16 + set.len() as u16).to_be_bytes();
        [&[0, 10][..], &length, &1_600_000_300u32.to_be_bytes(), &[0; 8], set].concat()
    };
    // A variable field, an enterprise's, addresses, times in nanoseconds (NTP), packets, packets of the other direction.
    let fields: Vec<u8> = [
        &[0, 82, 255, 255][..],
        &[0x80 | 3, 1, 0, 2, 0, 0, 1, 1],
        &[0, 8, 0, 4, 0, 12, 0, 4, 0, 156, 0, 8, 0, 157, 0, 8, 0, 2, 0, 1],
        &[0x80, 2, 0, 1, 0, 0, 0x72, 0x79],
    ]
    .concat();
    let template = [&[0, 2, 0, 8 + fields.len() as u8, 1, 0, 0, 8][..], &fields].concat();
    let mut file = message(&template);
    for (at, out) in TALK {
        let (src, dst, _) = ends(true);
        let (sent, received) = if out { (1, 0) } else { (0, 1) };
        let seconds = (at / 1_000_000 + 2_208_988_800) as u32;
        let fraction = (((at % 1_000_000) << 32).div_ceil(1_000_000)) as u32;
        let time = [seconds.to_be_bytes(), fraction.to_be_bytes()].concat();
        let record = [&[3, b'e', b't', b'h', 9, 9][..], &src, &dst, &time, &time, &[sent, received]].concat();
        file.extend(message(&[&[1, 0, 0, 4 + record.len() as u8][..], &record].concat()));
    }
    is_the_talk(&analysed("ipfix.flows", &file), "192.168.7.20");
}

#[test]
fn data_before_its_template_is_lost_and_said_to_be() {
    let message = [
        &[0, 10, 0, 28][..],
        &1_600_000_300u32.to_be_bytes(),
        &[0; 8],
        &[1, 0, 0, 12, 1, 2, 3, 4, 5, 6, 7, 8],
    ]
    .concat();
    let report = analysed("early.flows", &message);
    assert_eq!(report.lost_total, 1);
    assert!(report.lost[0].reason.contains("template 256"), "{:?}", report.lost);
}

#[test]
fn activities_go_out_and_come_back() {
    let capture = Temporary::with("before.pcap", &pcap(1, &talk_on_ethernet()));
    for name in ["activities.parquet", "activities.arrow"] {
        let file = Temporary::new(name);
        table(&[capture.input()], &options(), &file);
        let back = report(&[file.input()], &options());
        is_the_talk(&back, "192.168.7.20");
        assert_eq!(back.clients[0].mac.as_deref(), Some("02:00:00:00:00:14"), "{name}");
        let site = &back.clients[0].site;
        assert!(site.ends_with("before.pcap") && site.starts_with(&*file.0.to_string_lossy()), "{site}");
    }
}

#[test]
fn activities_of_a_recording_give_the_same_idle_time() {
    let Some(path) = common::recording("lock-hub.pcap") else { return };
    let copy = Temporary::with("hub.pcap", &std::fs::read(path).expect("a recording"));
    let file = Temporary::new("hub.parquet");
    table(&[copy.input()], &options(), &file);
    let (before, after) = (report(&[copy.input()], &options()), report(&[file.input()], &options()));
    let (a, b) = (&before.clients[0], &after.clients[0]);
    assert_eq!((a.packets, a.idle_periods), (b.packets, b.idle_periods));
    assert!((a.idle_seconds - b.idle_seconds).abs() < 1e-3);
    for policy in ["break-even", "paper", "clairvoyant"] {
        let difference = a.policies[policy].saved_fraction - b.policies[policy].saved_fraction;
        assert!(difference.abs() < 1e-9, "{policy}: {difference}");
    }
}
