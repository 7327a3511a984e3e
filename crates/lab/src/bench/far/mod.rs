//! Measuring between two machines, over the real link between them: `dormouse bench --far HOST` on the device under test. Owns
//! what either machine does for it; what is measured, and when, is the campaign's business on the device.
//!
//! The far machine's part is done by a [`Worker`] that `ssh` runs there: who may measure with a machine is what its `sshd` says.
//! The two ends of that very connection are the ends of what is measured. The worker's end, however it comes, takes away all
//! that was ordered. The tunnel has one fixed prefix and one fixed device, and there is none where they are in use ([`ground`]).
//!
//! Both machines do their part with the same code ([`side`]); [`pair`] is what the device makes of the two.

mod ground;
mod pair;
mod side;

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

pub(super) use pair::Pair;
pub(super) use side::{Answer, Order, Side};

use super::child;
use super::worker::{Worker, unexpected};
use crate::campaign::{self, machine};
use crate::needs;
use crate::results::format::Machine;

/// The far machine, once it takes orders.
#[derive(Debug)]
pub struct Far {
    worker: Worker,
    host: String,
    /// Who it is.
    pub(super) hello: Hello,
}

/// What the far machine is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    version: String,
    /// How its program was built.
    pub(super) build: String,
    pub(super) machine: Machine,
    /// The device's address, as the far machine sees it.
    near: IpAddr,
    /// Its own towards the device.
    far: IpAddr,
}

/// The connection to the far machine is lost: nothing more can be measured with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the connection to {0} is lost")]
pub struct Lost(String);

impl Far {
    /// Runs `dormouse` (a program with its arguments, for the shell of that machine) on `host`, a destination of `ssh`.
    ///
    /// # Errors
    /// If `ssh` does not get there, there is another version, a NAT stands between, or something is in the way there.
    pub fn reach(host: &str, dormouse: &str) -> Result<Self> {
        let mut command = Command::new("ssh");
        // A machine that is silent for so long is gone.
        command.args(["-T", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4", "--", host]);
        command.arg(format!("{dormouse} bench worker --link \"$SSH_CONNECTION\""));
        let mut worker = Worker::behind(&mut command)?;
        let hello = worker.hello().with_context(|| format!("on {host}"))?;
        let ours = env!("CARGO_PKG_VERSION");
        ensure!(
            hello.version == ours,
            "{host} has dormouse {} and this machine {ours}: both must have the same",
            hello.version
        );
        UdpSocket::bind((hello.near, 0)).with_context(|| {
            format!("a NAT or another machine is in between: {host} sees {}, which is not ours", hello.near)
        })?;
        ground::check_link(hello.far)?;
        Ok(Self { worker, host: host.to_owned(), hello })
    }

    /// Our address towards it, and its own.
    fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.hello.near, self.hello.far)
    }

    /// Gives an order and waits for the answer; `time` is what the order itself asks for.
    ///
    /// # Errors
    /// What the far machine says went wrong; [`Lost`] if it says nothing.
    fn ask(&mut self, order: Order, time: Duration) -> Result<Answer> {
        self.worker.order(order, time).map_err(|error| {
            if error.is::<child::Silent>() {
                error.context(Lost(self.host.clone()))
            } else {
                error.context("on the far machine")
            }
        })
    }

    /// The same, where nothing but success is expected.
    ///
    /// # Errors
    /// As [`Far::ask`].
    fn tell(&mut self, order: Order) -> Result<()> {
        match self.ask(order, Duration::ZERO)? {
            Answer::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }
}

/// The far machine's side of the greeting; `link` as in [`super::serve`].
///
/// # Errors
/// Without privileges, and if the link is not one that can be measured.
pub(super) fn hello(link: &str) -> Result<(Side, Hello)> {
    if let Some(what) = needs::missing() {
        bail!("a tunnel is made here, and that needs {what}");
    }
    let (near, far) = ends(link)?;
    ground::check_link(near)?;
    let side = Side::new(1, far, near)?;
    let machine = machine::describe(Path::new("/"));
    let (version, build) = (env!("CARGO_PKG_VERSION").to_owned(), campaign::build().to_owned());
    Ok((side, Hello { version, build, machine, near, far }))
}

/// The two ends of a connection, as `SSH_CONNECTION` has them: address and port of the client, then of the server. An IPv4 address
/// is one, also on a socket for both families.
fn ends(link: &str) -> Result<(IpAddr, IpAddr)> {
    let [near, _, far, _] = link.split_whitespace().collect::<Vec<_>>()[..] else {
        bail!("SSH_CONNECTION is {link:?}: started by no ssh");
    };
    // An address that holds on one link alone has the link's name, and is none for us.
    let parse = |text: &str| {
        let address = text.parse::<IpAddr>();
        address.map(|a| a.to_canonical()).map_err(|_| anyhow!("{text} is no address that both can use"))
    };
    Ok((parse(near)?, parse(far)?))
}

#[cfg(test)]
mod tests {
    use super::ends;

    #[test]
    fn the_ends_are_those_of_the_connection() {
        let v4 = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        assert_eq!(ends("192.0.2.1 50022 192.0.2.2 22").unwrap(), v4);
        assert_eq!(ends("::ffff:192.0.2.1 50022 192.0.2.2 22").unwrap(), v4);
        assert!(ends("fe80::1%eth0 50022 fe80::2%eth0 22").is_err());
        assert!(ends("").unwrap_err().to_string().contains("started by no ssh"));
    }
}
