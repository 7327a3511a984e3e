//! The sockets that RADIUS servers are spoken with: one for each request that waits for its answer. Owns them; must never decide what is sent, to whom or how
//! often: the node does.
//!
//! Each is bound to a port of the kernel's choice, which is random, and connected: what comes from any other address never gets here. They are not marked as the daemon's
//! own traffic: a server may be on the far side of a tunnel.

use crate::daemon::{Daemon, RADIUS};
use anyhow::{Context, Result};
use dormouse_io::clock::BootClock;
use dormouse_io::poller::{Interest, Poller};
use dormouse_node::host;
use dormouse_node::radius::SocketOrder;
use dormouse_sansio::Instant;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Largest packet of RADIUS (RFC 2865 section 3).
const LARGEST: usize = 4_096;
/// Datagrams that are taken from a socket before others have their turn: anybody can send them in the server's name.
const AT_ONCE: usize = 16;
/// The last reports are waited for this long when the daemon stops.
const FAREWELL: Duration = Duration::from_secs(3);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct RadiusSockets(BTreeMap<u64, UdpSocket>);

impl RadiusSockets {
    fn send(&mut self, poller: &Poller, number: u64, to: SocketAddr, bytes: &[u8]) -> std::io::Result<()> {
        // One of a former configuration may have the number.
        if self.0.get(&number).is_some_and(|socket| !hears(socket, to)) {
            self.0.remove(&number);
        }
        let socket = match self.0.get(&number) {
            Some(socket) => socket,
            None => {
                let any = if to.is_ipv4() {
                    IpAddr::V4(Ipv4Addr::UNSPECIFIED)
                } else {
                    Ipv6Addr::UNSPECIFIED.into()
                };
                let socket = UdpSocket::bind((any, 0))?;
                socket.set_nonblocking(true)?;
                socket.connect(to)?;
                poller.add(&socket, RADIUS + number, Interest::READ)?;
                self.0.entry(number).or_insert(socket)
            }
        };
        match socket.send(bytes) {
            // What is lost is repeated.
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
            other => other.map(drop),
        }
    }
}

impl Daemon {
    pub(crate) fn obey_radius(&mut self, now: Instant, order: SocketOrder) {
        match order {
            SocketOrder::Send { socket, to, bytes } => {
                if let Err(e) = self.wires.radius.send(&self.wakers.poller, socket, to, &bytes) {
                    self.host.node_mut().radius_unreachable(now, socket, &e.to_string());
                }
            }
            // Closing takes it out of the poller.
            SocketOrder::Close { socket } => _ = self.wires.radius.0.remove(&socket),
        }
    }

    /// Something came to a socket, or an error did.
    pub(crate) fn radius_news(&mut self, now: Instant, number: u64) {
        let mut buffer = [0; LARGEST];
        for _ in 0..AT_ONCE {
            let Some(socket) = self.wires.radius.0.get(&number) else { return };
            match socket.recv(&mut buffer) {
                Ok(len) => self.host.node_mut().radius_came(now, number, &buffer[..len]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
                Err(e) => {
                    let why = match e.kind() {
                        ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
                        _ => e.to_string(),
                    };
                    return self.host.node_mut().radius_unreachable(now, number, &why);
                }
            }
            // A verdict has closed it, or it has more.
            host::carry_out_all(self, now);
        }
    }

    /// The daemon ends: waits until the servers have taken the last reports, or do not within some seconds.
    pub(crate) fn finish_reports(&mut self) {
        let begun = BootClock::now();
        let mut pending = self.host.node().reports_pending();
        while pending > 0 && BootClock::now() < begun + FAREWELL {
            if let Err(e) = self.wait_for_reports() {
                tracing::warn!("{e:#}");
                break;
            }
            pending = self.host.node().reports_pending();
        }
        if pending > 0 {
            tracing::warn!(pending, "no RADIUS accounting server took the last reports");
        }
    }

    fn wait_for_reports(&mut self) -> Result<()> {
        let mut ready = Vec::new();
        self.wakers
            .poller
            .wait(&mut ready, Some(Duration::from_millis(100)))
            .context("waiting for RADIUS")?;
        let now = BootClock::now();
        self.host.handle_timeout(now);
        for event in ready {
            if let Some(number) = number_of(event.token) {
                self.radius_news(now, number);
            }
        }
        host::carry_out_all(self, now);
        Ok(())
    }
}

/// Whether a socket hears this server.
fn hears(socket: &UdpSocket, server: SocketAddr) -> bool {
    socket.peer_addr().is_ok_and(|peer| peer == server)
}

/// Which socket a token means.
pub(crate) const fn number_of(token: u64) -> Option<u64> {
    token.checked_sub(RADIUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_its_servers_alone() {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let socket = UdpSocket::bind(at(0)).unwrap();
        assert!(!hears(&socket, at(1812)), "it is connected to none");
        socket.connect(at(1812)).unwrap();
        assert!(hears(&socket, at(1812)) && !hears(&socket, at(1813)));
    }
}
