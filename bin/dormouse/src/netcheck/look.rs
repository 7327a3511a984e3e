//! What `dormouse netcheck` asks and hears. Owns the order and the patience; judges nothing, and makes no session.

use dormouse_ike::natd::Detection;
use dormouse_ike::proposal::IkeProposal;
use dormouse_ike::reach::{Answer, Question, Taken};
use dormouse_io::clock::BootClock;
use dormouse_io::entropy::OsEntropy;
use dormouse_io::netcheck::{Asker, Heard, Why, answers_tcp};
use dormouse_io::netlink::{Found, MARK, Netlink};
use dormouse_sansio::{Carrier, Instant, Path};
use serde::Serialize;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// When a question is asked again, after the first time.
const AGAIN: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_millis(1500), Duration::from_millis(3000)];
/// When an answer does not come any more.
const PATIENCE: Duration = Duration::from_millis(5000);
/// How long the answer to a question of a size may take; it is asked twice.
const SIZE_PATIENCE: Duration = Duration::from_millis(1000);
/// The marker before IKE on port 4500 (RFC 3948 section 2.2).
const MARKER: [u8; 4] = [0; 4];
/// Sizes of packets that paths are known to end at, in bytes; and the bound of IPv4.
const SIZES: [u32; 14] = [8972, 1500, 1492, 1480, 1472, 1460, 1440, 1420, 1400, 1380, 1340, 1280, 1024, 576];
/// Larger packets are not tried: no path of the Internet takes them.
const LARGEST: u32 = 9000;
/// Rounds in which the size between two known ones is looked for, and how many sizes in each.
const ROUNDS: usize = 2;
const EACH: u32 = 8;

/// What is to be asked.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) proposals: Vec<IkeProposal>,
    /// The gateway's ports for IKE, and for IKE and ESP behind NATs.
    pub(super) ports: [u16; 2],
    /// Addresses as which the gateway may see this machine.
    pub(super) seen_as: Vec<IpAddr>,
}

/// What was found by one address of the gateway.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Family {
    /// The gateway's.
    pub(super) address: IpAddr,
    /// How packets leave for it; `None`: they do not.
    pub(super) way: Option<Way>,
    /// Of both ports.
    pub(super) ports: Vec<Port>,
    /// Whether the gateway's machine answers TCP; asked only if UDP is silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tcp: Option<bool>,
    pub(super) mtu: Option<Mtu>,
}

/// See [`Family::way`].
#[derive(Clone, Debug, Serialize)]
pub(super) struct Way {
    /// Our address.
    pub(super) source: IpAddr,
    pub(super) interface: String,
    /// What the interface takes, in bytes.
    pub(super) link_mtu: u32,
    /// What the kernel has learned of the path, in bytes.
    pub(super) cached_mtu: Option<u32>,
}

/// What came of the questions to one port.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Port {
    pub(super) port: u16,
    pub(super) heard: Reply,
}

/// See [`Port`].
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    Answered {
        /// From the question that it answers, or an earlier one of the same words.
        milliseconds: u64,
        /// `None`: it says nothing of NATs.
        nat: Option<Nat>,
        /// It is a refusal.
        refusal: Option<String>,
    },
    /// An ICMP error says so.
    Rejected(Rejection),
    /// This machine did not let it go.
    Held(String),
    Silent,
}

/// See [`Reply::Rejected`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Rejection {
    NobodyListens,
    Forbidden,
    Unreachable,
}

/// What an answer says of NATs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Nat {
    /// Our address is translated.
    pub(super) ours: bool,
    /// The gateway's is.
    pub(super) gateways: bool,
    /// From where the gateway sees us, if that is among the addresses that were named.
    pub(super) seen: Option<SocketAddr>,
}

/// The largest packets that reach the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Mtu {
    /// In bytes, IP's header included.
    pub(super) bytes: u32,
    pub(super) by: By,
}

/// How that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum By {
    /// One of that size, with DF, was answered: the whole of what the interface takes.
    Link,
    /// One of that size was answered, and a router, or this machine, refused larger ones and said so.
    Refusal,
    /// One of that size was answered, and larger ones vanished without a word.
    Silence,
    /// No question of a size was answered: it is what the kernel has learned.
    Cache,
}

/// How packets leave for an address, outside of a tunnel.
fn way(address: IpAddr) -> Option<(Found, Way)> {
    let mut netlink = Netlink::new().ok()?;
    let found = netlink.route_to(address, MARK).ok()??;
    let link = netlink.links().ok()?.into_iter().find(|link| link.index == found.index)?;
    let way = Way { source: found.source, interface: link.name, link_mtu: link.mtu, cached_mtu: found.mtu };
    Some((found, way))
}

