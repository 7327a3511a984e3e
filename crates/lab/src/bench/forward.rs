//! One end of our tunnel as a process of its own, as the daemon is one: so that the instructions of the processor can be hidden
//! from it (see [`Mask`]), and so that both ways are measured alike. Owns the process and the words between the two; must never
//! say that an end is ready before it is.
//!
//! The child's standard input is one end of a socket: it reads one job, a line of JSON, answers with one, and forwards until
//! the other end is closed, which happens too if this process dies.

use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dormouse_crypto::Secret;
use dormouse_crypto::measure::{Suite, verify};
use dormouse_keying::Mode;
use dormouse_sansio::Carrier;
use dormouse_testbed::forward::{Forwarder, Protection, Settings};
use serde::{Deserialize, Serialize};

use super::place::Place;
use super::worker::Mask;
use crate::results::format::Encapsulation;

/// Outer addresses of sender and receiver.
pub(crate) const OUTER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
/// Inner addresses of sender and receiver.
pub(crate) const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 88, 0, 1), Ipv4Addr::new(10, 88, 0, 2)];
/// The tunnel's device.
pub(crate) const TUN: &str = "dm0";
/// An end that is not ready after so long never will be.
const STUCK: Duration = Duration::from_secs(10);
/// Bytes of a line between the two, at most.
const LINE: u64 = 4_096;

/// What an end shall do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The suite by name; `none` forwards without ESP, if it is not encapsulated.
    pub(crate) suite: String,
    /// How packets are wrapped.
    pub(crate) encapsulation: Encapsulation,
    /// Which end: 0 sends, 1 receives.
    pub(crate) end: usize,
    /// Where it stands, if not in a namespace of the testbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) site: Option<Site>,
}

/// A machine of its own, on a network with others.
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
    /// What both ends derive their keys from, for this tunnel alone.
    pub(crate) run: [u8; 32],
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
        let (ours, theirs) = match self.end {
            0 => (0, 1),
            1 => (1, 0),
            other => bail!("a link has no end {other}"),
        };
        let port = if raw { 0 } else { 4_500 };
        let carrier = if raw { Carrier::RawEsp } else { Carrier::NatT };
        let first = ours == 0;
        Ok(match &self.site {
            None => Settings {
                tun: TUN.to_owned(),
                protection,
                carrier,
                local: SocketAddr::from((OUTER[ours], port)),
                remote: SocketAddr::from((OUTER[theirs], port)),
                inner: (INNER[ours].into(), INNER[theirs].into()),
                first,
                run: None,
            },
            Some(site) => Settings {
                tun: site.tun.clone(),
                protection,
                carrier,
                local: SocketAddr::from((site.local, port)),
                remote: SocketAddr::from((site.remote, port)),
                inner: (site.inner[0].into(), site.inner[1].into()),
                first,
                run: Some(Secret::from(site.run)),
            },
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Ready,
    Failed(String),
}

/// An end that forwards. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct End {
    stop: Option<UnixStream>,
    child: Child,
}

impl End {
    /// Starts this program again at `place`, without AES instructions if `hidden`, and waits until packets can come.
    ///
    /// # Errors
    /// What the end says went wrong; or that it says nothing.
    pub(crate) fn start(place: &Place, job: &Job, hidden: bool) -> Result<Self> {
        let program = std::env::current_exe().context("this program's own file")?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = place.command(&program);
        command.args(["bench", "forward"]).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        if hidden {
            let (variable, value) =
                Mask::Aes.environment().context("AES instructions cannot be hidden here")?;
            command.env(variable, value);
        }
        let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        // Only the child has the other end now: its death is the end of what is read here.
        drop(command);
        let mut end = Self { stop: Some(ours), child };
        end.instruct(job)?;
        Ok(end)
    }

    fn instruct(&mut self, job: &Job) -> Result<()> {
        let socket = self.stop.as_mut().context("the forwarder has ended")?;
        socket.set_read_timeout(Some(STUCK))?;
        say(socket, job).context("telling the forwarder")?;
        match hear(socket).context("the forwarder does not start")? {
            Answer::Ready => Ok(()),
            Answer::Failed(why) => bail!(why),
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.stop = None;
        // It ends by itself, and leaves nothing that the kernel would not take away from it as well.
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's side: one job from standard input, which must be a socket; forwards until its other end is closed.
///
/// # Errors
/// Those of the device and the socket, once it forwards; an error before that goes to the caller.
pub fn forward() -> Result<()> {
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let opened = hear(&mut socket).and_then(|job: Job| {
        let settings = job.settings()?;
        if let Protection::Esp { suite, .. } = settings.protection {
            known(suite)?;
        }
        Forwarder::open(&settings)
    });
    match opened {
        Ok(mut forwarder) => {
            say(&mut socket, &Answer::Ready)?;
            forwarder.run(&socket)?;
        }
        Err(error) => say(&mut socket, &Answer::Failed(format!("{error:#}")))?,
    }
    Ok(())
}

/// Other instructions are other code: what computes wrongly is not measured here either.
fn known(suite: Suite) -> Result<()> {
    Ok(verify(suite)?)
}

fn say(socket: &mut UnixStream, what: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    Ok(socket.write_all(line.as_bytes())?)
}

fn hear<T: serde::de::DeserializeOwned>(socket: &mut UnixStream) -> Result<T> {
    let mut line = String::new();
    BufReader::new(socket.take(LINE)).read_line(&mut line)?;
    serde_json::from_str(&line).with_context(|| format!("it said {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_ends_face_each_other() {
        let job =
            |end| Job { suite: "aes128gcm16".into(), encapsulation: Encapsulation::Udp, end, site: None };
        let [a, b] = [0, 1].map(|end| job(end).settings().unwrap());
        assert_eq!((a.local, a.remote), (b.remote, b.local));
        assert_eq!((a.inner.0, a.inner.1), (b.inner.1, b.inner.0));
        assert_eq!(a.inner_mtu().unwrap(), b.inner_mtu().unwrap());
        assert!(a.first && !b.first);
        assert!(job(2).settings().is_err());
        assert!(Job { suite: "rot13".into(), ..job(0) }.settings().is_err());
    }

    #[test]
    fn what_is_said_is_heard_and_nonsense_is_told_as_it_was() {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        say(&mut a, &Answer::Failed("no device".into())).unwrap();
        assert!(matches!(hear(&mut b), Ok(Answer::Failed(why)) if why == "no device"));
        a.write_all(b"thread 'main' panicked\n").unwrap();
        let error = hear::<Answer>(&mut b).unwrap_err().to_string();
        assert!(error.contains("panicked"), "{error}");
        drop(a);
        assert!(hear::<Answer>(&mut b).is_err(), "it has ended");
    }
}
