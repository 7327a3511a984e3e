//! Names of gateways, resolved beside the loop: the system's resolver blocks, so each question has a thread of its own. Owns what
//! was found; an address that was found stays until a better answer comes.

use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

type Answer = (String, Result<IpAddr, String>);

/// The names in use.
#[derive(Debug)]
pub(crate) struct Names {
    port: u16,
    known: BTreeMap<String, IpAddr>,
    asking: BTreeSet<String>,
    sender: Sender<Answer>,
    receiver: Receiver<Answer>,
    /// A byte for each answer wakes the loop.
    bell: UnixStream,
    ringer: UnixStream,
}

impl Names {
    pub(crate) fn new(port: u16) -> Result<Self> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let (sender, receiver) = channel();
        Ok(Self { port, known: BTreeMap::new(), asking: BTreeSet::new(), sender, receiver, bell, ringer })
    }

    /// The address of a gateway: itself, if it is one.
    pub(crate) fn address(&self, name: &str) -> Option<IpAddr> {
        name.parse().ok().or_else(|| self.known.get(name).copied())
    }

    /// Asks for a name, unless it is an address or is being asked for.
    pub(crate) fn ask(&mut self, name: &str) {
        if name.parse::<IpAddr>().is_ok() || !self.asking.insert(name.to_owned()) {
            return;
        }
        let (name, port, sender) = (name.to_owned(), self.port, self.sender.clone());
        let Ok(mut ringer) = self.ringer.try_clone() else { return };
        std::thread::spawn(move || {
            let first = (name.as_str(), port).to_socket_addrs().map(|mut list| list.next());
            let answer = match first {
                Ok(Some(address)) => Ok(address.ip()),
                Ok(None) => Err("the name has no address".to_owned()),
                Err(e) => Err(e.to_string()),
            };
            // The loop may have ended meanwhile.
            if sender.send((name, answer)).is_ok() {
                let _ = ringer.write_all(&[1]);
            }
        });
    }

    /// The answers that have come in.
    pub(crate) fn found(&mut self) -> Vec<Answer> {
        let mut rung = [0; 64];
        let _ = self.bell.read(&mut rung);
        let answers: Vec<Answer> = self.receiver.try_iter().collect();
        for (name, answer) in &answers {
            self.asking.remove(name);
            if let Ok(address) = answer {
                self.known.insert(name.clone(), *address);
            }
        }
        answers
    }
}

impl AsFd for Names {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
