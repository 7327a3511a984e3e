//! No ICMP error ends a socket: anyone can forge one that quotes a packet of ours.

use std::io::IoSliceMut;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;

use dormouse_sansio::{Carrier, Path};
use quinn_udp::RecvMeta;
use socket2::{Domain, Protocol, Socket, Type};

use crate::raw::Raw;
use crate::udp::{Sent, Udp, is_the_end};

/// The Internet checksum.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// ICMP's type and code about a packet of `protocol` that 127.0.0.1, or ::1, sends to itself from `port`.
fn forged(v4: bool, kind: u8, code: u8, protocol: u8, port: u16) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0, 0, 0, 5, 0];
    if v4 {
        message.extend([0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
        message.extend([Ipv4Addr::LOCALHOST.octets(), Ipv4Addr::LOCALHOST.octets()].concat());
    } else {
        message.extend([0x60, 0, 0, 0, 0, 40, protocol, 64]);
        message.extend([Ipv6Addr::LOCALHOST.octets(), Ipv6Addr::LOCALHOST.octets()].concat());
    }
    message.extend([&port.to_be_bytes()[..], &9u16.to_be_bytes(), &40u16.to_be_bytes(), &[0; 34]].concat());
    if v4 {
        let sum = checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
    }
    message
}

fn forger(v4: bool) -> Socket {
    let (domain, protocol) =
        if v4 { (Domain::IPV4, Protocol::ICMPV4) } else { (Domain::IPV6, Protocol::ICMPV6) };
    Socket::new(domain, Type::RAW, Some(protocol)).unwrap()
}

fn everything(v4: bool) {
    let ip: SocketAddr = if v4 { "127.0.0.1:0" } else { "[::1]:0" }.parse().unwrap();
    let (mut udp, other) = (Udp::bind(ip, Carrier::NatT).unwrap(), Udp::bind(ip, Carrier::NatT).unwrap());
    let mut raw = Raw::open(Carrier::RawEsp, v4).unwrap();
    let over_udp = Path { local: udp.local_addr(), remote: other.local_addr(), carrier: Carrier::NatT };
    let over_raw = Path { local: ip, remote: ip, carrier: Carrier::RawEsp };
    let forger = forger(v4);
    let kinds: &[u8] = if v4 { &[3, 11, 12] } else { &[1, 2, 3, 4] };
    let mut reported = 0;
    for (kind, code) in kinds.iter().flat_map(|k| (0..16).map(move |code| (*k, code))) {
        for receiving_first in [true, false] {
            for (protocol, port) in [(17, udp.local_addr().port()), (50, 0)] {
                forger.send_to(&forged(v4, kind, code, protocol, port), &ip.into()).unwrap();
            }
            let what = format!("type {kind} code {code}");
            let (mut buf, mut metas) = (vec![0; 4 << 16], [RecvMeta::default()]);
            if receiving_first {
                let errors = [
                    udp.recv(&mut [IoSliceMut::new(&mut buf)], &mut metas).unwrap_err(),
                    raw.recv(&mut buf, 1 << 16).unwrap_err(),
                ];
                for error in errors {
                    assert!(!is_the_end(&error), "{what}: {error}");
                    reported += usize::from(error.kind() != std::io::ErrorKind::WouldBlock);
                }
            }
            assert!(matches!(udp.send(&over_udp, 0, b"to another", None), Sent::All), "{what}: not sent");
            assert!(matches!(raw.send(&over_raw, &[7; 40], None), Sent::All), "{what}: not sent");
            assert_eq!(other.recv(&mut [IoSliceMut::new(&mut buf)], &mut metas).unwrap(), 1, "{what}");
            // Sending by a raw socket does not report what is pending: receiving does.
            let taken = raw.recv(&mut buf, 1 << 16).or_else(|_| raw.recv(&mut buf, 1 << 16)).unwrap();
            assert_eq!(taken.len(), 1, "{what}");
            let (path, len) = taken[0];
            let (start, _) = raw.contents(&buf[..len]).unwrap();
            assert_eq!((path, &buf[start..len]), (Some(over_raw), &[7; 40][..]), "{what}");
            while udp.next_error().unwrap().is_some() || raw.next_error().unwrap().is_some() {}
        }
    }
    assert!(reported > 0, "the kernel reported none of them");
}

#[test]
fn no_icmp_error_ends_a_socket_or_loses_what_is_sent_after_it() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: forging ICMP needs root");
        return;
    }
    // On a thread in a network namespace of its own.
    std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        // The kernel limits how many ICMP messages it reacts to.
        everything(true);
        everything(false);
    })
    .join()
    .unwrap();
}
