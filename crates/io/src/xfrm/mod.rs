//! The kernel's IPsec (XFRM): the states that it protects packets by, the policies that lead to them, and the interface by which packets come to
//! these. Owns the requests; which SA the kernel has, and what its numbers are, is its lender's to know.
//!
//! Everything that is made here carries [`IF_ID`], by which it is found again ([`Xfrm::remove_stale`]), and by which other users of the kernel's
//! IPsec are left alone. The messages are a few structures of `linux/xfrm.h`, written here.
//!
//! # How a state is read for the last time
//! A state that is asked first and deleted then may have sent packets in between. The kernel tells of a deletion after it, with the state as it was
//! at its end, and no packet takes a number of a deleted state: [`Xfrm::remove_sa`] listens to that. Of what is received a packet may still be
//! on its way on another processor: so policies are removed first, without which it is not delivered.

mod message;
#[cfg(test)]
mod tests;

use crate::clock::BootClock;
use crate::netlink::Error;
use crate::netlink::socket::descriptor;
use dormouse_crypto::Secret;
use ipnet::IpNet;
use message::{DELPOLICY, DELSA, GETPOLICY, GETSA, NEWPOLICY, NEWSA};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_XFRM};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// Marks the interface, and all states and policies, of Dormouse.
pub const IF_ID: u32 = 25709;

/// `NLM_F_REQUEST | NLM_F_ACK`.
const REQUEST: u16 = 0x5;
/// `NLM_F_DUMP`.
const DUMP: u16 = 0x300;
/// `NLM_F_CREATE | NLM_F_EXCL`.
const NEW: u16 = 0x600;
const HEADER: usize = 16;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `XFRMNLGRP_SA`: changes of states.
const GROUP_SA: u32 = 3;
const BUFFER: usize = 64 << 10;
/// The kernel answers within the system call; an answer may be lost for want of memory.
const PATIENCE: Duration = Duration::from_secs(2);

/// What protects packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cipher {
    /// RFC 4106 with an ICV of 16 bytes; the key says how long it is.
    AesGcm,
    /// RFC 7634.
    ChaCha20Poly1305,
}

/// Which way packets go, as the kernel counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// To this machine.
    In = 0,
    /// From it, forwarded ones too.
    Out = 1,
    /// Through it, when they have come in.
    Forward = 2,
}

/// What a window has accepted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// The newest number; 0 before the first.
    pub top: u64,
    /// Bit `i` of word `w`: whether `top - (64 * w + i)` was accepted. What is older was.
    pub bits: Vec<u64>,
}

impl Seen {
    fn has(&self, seq: u64) -> bool {
        let Some(age) = self.top.checked_sub(seq) else { return false };
        let word = usize::try_from(age / 64).ok().and_then(|at| self.bits.get(at));
        word.is_none_or(|word| word >> (age % 64) & 1 == 1)
    }
}

/// The numbers of a state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replay {
    /// The last one sent.
    pub sent: u64,
    /// Those accepted.
    pub seen: Seen,
}

/// What a state has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Packets.
    pub packets: u64,
    /// Bytes, with ESP's own.
    pub bytes: u64,
}

/// A state to be made, in tunnel mode.
#[derive(Clone)]
pub struct Sa<'a> {
    /// For packets that go this way.
    pub direction: Direction,
    /// Its SPI.
    pub spi: u32,
    /// Who sends.
    pub source: IpAddr,
    /// Who receives.
    pub destination: IpAddr,
    /// The cipher.
    pub cipher: Cipher,
    /// Its key and salt, in the order of RFC 4106 section 8.1.
    pub key: &'a [u8],
    /// Sequence numbers have 64 bits.
    pub esn: bool,
    /// Where it goes on.
    pub replay: Replay,
    /// So many packets may pass.
    pub packets: u64,
    /// In UDP, from one port to another.
    pub udp: Option<(u16, u16)>,
}

impl std::fmt::Debug for Sa<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sa").field("spi", &self.spi).finish_non_exhaustive()
    }
}

/// A policy to be made: packets between two prefixes by one state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Policy {
    /// Which way.
    pub direction: Direction,
    /// From where.
    pub source: IpNet,
    /// To where.
    pub destination: IpNet,
    /// Between which outer addresses: sender, receiver.
    pub outer: (IpAddr, IpAddr),
    /// The state; 0: any between these addresses.
    pub spi: u32,
}

