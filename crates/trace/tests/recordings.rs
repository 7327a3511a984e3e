//! The recordings against a naive parser written here, against the clairvoyant's formula, and against published counts.

mod common;

use common::{options, recording, report, run};
use dormouse_energy::WakeOn;
use dormouse_energy::account::{ClientReport, SESSION, Settings};
use dormouse_trace::clients::Wanted;
use dormouse_trace::input::Input;

const B: f64 = 22.3;

/// Times of all frames of a little-endian microsecond pcap in which an address occurs as source or destination, sorted.
fn naive_times(file: &std::path::Path, mac: [u8; 6]) -> Vec<u64> {
    let data = std::fs::read(file).expect("a recording");
    assert_eq!(data[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
    let number = |at: usize| u64::from(u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes")));
    let (mut at, mut times) = (24, Vec::new());
    while at < data.len() {
        let length = number(at + 8) as usize;
        let frame = &data[at + 16..at + 16 + length];
        if frame[..6] == mac || frame[6..12] == mac {
            times.push(number(at) * 1_000_000 + number(at + 4));
        }
        at += 16 + length;
    }
    times.sort_unstable();
    times
}

struct Expected {
    packets: u64,
    long_gaps: usize,
    longest: f64,
}

fn check(name: &str, client: &str, mac: [u8; 6], expected: Option<&Expected>) {
    let Some(path) = recording(name) else { return };
    let times = naive_times(&path, mac);
    let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e6).collect();
    let idle: Vec<f64> = gaps.iter().copied().filter(|g| *g >= 0.25).collect();
    let analysis = run(&[Input::file(&path)], &options());
    assert_eq!(analysis.clients.len(), 1, "{name}");
    let result = &analysis.clients[0];
    let report = result.report();
    assert_eq!(result.client.name, client, "{name}");
    assert_eq!(report.packets, times.len() as u64, "{name}");
    assert_eq!(report.idle_periods, idle.len() as u64, "{name}");
    let seconds: f64 = idle.iter().sum();
    assert!((report.idle_seconds - seconds).abs() < 1e-3, "{name}");
    let saved: f64 = idle.iter().map(|g| (g - B).max(0.0)).sum();
    let totals = report.policy("clairvoyant").expect("the bound");
    assert!((totals.saved_fraction(seconds) - saved / seconds).abs() < 1e-6, "{name}");
    assert_eq!(totals.cycles, idle.iter().filter(|g| **g > B).count() as u64, "{name}");
    let waited: f64 = idle.iter().map(|g| if *g > B { 2.0 * B } else { *g }).sum();
    let totals = report.policy("break-even").expect("break-even");
    assert!((totals.cost - waited).abs() < 1e-3, "{name}: {} against {waited}", totals.cost);
    if let Some(expected) = expected {
        assert_eq!(times.len() as u64, expected.packets);
        assert_eq!(gaps.iter().filter(|g| **g > B).count(), expected.long_gaps);
        let longest = gaps.iter().copied().fold(0.0, f64::max);
        assert!((longest - expected.longest).abs() < 1.0, "{longest}");
    }
}

#[test]
fn smart_lock() {
    let expected = Expected { packets: 11_150, long_gaps: 3436, longest: 3483.0 };
    check("smart-lock.pcap", "192.168.1.122", [0x78, 0xdb, 0x2f, 0xdb, 0x43, 0x48], Some(&expected));
}

#[test]
fn lock_hub() {
    check("lock-hub.pcap", "192.168.1.128", [0x24, 0x6f, 0x28, 0xd9, 0xa7, 0x64], None);
}

#[test]
fn camera() {
    check("camera.pcap", "192.168.1.129", [0xf4, 0xb8, 0x5e, 0xff, 0x2b, 0x1b], None);
}

#[test]
fn messenger() {
    check("messenger-day.pcap", "192.168.2.100", [0x60, 0x38, 0xe0, 0xc5, 0x35, 0xa0], None);
}

#[test]
fn ipsec_client() {
    check("ipsec-day.pcap", "192.168.2.100", [0x60, 0x38, 0xe0, 0xc5, 0x35, 0xa0], None);
}

/// Zeek flows spread evenly, by a program that shares no line with the crate.
#[test]
fn office() {
    let Some(path) = recording("office-weekday.conn.log") else { return };
    let text = std::fs::read_to_string(&path).expect("a recording");
    let fields = text.lines().find_map(|l| l.strip_prefix("#fields\t")).expect("a header");
    let column = |name: &str| fields.split('\t').position(|f| f == name).expect("a column");
    let (ts, a, b) = (column("ts"), column("id.orig_h"), column("id.resp_h"));
    let (duration, sent, received) = (column("duration"), column("orig_pkts"), column("resp_pkts"));
    let analysis = run(&[Input::file(&path)], &options());
    let found: Vec<&str> = analysis.clients.iter().map(|c| c.client.name.as_str()).collect();
    assert_eq!(found, ["192.168.1.102", "192.168.1.103", "192.168.1.104", "192.168.1.105"]);
    for result in &analysis.clients {
        let report = result.report();
        let mut times: Vec<f64> = Vec::new();
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let cells: Vec<&str> = line.split('\t').collect();
            if cells[a] != result.client.name && cells[b] != result.client.name {
                continue;
            }
            let start: f64 = cells[ts].parse().expect("a time");
            let length: f64 = cells[duration].parse().unwrap_or(0.0);
            let packets = cells[sent].parse::<u32>().expect("a count")
                + cells[received].parse::<u32>().expect("a count");
            for k in 0..packets {
                times.push(
                    start + if packets > 1 { length * f64::from(k) / f64::from(packets - 1) } else { 0.0 },
                );
            }
        }
        times.sort_by(f64::total_cmp);
        assert_eq!(report.packets, times.len() as u64, "{}", result.client.name);
        let long = times.windows(2).map(|w| w[1] - w[0]).filter(|g| *g > B).sum::<f64>();
        let cycles = times.windows(2).filter(|w| w[1] - w[0] > B).count() as u64;
        let bound = report.policy("clairvoyant").expect("the bound");
        assert_eq!(bound.cycles, cycles, "{}", result.client.name);
        let saved = report.idle_seconds - bound.cost;
        assert!((saved - (long - B * cycles as f64)).abs() < 0.01, "{}", result.client.name);
    }
}

#[test]
fn a_client_can_be_named_by_address_prefix_or_link_layer_address() {
    let Some(path) = recording("smart-lock.pcap") else { return };
    for wanted in ["192.168.1.122", "192.168.1.122/31", "78:db:2f:db:43:48"] {
        let mut options = options();
        let Ok(parsed) = wanted.parse::<Wanted>();
        options.wanted = vec![parsed];
        let report = report(&[Input::file(&path)], &options);
        assert_eq!(report.clients.len(), 1, "{wanted}");
        assert_eq!(report.clients[0].packets, 11_150, "{wanted}");
    }
    let mut options = options();
    let Ok(absent) = "10.9.8.0/24".parse::<Wanted>();
    options.wanted = vec![absent];
    assert!(report(&[Input::file(&path)], &options).clients.is_empty());
}

#[test]
fn neither_threads_nor_the_order_of_files_matter() {
    let names = ["smart-lock.pcap", "messenger-day.pcap", "ipsec-day.pcap", "office-weekday.conn.log"];
    let Some(paths) = names.iter().map(|n| recording(n)).collect::<Option<Vec<_>>>() else { return };
    let json = |order: &[usize], threads: usize| {
        let inputs: Vec<Input> = order.iter().map(|i| Input::file(&paths[*i])).collect();
        let mut options = options();
        options.threads = threads;
        serde_json::to_string(&report(&inputs, &options)).expect("JSON")
    };
    let first = json(&[0, 1, 2, 3], 1);
    assert!(first.contains("192.168.1.104") && first.contains("192.168.1.122"));
    for (order, threads) in [([3, 2, 1, 0], 1), ([2, 0, 3, 1], 2), ([1, 3, 0, 2], 5)] {
        assert_eq!(json(&order, threads), first);
    }
}

/// The target of the policy is one of sums: what all clients save, of what the clairvoyant saves them.
#[test]
fn all_clients_together_save_97_percent_of_what_the_clairvoyant_saves() {
    let names = [
        "smart-lock.pcap",
        "lock-hub.pcap",
        "camera.pcap",
        "messenger-day.pcap",
        "ipsec-day.pcap",
        "office-weekday.conn.log",
    ];
    let Some(paths) = names.iter().map(|n| recording(n)).collect::<Option<Vec<_>>>() else { return };
    let inputs: Vec<Input> = paths.iter().map(|path| Input::file(path)).collect();
    for wake_on in [WakeOn::All, WakeOn::Outgoing] {
        let mut options = options();
        options.settings = Settings { session: Some(SESSION), wake_on, ..options.settings };
        let clients = run(&inputs, &options).clients;
        assert_eq!(clients.len(), 9);
        let all = ClientReport::sum(clients.iter().flat_map(|c| &c.sessions));
        let share = all.share_of_clairvoyant("dormouse").expect("there is something to save");
        assert!(share > 0.97, "{wake_on:?}: {share}");
    }
}
