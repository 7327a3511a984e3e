//! Frames pass a packet socket as they go over a wire, also where the kernel has joined them, left checksums open or taken tags out.

use crate::common::{carrier, in_namespace, ip};
use dormouse_io::frames::FrameSocket;
use dormouse_wire::ip::{Packet, udp::Udp};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// A veth pair without addresses; the sockets of both ends.
fn pair() -> [FrameSocket; 2] {
    ip("link add left type veth peer name right");
    for end in ["left", "right"] {
        ip(&format!("link set {end} addrgenmode none"));
        ip(&format!("link set {end} up"));
    }
    ["left", "right"].map(|end| {
        carrier(end);
        FrameSocket::open(end).unwrap()
    })
}

/// The next `count` frames.
#[expect(clippy::disallowed_methods, reason = "waits for the kernel by the real clock")]
fn next(socket: &mut FrameSocket, count: usize) -> Vec<Vec<u8>> {
    let (mut all, until) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    while all.len() < count {
        match socket.receive(&mut |frame| all.push(frame.to_vec())) {
            Ok(whole) => assert!(whole, "something could not be read"),
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
            // Of the time before it was up.
            Err(e) if e.kind() == ErrorKind::NetworkDown => {}
            Err(e) => panic!("{e}"),
        }
        assert!(Instant::now() < until, "{} of {count} frames", all.len());
    }
    all
}

#[test]
fn frames_of_any_kind_arrive_as_they_were_sent() {
    in_namespace("frames_of_any_kind_arrive_as_they_were_sent", || {
        let [left, mut right] = pair();
        let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let kinds: [&[u8]; 6] = [
            &[0x08, 0x06],                                     // ARP
            &[0x81, 0x00, 0x60, 5, 0x08, 0x00],                // in a VLAN, with a priority
            &[0x88, 0xa8, 0, 9, 0x81, 0x00, 0, 5, 0x86, 0xdd], // in two
            &[0x81, 0x00, 0, 0, 0x08, 0x06],                   // a tag without a VLAN
            &[0x00, 0x40],                                     // a length, as of spanning trees
            &[0x88, 0xb5],                                     // an experiment
        ];
        let frames = kinds.map(|kind| [&addresses[..], kind, &[7; 64]].concat());
        frames.iter().for_each(|frame| left.send(frame).unwrap());
        assert_eq!(next(&mut right, frames.len()), frames);
        // As long as the interface takes them, with a tag beside.
        let long = [&addresses[..], kinds[1], &[9; 1_500]].concat();
        left.send(&long).unwrap();
        assert_eq!(next(&mut right, 1), [&long[..]]);
        let longer = left.send(&[&long[..], &[9]].concat()).unwrap_err();
        assert_eq!(longer.raw_os_error(), Some(nix::libc::EMSGSIZE));
    });
}

#[test]
fn what_the_kernel_sends_as_one_arrives_in_frames_with_checksums() {
    in_namespace("what_the_kernel_sends_as_one_arrives_in_frames_with_checksums", || {
        let [mut left, mut right] = pair();
        ip("address add 10.77.0.1/24 dev left");
        ip("neighbour add 10.77.0.2 lladdr 02:00:00:00:00:02 dev left");
        let socket = UdpSocket::bind("10.77.0.1:4000").unwrap();
        socket.connect("10.77.0.2:9").unwrap();
        socket.send(&[1; 50]).unwrap();
        // Four datagrams of 1,000 bytes and one of 500, by segmentation offload.
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::UdpGsoSegment, &1_000).unwrap();
        socket.send(&[2; 4_500]).unwrap();
        let frames = next(&mut right, 6);
        let sizes: Vec<usize> = frames
            .iter()
            .map(|frame| {
                assert_eq!(frame[12..14], [0x08, 0x00]);
                // It looks at the checksum.
                let view = Packet::parse(&frame[14..]).unwrap();
                assert_ne!(view.payload()[6..8], [0, 0], "a checksum");
                Udp::parse(&view).unwrap().payload.len()
            })
            .collect();
        assert_eq!(sizes, [50, 1_000, 1_000, 1_000, 1_000, 500]);
        // What this machine sends has not come in.
        let mut none = true;
        while left.receive(&mut |_| none = false).is_ok_and(|whole| whole) {}
        assert!(none, "its own frames");
    });
}

#[test]
fn an_interface_without_frames_is_refused() {
    in_namespace("an_interface_without_frames_is_refused", || {
        for (name, kind) in [("lo", ErrorKind::Unsupported), ("eth7", ErrorKind::NotFound)] {
            assert_eq!(FrameSocket::open(name).unwrap_err().kind(), kind, "{name}");
        }
    });
}
