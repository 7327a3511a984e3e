//! What of several recordings belongs together, and what never does: sites, lessees, orders, clocks, limits.

mod common;

use common::{
    PHONE, ROUTER_MAC, SERVER, Temporary, options, pcap, recording, report, run, table, talk_on_ethernet, udp,
};
use dormouse_trace::analyse::Options;
use dormouse_trace::facts::Limits;
use dormouse_trace::fold::Sessions;
use dormouse_trace::input::{Input, expand, label};
use dormouse_trace::report::json::{Accounting, Report};
use dormouse_trace::report::page::{ON_TERMINAL, document};

const TABLET_MAC: [u8; 6] = [2, 0, 0, 0, 0, 99];

/// The packets of a phone's talk, this many seconds later and from another interface.
fn talk_of(mac: [u8; 6], later: u64) -> Vec<(u64, Vec<u8>)> {
    let frames = talk_on_ethernet().into_iter();
    frames
        .map(|(at, mut frame)| {
            for end in [0, 6] {
                if frame[end..end + 6] == common::PHONE_MAC {
                    frame[end..end + 6].copy_from_slice(&mac);
                }
            }
            (at + later * 1_000_000, frame)
        })
        .collect()
}

fn labels(report: &Report) -> Vec<&str> {
    report.clients.iter().map(|c| c.label.as_str()).collect()
}

fn days() -> Options {
    let mut options = options();
    options.settings.session = None;
    options
}

#[test]
fn recordings_that_share_an_address_are_clients_of_their_own() {
    const YEARS: u64 = 22 * 365 * 86_400;
    let old = Temporary::with("old.pcap", &pcap(1, &talk_of(common::PHONE_MAC, 0)));
    let new = Temporary::with("new.pcap", &pcap(1, &talk_of(common::PHONE_MAC, YEARS / 11)));
    let apart = report(&[old.input(), new.input()], &days());
    assert_eq!(apart.clients.len(), 2);
    assert!(apart.clients.iter().all(|c| c.packets == 8 && c.idle_seconds < 200.0), "{:?}", apart.clients);
    assert_ne!(apart.clients[0].label, apart.clients[1].label);
    let text = document(&apart, Vec::new(), "", ON_TERMINAL).text();
    assert!(
        text.contains("1 name occurs in several") && text.contains("counts as a client in each"),
        "{text}"
    );
    assert!(text.contains("16 packets in 2 recordings of up to 3.3 min"), "{text}");
    let as_one = [old.input().with_site("home"), new.input().with_site("home")];
    let together = report(&as_one, &days());
    assert_eq!((labels(&together), together.clients[0].packets), (vec!["192.168.7.20"], 16));
    assert_eq!(together.clients[0].site, "home");
    assert!(together.clients[0].idle_seconds > 1e7);
}

#[test]
fn labels_are_given_by_name_and_by_pattern_and_never_in_vain() {
    let files = [Temporary::with("a.csv", b""), Temporary::with("b.csv", b"")];
    let name = |n: usize| files[n].0.display().to_string();
    let inputs = || vec![files[0].input(), files[1].input()];
    let sites = |rules: &[String]| -> Result<Vec<String>, String> {
        Ok(label(inputs(), rules)?.iter().map(|i| i.site().to_owned()).collect())
    };
    assert_eq!(sites(&[]), Ok(vec![name(0), name(1)]));
    assert_eq!(
        sites(&[format!("{}=x=y", name(1))]),
        Err(format!("{:?}: {}=x is none of the inputs", format!("{}=x=y", name(1)), name(1)))
    );
    assert_eq!(sites(&[format!("{}=office", name(1))]), Ok(vec![name(0), "office".to_owned()]));
    assert_eq!(
        sites(&["*.csv=all".to_owned(), format!("{}=b", name(1))]),
        Ok(vec!["all".to_owned(), "b".to_owned()])
    );
    assert!(sites(&["*.pcap=all".to_owned()]).is_err());
    assert!(sites(&[format!("{}=", name(0))]).is_err());
}

