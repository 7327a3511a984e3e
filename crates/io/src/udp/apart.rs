//! Two sockets of one port: key management, which begins with four zero bytes there (RFC 3948, section 2.2; RFC 5770, section 5.1), and all else, that is ESP.
//! In one socket packets wait behind each message that came before them: a crowd that comes at once fills it for tens of milliseconds, and a flood without end.
//! Owns how the kernel tells them apart.

use std::io;
use std::net::SocketAddr;

use dormouse_sansio::Carrier;
use nix::libc;

use super::{Udp, bind, bind_one, named};
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
    let one = || Udp::of(bind_one(local, true)?, None, carrier);
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
