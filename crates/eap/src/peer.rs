//! The client's part of a conversation. Owns what has been said so far; must never give out a key before the method has authenticated both sides.
//!
//! Success is only believed after the method has ended well: a packet that says so is not protected by EAP itself (RFC 3748 section 7.16). Its identifier is
//! not compared, because some servers send the next one there, and the IKE SA protects its order.

use core::str;

use dormouse_crypto::Secret;
use dormouse_crypto::cert::{Certificate, Verified};
use dormouse_sansio::Entropy;

use crate::error::Error;
use crate::keys::{Msk, NtHash};
use crate::limits::{MAX_IDENTITY, MAX_NAME, MAX_TURNS};
use crate::mschapv2;
use crate::packet::{Packet, Type};
use crate::tls;

/// Who we are, and how we prove it.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The name, as the server knows it: `user`, `user@realm` or `DOMAIN\user`.
    pub identity: String,
    /// The one method that we take part in; others are refused.
    pub method: Method,
}

/// How we prove who we are.
#[derive(Clone, Debug)]
pub enum Method {
    /// EAP-MSCHAPv2.
    MsChapV2 {
        /// In UTF-8.
        password: Secret,
    },
    /// EAP-TLS.
    Tls(tls::ClientConfig),
}

impl Method {
    /// The method's number.
    #[must_use]
    pub const fn kind(&self) -> Type {
        match self {
            Self::MsChapV2 { .. } => Type::MSCHAPV2,
            Self::Tls(_) => Type::TLS,
        }
    }

    /// Whether a gateway may prove itself by this method alone, without a certificate of its own in IKE: it must be mutual, make a key and
    /// withstand who tries all words of a dictionary (RFC 5998 section 4).
    #[must_use]
    pub const fn suits_eap_only(&self) -> bool {
        match self {
            Self::MsChapV2 { .. } => false,
            Self::Tls(_) => true,
        }
    }
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Send this packet.
    Send(Vec<u8>),
    /// Both sides are authenticated. `None` from a method that makes no key; all here make one.
    Succeeded(Option<Msk>),
    /// It is over; nothing is to be sent.
    Failed(Error),
    /// The packet means nothing here.
    Ignore,
}

#[derive(Debug)]
enum Running {
    MsChapV2 { client: mschapv2::Client, hash: NtHash },
    Tls(Box<tls::Client>),
}

/// One conversation.
#[derive(Debug)]
pub struct Peer {
    identity: String,
    /// `None` when it is over. The error is why it cannot begin.
    method: Option<Result<Running, Error>>,
    wanted: Type,
    /// The last request, and our answer to it.
    last: Option<(Vec<u8>, Vec<u8>)>,
    /// The method that was refused last.
    offered: Option<Type>,
    /// Who the server has proved to be by a certificate inside the method.
    server: Option<Box<(Certificate, Verified)>>,
    turns: u16,
}

