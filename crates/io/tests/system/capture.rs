//! A capture has what passed the interface, both ways, and nothing else; and says clearly why it cannot begin.

use crate::common::{Directory, carrier, in_namespace, ip, root};
use dormouse_io::capture::Capture;
use dormouse_io::signal::Signals;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Payload lengths and source ports of the IPv4 UDP datagrams between the two ends, from a pcap with nanoseconds.
fn datagrams(pcap: &[u8]) -> Vec<(u16, usize)> {
    let number = |at: usize| u32::from_le_bytes(pcap[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!(number(0), 0xa1b2_3c4d);
    assert_eq!(number(20), 1, "Ethernet");
    let (mut at, mut found) = (24, Vec::new());
    while at < pcap.len() {
        let (kept, length) = (number(at + 8), number(at + 12));
        let frame = &pcap[at + 16..at + 16 + kept];
        assert!(kept == length || kept == 64, "cut at the snap length only");
        if frame[12..14] == [8, 0] && frame[23] == 17 {
            found.push((u16::from_be_bytes([frame[34], frame[35]]), length - 42));
        }
        at += 16 + kept;
    }
    found
}

#[test]
fn both_directions_of_one_interface_are_recorded() {
    in_namespace("both_directions_of_one_interface_are_recorded", || {
        let directory = Directory::new("capture");
        ip("link set lo up");
        ip("link add left type veth peer name right");
        ip("link add other type veth peer name other-peer");
        for (end, address) in [("left", "10.77.0.1/24"), ("other", "10.78.0.1/24")] {
            ip(&format!("link set {end} addrgenmode none"));
            ip(&format!("address add {address} dev {end}"));
            ip(&format!("link set {end} up"));
        }
        for end in ["right", "other-peer"] {
            ip(&format!("link set {end} addrgenmode none"));
            ip(&format!("link set {end} up"));
        }
        for end in ["left", "other", "right"] {
            carrier(end);
        }
        // The far end answers no ARP: its address is entered beforehand.
        ip("neighbour add 10.77.0.2 lladdr 02:00:00:00:00:02 dev left");
        ip("neighbour add 10.78.0.2 lladdr 02:00:00:00:00:02 dev other");
        let capture = Capture::open("left").unwrap();
        let socket = UdpSocket::bind("0.0.0.0:4000").unwrap();
        for n in 0..50 {
            socket.send_to(&vec![0; 10 + n], "10.77.0.2:9").unwrap();
            socket.send_to(&[0; 500], "10.78.0.2:9").unwrap();
        }
        // From the far end: broadcast, which leaves by that interface with any address.
        ip("address add 10.77.0.9/32 dev right");
        let back = UdpSocket::bind("10.77.0.9:5000").unwrap();
        nix::sys::socket::setsockopt(&back, nix::sys::socket::sockopt::BindToDevice, &"right".into())
            .unwrap();
        back.set_broadcast(true).unwrap();
        for _ in 0..7 {
            back.send_to(&[0; 33], "255.255.255.255:6000").unwrap();
        }
        let path = directory.join("capture.pcap");
        let file = std::fs::File::create(&path).unwrap();
        let counts = capture.record(file, 64, Some(Duration::from_millis(300)), None).unwrap();
        let found = datagrams(&std::fs::read(&path).unwrap());
        assert_eq!(counts.dropped, 0);
        assert_eq!(counts.packets, 57, "{found:?}");
        let sent: Vec<usize> =
            found.iter().filter(|(port, _)| *port == 4000).map(|(_, length)| *length).collect();
        assert_eq!(sent, (10..60).collect::<Vec<_>>());
        assert_eq!(found.iter().filter(|d| **d == (5000, 33)).count(), 7);
    });
}

#[test]
fn what_does_not_fit_the_queue_is_counted() {
    in_namespace("what_does_not_fit_the_queue_is_counted", || {
        ip("link set lo up");
        let capture = Capture::open("lo").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Nothing is read meanwhile: 60 MB, and on the loopback interface every packet passes twice.
        for _ in 0..1000 {
            socket.send_to(&[0; 60_000], "127.0.0.1:9").unwrap();
        }
        let counts = capture.record(std::io::sink(), 64, Some(Duration::ZERO), None).unwrap();
        assert!(counts.packets > 0 && counts.dropped > 0, "{counts:?}");
        assert!(counts.packets + counts.dropped >= 2000, "{counts:?}");
    });
}

/// A disk that takes its time: packets come faster than it takes them.
struct Slow(std::sync::mpsc::Sender<()>);

impl std::io::Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _unread = self.0.send(());
        std::thread::sleep(Duration::from_millis(1));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn it_stops_when_told_also_while_packets_come_faster_than_they_are_written() {
    in_namespace("it_stops_when_told_also_while_packets_come_faster_than_they_are_written", || {
        ip("link set lo up");
        let capture = Capture::open("lo").unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                while !done.load(Ordering::Relaxed) {
                    socket.send_to(&[0; 100], "127.0.0.1:9").ok();
                }
            });
            // By the time.
            let (begun, _) = std::sync::mpsc::channel();
            let limit = Some(Duration::from_millis(50));
            let counts = capture.record(Slow(begun), 64, limit, None).unwrap();
            assert!(counts.packets > 0 && counts.dropped > 0, "{counts:?}");
            // By a signal, which this thread takes from its own descriptor.
            let signals = Signals::new().unwrap();
            let (begun, wait) = std::sync::mpsc::channel();
            let tid = nix::sys::pthread::pthread_self();
            threads.spawn(move || {
                wait.recv().unwrap();
                nix::sys::pthread::pthread_kill(tid, nix::sys::signal::Signal::SIGTERM).unwrap();
                // Until the recording ends.
                while wait.recv().is_ok() {}
            });
            let counts = capture.record(Slow(begun), 64, None, Some(&signals)).unwrap();
            assert!(counts.packets > 0 && counts.dropped > 0, "{counts:?}");
            done.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_full_disk_ends_it_with_the_reason() {
    in_namespace("a_full_disk_ends_it_with_the_reason", || {
        ip("link set lo up");
        let capture = Capture::open("lo").unwrap();
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let error = capture.record(full, 64, Some(Duration::from_secs(5)), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    });
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let error = Capture::open("nowhere7").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("nowhere7"), "{error}");
}

#[test]
fn without_the_privilege_it_says_which() {
    if !root("without_the_privilege_it_says_which") {
        return;
    }
    // On a thread of its own: capabilities are a thread's.
    let thread = std::thread::spawn(|| {
        let none = CapabilitySet::empty();
        let nothing = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, nothing).unwrap();
        Capture::open("lo").unwrap_err()
    });
    let error = thread.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
}