/// Asks a gateway at one of its addresses.
pub(super) fn family(address: IpAddr, asked: &Asked) -> Family {
    let mut family = Family { address, way: None, ports: Vec::new(), tcp: None, mtu: None };
    let Some((found, way)) = way(address) else { return family };
    let all_held = |why: io::Error| {
        let held = |port: &u16| Port { port: *port, heard: Reply::Held(why.to_string()) };
        asked.ports.iter().map(held).collect()
    };
    let asker = match Asker::new(&found, &way.interface) {
        Ok(asker) => asker,
        Err(why) => {
            family.ports = all_held(why);
            family.way = Some(way);
            return family;
        }
    };
    family.ports = match ports(&asker, address, asked) {
        Ok(ports) => ports,
        Err(why) => all_held(why),
    };
    let is_answered = |port: &&Port| matches!(port.heard, Reply::Answered { .. });
    // What the session's ESP goes to, if that answers.
    let answered = family.ports.iter().rev().find(is_answered).map(|port| port.port);
    match answered {
        Some(port) => family.mtu = mtu(&asker, SocketAddr::new(address, port), asked, &way),
        None if family.ports.iter().any(|port| port.heard == Reply::Silent) => {
            let to = SocketAddr::new(address, asked.ports[1]);
            family.tcp = Some(answers_tcp(&found, &way.interface, to, PATIENCE / 2));
        }
        None => {}
    }
    family.way = Some(way);
    family
}

/// A question under way.
struct Pending {
    question: Question,
    to: SocketAddr,
    marked: bool,
    begun: Instant,
    asked: usize,
    rejected: Option<Rejection>,
    held: Option<String>,
    done: Option<(u64, Answer)>,
}

impl Pending {
    fn send(&mut self, asker: &Asker) {
        if let Err(e) = asker.send(self.to, &datagram(&self.question, self.marked)) {
            self.held = Some(e.to_string());
        }
    }

    /// When it is asked again.
    fn next(&self) -> Option<Instant> {
        let after = AGAIN.get(self.asked)?;
        self.done.is_none().then(|| self.begun + *after)
    }
}

fn datagram(question: &Question, marked: bool) -> Vec<u8> {
    let message = question.message();
    if marked { [&MARKER, &message[..]].concat() } else { message }
}

fn unmarked(bytes: &[u8], marked: bool) -> &[u8] {
    if marked { bytes.strip_prefix(&MARKER).unwrap_or_default() } else { bytes }
}

fn path(asker: &Asker, to: SocketAddr, marked: bool) -> Path {
    Path { local: asker.local(), remote: to, carrier: if marked { Carrier::NatT } else { Carrier::Ike } }
}

/// Asks both ports at once, from one port of ours: a NAT may translate it to one port, or to two.
fn ports(asker: &Asker, address: IpAddr, asked: &Asked) -> io::Result<Vec<Port>> {
    let mut entropy = OsEntropy;
    let begun = BootClock::now();
    let mut all = Vec::new();
    for (i, port) in asked.ports.into_iter().enumerate() {
        let (to, marked) = (SocketAddr::new(address, port), i == 1);
        let question = Question::new(&mut entropy, path(asker, to, marked), &asked.proposals)
            .map_err(io::Error::other)?;
        let mut one =
            Pending { question, to, marked, begun, asked: 0, rejected: None, held: None, done: None };
        one.send(asker);
        all.push(one);
    }
    let end = begun + PATIENCE;
    loop {
        let now = BootClock::now();
        for one in &mut all {
            if one.next().is_some_and(|next| next <= now) {
                one.asked += 1;
                one.send(asker);
            }
        }
        // Who was rejected twice needs no more patience.
        let refused = |one: &Pending| one.rejected.is_some() || one.held.is_some();
        let waits = |one: &Pending| one.done.is_none() && !(refused(one) && one.asked > 1);
        if now >= end || !all.iter().any(waits) {
            break;
        }
        let next = all.iter().filter_map(Pending::next).chain([end]).min().unwrap_or(end);
        if let Some(heard) = asker.hear(next)? {
            take(&mut all, heard, asker);
        }
    }
    Ok(all.into_iter().map(|one| port(one, asked)).collect())
}

/// What was heard, to the question that it is about.
fn take(all: &mut [Pending], heard: Heard, asker: &Asker) {
    let (to, why) = match heard {
        Heard::Error { to, why } => (to, why),
        Heard::Datagram { from, bytes } => {
            let Some(one) = all.iter_mut().find(|one| one.to == from && one.done.is_none()) else { return };
            match one.question.take(&mut OsEntropy, unmarked(&bytes, one.marked)) {
                Taken::Foreign => {}
                Taken::Again => one.send(asker),
                Taken::Answered(answer) => {
                    let took = (BootClock::now() - one.begun).as_millis();
                    one.done = Some((u64::try_from(took).unwrap_or(u64::MAX), answer));
                }
            }
            return;
        }
    };
    for one in all.iter_mut().filter(|one| one.to == to) {
        match why {
            Why::Port => one.rejected = Some(Rejection::NobodyListens),
            Why::Forbidden => one.rejected = Some(Rejection::Forbidden),
            Why::Unreachable => one.rejected = Some(Rejection::Unreachable),
            Why::Here => one.held = Some("a firewall of its own".into()),
            Why::TooBig(_) => {}
        }
    }
}

