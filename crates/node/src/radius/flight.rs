//! A request on its way to one server. Owns its repetitions; must never change it: "the same Identifier and Request Authenticator" (RFC 5080 section 2.2.1) is what tells a server that it has
//! seen it before.

use super::{Patience, SocketOrder};
use dormouse_eap::radius::Discard;
use dormouse_sansio::Instant;
use std::net::SocketAddr;

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) server: usize,
    to: SocketAddr,
    bytes: Vec<u8>,
    sent: u32,
    /// When it was sent first.
    pub(super) since: Instant,
    pub(super) due: Instant,
    /// What came instead of an answer.
    pub(super) heard: Option<Discard>,
}

impl Flight {
    pub(super) fn new(
        now: Instant,
        server: usize,
        to: SocketAddr,
        bytes: Vec<u8>,
        patience: Patience,
    ) -> Self {
        Self { server, to, bytes, sent: 1, since: now, due: now + patience.timeout, heard: None }
    }

    pub(super) fn order(&self, socket: u64) -> SocketOrder {
        SocketOrder::Send { socket, to: self.to, bytes: self.bytes.clone() }
    }

    /// It is time: to repeat it, or to give up, for the reason that comes back.
    pub(super) fn overdue(
        &mut self,
        now: Instant,
        socket: u64,
        patience: Patience,
    ) -> Result<SocketOrder, String> {
        if self.sent >= patience.tries {
            let after = patience.timeout.as_secs_f64() * f64::from(self.sent);
            return Err(match self.heard {
                Some(why) => format!("no answer in {after} s, but a datagram: {why}"),
                None => format!(
                    "no answer in {after} s; a server is silent too where it does not know this gateway, or has another shared secret for it"
                ),
            });
        }
        self.sent += 1;
        self.due = now + patience.timeout;
        Ok(self.order(socket))
    }
}
