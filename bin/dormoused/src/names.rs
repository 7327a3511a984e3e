//! Names of gateways, resolved beside the loop: the system's resolver blocks, so each question has a thread of its own. Owns what
//! was found, and when to ask again; addresses that were found stay until a better answer comes.
//!
//! # Timer
//! *a gateway's name*: a name that no server knew is asked for again, after 1 s, doubled to 60 s. Only while there is a network; a new one
//! is a reason to ask at once.

use crate::marked_names;
use anyhow::Result;
use dormouse_io::bell::Bell;
use dormouse_sansio::{Deadline, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);
/// Addresses of one name that are used.
const ADDRESSES_MOST: usize = 8;

type Answer = (String, Result<Vec<IpAddr>, String>);

/// The names in use.
#[derive(Debug)]
pub(crate) struct Names {
    port: u16,
    /// What other programs ask is held: a name that the system's resolver does not find is asked for in a way of our own.
    marked: bool,
    known: BTreeMap<String, Vec<IpAddr>>,
    asking: BTreeSet<String>,
    /// What was asked for in vain, and why.
    unknown: BTreeMap<String, String>,
    retry: Option<Instant>,
    pause: Duration,
    sender: Sender<Answer>,
    receiver: Receiver<Answer>,
    bell: Bell,
}

impl Names {
    pub(crate) fn new(port: u16, marked: bool) -> Result<Self> {
        let (sender, receiver) = channel();
        Ok(Self {
            port,
            marked,
            known: BTreeMap::new(),
            asking: BTreeSet::new(),
            unknown: BTreeMap::new(),
            retry: None,
            pause: PAUSE_FIRST,
            sender,
            receiver,
            bell: Bell::new()?,
        })
    }

    /// The addresses of a gateway, of both families, the best first: itself, if it is one.
    pub(crate) fn addresses(&self, name: &str) -> Vec<IpAddr> {
        name.parse()
            .map_or_else(|_| self.known.get(name).cloned().unwrap_or_default(), |address| vec![address])
    }

    /// Why a name has no address, if it was asked for in vain.
    pub(crate) fn trouble(&self, name: &str) -> Option<&str> {
        self.unknown.get(name).map(String::as_str)
    }

    /// Asks for a name, unless it is an address or is being asked for.
    pub(crate) fn ask(&mut self, name: &str) {
        if name.parse::<IpAddr>().is_ok() || !self.asking.insert(name.to_owned()) {
            return;
        }
        let (name, port, marked) = (name.to_owned(), self.port, self.marked);
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

    /// True while a name is unknown.
    pub(crate) fn in_doubt(&self) -> bool {
        !self.unknown.is_empty()
    }

    /// The network has changed: a name that was unknown before may be known in this one. Without one nothing is due.
    pub(crate) fn network(&mut self, there: bool) {
        self.retry = None;
        self.pause = PAUSE_FIRST;
        if there {
            self.ask_again();
        }
    }

    /// The connection that needs the name is down.
    pub(crate) fn give_up(&mut self, name: &str) {
        self.unknown.remove(name);
        if self.unknown.is_empty() {
            self.retry = None;
        }
    }

    /// The answers that have come in; `network`: whether it is worth asking again for what was not found.
    pub(crate) fn found(&mut self, now: Instant, network: bool) -> Vec<Answer> {
        self.bell.clear();
        let answers: Vec<Answer> = self.receiver.try_iter().collect();
        for (name, answer) in &answers {
            self.take(name, answer);
        }
        if !network || self.unknown.is_empty() {
            self.retry = None;
        } else if self.retry.is_none() && self.asking.is_empty() {
            self.retry = Some(now + self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MOST);
        }
        answers
    }

    fn take(&mut self, name: &str, answer: &Result<Vec<IpAddr>, String>) {
        self.asking.remove(name);
        match answer {
            Ok(addresses) => {
                self.unknown.remove(name);
                let addresses = addresses.get(..ADDRESSES_MOST).unwrap_or(addresses);
                let known = self.known.entry(name.to_owned()).or_default();
                // Name servers turn the order of their answers: that is no reason to go elsewhere.
                let set = |list: &[IpAddr]| list.iter().copied().collect::<BTreeSet<_>>();
                if set(known) != set(addresses) {
                    *known = addresses.to_vec();
                }
            }
            // An address from before is better than none.
            Err(_) if self.known.contains_key(name) => {}
            Err(why) => {
                self.unknown.insert(name.to_owned(), why.clone());
            }
        }
    }

    fn ask_again(&mut self) {
        for name in self.unknown.keys().cloned().collect::<Vec<_>>() {
            self.ask(&name);
        }
    }

    /// When a name is asked for again.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        self.retry.map(|at| Deadline { at, slack: PAUSE_FIRST, why: "a gateway's name" })
    }

    /// Asks again, if it is time.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.retry.is_some_and(|at| at <= now) {
            self.retry = None;
            self.ask_again();
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Instant = Instant::ZERO;

    fn after(seconds: u64) -> Instant {
        T0 + Duration::from_secs(seconds)
    }

    fn names() -> Names {
        Names::new(500, false).expect("a socket pair")
    }

    fn answer(names: &mut Names, now: Instant, network: bool, answer: Result<Vec<IpAddr>, String>) {
        names.asking.insert("vpn.test".into());
        names.sender.send(("vpn.test".into(), answer)).expect("it listens");
        names.found(now, network);
    }

    #[test]
    fn an_unknown_name_is_asked_for_again_with_growing_pauses_but_only_in_a_network() {
        let mut n = names();
        let unknown = || Err("unknown".to_owned());
        answer(&mut n, T0, false, unknown());
        assert_eq!(n.deadline(), None, "without a network nothing is due");
        assert_eq!(n.trouble("vpn.test"), Some("unknown"));
        let mut now = T0;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            answer(&mut n, now, true, unknown());
            let due = n.deadline().expect("a retry");
            assert_eq!(due.at, now + Duration::from_secs(pause));
            now = due.at;
            n.retry = None;
        }
        answer(&mut n, now, true, unknown());
        n.give_up("vpn.test");
        assert_eq!(n.deadline(), None, "the connection is down");
        answer(&mut n, now, true, unknown());
        answer(&mut n, now, true, Ok(vec![[192, 0, 2, 1].into()]));
        assert_eq!((n.deadline(), n.trouble("vpn.test")), (None, None));
    }

    #[test]
    fn a_turned_answer_changes_nothing_a_new_one_does_and_a_failure_forgets_nothing() {
        let mut n = names();
        let (a, b, c) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), [192, 0, 2, 3].into());
        for (given, expected) in [
            (Ok(vec![a, b]), vec![a, b]),
            (Ok(vec![b, a]), vec![a, b]),
            (Err("silence".to_owned()), vec![a, b]),
            (Ok(vec![c, a]), vec![c, a]),
        ] {
            answer(&mut n, after(1), true, given);
            assert_eq!(n.addresses("vpn.test"), expected);
            assert_eq!(n.deadline(), None);
        }
        assert_eq!(n.addresses("2001:db8::1"), ["2001:db8::1".parse::<IpAddr>().expect("an address")]);
    }
}