/// A state, as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// Its SPI.
    pub spi: u32,
    /// Who sends.
    pub source: IpAddr,
    /// Who receives.
    pub destination: IpAddr,
    /// Its interface.
    pub if_id: u32,
    /// What passed.
    pub counted: Counted,
    /// Its numbers.
    pub replay: Option<Replay>,
    /// When the last packet passed, in seconds since 1970.
    pub last_used: Option<u64>,
}

/// See the module's text. The network namespace is that of the thread that opened it.
#[derive(Debug)]
pub struct Xfrm {
    requests: Socket,
    /// Hears of deletions, while one is asked for.
    listener: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

/// One message of a buffer.
struct Part<'a> {
    kind: u16,
    sequence: u32,
    content: &'a [u8],
}

fn parts(mut buffer: &[u8]) -> impl Iterator<Item = Part<'_>> {
    std::iter::from_fn(move || {
        let [a, b, c, d, e, f, _, _, g, h, i, j, ..] = *buffer.first_chunk::<HEADER>()?;
        let len = usize::try_from(u32::from_ne_bytes([a, b, c, d])).ok()?;
        let content = buffer.get(HEADER..len)?;
        buffer = buffer.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Part { kind: u16::from_ne_bytes([e, f]), sequence: u32::from_ne_bytes([g, h, i, j]), content })
    })
}

