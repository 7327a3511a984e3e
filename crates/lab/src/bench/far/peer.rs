//! The device's end of the conversation. Owns the connection; must never take for an answer what did not come in time.

use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::channel::{self, ClientChannel};
use super::ground;
use super::message::{Answer, Order, Welcome};
use super::secret::Pass;
use crate::results::format::Machine;

/// A connection attempt takes no longer.
const CONNECT: Duration = Duration::from_secs(10);
/// What an order takes beyond the time that it asks for: a tunnel's end may take ten seconds to say that it does not start.
const PATIENCE: Duration = Duration::from_secs(40);

/// The far machine, once it takes orders.
#[derive(Debug)]
pub struct Peer {
    channel: ClientChannel,
    name: String,
    /// Our address towards it, and its own.
    pub(super) addresses: (IpAddr, IpAddr),
    /// What it is.
    pub(in crate::bench) machine: Machine,
    /// How its program was built.
    pub(in crate::bench) build: String,
}

/// The connection to the far machine is lost: nothing more can be measured with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the connection to {0} is lost")]
pub struct Lost(String);

impl Peer {
    /// Connects to the service at `address` (host and port), whose secret this is.
    ///
    /// # Errors
    /// If there is no way there, nobody serves there, it is busy, of another version or not the one that the secret is of; if a
    /// NAT stands between; and what it says against being measured with.
    pub fn connect(address: &str, secret: &str) -> Result<Self> {
        let pass = Pass::parse(secret)?;
        let stream = dial(address)?;
        let (_, theirs) = channel::ends(&stream)?;
        ground::check_link(theirs.ip())?;
        Self::greet(stream, address, &pass)
    }

    pub(super) fn greet(stream: TcpStream, address: &str, pass: &Pass) -> Result<Self> {
        channel::prepare(&stream)?;
        let (ours, theirs) = channel::ends(&stream)?;
        let (channel, welcome) = channel::connect(stream, pass).with_context(|| address.to_owned())?;
        match welcome {
            Welcome::Refused(why) => bail!("{address}: it refuses: {why}"),
            Welcome::Granted { machine, build, .. } => Ok(Self {
                channel,
                name: address.to_owned(),
                addresses: (ours.ip(), theirs.ip()),
                machine: *machine,
                build,
            }),
        }
    }

    /// Gives an order and waits for the answer; `time` is what the order itself asks for.
    ///
    /// # Errors
    /// What the far machine says went wrong; [`Lost`] if it says nothing.
    pub(super) fn ask(&mut self, order: &Order, time: Duration) -> Result<Answer> {
        let lost = |error: anyhow::Error| error.context(Lost(self.name.clone()));
        self.channel.say(order, PATIENCE).map_err(lost)?;
        match self.channel.hear(time + PATIENCE).map_err(lost)? {
            Some(Answer::Failed(why)) => Err(anyhow!("on the far machine: {why}")),
            Some(answer) => Ok(answer),
            None => Err(lost(anyhow!("it has ended it"))),
        }
    }

    /// The same, where nothing but success is expected.
    ///
    /// # Errors
    /// As [`Peer::ask`].
    pub(super) fn tell(&mut self, order: &Order) -> Result<()> {
        match self.ask(order, Duration::ZERO)? {
            Answer::Done {} => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

/// An answer to another question.
pub(super) fn unexpected(answer: &Answer) -> anyhow::Error {
    anyhow!("the far machine answered {answer:?}")
}

fn dial(address: &str) -> Result<TcpStream> {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    let all: Vec<_> =
        address.to_socket_addrs().with_context(|| format!("{address}: expected ADDRESS:PORT"))?.collect();
    let mut why = anyhow!("{address} has no address");
    for one in all {
        match TcpStream::connect_timeout(&one, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                let words = match error.kind() {
                    ConnectionRefused => {
                        format!("nobody serves at {one}: dormouse bench --serve {one} is to run there")
                    }
                    NetworkUnreachable | HostUnreachable => format!("no route to the peer {one}"),
                    TimedOut => format!("the peer {one} does not answer"),
                    _ => format!("TCP to {one}"),
                };
                why = anyhow::Error::new(error).context(words);
            }
        }
    }
    Err(why)
}
