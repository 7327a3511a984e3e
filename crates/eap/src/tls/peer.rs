//! The client's part of EAP-TLS. Owns one conversation; must never take the server for proved before the handshake has ended and, with TLS 1.3, the server has said
//! that it has accepted us.

use core::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use dormouse_crypto::cert::{Certificate, Verified};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection};

use super::config::ClientConfig;
use super::fragments::{Arrived, Fragments, START, nothing};
use super::{drain, feed, is_version_13, key, received};
use crate::error::Error;
use crate::keys::Msk;

#[derive(Debug)]
enum State {
    /// Nothing has come.
    Start,
    Handshake,
    /// Both sides are.
    Proved(Msk),
    /// An alert went one way or the other.
    Refused(Error),
}

/// One conversation.
#[derive(Debug)]
pub(crate) struct Client {
    config: ClientConfig,
    tls: Option<Connection>,
    fragments: Fragments,
    state: State,
}

impl Client {
    pub(crate) fn new(config: ClientConfig) -> Self {
        Self { config, tls: None, fragments: Fragments::default(), state: State::Start }
    }

    /// Whether the server has spoken.
    pub(crate) const fn has_begun(&self) -> bool {
        !matches!(self.state, State::Start)
    }

    /// The key, once all is proved.
    pub(crate) const fn msk(&self) -> Option<&Msk> {
        if let State::Proved(msk) = &self.state { Some(msk) } else { None }
    }

    /// The server's certificate and how it is trusted, once all is proved.
    pub(crate) fn server(&self) -> Option<(Certificate, Verified)> {
        let tls = self.tls.as_ref().filter(|_| self.msk().is_some())?;
        self.config.servers.judge(tls.peer_certificates()?).ok()
    }

    /// What it will fail with.
    pub(crate) const fn refusal(&self) -> Option<&Error> {
        if let State::Refused(why) = &self.state { Some(why) } else { None }
    }

    /// The data of the answer.
    pub(crate) fn receive(&mut self, data: &[u8]) -> Result<Vec<u8>, Error> {
        let is_start = data.first().is_some_and(|flags| flags & START != 0);
        let Some(tls) = &mut self.tls else {
            if !is_start {
                return Err(Error::Unexpected("TLS that has not been started"));
            }
            // The name goes nowhere: SNI is off, and the verifier knows better.
            let name = ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            let tls = ClientConnection::new(Arc::clone(&self.config.tls), name);
            let mut tls = Connection::Client(tls.map_err(|e| Error::Tls(e.to_string()))?);
            let hello = drain(&mut tls)?;
            (self.tls, self.state) = (Some(tls), State::Handshake);
            return Ok(self.fragments.send(hello));
        };
        if is_start {
            return Err(Error::Unexpected("TLS that is started again"));
        }
        let flight = match self.fragments.take(data)? {
            Arrived::Partial => return Ok(nothing()),
            Arrived::Next => return Ok(self.fragments.next()),
            Arrived::Flight(flight) => flight,
        };
        if let State::Refused(why) = &self.state {
            return Err(why.clone());
        }
        if flight.is_empty() {
            return Err(Error::Unexpected("an empty flight of TLS"));
        }
        let fed = feed(tls, &flight);
        let data = received(tls);
        let answer = drain(tls)?;
        match fed {
            // The alert, or nothing if the server has sent one; its failure is due then.
            Err(why) => self.state = State::Refused(why),
            Ok(()) => self.state = progress(tls, &self.state, &data, answer.is_empty())?,
        }
        Ok(self.fragments.send(answer))
    }
}

/// Where a good flight leads.
fn progress(tls: &Connection, state: &State, data: &[u8], silent: bool) -> Result<State, Error> {
    match (state, data) {
        // "TLS application data 0x00 is therefore to be interpreted as success" (RFC 9190 section 2.1.1)
        (State::Handshake, [0]) if is_version_13(tls) && !tls.is_handshaking() => {
            Ok(State::Proved(key(tls)?))
        }
        (_, [_, ..]) => Err(Error::Unexpected("application data inside EAP-TLS")),
        (State::Proved(msk), []) => Ok(State::Proved(msk.clone())),
        (_, []) if tls.is_handshaking() && silent => Err(Error::Unexpected("a part of a flight of TLS")),
        (_, []) if tls.is_handshaking() || is_version_13(tls) => Ok(State::Handshake),
        (_, []) => Ok(State::Proved(key(tls)?)),
    }
}
