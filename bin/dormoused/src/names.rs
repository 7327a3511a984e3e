//! Names of gateways, looked up beside the loop: the system's resolver blocks, so each question has a thread of its own. Owns the threads; what
//! was found, and when to ask again, is the host's.

use crate::marked_names;
use anyhow::Result;
use dormouse_io::bell::Bell;
use dormouse_node::host::Answer;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

/// The questions that are under way.
#[derive(Debug)]
pub(crate) struct Names {
    port: u16,
    /// What other programs ask is held: a name that the system's resolver does not find is asked for in a way of our own.
    marked: bool,
    sender: Sender<(String, Answer)>,
    receiver: Receiver<(String, Answer)>,
    bell: Bell,
}

impl Names {
    pub(crate) fn new(port: u16, marked: bool) -> Result<Self> {
        let (sender, receiver) = channel();
        Ok(Self { port, marked, sender, receiver, bell: Bell::new()? })
    }

    /// Asks for a name.
    pub(crate) fn ask(&self, name: String) {
        let (port, marked) = (self.port, self.marked);
        let (sender, bell) = (self.sender.clone(), self.bell.clone());
        std::thread::spawn(move || {
            let mut answer = look_up(&name, port);
            if marked && let Err(why) = &answer {
                let outside = marked_names::look_up(&name);
                answer = outside.map_err(|e| format!("{why}; asked outside of the tunnel: {e}"));
            }
            // The loop may have ended meanwhile.
            if sender.send((name, answer)).is_ok() {
                bell.ring();
            }
        });
    }

    /// The answers that have come in, by name: of both families, the best first.
    pub(crate) fn answers(&self) -> Vec<(String, Answer)> {
        self.bell.clear();
        self.receiver.try_iter().collect()
    }
}

/// Asks the system's resolver, and waits.
fn look_up(name: &str, port: u16) -> Result<Vec<IpAddr>, String> {
    let list = (name, port).to_socket_addrs().map_err(|e| e.to_string())?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in list.map(|a| a.ip()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err("the name has no address".to_owned()) } else { Ok(addresses) }
}

impl AsFd for Names {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
