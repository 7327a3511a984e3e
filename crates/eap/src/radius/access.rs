//! One user's conversation with a server. Owns the server's state and the request that waits; must never take a verdict that contradicts the EAP packet beside it.

use core::net::Ipv4Addr;
use core::time::Duration;

use dormouse_sansio::Entropy;

use super::Connection;
use super::attribute::{
    self, Attributes, CLASS, EAP_MESSAGE, FILTER, FRAMED_ADDRESS, FRAMED_MTU, IDLE_TIMEOUT, INTERIM,
    REPLY_MESSAGE, SESSION_TIMEOUT, STATE, USER_NAME,
};
use super::mppe;
use super::sealed::{ACCESS_ACCEPT, ACCESS_CHALLENGE, Asks, Discard, Opened, Pending, signed_request};
use crate::error::Error;
use crate::keys::Msk;
use crate::limits::{MAX_TURNS, RADIUS_MTU};
use crate::packet::{Packet, Type};

/// What a server allows a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// How long the session may last.
    pub lasts: Option<Duration>,
    /// How long it may be idle.
    pub idle: Option<Duration>,
    /// How often accounting is to be told.
    pub interim: Option<Duration>,
    /// The address that the user is to have; `None` for one of the gateway's choice, which servers ask for with 255.255.255.254.
    pub address: Option<Ipv4Addr>,
    /// The name of a group or of filters.
    pub filter: Option<String>,
    /// To be repeated in accounting (RFC 2865 section 5.25).
    pub class: Vec<Vec<u8>>,
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To be sent to the peer, whose response goes to [`Access::ask`].
    Continue {
        /// The packet.
        eap: Vec<u8>,
    },
    /// The user may come in.
    Accepted {
        /// To be sent to the peer.
        eap: Vec<u8>,
        /// The name that the server has for the user, or the one that the user claims.
        identity: String,
        /// The key.
        msk: Msk,
        /// What is allowed.
        grants: Grants,
    },
    /// The user may not.
    Rejected {
        /// To be sent to the peer.
        eap: Vec<u8>,
        /// What the server says to it.
        message: Option<String>,
    },
    /// It is over: the server says what makes no sense here.
    Broken {
        /// To be sent to the peer.
        eap: Vec<u8>,
        /// What is wrong.
        why: Broken,
    },
}

/// What is wrong with an authentic answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It lets the user in, without a key that proves it to IKE.
    #[error(
        "the RADIUS server accepts the user, but sends no MS-MPPE keys; its EAP method makes none, or it does not send them"
    )]
    NoKey,
    /// The EAP packet beside a verdict is another one, or there is none.
    #[error("the RADIUS server's verdict and its EAP packet do not agree")]
    Contradiction,
    /// It goes on and on.
    #[error("the RADIUS server does not come to an end")]
    Endless,
}

/// One conversation.
#[derive(Debug)]
pub struct Access {
    connection: Connection,
    /// The user's name, as it was claimed.
    user: String,
    /// What the server wants back.
    state: Option<Vec<u8>>,
    pending: Option<Pending>,
    /// The identifier of the peer's last response, which a verdict of our own has.
    last: u8,
    turns: u16,
}

impl Access {
    /// The question for the peer's name with which a conversation begins (RFC 3579 section 2.1), unless IKE has one: then
    /// [`Access::introduce`] makes the peer's answer.
    ///
    /// # Errors
    /// None that happens: the packet is short.
    pub fn question(identifier: u8) -> Result<Vec<u8>, Error> {
        Packet::Request { identifier, kind: Type::IDENTITY, data: &[] }.emit()
    }

    /// What a peer would answer to [`Access::question`].
    ///
    /// # Errors
    /// [`Error::TooLong`].
    pub fn introduce(user: &str) -> Result<Vec<u8>, Error> {
        Packet::Response { identifier: 0, kind: Type::IDENTITY, data: user.as_bytes() }.emit()
    }

    /// A conversation that begins with the peer's EAP-Response/Identity, to be given to [`Access::ask`].
    #[must_use]
    pub const fn new(connection: Connection) -> Self {
        Self { connection, user: String::new(), state: None, pending: None, last: 0, turns: 0 }
    }