#[test]
fn a_file_counts_once_however_it_is_called() {
    let folder = Temporary::new("folder");
    std::fs::create_dir(&folder.0).expect("a folder");
    let file = folder.0.join("a.csv");
    std::fs::write(&file, "phone,1,60,out\n").expect("a file");
    std::fs::hard_link(&file, folder.0.join("link.csv")).expect("a link");
    std::os::unix::fs::symlink(&file, folder.0.join("soft.csv")).expect("a link");
    let names = ["a.csv", "./a.csv", "link.csv", "soft.csv", "*.csv"];
    let names: Vec<String> = names.iter().map(|n| format!("{}/{n}", folder.0.display())).collect();
    let found = expand(&names);
    std::fs::remove_dir_all(&folder.0).expect("the folder");
    assert_eq!(found.map(|f| f.len()), Ok(1));
}

#[test]
fn two_lessees_of_an_address_stay_two_in_a_table_and_are_named() {
    let mut frames = talk_of(common::PHONE_MAC, 0);
    frames.extend(talk_of(TABLET_MAC, 4000));
    let capture = Temporary::with("lessees.pcap", &pcap(1, &frames));
    let before = report(&[capture.input()], &options());
    let expected = ["192.168.7.20 (02:00:00:00:00:14)", "192.168.7.20 (02:00:00:00:00:63)"];
    assert_eq!(labels(&before), expected);
    assert_eq!(before.handed.len(), 1);
    assert_eq!(
        (before.handed[0].address.as_str(), &before.handed[0].clients[..]),
        ("192.168.7.20", &expected.map(str::to_owned)[..])
    );
    assert!(document(&before, Vec::new(), "", ON_TERMINAL).text().contains("changed hands"));
    for name in ["lessees.parquet", "lessees.arrow"] {
        let file = Temporary::new(name);
        table(&[capture.input()], &options(), &file);
        let after = report(&[file.input()], &options());
        assert_eq!(labels(&after), expected);
        assert!(after.clients.iter().all(|c| c.packets == 8 && c.client == "192.168.7.20"));
    }
}

#[test]
fn two_sites_stay_two_in_a_table() {
    let capture = |name| Temporary::with(name, &pcap(1, &talk_of(common::PHONE_MAC, 0)));
    let (one, two) = (capture("one.pcap"), capture("two.pcap"));
    let file = Temporary::new("sites.parquet");
    table(&[one.input().with_site("north"), two.input().with_site("south")], &options(), &file);
    let back = report(&[file.input().with_site("both")], &options());
    assert_eq!(labels(&back), ["192.168.7.20 in both/north", "192.168.7.20 in both/south"]);
    assert!(back.clients.iter().all(|c| c.packets == 8 && c.idle_periods == 4));
}

/// Flow records have no link-layer addresses: whose they are is a matter of time.
#[test]
fn flows_of_an_address_are_those_of_whoever_had_it_then() {
    let mut frames = talk_of(common::PHONE_MAC, 0);
    frames.extend(talk_of(TABLET_MAC, 4000));
    let capture = Temporary::with("mixed.pcap", &pcap(1, &frames));
    let line = |at: u64| {
        format!(
            "2020-09-13 12:{:02}:{:02}.0,0.0,UDP,192.168.7.20,1,203.0.113.9,2,7,700\n",
            26 + (40 + at) / 60,
            (40 + at) % 60
        )
    };
    let text = format!(
        "firstSeen,duration,proto,srcAddr,srcPort,dstAddr,dstPort,packets,bytes\n{}{}",
        line(100),
        line(1900)
    );
    let late = "2020-09-13 14:00:00.0,0.0,UDP,192.168.7.20,1,203.0.113.9,2,70,700\n";
    let flows = Temporary::with("mixed.csv", (text + late).as_bytes());
    let report = report(&[capture.input().with_site("home"), flows.input().with_site("home")], &options());
    let devices = report.clients.iter().filter(|c| c.mac.is_some());
    let packets: Vec<u64> = devices.map(|c| c.packets).collect();
    assert_eq!(packets, [8 + 14, 8 + 70], "{:?}", labels(&report));
}

