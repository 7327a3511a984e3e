//! Messages of key management and packets at one port (`Udp::bind_apart`).

use std::io;
use std::net::{SocketAddr, UdpSocket};

use dormouse_io::udp::Udp;
use dormouse_sansio::Carrier;

fn got(socket: &Udp) -> Vec<Vec<u8>> {
    let (mut all, mut buffer, mut datagrams) = (Vec::new(), vec![0; 65_536], Vec::new());
    loop {
        socket.receive(&mut buffer, &mut datagrams).expect("the kernel does it");
        if datagrams.is_empty() {
            return all;
        }
        all.extend(datagrams.iter().map(|(_, at)| buffer[at.clone()].to_vec()));
    }
}

#[test]
fn messages_and_packets_come_to_sockets_of_their_own() {
    for ip in ["127.0.0.1", "::1"] {
        let local = SocketAddr::new(ip.parse().expect("an address"), 0);
        let (packets, messages) = Udp::bind_apart(local, Carrier::NatT).expect("the kernel does it");
        let messages = messages.expect("this kernel can do that");
        assert_eq!(packets.local_addr(), messages.local_addr());
        let peer = UdpSocket::bind(local).expect("the kernel does it");
        let send = |datagram: &[u8]| {
            assert_eq!(
                peer.send_to(datagram, packets.local_addr()).expect("the kernel does it"),
                datagram.len()
            )
        };
        let esp = |n: u8| vec![n, 0, 0, 0, 7, 7, 7, 7];
        let message = |n: u8| vec![0, 0, 0, 0, n, 7, 7, 7];
        let keepalive = vec![0xff];
        for n in 1..=20 {
            send(&message(n));
            send(&esp(n));
        }
        // Few zeros make no message, and are nothing else either.
        for datagram in [&keepalive[..], &[0, 0, 0], &[0, 0, 0, 1, 9]] {
            send(datagram);
        }
        assert_eq!(got(&messages), (1..=20).map(message).collect::<Vec<_>>(), "{ip}");
        let mut others: Vec<Vec<u8>> = (1..=20).map(esp).collect();
        others.extend([keepalive, vec![0, 0, 0], vec![0, 0, 0, 1, 9]]);
        assert_eq!(got(&packets), others, "{ip}");
    }
}

#[test]
fn what_fills_the_one_keeps_nothing_out_of_the_other() {
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let (packets, messages) = Udp::bind_apart(local, Carrier::NatT).expect("the kernel does it");
    let messages = messages.expect("this kernel can do that");
    let peer = UdpSocket::bind(local).expect("the kernel does it");
    // More than both hold.
    let message = vec![0; 8_192];
    for _ in 0..8_000 {
        peer.send_to(&message, packets.local_addr()).expect("the kernel does it");
    }
    peer.send_to(&[1, 2, 3, 4, 5], packets.local_addr()).expect("the kernel does it");
    assert_eq!(got(&packets), [[1, 2, 3, 4, 5]]);
    let kept = got(&messages).len();
    assert!((1..8_000).contains(&kept), "{kept}");
}

#[test]
fn such_a_port_is_in_use() {
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let (first, _) = Udp::bind_apart(local, Carrier::NatT).expect("the kernel does it");
    let us = format!("(process {})", std::process::id());
    for error in [
        Udp::bind_apart(first.local_addr(), Carrier::NatT).map(|_| ()).unwrap_err(),
        Udp::bind(first.local_addr(), Carrier::NatT).map(|_| ()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&us), "{error}");
    }
}
