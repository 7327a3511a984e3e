//! Two sockets of one port: key management, which begins with four zero bytes there (RFC 3948, section 2.2; RFC 5770, section 5.1), and all else, that is ESP.
//! In one socket packets wait behind each message that came before them: a crowd that comes at once fills it for tens of milliseconds, and a flood without end.
//! Owns how the kernel tells them apart.

use std::io;
use std::net::SocketAddr;

use dormouse_sansio::Carrier;
use nix::libc;
use socket2::{Domain, Protocol, Socket, Type};

use super::{Udp, bind, named};
use crate::option::set_option;

impl Udp {
    /// As [`Udp::bind`], but messages of key management come to the second socket, if this kernel can do that. All is sent from the first; errors may be told by either.
    ///
    /// # Errors
    /// As [`Udp::bind`].
    pub fn bind_apart(local: SocketAddr, carrier: Carrier) -> io::Result<(Self, Option<Self>)> {
        // Sockets that share a port do so with any of the same user: another daemon must fail all the same.
        let alone = bind(local).map_err(|e| named(local, &e))?;
        let local = alone.local_addr()?;
        drop(alone);
        match pair(local, carrier) {
            Ok((packets, messages)) => Ok((packets, Some(messages))),
            Err(e) => {
                tracing::info!("UDP {local}: messages of key management share the socket of packets ({e})");
                Ok((Self::bind(local, carrier)?, None))
            }
        }
    }
}

fn pair(local: SocketAddr, carrier: Carrier) -> io::Result<(Udp, Udp)> {
    let one = || {
        let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        if local.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1i32)?;
        socket.bind(&local.into())?;
        Udp::of(socket.into(), carrier)
    };
    // The kernel numbers them in this order.
    let (packets, messages) = (one()?, one()?);
    let mut filter = FILTER;
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    set_option(&packets.socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, program)?;
    Ok((packets, messages))
}

/// The number of a datagram's socket. It sees what is behind the UDP header; of less than four bytes, as a keepalive has, it says 0.
const FILTER: [libc::sock_filter; 4] = [
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), 0),
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, 1), 0),
    step(libc::BPF_RET | libc::BPF_K, (0, 0), 1),
    step(libc::BPF_RET | libc::BPF_K, (0, 0), 0),
];

const fn step(code: u32, (jt, jf): (u8, u8), k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn got(socket: &Udp) -> Vec<Vec<u8>> {
        let (mut all, mut buffer, mut datagrams) = (Vec::new(), vec![0; 65_536], Vec::new());
        loop {
            socket.receive(&mut buffer, &mut datagrams).unwrap();
            if datagrams.is_empty() {
                return all;
            }
            all.extend(datagrams.iter().map(|(_, at)| buffer[at.clone()].to_vec()));
        }
    }

    #[test]
    fn messages_and_packets_come_to_sockets_of_their_own() {
        for ip in ["127.0.0.1", "::1"] {
            let local = SocketAddr::new(ip.parse().unwrap(), 0);
            let (packets, messages) = Udp::bind_apart(local, Carrier::NatT).unwrap();
            let messages = messages.expect("this kernel can do that");
            assert_eq!(packets.local_addr(), messages.local_addr());
            let peer = UdpSocket::bind(local).unwrap();
            let send = |datagram: &[u8]| {
                assert_eq!(peer.send_to(datagram, packets.local_addr()).unwrap(), datagram.len())
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
        let (packets, messages) = Udp::bind_apart(local, Carrier::NatT).unwrap();
        let messages = messages.expect("this kernel can do that");
        let peer = UdpSocket::bind(local).unwrap();
        // More than both hold.
        let message = vec![0; 8_192];
        for _ in 0..8_000 {
            peer.send_to(&message, packets.local_addr()).unwrap();
        }
        peer.send_to(&[1, 2, 3, 4, 5], packets.local_addr()).unwrap();
        assert_eq!(got(&packets), [[1, 2, 3, 4, 5]]);
        let kept = got(&messages).len();
        assert!((1..8_000).contains(&kept), "{kept}");
    }

    #[test]
    fn such_a_port_is_in_use() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let (first, _) = Udp::bind_apart(local, Carrier::NatT).unwrap();
        let us = format!("(process {})", std::process::id());
        for error in [
            Udp::bind_apart(first.local_addr(), Carrier::NatT).map(|_| ()).unwrap_err(),
            Udp::bind(first.local_addr(), Carrier::NatT).map(|_| ()).unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            assert!(error.to_string().contains(&us), "{error}");
        }
    }
}
