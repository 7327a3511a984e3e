//! EAP-TTLS (RFC 5281 with TLS 1.2, RFC 9427 with TLS 1.3): the gateway proves itself by a certificate, and the client then by a password inside TLS.
//!
//! Owns the gateway's part of the conversation. Inside it takes PAP (the password itself: the one way for users of whom only a good hash is
//! kept), MS-CHAPv2, and EAP-MSCHAPv2. Must never look at what is inside before the handshake has ended.
//!
//! As [`crate::tls`], it is not a function of its inputs: rustls draws its own randomness.
//!
//! The key is that of TLS, and not bound to what is inside: that who has the tunnel is who has the password depends on clients that verify the
//! gateway's certificate before they send anything. A client of ours does not have this method.

mod avp;
mod inner;

use core::mem;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use dormouse_crypto::Secret;
use dormouse_sansio::Entropy;
use rustls::{Connection, ServerConnection};

use crate::error::Error;
use crate::kind::Type;
use crate::limits::MAX_TUNNELLED;
use crate::method::Turn;
use crate::tls::{Arrived, Fragments, START, TunnelConfig, drain, export, feed, nothing};
use crate::users::Users;

use inner::{Inner, Said};

#[derive(Debug)]
enum State {
    Handshake,
    /// The tunnel is there.
    Tunnel(Inner),
    /// The user has proved the password, and is to say that it has seen our proof.
    Proved(String),
    /// An alert, or a refusal inside, is under way.
    Refused(Error),
    Over,
}

/// One conversation.
#[derive(Debug)]
pub(crate) struct Server {
    tls: Connection,
    fragments: Fragments,
    state: State,
}

/// What the part inside is given besides what it reads.
pub(crate) struct Around<'a> {
    pub(crate) users: &'a dyn Users,
    pub(crate) name: &'a str,
    pub(crate) decoy: &'a Secret,
    /// MS-CHAP's challenge and identifier, which both ends have of TLS (RFC 5281 section 11.1).
    pub(crate) challenge: [u8; 17],
}

impl Server {
    /// The conversation, and the data of its first request.
    pub(crate) fn start(config: &TunnelConfig) -> Result<(Self, Vec<u8>), Error> {
        let tls = ServerConnection::new(Arc::clone(&config.tls)).map_err(|e| Error::Tls(e.to_string()))?;
        let (tls, fragments) = (Connection::Server(tls), Fragments::default());
        Ok((Self { tls, fragments, state: State::Handshake }, vec![START]))
    }

    /// What it will fail with, once that is certain although the peer may still be silent.
    pub(crate) const fn refusal(&self) -> Option<&Error> {
        match &self.state {
            State::Refused(why) => Some(why),
            State::Tunnel(inner) => inner.refusal(),
            _ => None,
        }
    }

    pub(crate) fn receive(
        &mut self,
        data: &[u8],
        users: &dyn Users,
        name: &str,
        decoy: &Secret,
        entropy: &mut dyn Entropy,
    ) -> Turn {
        let flight = match self.fragments.take(data) {
            Ok(Arrived::Partial) => return Turn::Ask(nothing()),
            Ok(Arrived::Next) => return Turn::Ask(self.fragments.next()),
            Ok(Arrived::Flight(flight)) => flight,
            Err(why) => return Turn::Failed(why),
        };
        let next = match mem::replace(&mut self.state, State::Over) {
            State::Proved(identity) if flight.is_empty() => {
                return export(&self.tls, Type::TTLS, b"ttls keying material")
                    .map_or_else(Turn::Failed, |msk| Turn::Done { identity, msk });
            }
            State::Refused(why) => Err(why),
            State::Handshake | State::Tunnel(_) if flight.is_empty() => Err(Error::PeerRefused),
            State::Proved(_) | State::Over => Err(Error::Unexpected("EAP-TTLS is over")),
            State::Handshake => self.read(&flight, Inner::default(), users, name, decoy, entropy),
            State::Tunnel(inner) => self.read(&flight, inner, users, name, decoy, entropy),
        };
        next.unwrap_or_else(Turn::Failed)
    }

    /// Takes a flight of TLS, and what is inside of it.
    fn read(
        &mut self,
        flight: &[u8],
        mut inner: Inner,
        users: &dyn Users,
        name: &str,
        decoy: &Secret,
        entropy: &mut dyn Entropy,
    ) -> Result<Turn, Error> {
        if let Err(why) = feed(&mut self.tls, flight) {
            let alert = drain(&mut self.tls)?;
            if alert.is_empty() {
                return Err(why);
            }
            self.state = State::Refused(why);
            return Ok(Turn::Ask(self.fragments.send(alert)));
        }
        // "implementations MUST check for application data once the TLS session has been established" (RFC 9427 section 3): with TLS 1.3 it may
        // come with the end of the handshake.
        let said = if self.tls.is_handshaking() { Secret::default() } else { self.tunnelled()? };
        if said.is_empty() {
            self.state = if self.tls.is_handshaking() { State::Handshake } else { State::Tunnel(inner) };
            let flight = drain(&mut self.tls)?;
            return Ok(Turn::Ask(self.fragments.send(flight)));
        }
        let mut challenge = [0; 17];
        self.tls
            .export_keying_material(&mut challenge, b"ttls challenge", None)
            .map_err(|e| Error::Tls(e.to_string()))?;
        let around = Around { users, name, decoy, challenge };
        let answer = match inner.receive(said.as_bytes(), &around, entropy)? {
            Said::Done(identity) => {
                let msk = export(&self.tls, Type::TTLS, b"ttls keying material")?;
                return Ok(Turn::Done { identity, msk });
            }
            Said::Proof(answer, identity) => {
                self.state = State::Proved(identity);
                answer
            }
            Said::Ask(answer) => {
                self.state = State::Tunnel(inner);
                answer
            }
        };
        self.tls.writer().write_all(&answer).map_err(|e| Error::Tls(e.to_string()))?;
        let flight = drain(&mut self.tls)?;
        Ok(Turn::Ask(self.fragments.send(flight)))
    }

    /// What has come through the tunnel; wiped when dropped, for it may be a password.
    fn tunnelled(&mut self) -> Result<Secret, Error> {
        let mut data = Secret::zeroed(MAX_TUNNELLED + 1);
        let mut len = 0;
        loop {
            let room = data.as_mut_bytes().get_mut(len..).unwrap_or_default();
            match self.tls.reader().read(room) {
                Ok(0) | Err(_) => break,
                Ok(read) => len += read,
            }
        }
        match data.as_bytes().get(..len) {
            Some(said) if len <= MAX_TUNNELLED => Ok(Secret::from(said)),
            _ => Err(Error::TooLong("attributes inside EAP-TTLS")),
        }
    }
}