/// A hundred packets of each of two clients, 60 s apart.
fn sorted_by_client(offset: u64, of: [u64; 2]) -> String {
    let mut text = String::from("client,time,bytes,direction\n");
    for client in ["a", "b"] {
        for n in (of[0]..of[1]).map(|n| n * 2 + offset) {
            text += &format!("{client},{},60,out\n", 1_700_000_000 + n * 60);
        }
    }
    text
}

#[test]
fn files_sorted_by_client_are_read_as_what_they_are() {
    let (even, odd) = (sorted_by_client(0, [0, 50]), sorted_by_client(1, [0, 50]));
    let (even, odd) =
        (Temporary::with("even.csv", even.as_bytes()), Temporary::with("odd.csv", odd.as_bytes()));
    let inputs = || [even.input().with_site("s"), odd.input().with_site("s")];
    let report = report(&inputs(), &options());
    for row in &report.clients {
        assert_eq!(
            (row.packets, row.idle_periods, row.idle_seconds),
            (100, 99, 99.0 * 60.0),
            "{}",
            row.client
        );
    }
    assert_eq!((report.clients.len(), report.late_packets), (2, 0));
    let file = Temporary::new("by-client.parquet");
    table(&inputs(), &options(), &file);
    assert!(common::report(&[file.input()], &options()).clients.iter().all(|row| row.idle_periods == 99));
}

#[test]
fn a_flow_is_an_interval_with_any_count() {
    let line = |packets: &str| {
        format!(
            "#separator \\x09\n#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\tduration\torig_pkts\tresp_pkts\n\
             1600000000.0\tCa1\t192.168.7.20\t1\t203.0.113.9\t2\ttcp\t3600.0\t{packets}\t{packets}\n\
             1600010000.0\tCa2\t192.168.7.20\t1\t203.0.113.9\t2\ttcp\t100.0\t3\t0\n"
        )
    };
    let log = Temporary::with("conn.log", line("1000000000000000").as_bytes());
    let report = report(&[log.input()], &days());
    let row = &report.clients[0];
    assert_eq!((row.packets, row.idle_periods), (2_000_000_000_000_003, 3));
    assert_eq!(row.idle_seconds, 6400.0 + 100.0);
    let log = Temporary::with("long.log", line("9").replace("3600.0", "9999999.0").as_bytes());
    let report = common::report(&[log.input()], &options());
    assert_eq!((report.lost_total, report.clients[0].packets), (1, 3));
    assert!(report.lost[0].reason.contains("a flow of 115 days"), "{:?}", report.lost);
    for (lasts, lost) in [("2678400.0", 0), ("2678401.0", 1)] {
        let log = Temporary::with("month.log", line("9").replace("3600.0", lasts).as_bytes());
        assert_eq!(common::report(&[log.input()], &options()).lost_total, lost, "{lasts} s");
    }
}

#[test]
fn each_connection_is_a_session_where_that_is_the_rule() {
    let text = "{\"ts\":1600000000.0,\"uid\":\"Ca1\",\"id.orig_h\":\"192.168.7.20\",\"id.resp_h\":\"203.0.113.9\",\"duration\":100.0,\"orig_pkts\":2,\"resp_pkts\":0}\n\
                {\"ts\":1600000010.0,\"uid\":\"Ca2\",\"id.orig_h\":\"192.168.7.20\",\"id.resp_h\":\"203.0.113.9\",\"duration\":10.0,\"orig_pkts\":2,\"resp_pkts\":0}\n";
    let log = Temporary::with("conn.json", text.as_bytes());
    let mut options = options();
    options.sessions = Sessions::Connection;
    let by_connection = report(&[log.input()], &options);
    let row = &by_connection.clients[0];
    assert_eq!((row.sessions, row.idle_periods, row.idle_seconds), (2, 2, 110.0));
    // The client as a whole is awake when either is.
    assert_eq!(row.client_days.idle_seconds, 100.0);
    assert_eq!((by_connection.session_by.as_str(), row.policies["clairvoyant"].cycles), ("connection", 1));
    options.sessions = Sessions::Silence;
    let by_silence = report(&[log.input()], &options);
    assert_eq!((by_silence.clients[0].sessions, by_silence.clients[0].idle_periods), (1, 3));
}

