//! The gateway's part of EAP-TLS. Owns one conversation; must never take a certificate for proved before the handshake has ended.

use core::mem;
use std::io::Write as _;
use std::sync::Arc;

use rustls::{Connection, ServerConnection};

use super::config::ServerConfig;
use super::fragments::{Arrived, Fragments, START, nothing};
use super::verify::Clients;
use super::{drain, feed, is_version_13, key};
use crate::error::Error;
use crate::keys::Msk;
use crate::method::Turn;
use crate::users::Users;

#[derive(Debug)]
enum State {
    Handshake,
    /// All is proved, and the client is to say that it has seen so.
    Proved {
        identity: String,
        msk: Msk,
    },
    /// An alert is under way.
    Refused(Error),
    Over,
}

/// One conversation.
#[derive(Debug)]
pub(crate) struct Server {
    tls: Connection,
    clients: Arc<Clients>,
    fragments: Fragments,
    state: State,
}

impl Server {
    /// The conversation, and the data of its first request.
    pub(crate) fn start(config: &ServerConfig) -> Result<(Self, Vec<u8>), Error> {
        let tls = ServerConnection::new(Arc::clone(&config.tls)).map_err(|e| Error::Tls(e.to_string()))?;
        let clients = Arc::clone(&config.clients);
        let (fragments, state) = (Fragments::default(), State::Handshake);
        Ok((Self { tls: Connection::Server(tls), clients, fragments, state }, vec![START]))
    }

    /// What it will fail with, once that is certain although the peer may still be silent.
    pub(crate) const fn refusal(&self) -> Option<&Error> {
        if let State::Refused(why) = &self.state { Some(why) } else { None }
    }

    /// `claimed` is the name of EAP-Identity: it is the user's if the certificate has it.
    pub(crate) fn receive(&mut self, data: &[u8], claimed: Option<&str>, users: &dyn Users) -> Turn {
        match self.fragments.take(data) {
            Ok(Arrived::Partial) => Turn::Ask(nothing()),
            Ok(Arrived::Next) => Turn::Ask(self.fragments.next()),
            Ok(Arrived::Flight(flight)) => self.take(&flight, claimed, users),
            Err(why) => Turn::Failed(why),
        }
    }

    fn take(&mut self, flight: &[u8], claimed: Option<&str>, users: &dyn Users) -> Turn {
        match mem::replace(&mut self.state, State::Over) {
            State::Handshake if flight.is_empty() => Turn::Failed(Error::PeerRefused),
            State::Handshake => match feed(&mut self.tls, flight) {
                Ok(()) if self.tls.is_handshaking() => {
                    self.state = State::Handshake;
                    self.send()
                }
                Ok(()) => self.finish(claimed, users),
                Err(why) => self.refuse(why),
            },
            State::Proved { identity, msk } if flight.is_empty() => Turn::Done { identity, msk },
            // An alert: it does not like our last flight.
            State::Proved { .. } => {
                Turn::Failed(feed(&mut self.tls, flight).err().unwrap_or(Error::PeerRefused))
            }
            State::Refused(why) => Turn::Failed(why),
            State::Over => Turn::Failed(Error::Unexpected("TLS is over")),
        }
    }

    /// The handshake has ended: the client has proved that it has the key of its certificate.
    fn finish(&mut self, claimed: Option<&str>, users: &dyn Users) -> Turn {
        let chain = self.tls.peer_certificates().unwrap_or_default();
        let admitted = self.clients.judge(chain).and_then(|(certificate, verified)| {
            let name = users.admits(&certificate, &verified, claimed).map_err(Error::NotAdmitted)?;
            Ok((name, key(&self.tls)?))
        });
        let (identity, msk) = match admitted {
            Ok(admitted) => admitted,
            Err(why) => return Turn::Failed(why),
        };
        // "the EAP-TLS server always sends TLS application data 0x00" (RFC 9190 section 2.1.1)
        if is_version_13(&self.tls)
            && let Err(why) = self.tls.writer().write_all(&[0])
        {
            return Turn::Failed(Error::Tls(why.to_string()));
        }
        self.state = State::Proved { identity, msk };
        self.send()
    }

    fn refuse(&mut self, why: Error) -> Turn {
        match drain(&mut self.tls) {
            Ok(alert) if !alert.is_empty() => {
                self.state = State::Refused(why);
                Turn::Ask(self.fragments.send(alert))
            }
            _ => Turn::Failed(why),
        }
    }

    fn send(&mut self) -> Turn {
        match drain(&mut self.tls) {
            Ok(flight) => Turn::Ask(self.fragments.send(flight)),
            Err(why) => Turn::Failed(why),
        }
    }
}