impl Peer {
    /// A conversation that the authenticator begins.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        let Credentials { identity, method } = credentials;
        let wanted = method.kind();
        let running = match method {
            Method::MsChapV2 { password } => hash_of(&password, &identity)
                .map(|hash| Running::MsChapV2 { client: mschapv2::Client::new(), hash }),
            Method::Tls(config) => Ok(Running::Tls(Box::new(tls::Client::new(config)))),
        };
        Self { identity, method: Some(running), wanted, last: None, offered: None, server: None, turns: 0 }
    }

    /// What the server has already said that it will fail with. It may never come to that: some servers fall silent then.
    #[must_use]
    pub fn refusal(&self) -> Option<&Error> {
        match self.method.as_ref()? {
            Ok(Running::MsChapV2 { client, .. }) => client.refusal(),
            Ok(Running::Tls(client)) => client.refusal(),
            Err(_) => None,
        }
    }

    /// The certificate by which the server has proved inside the method who it is, and how that is trusted, once the conversation has succeeded.
    #[must_use]
    pub fn server(&self) -> Option<&(Certificate, Verified)> {
        self.server.as_deref()
    }

    /// Takes the content of an EAP payload.
    pub fn receive(&mut self, packet: &[u8], entropy: &mut dyn Entropy) -> Step {
        if self.method.is_none() {
            return Step::Ignore;
        }
        self.turns += 1;
        if self.turns > MAX_TURNS {
            return self.fail(Error::Endless);
        }
        // "If a peer receives a duplicate Request for which it has already sent a Response, it MUST resend its Response without reprocessing the
        // Request." (RFC 3748 section 4.1)
        if let Some((request, answer)) = &self.last
            && request == packet
        {
            return Step::Send(answer.clone());
        }
        match Packet::parse(packet) {
            Err(why) => self.fail(why),
            Ok(Packet::Response { .. }) => Step::Ignore,
            Ok(Packet::Success { .. }) => self.succeed(),
            Ok(Packet::Failure { .. }) => {
                let refused = || self.refused_method().unwrap_or(Error::Refused(None));
                let why = self.refusal().cloned().unwrap_or_else(refused);
                self.fail(why)
            }
            Ok(Packet::Request { identifier, kind, data }) => {
                let answer = self
                    .answer(kind, data, entropy)
                    .and_then(|(kind, data)| Packet::Response { identifier, kind, data: &data }.emit());
                match answer {
                    Ok(answer) => {
                        self.last = Some((packet.to_vec(), answer.clone()));
                        Step::Send(answer)
                    }
                    Err(why) => self.fail(why),
                }
            }
        }
    }

    /// The type and data of the response.
    fn answer(
        &mut self,
        kind: Type,
        data: &[u8],
        entropy: &mut dyn Entropy,
    ) -> Result<(Type, Vec<u8>), Error> {
        let method = match &mut self.method {
            Some(Ok(method)) => method,
            Some(Err(why)) => return Err(why.clone()),
            None => return Err(Error::Unexpected("it is over")),
        };
        if kind == Type::NOTIFICATION {
            return Ok((kind, Vec::new()));
        }
        if kind == self.wanted {
            return match method {
                Running::MsChapV2 { client, hash } => client.receive(data, &self.identity, hash, entropy),
                Running::Tls(client) => client.receive(data),
            }
            .map(|data| (kind, data));
        }
        if method.has_begun() {
            // "an authenticator MUST NOT send a Request of a different Type prior to completion of the final round of a given method" (RFC 3748
            // section 2.1)
            return Err(Error::Unexpected("another method while one is under way"));
        }
        if kind == Type::IDENTITY {
            if self.identity.len() > MAX_IDENTITY {
                return Err(Error::TooLong("the identity"));
            }
            return Ok((kind, self.identity.clone().into_bytes()));
        }
        if !kind.is_method() {
            return Err(Error::Unexpected("a Nak for a request"));
        }
        self.offered = Some(kind);
        Ok((Type::NAK, vec![self.wanted.0]))
    }

    fn refused_method(&self) -> Option<Error> {
        Some(Error::OtherMethod { offered: self.offered?, wanted: self.wanted })
    }

    fn succeed(&mut self) -> Step {
        let msk = match &self.method {
            Some(Ok(Running::MsChapV2 { client, .. })) => client.msk().cloned(),
            Some(Ok(Running::Tls(client))) => {
                self.server = client.server().map(Box::new);
                client.msk().cloned()
            }
            _ => None,
        };
        self.method = None;
        match msk {
            Some(msk) => Step::Succeeded(Some(msk)),
            None => Step::Failed(Error::EarlySuccess),
        }
    }

    fn fail(&mut self, why: Error) -> Step {
        self.method = None;
        Step::Failed(why)
    }
}

impl Running {
    const fn has_begun(&self) -> bool {
        match self {
            Self::MsChapV2 { client, .. } => client.has_begun(),
            Self::Tls(client) => client.has_begun(),
        }
    }
}

fn hash_of(password: &Secret, user: &str) -> Result<NtHash, Error> {
    if user.len() > MAX_NAME {
        return Err(Error::TooLong("the user's name"));
    }
    let password =
        str::from_utf8(password.as_bytes()).map_err(|_| Error::Malformed("the password is not UTF-8"))?;
    NtHash::of_password(password).ok_or(Error::TooLong("the password"))
}