impl Xfrm {
    /// Opens it. Needs `CAP_NET_ADMIN` for all that follows.
    ///
    /// # Errors
    /// The kernel's: `EPROTONOSUPPORT` if it has no XFRM.
    pub fn new() -> Result<Self, Error> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_XFRM)?;
            socket.bind_auto()?;
            socket.set_non_blocking(true)?;
            Ok(socket)
        };
        let fail = |source| Error { what: "open a netlink socket of XFRM".into(), source };
        let (requests, listener) = (open().map_err(fail)?, open().map_err(fail)?);
        Ok(Self { requests, listener, sequence: 0, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Makes a state.
    ///
    /// # Errors
    /// The kernel's: `EEXIST`, `ENOSYS` if it lacks the cipher, `EPROTONOSUPPORT` if it lacks ESP.
    pub fn add_sa(&mut self, sa: &Sa<'_>) -> Result<(), Error> {
        let what = || format!("ip xfrm state add spi {:#010x}", sa.spi);
        self.change(NEWSA, NEW, message::new_sa(sa).as_bytes())
            .map_err(|source| Error { what: what(), source })
    }

    /// How a state stands.
    ///
    /// # Errors
    /// The kernel's: `ESRCH` if it is gone.
    pub fn read_sa(&mut self, destination: IpAddr, spi: u32) -> Result<State, Error> {
        let what = || format!("ip xfrm state get spi {spi:#010x}");
        let mut found = None;
        self.exchange(GETSA, REQUEST, &message::sa_id(destination, spi), &mut |part| {
            found = found.take().or_else(|| message::state(part.kind, part.content));
        })
        .and_then(|()| found.ok_or_else(|| io::Error::other("the answer is not understood")))
        .map_err(|source| Error { what: what(), source })
    }

    /// Deletes a state, and returns it as it was at its end; `None` if that could not be heard. First delete the policy that leads to it; after it, those that let its packets through.
    ///
    /// # Errors
    /// The kernel's: `ESRCH` if it was gone.
    pub fn remove_sa(&mut self, destination: IpAddr, spi: u32) -> Result<Option<State>, Error> {
        let heard = self.listener.add_membership(GROUP_SA);
        let id = message::sa_id(destination, spi);
        let deleted = self.change(DELSA, 0, &id);
        let mut last = None;
        if heard.is_ok() {
            loop {
                self.buffer.clear();
                match self.listener.recv(&mut self.buffer, 0) {
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    // Something was lost: perhaps another's.
                    Err(e) if e.raw_os_error() == Some(Errno::ENOBUFS as i32) => continue,
                    Err(_) => break,
                }
                let states = parts(&self.buffer)
                    .filter(|part| part.kind == DELSA)
                    .filter_map(|part| message::state(part.kind, part.content));
                for state in states {
                    if (state.spi, state.destination, state.if_id) == (spi, destination, IF_ID) {
                        last = Some(state);
                    }
                }
            }
            let _member = self.listener.drop_membership(GROUP_SA);
        }
        let what = || format!("ip xfrm state delete spi {spi:#010x}");
        deleted.map(|()| last).map_err(|source| Error { what: what(), source })
    }

    /// Makes a policy.
    ///
    /// # Errors
    /// The kernel's: `EEXIST` if there is one of this direction between these prefixes.
    pub fn add_policy(&mut self, policy: &Policy) -> Result<(), Error> {
        self.change(NEWPOLICY, NEW, &message::new_policy(policy))
            .map_err(|source| Error { what: policy_text("add", policy), source })
    }

    /// Deletes a policy. It is no error if it is gone.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_policy(&mut self, policy: &Policy) -> Result<(), Error> {
        let id = message::policy_id(policy.direction as u8, policy.source, policy.destination);
        gone(self.change(DELPOLICY, 0, &id))
            .map_err(|source| Error { what: policy_text("delete", policy), source })
    }

    /// Deletes all states and policies with [`IF_ID`], which an earlier run left behind. Returns how many there were.
    ///
    /// # Errors
    /// The kernel's; the others are deleted all the same.
    pub fn remove_stale(&mut self) -> Result<usize, Error> {
        let fail = |source| Error { what: "ip xfrm state and policy of an earlier run".into(), source };
        let mut found = Vec::new();
        self.exchange(GETPOLICY, REQUEST | DUMP, &[], &mut |part| {
            if let Some((IF_ID, direction, source, destination)) = message::policy(part.content) {
                found.push((DELPOLICY, message::policy_id(direction, source, destination)));
            }
        })
        .map_err(fail)?;
        self.exchange(GETSA, REQUEST | DUMP, &[], &mut |part| {
            if let Some(state) = message::state(part.kind, part.content).filter(|s| s.if_id == IF_ID) {
                found.push((DELSA, message::sa_id(state.destination, state.spi)));
            }
        })
        .map_err(fail)?;
        let mut first = Ok(());
        for (kind, id) in &found {
            first = first.and(gone(self.change(*kind, 0, id)).map_err(fail));
        }
        first.map(|()| found.len())
    }

    fn change(&mut self, kind: u16, flags: u16, content: &[u8]) -> io::Result<()> {
        self.exchange(kind, REQUEST | flags, content, &mut |_| {})
    }

    fn exchange(
        &mut self,
        kind: u16,
        flags: u16,
        content: &[u8],
        each: &mut dyn FnMut(Part<'_>),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let len = u32::try_from(HEADER + content.len()).map_err(io::Error::other)?;
        let header = [
            &len.to_ne_bytes()[..],
            &kind.to_ne_bytes(),
            &flags.to_ne_bytes(),
            &self.sequence.to_ne_bytes(),
            &[0; 4],
        ];
        // It may hold a key.
        let request = Secret::concat(&[&header.concat(), content]);
        self.requests.send_to(request.as_bytes(), &SocketAddr::new(0, 0), 0)?;
        let until = BootClock::now() + PATIENCE;
        loop {
            self.buffer.clear();
            match self.requests.recv(&mut self.buffer, 0) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let left = until.saturating_since(BootClock::now());
                    if left.is_zero() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    let ms =
                        PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
                    poll(&mut [PollFd::new(descriptor(&self.requests), PollFlags::POLLIN)], ms)?;
                    continue;
                }
                received => received?,
            };
            for part in parts(&self.buffer).filter(|part| part.sequence == self.sequence) {
                match part.kind {
                    DONE => return Ok(()),
                    ERROR => {
                        let code = part.content.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                        return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
                    }
                    _ => each(part),
                }
            }
        }
    }
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if [Errno::ESRCH, Errno::ENOENT].iter().any(|n| e.raw_os_error() == Some(*n as i32)) => Ok(()),
        result => result,
    }
}

fn policy_text(verb: &str, policy: &Policy) -> String {
    let direction = match policy.direction {
        Direction::In => "in",
        Direction::Out => "out",
        Direction::Forward => "fwd",
    };
    format!("ip xfrm policy {verb} src {} dst {} dir {direction}", policy.source, policy.destination)
}
