//! The gateway's part of a conversation. Owns what has been said so far; must never let a peer choose a method that is not configured, or one twice.

use std::sync::Arc;

use dormouse_crypto::Secret;
use dormouse_sansio::Entropy;

use crate::error::Error;
use crate::keys::Msk;
use crate::limits::{MAX_IDENTITY, MAX_TURNS, MAX_WANTED};
use crate::method::Turn;
use crate::mschapv2;
use crate::packet::{Packet, Type};
use crate::tls;
use crate::ttls;

pub use crate::users::{Users, names};

/// What is offered to peers.
#[derive(Debug)]
pub struct Config {
    /// In the order in which they are offered.
    methods: Vec<Method>,
    /// What we call ourselves.
    name: String,
    /// What the hashes of users come from who do not exist.
    decoy: Secret,
}

/// A way to authenticate users.
#[derive(Clone, Debug)]
pub enum Method {
    /// EAP-MSCHAPv2, with the hashes that [`Users::mschapv2`] has.
    MsChapV2,
    /// EAP-TLS, with certificates that [`Users::admits`] is asked about.
    Tls(tls::ServerConfig),
    /// EAP-TTLS: a password inside TLS, with [`Users::mschapv2`] or [`Users::password`].
    Ttls(tls::TunnelConfig),
}

impl Method {
    /// The method's number.
    #[must_use]
    pub const fn kind(&self) -> Type {
        match self {
            Self::MsChapV2 => Type::MSCHAPV2,
            Self::Tls(_) => Type::TLS,
            Self::Ttls(_) => Type::TTLS,
        }
    }
}

impl Config {
    /// `first` is asked for first, and `others` where a peer refuses it and names them. `name` is shown to peers by methods that can; it proves nothing.
    /// Draws the secret that stands for users who do not exist.
    #[must_use]
    pub fn new(first: Method, others: Vec<Method>, name: &str, entropy: &mut dyn Entropy) -> Self {
        let mut decoy = Secret::zeroed(32);
        entropy.fill(decoy.as_mut_bytes());
        let methods = [vec![first], others].concat();
        Self { methods, name: name.chars().take(64).collect(), decoy }
    }
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Send this packet.
    Send(Vec<u8>),
    /// Both sides are authenticated.
    Succeeded {
        /// To be sent.
        packet: Vec<u8>,
        /// The name that the peer has proved: as [`Users`] has it, or of its certificate. What it said in EAP-Identity proves nothing.
        identity: String,
        /// The key.
        msk: Msk,
    },
    /// It is over.
    Failed {
        /// To be sent.
        packet: Vec<u8>,
        /// For the log; the peer learns less.
        why: Error,
    },
    /// The packet means nothing here.
    Ignore,
}

#[derive(Debug)]
enum State {
    /// Asked who it is.
    Identity,
    /// A method is under way; whether the peer has said anything of it yet.
    Method { running: Running, begun: bool },
    /// Nothing.
    Over,
}

#[derive(Debug)]
enum Running {
    MsChapV2(mschapv2::Server),
    Tls(Box<tls::Server>),
    Ttls(Box<ttls::Server>),
}

/// One conversation.
#[derive(Debug)]
pub struct Authenticator {
    config: Arc<Config>,
    state: State,
    /// The identifier of the request that waits for its response.
    identifier: u8,
    /// What the peer says its name is.
    claimed: Option<String>,
    /// Which methods have been offered.
    tried: Vec<Type>,
    turns: u16,
}

impl Authenticator {
    /// Begins a conversation, and gives its first packet: a question for the peer's identity, unless it is known already (from IKE, where an ID payload of a kind
    /// that is a user's name may do), or the first method.
    #[must_use]
    pub fn begin(config: &Arc<Config>, known: Option<String>, entropy: &mut dyn Entropy) -> (Self, Vec<u8>) {
        let mut identifier = [0; 1];
        entropy.fill(&mut identifier);
        let mut new = Self {
            config: Arc::clone(config),
            state: State::Identity,
            identifier: identifier[0],
            claimed: known,
            tried: Vec::new(),
            turns: 0,
        };
        let asked = match new.claimed {
            None => new.request(Type::IDENTITY, &[]),
            Some(_) => new.offer(None, entropy),
        };
        // There is a first method, and it starts; but should it not, the peer hears that at once.
        let packet = asked.unwrap_or_else(|_| {
            new.state = State::Over;
            vec![4, new.identifier, 0, 4]
        });
        (new, packet)
    }

    /// What the peer says its name is, for a log. Nothing is proved by it, and it may hold any characters.
    #[must_use]
    pub fn claimed(&self) -> Option<&str> {
        self.claimed.as_deref()
    }

    /// The method that is under way.
    #[must_use]
    pub const fn method(&self) -> Option<Type> {
        match &self.state {
            State::Method { running, .. } => Some(running.kind()),
            State::Identity | State::Over => None,
        }
    }

    /// What it will fail with, once that is certain: the peer has been told, and may never answer. A gateway that counts failures counts this one
    /// when the conversation is dropped.
    #[must_use]
    pub const fn refusal(&self) -> Option<&Error> {
        match &self.state {
            State::Method { running: Running::MsChapV2(server), .. } => server.refusal(),
            State::Method { running: Running::Tls(server), .. } => server.refusal(),
            State::Method { running: Running::Ttls(server), .. } => server.refusal(),
            _ => None,
        }
    }

