//! TCP beside what the standard library has: listening at an address that is not there yet, connecting from one of several addresses, and what the kernel
//! says of a connection (`TCP_INFO`, tcp(7)). Must never read or write on one.

use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

use nix::libc;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A socket that listens. Binding it needs no address that is there already: programs start before networks and tunnels are up.
///
/// # Errors
/// Those of socket(2), bind(2) and listen(2).
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM.cloexec(), None)?;
    socket.set_reuse_address(true)?;
    if at.is_ipv4() {
        socket.set_freebind_v4(true)?
    } else {
        socket.set_freebind_v6(true)?
    }
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A connection from one of this machine's addresses, within a time.
///
/// # Errors
/// Those of bind(2) and connect(2); [`io::ErrorKind::TimedOut`].
pub fn connect(from: IpAddr, to: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.cloexec(), None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&to.into(), patience)?;
    Ok(socket.into())
}

/// How far a connection's sender is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// Bytes that the other end has acknowledged; the end of the stream counts as one.
    pub acked: u64,
    /// The congestion window, in segments.
    pub window: u32,
}

/// Where these stand in the kernel's `struct tcp_info` (`linux/tcp.h`), which only ever grows at its end.
const WINDOW: usize = 80;
const ACKED: usize = 120;
/// Bytes asked for.
const LENGTH: usize = ACKED + size_of::<u64>();

/// Asks about a TCP socket.
///
/// # Errors
/// Those of getsockopt(2); [`io::ErrorKind::Unsupported`] if the kernel says less (before Linux 4.1).
#[expect(unsafe_code, reason = "no safe wrapper has these fields")]
pub fn tcp_info(socket: &impl AsFd) -> io::Result<TcpInfo> {
    let mut info = [0_u8; LENGTH];
    let mut length = libc::socklen_t::try_from(LENGTH).unwrap_or(0);
    let (socket, to) = (socket.as_fd().as_raw_fd(), info.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has as many.
    let result = unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut length) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if usize::try_from(length) != Ok(LENGTH) {
        let problem = "the kernel does not say what was acknowledged";
        return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
    }
    let window = info.get(WINDOW..).and_then(|rest| rest.first_chunk()).copied().map(u32::from_ne_bytes);
    let acked = info.get(ACKED..).and_then(|rest| rest.first_chunk()).copied().map(u64::from_ne_bytes);
    Ok(TcpInfo { acked: acked.unwrap_or_default(), window: window.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn what_was_acknowledged_is_what_was_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let before = tcp_info(&near).unwrap();
        assert!(before.acked <= 1 && before.window > 0, "{before:?}");
        near.write_all(&[7; 3_000]).unwrap();
        far.read_exact(&mut [0; 3_000]).unwrap();
        far.write_all(b"x").unwrap();
        // What comes back acknowledges what was sent.
        near.read_exact(&mut [0]).unwrap();
        assert_eq!(tcp_info(&near).unwrap().acked - before.acked, 3_000);
    }

    #[test]
    fn another_socket_has_no_answer() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(tcp_info(&udp).is_err());
    }
}
