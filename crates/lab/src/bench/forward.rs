//! One end of our tunnel as a process of its own, as the daemon is one: so that the instructions of the processor can be hidden
//! from it ([`without_aes`]), and so that both ways are measured alike. Owns the process and the words between the two; must never
//! say that an end is ready before it is.
//!
//! The child has one job, answers it, and forwards until its standard input is closed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse_crypto::Secret;
use dormouse_crypto::measure::verify;
use dormouse_keying::Mode;
use dormouse_sansio::Carrier;
use dormouse_testbed::forward::{Forwarder, Protection, Settings};
use serde::{Deserialize, Serialize};

use super::child::{self, Child};
use super::place::Place;
use super::worker::without_aes;
use crate::results::esp::Encapsulation;

/// Outer addresses of sender and receiver.
pub(crate) const OUTER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
/// Inner addresses of sender and receiver.
pub(crate) const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 88, 0, 1), Ipv4Addr::new(10, 88, 0, 2)];
/// The tunnel's device.
pub(crate) const TUN: &str = "dm0";
/// An end that is not ready after so long never will be.
const STUCK: Duration = Duration::from_secs(10);

/// What an end shall do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The suite by name; `none` forwards without ESP, if it is not encapsulated.
    pub(crate) suite: String,
    /// How packets are wrapped.
    pub(crate) encapsulation: Encapsulation,
    /// Which end: 0 sends, 1 receives.
    pub(crate) end: usize,
    /// Where it stands.
    pub(crate) site: Site,
}

/// Where an end stands: a host of the testbed, or a machine of its own on a network with others.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Site {
    /// Name of the tunnel's device.
    pub(crate) tun: String,
    /// Our outer address.
    pub(crate) local: IpAddr,
    /// The peer's.
    pub(crate) remote: IpAddr,
    /// Inner addresses, ours first.
    pub(crate) inner: [Ipv4Addr; 2],
    /// What both ends derive their keys from, for this tunnel alone; keys in the testbed are no secret.
    pub(crate) run: Option<[u8; 32]>,
}

impl Site {
    /// The host of the testbed with this end, 0 or 1.
    pub(crate) fn of_host(end: usize) -> Self {
        let [ours, theirs] = if end == 0 { [0, 1] } else { [1, 0] };
        Self {
            tun: TUN.to_owned(),
            local: OUTER[ours].into(),
            remote: OUTER[theirs].into(),
            inner: [INNER[ours], INNER[theirs]],
            run: None,
        }
    }
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Site({}, {} to {})", self.tun, self.local, self.remote)
    }
}

impl Job {
    /// What that means for the forwarder.
    ///
    /// # Errors
    /// For an unknown suite, or a third end.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let mode = if self.encapsulation.is_transport() { Mode::Transport } else { Mode::Tunnel };
        let protection = match self.encapsulation {
            Encapsulation::None => Protection::Plain,
            _ => Protection::Esp { suite: self.suite.parse()?, mode },
        };
        let raw = matches!(self.encapsulation, Encapsulation::Tunnel | Encapsulation::Transport);
        ensure!(self.end < 2, "a link has no end {}", self.end);
        let port = if raw { 0 } else { 4_500 };
        let site = &self.site;
        Ok(Settings {
            tun: site.tun.clone(),
            protection,
            carrier: if raw { Carrier::RawEsp } else { Carrier::NatT },
            local: SocketAddr::from((site.local, port)),
            remote: SocketAddr::from((site.remote, port)),
            inner: (site.inner[0].into(), site.inner[1].into()),
            first: self.end == 0,
            run: site.run.map(Secret::from),
        })
    }
}

/// An end is ready.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Ready,
}

/// An end that forwards. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct End(Child);

impl End {
    /// Starts this program again at `place`, without AES instructions if `hidden`, and waits until packets can come.
    ///
    /// # Errors
    /// What the end says went wrong; or that it says nothing.
    pub(crate) fn start(place: &Place, job: &Job, hidden: bool) -> Result<Self> {
        let mut command = place.command(Child::program()?);
        command.args(["bench", "forward"]);
        if hidden {
            let (variable, value) = without_aes().context("AES instructions cannot be hidden here")?;
            command.env(variable, value);
        }
        let mut child = Child::start(&mut command)?;
        let Answer::Ready = child.ask(job, STUCK)?;
        Ok(Self(child))
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.0.pid()
    }
}

/// The child's side: one job from standard input, which must be a pipe or a socket; forwards until its other end is closed.
///
/// # Errors
/// Those of the device and the socket, once it forwards; an error before that goes to the caller.
pub fn forward() -> Result<()> {
    let opened = child::serve_once(|job: Job| {
        let settings = job.settings()?;
        if let Protection::Esp { suite, .. } = settings.protection {
            // Other instructions are other code: what computes wrongly is not measured here either.
            verify(suite)?;
        }
        Ok((Answer::Ready, Forwarder::open(&settings)?))
    })?;
    if let Some(mut forwarder) = opened {
        forwarder.run(&std::io::stdin())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_ends_face_each_other() {
        let job = |end| Job {
            suite: "aes128gcm16".into(),
            encapsulation: Encapsulation::Udp,
            end,
            site: Site::of_host(end),
        };
        let [a, b] = [0, 1].map(|end| job(end).settings().unwrap());
        assert_eq!((a.local, a.remote), (b.remote, b.local));
        assert_eq!((a.inner.0, a.inner.1), (b.inner.1, b.inner.0));
        assert_eq!(a.inner_mtu().unwrap(), b.inner_mtu().unwrap());
        assert!(a.first && !b.first);
        assert!(job(2).settings().is_err());
        assert!(Job { suite: "rot13".into(), ..job(0) }.settings().is_err());
    }
}