    /// Takes the content of an EAP payload.
    pub fn receive(&mut self, packet: &[u8], users: &dyn Users, entropy: &mut dyn Entropy) -> Step {
        if matches!(self.state, State::Over) {
            return Step::Ignore;
        }
        self.turns += 1;
        if self.turns > MAX_TURNS {
            return self.fail(Error::Endless);
        }
        let (kind, data) = match Packet::parse(packet) {
            Err(why) => return self.fail(why),
            Ok(Packet::Response { identifier, kind, data }) if identifier == self.identifier => (kind, data),
            // "MUST silently discard" (RFC 3748 section 4.1)
            Ok(_) => return Step::Ignore,
        };
        let next = match &mut self.state {
            State::Identity => self.identified(kind, data, entropy),
            State::Method { begun: false, .. } if kind == Type::NAK => {
                let wanted = data.iter().copied().map(Type).filter(|kind| kind.is_method());
                self.offer(Some(wanted.take(MAX_WANTED).collect()), entropy)
            }
            State::Method { running, begun } if kind == running.kind() => {
                *begun = true;
                match running.receive(data, self.claimed.as_deref(), users, &self.config, entropy) {
                    Turn::Ask(data) => self.request(kind, &data),
                    Turn::Done { identity, msk } => return self.succeed(identity, msk),
                    Turn::Failed(why) => Err(why),
                }
            }
            _ => Err(Error::Unexpected("the answer is to another question")),
        };
        match next {
            Ok(packet) => Step::Send(packet),
            Err(why) => self.fail(why),
        }
    }

    fn identified(&mut self, kind: Type, data: &[u8], entropy: &mut dyn Entropy) -> Result<Vec<u8>, Error> {
        if kind != Type::IDENTITY {
            return Err(Error::Unexpected("no identity, although it was asked for"));
        }
        // What follows a zero byte is options, not name (RFC 3748 section 5.1).
        let name = data.split(|byte| *byte == 0).next().unwrap_or_default();
        if name.len() > MAX_IDENTITY {
            return Err(Error::TooLong("the identity"));
        }
        self.claimed = core::str::from_utf8(name).ok().map(str::to_owned);
        self.offer(None, entropy)
    }

    /// Starts the first method that has not been tried and that the peer would take, if it has said which.
    fn offer(&mut self, wanted: Option<Vec<Type>>, entropy: &mut dyn Entropy) -> Result<Vec<u8>, Error> {
        let takes = |kind| wanted.as_ref().is_none_or(|wanted| wanted.contains(&kind));
        let mut left = self.config.methods.iter().filter(|method| !self.tried.contains(&method.kind()));
        let Some(method) = left.find(|method| takes(method.kind())) else {
            return Err(Error::NoCommonMethod(wanted.unwrap_or_default()));
        };
        let kind = method.kind();
        let (running, data) = match method {
            Method::MsChapV2 => {
                let next = self.identifier.wrapping_add(1);
                let (server, data) = mschapv2::Server::start(next, &self.config.name, entropy);
                (Running::MsChapV2(server), data)
            }
            Method::Tls(config) => {
                let (server, data) = tls::Server::start(config)?;
                (Running::Tls(Box::new(server)), data)
            }
            Method::Ttls(config) => {
                let (server, data) = ttls::Server::start(config)?;
                (Running::Ttls(Box::new(server)), data)
            }
        };
        self.tried.push(kind);
        self.state = State::Method { running, begun: false };
        self.request(kind, &data)
    }

    /// The next request. "Any new (non-retransmission) Requests MUST modify the Identifier field." (RFC 3748 section 4.1)
    fn request(&mut self, kind: Type, data: &[u8]) -> Result<Vec<u8>, Error> {
        self.identifier = self.identifier.wrapping_add(1);
        Packet::Request { identifier: self.identifier, kind, data }.emit()
    }

    fn succeed(&mut self, identity: String, msk: Msk) -> Step {
        self.state = State::Over;
        match (Packet::Success { identifier: self.identifier }).emit() {
            Ok(packet) => Step::Succeeded { packet, identity, msk },
            Err(why) => self.fail(why),
        }
    }

    fn fail(&mut self, why: Error) -> Step {
        self.state = State::Over;
        let packet = Packet::Failure { identifier: self.identifier }.emit().unwrap_or_default();
        Step::Failed { packet, why }
    }
}

impl Running {
    const fn kind(&self) -> Type {
        match self {
            Self::MsChapV2(_) => Type::MSCHAPV2,
            Self::Tls(_) => Type::TLS,
            Self::Ttls(_) => Type::TTLS,
        }
    }

    fn receive(
        &mut self,
        data: &[u8],
        claimed: Option<&str>,
        users: &dyn Users,
        config: &Config,
        entropy: &mut dyn Entropy,
    ) -> Turn {
        match self {
            Self::MsChapV2(server) => server.receive(data, users, &config.decoy, entropy),
            Self::Tls(server) => server.receive(data, claimed, users),
            Self::Ttls(server) => server.receive(data, users, &config.name, &config.decoy, entropy),
        }
    }
}