fn port(one: Pending, asked: &Asked) -> Port {
    let heard = match (one.done, one.rejected, one.held) {
        (Some((milliseconds, answer)), ..) => {
            let Detection { supported, local, remote } = answer.nat;
            let seen = supported.then(|| answer.seen_as(asked.seen_as.iter().copied())).flatten();
            let nat = supported.then_some(Nat { ours: local, gateways: remote, seen });
            Reply::Answered { milliseconds, nat, refusal: answer.refusal.map(|kind| kind.to_string()) }
        }
        (None, Some(why), _) => Reply::Rejected(why),
        (None, None, Some(why)) => Reply::Held(why),
        (None, None, None) => Reply::Silent,
    };
    Port { port: one.to.port(), heard }
}

/// Which of these sizes reach the gateway, asked twice; and what a router says a packet may have.
fn pass(asker: &Asker, to: SocketAddr, marked: bool, sizes: &[u32]) -> io::Result<(Vec<u32>, Option<u32>)> {
    let mut entropy = OsEntropy;
    let before = if to.is_ipv4() { 28 } else { 48 } + if marked { 4 } else { 0 };
    let mut waiting: Vec<(u32, Question)> = Vec::new();
    for size in sizes {
        let bytes = usize::try_from(size.saturating_sub(before)).unwrap_or(0);
        waiting.push((*size, Question::of_size(&mut entropy, path(asker, to, marked), bytes)));
    }
    let (mut passed, mut said) = (Vec::new(), None);
    for _ in 0..2 {
        for (_, question) in &waiting {
            asker.send(to, &datagram(question, marked))?;
        }
        let end = BootClock::now() + SIZE_PATIENCE;
        while !waiting.is_empty()
            && let Some(heard) = asker.hear(end)?
        {
            match heard {
                Heard::Datagram { from, bytes } if from == to => {
                    let bytes = unmarked(&bytes, marked);
                    // A cookie that is asked for is an answer too.
                    waiting.retain_mut(|(size, question)| {
                        let answers = question.take(&mut entropy, bytes) != Taken::Foreign;
                        if answers {
                            passed.push(*size);
                        }
                        !answers
                    });
                }
                Heard::Error { to: about, why: Why::TooBig(mtu) } if about == to => {
                    said = Some(said.map_or(mtu, |before: u32| before.min(mtu)));
                    if waiting.len() == 1 {
                        return Ok((passed, said));
                    }
                }
                _ => {}
            }
            // Anybody may send, and go on for ever.
            if BootClock::now() >= end {
                break;
            }
        }
    }
    Ok((passed, said))
}

/// The largest packet that is answered. Bounded: some twelve seconds where all that is too large vanishes.
fn mtu(asker: &Asker, to: SocketAddr, asked: &Asked, way: &Way) -> Option<Mtu> {
    let marked = to.port() == asked.ports[1];
    let link = way.link_mtu.min(LARGEST);
    let cached = way.cached_mtu.map(|bytes| Mtu { bytes, by: By::Cache });
    let one =
        |size: u32| pass(asker, to, marked, &[size]).ok().map(|(passed, said)| (!passed.is_empty(), said));
    let (whole, said) = one(link)?;
    if whole {
        return Some(Mtu { bytes: link, by: By::Link });
    }
    // More than one router may say so, each of its own link.
    let mut said = said;
    for _ in 0..4 {
        let Some(bytes) = said.filter(|bytes| (576..link).contains(bytes)) else { break };
        match one(bytes)? {
            (true, _) => return Some(Mtu { bytes, by: By::Refusal }),
            (false, next) => said = next.filter(|next| *next < bytes),
        }
    }
    let (mut low, mut high) = (None, link);
    let mut sizes: Vec<u32> = SIZES.into_iter().filter(|size| *size < high).collect();
    for _ in 0..=ROUNDS {
        let (passed, _) = pass(asker, to, marked, &sizes).ok()?;
        let Some(best) = passed.iter().copied().max().max(low) else { break };
        high = sizes.iter().copied().filter(|size| *size > best).min().unwrap_or(high);
        low = Some(best);
        let step = ((high - best) / EACH).max(1);
        sizes = (1..EACH).map(|n| best + n * step).filter(|size| *size < high).collect();
        if sizes.is_empty() {
            break;
        }
    }
    low.map(|bytes| Mtu { bytes, by: By::Silence }).or(cached)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn who_sends_without_end_is_not_listened_to_without_end() {
        let way = Found { source: [127, 0, 0, 1].into(), index: 1, gateway: None, mtu: None };
        let asker = Asker::new(&way, "lo").unwrap();
        // Nobody answers there.
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
                while !over.load(Ordering::Relaxed) {
                    let _ = stranger.send_to(b"nonsense", asker.local());
                }
            });
            let found = pass(&asker, silent.local_addr().unwrap(), false, &[1280]);
            over.store(true, Ordering::Relaxed);
            assert_eq!(found.unwrap(), (Vec::new(), None));
        });
    }
}