    /// The Access-Request that carries the peer's EAP packet.
    ///
    /// # Errors
    /// [`Error::Malformed`] or [`Error::Unexpected`] for what is no response, [`Error::TooLong`] for what RADIUS cannot carry.
    pub fn ask(&mut self, identifier: u8, eap: &[u8], entropy: &mut dyn Entropy) -> Result<Vec<u8>, Error> {
        let Packet::Response { identifier: last, kind, data } = Packet::parse(eap)? else {
            return Err(Error::Unexpected("a client sends responses"));
        };
        if kind == Type::IDENTITY && self.turns == 0 {
            // "the NAS MUST copy the contents of the Type-Data field of the EAP-Response/Identity received from the peer into the
            // User-Name attribute" (RFC 3579 section 2.1)
            let name = data.split(|byte| *byte == 0).next().unwrap_or_default();
            let malformed = |_| Error::Malformed("a name that is not UTF-8");
            self.user = core::str::from_utf8(name).map_err(malformed)?.to_owned();
        }
        if self.user.is_empty() {
            return Err(Error::Unexpected("a client without a name"));
        }
        let mut attributes = Attributes::default();
        attributes.push(USER_NAME, self.user.as_bytes())?;
        self.connection.describe(&mut attributes)?;
        attributes.push(FRAMED_MTU, &RADIUS_MTU.to_be_bytes())?;
        attributes.push_long(EAP_MESSAGE, eap)?;
        if let Some(state) = &self.state {
            attributes.push(STATE, state)?;
        }
        let (pending, packet) =
            signed_request(Asks::Access, identifier, attributes, &self.connection.client.secret, entropy)?;
        (self.pending, self.last) = (Some(pending), last);
        self.turns += 1;
        Ok(packet)
    }

    /// The identifier of the request that waits for its answer.
    #[must_use]
    pub fn waits_for(&self) -> Option<u8> {
        self.pending.as_ref().map(|pending| pending.identifier)
    }

    /// Takes a datagram of the server.
    ///
    /// # Errors
    /// [`Discard`]: it is none, or comes from somebody else. The request waits on.
    pub fn answer(&mut self, datagram: &[u8]) -> Result<Answer, Discard> {
        let pending = self.pending.as_ref().ok_or(Discard::Unexpected)?;
        let secret = &self.connection.client.secret;
        let Opened { code, attributes } = pending.open(secret, datagram)?;
        let eap: Vec<u8> = attribute::all(&attributes, EAP_MESSAGE).flatten().copied().collect();
        let answer = match (code, Packet::parse(&eap)) {
            (ACCESS_CHALLENGE, Ok(Packet::Request { .. })) if self.turns < MAX_TURNS => {
                self.state = attribute::all(&attributes, STATE).next().map(<[u8]>::to_vec);
                Answer::Continue { eap }
            }
            (ACCESS_CHALLENGE, Ok(Packet::Request { .. })) => self.broken(Broken::Endless),
            (ACCESS_ACCEPT, Ok(Packet::Success { .. })) => match mppe::msk(&attributes, pending, secret) {
                Some(msk) => {
                    let named = attribute::text(&attributes, USER_NAME).filter(|name| !name.is_empty());
                    let identity = named.unwrap_or_else(|| self.user.clone());
                    Answer::Accepted { eap, identity, msk, grants: grants(&attributes) }
                }
                None => self.broken(Broken::NoKey),
            },
            (ACCESS_ACCEPT | ACCESS_CHALLENGE, _) => self.broken(Broken::Contradiction),
            // A rejection is one whatever stands in it.
            (_, parsed) => {
                let message = attribute::text(&attributes, REPLY_MESSAGE);
                let eap = if matches!(parsed, Ok(Packet::Failure { .. })) { eap } else { self.failure() };
                Answer::Rejected { eap, message }
            }
        };
        self.pending = None;
        Ok(answer)
    }

    fn broken(&self, why: Broken) -> Answer {
        Answer::Broken { eap: self.failure(), why }
    }

    fn failure(&self) -> Vec<u8> {
        Packet::Failure { identifier: self.last }.emit().unwrap_or_default()
    }
}

fn grants(attributes: &[(u8, &[u8])]) -> Grants {
    let seconds = |kind| attribute::number(attributes, kind).map(|n| Duration::from_secs(u64::from(n)));
    let address = attribute::number(attributes, FRAMED_ADDRESS).map(Ipv4Addr::from);
    Grants {
        lasts: seconds(SESSION_TIMEOUT),
        idle: seconds(IDLE_TIMEOUT),
        interim: seconds(INTERIM),
        // "0xFFFFFFFF ... the NAS should allow the user to select an address", "0xFFFFFFFE ... the NAS should select" (RFC 2865 section 5.8)
        address: address.filter(|ip| u32::from(*ip) < 0xffff_fffe),
        filter: attribute::text(attributes, FILTER),
        class: attribute::all(attributes, CLASS).map(<[u8]>::to_vec).collect(),
    }
}