#[test]
fn a_device_that_asks_for_an_address_begins_a_session_where_that_is_the_rule() {
    let mut frames = talk_of(common::PHONE_MAC, 0);
    let mut discover = udp([0; 4], [255; 4], 68, 67);
    discover.splice(0..0, [&[0xff; 6][..], &common::PHONE_MAC, &[8, 0]].concat());
    frames.insert(5, (1_600_000_090_000_000, discover));
    let capture = Temporary::with("join.pcap", &pcap(1, &frames));
    let sessions = |rule| {
        let report = report(&[capture.input()], &Options { sessions: rule, ..options() });
        (report.clients[0].sessions, report.clients[0].idle_periods)
    };
    assert_eq!(sessions(Sessions::Silence), (1, 5));
    assert_eq!(sessions(Sessions::Association), (2, 4));
}

#[test]
fn a_station_that_associates_begins_a_session_where_that_is_the_rule() {
    let access_point = [2, 9, 9, 9, 9, 9];
    let frame = |kind: u8, flags: u8, rest: &[u8]| {
        [
            &[0, 0, 8, 0, 0, 0, 0, 0, kind, flags, 0, 0][..],
            &access_point,
            &common::PHONE_MAC,
            &ROUTER_MAC,
            &[0, 0],
            rest,
        ]
        .concat()
    };
    let packet = udp(PHONE, SERVER, 1, 2);
    let data = frame(0x88, 1, &[&[0, 0, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &packet].concat());
    let second = |n: u64| 1_600_000_000_000_000 + n * 1_000_000;
    let frames = [
        (second(0), data.clone()),
        (second(30), frame(0, 0, &[0; 20])),
        (second(31), data.clone()),
        (second(40), data),
    ];
    let capture = Temporary::with("association.pcap", &pcap(127, &frames));
    let sessions = |rule| {
        let report = report(&[capture.input()], &Options { sessions: rule, ..options() });
        (report.clients[0].sessions, report.clients[0].idle_seconds, report.files[0].upkeep_frames)
    };
    assert_eq!(sessions(Sessions::Silence), (1, 40.0, 1));
    assert_eq!(sessions(Sessions::Association), (2, 9.0, 1));
}

#[test]
fn clients_beyond_the_limits_are_said_to_be_lost() {
    let lines: String = (0..40)
        .map(|n| format!("2020-09-13 12:26:{n:02}.0,0.0,UDP,10.0.0.{n},1,203.0.113.9,2,1,60\n"))
        .collect();
    let text = format!("firstSeen,duration,proto,srcAddr,srcPort,dstAddr,dstPort,packets,bytes\n{lines}");
    let flows = Temporary::with("many.csv", text.as_bytes());
    assert_eq!(report(&[flows.input()], &options()).lost_total, 0);
    let limits = Limits { addresses: 11, ..Limits::default() };
    let few = report(&[flows.input()], &Options { limits, ..options() });
    assert_eq!((few.clients.len(), few.lost_total, few.unattributed_packets), (10, 1, 30));
    assert!(few.lost[0].reason.contains("30 records of further ends"), "{:?}", few.lost);
    // The limit is that of all inputs together.
    let copies: Vec<Temporary> = (0..3).map(|_| Temporary::with("copy.csv", text.as_bytes())).collect();
    let inputs: Vec<Input> = copies.iter().map(Temporary::input).collect();
    let few = report(&inputs, &Options { limits, ..options() });
    assert_eq!((few.clients.len(), few.lost_total), (10, 3));
    let named: String = (0..9).map(|n| format!("c{n},{n},60,out\n")).collect();
    let named = Temporary::with("named.csv", named.as_bytes());
    let limits = Limits { names: 4, ..Limits::default() };
    let few = report(&[named.input()], &Options { limits, ..options() });
    assert_eq!((few.clients.len(), few.lost_total), (4, 1));
}

#[test]
fn a_clock_that_was_set_is_noticed() {
    let mut frames = talk_of(common::PHONE_MAC, 0);
    assert!(
        report(&[Temporary::with("even.pcap", &pcap(1, &frames)).input()], &options()).files[0]
            .clock
            .is_none()
    );
    // The machine boots in 1970 and learns the time behind its third packet; later it is put back by an hour.
    for (n, (at, _)) in frames.iter_mut().enumerate() {
        *at -= match n {
            0..3 => 1_600_000_000_000_000,
            6.. => 3_600_000_000,
            _ => 0,
        };
    }
    let capture = Temporary::with("clock.pcap", &pcap(1, &frames));
    let report = report(&[capture.input()], &options());
    let clock = report.files[0].clock.as_ref().expect("steps");
    assert_eq!((clock.back, clock.forward, clock.record), (1, 1, 4));
    assert_eq!((clock.from, clock.to.floor()), (30.0, 1_600_000_030.0));
    let text = document(&report, Vec::new(), "", ON_TERMINAL).text();
    assert!(text.contains("was the clock set?"), "{text}");
}

/// A second back may be another queue of the same clock, and a day without a packet a day.
#[test]
fn steps_of_a_clock_begin_where_the_page_says() {
    const SECOND: i64 = 1_000_000;
    let step = |micros: i64| {
        let mut frames = talk_of(common::PHONE_MAC, 0);
        frames.truncate(2);
        frames[1].0 = frames[0].0.checked_add_signed(micros).expect("a time");
        let capture = Temporary::with("step.pcap", &pcap(1, &frames));
        report(&[capture.input()], &options()).files[0].clock.as_ref().map(|c| (c.back, c.forward))
    };
    assert_eq!([step(-SECOND), step(86_400 * SECOND)], [None, None]);
    assert_eq!([step(-SECOND - 1), step(86_400 * SECOND + 1)], [Some((1, 0)), Some((0, 1))]);
}

/// A device that has a new lease still says something from the old address for up to a minute; one that goes on is a router of others.
#[test]
fn a_device_has_two_addresses_for_a_minute_at_most() {
    let clients = |seconds: u64| {
        let mut frames = talk_of(common::PHONE_MAC, 0);
        let sent = frames.iter().filter(|(_, frame)| frame[6..12] == common::PHONE_MAC);
        let last = sent.map(|(at, _)| *at).max().expect("a packet");
        let mut lease = udp([192, 168, 7, 21], SERVER, 4000, 443);
        lease.splice(0..0, [&ROUTER_MAC[..], &common::PHONE_MAC, &[8, 0]].concat());
        frames.push((last - seconds * 1_000_000, lease));
        frames.sort();
        let capture = Temporary::with("lease.pcap", &pcap(1, &frames));
        report(&[capture.input()], &options()).clients.len()
    };
    assert_eq!([clients(60), clients(61)], [1, 2]);
}

/// Two houses with the same addresses, each file by itself and all at once: the same figures.
#[test]
fn recordings_keep_their_figures_in_company() {
    let names =
        ["smart-lock.pcap", "messenger-day.pcap", "ipsec-day.pcap", "camera.pcap", "office-weekday.conn.log"];
    let Some(paths) = names.iter().map(|n| recording(n)).collect::<Option<Vec<_>>>() else { return };
    let inputs = || paths.iter().map(|p| Input::file(p));
    let all = report(&inputs().collect::<Vec<_>>(), &options());
    let mut alone = Vec::new();
    for input in inputs() {
        alone.extend(report(&[input], &options()).clients);
    }
    let figures = |rows: &[dormouse_trace::report::json::Row]| {
        let mut told: Vec<_> = rows
            .iter()
            .map(|r| {
                (r.site.clone(), r.client.clone(), r.packets, r.idle_periods, format!("{:?}", r.policies))
            })
            .collect();
        told.sort();
        told
    };
    assert_eq!(figures(&all.clients), figures(&alone));
    assert_eq!(all.clients.iter().filter(|c| c.client == "192.168.2.100").count(), 2);
    assert!(run(&inputs().collect::<Vec<_>>(), &options()).handed.is_empty());
    assert_eq!(Accounting::of(&options()).session_by, "silence");
}
