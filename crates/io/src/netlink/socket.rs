//! One request at a time over a netlink socket. Owns sequence numbers, the reading of answers and how long they are waited for; knows no
//! routes.

use super::Error;
use super::message::Message;
use crate::clock::BootClock;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The kernel splits dumps into parts that fit here (it uses 32 KiB at most).
pub(super) const BUFFER: usize = 64 << 10;
/// A dump that was disturbed by changes is asked for again, so often.
const ATTEMPTS: usize = 8;
const HEADER: usize = 16;
/// `NLM_F_DUMP_INTR`: the dump is inconsistent.
const INTERRUPTED: u16 = 0x10;
/// The longest that one request may take. The kernel answers within the system call, unless an answer was lost for want of memory.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Requests {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
    /// [`PATIENCE`].
    limit: Duration,
}

/// Why an answer ended.
enum End {
    Done,
    Again,
}

impl Requests {
    pub(super) fn new() -> Result<Self, Error> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.set_non_blocking(true)?;
            Ok(socket)
        };
        let socket = open().map_err(|source| Error { what: "open a netlink socket".into(), source })?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(BUFFER), limit: PATIENCE })
    }

    /// A change: answered by an acknowledgement. `flags` in addition to those of every request.
    pub(super) fn change(
        &mut self,
        what: &dyn Fn() -> String,
        message: Message,
        flags: u16,
    ) -> Result<(), Error> {
        let mut nothing = |_| {};
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags, &mut nothing)
            .map(|_| ())
            .map_err(|source| Error { what: what(), source })
    }

    /// A question with one answer.
    pub(super) fn ask(
        &mut self,
        what: &dyn Fn() -> String,
        message: Message,
    ) -> Result<Option<Message>, Error> {
        let mut answer = None;
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK, &mut |m| answer = Some(m))
            .map_err(|source| Error { what: what(), source })?;
        Ok(answer)
    }

    /// A question with any number of answers.
    pub(super) fn dump(&mut self, what: &str, message: &Message) -> Result<Vec<Message>, Error> {
        let fail = |source| Error { what: what.into(), source };
        for _ in 0..ATTEMPTS {
            let mut answers = Vec::new();
            let flags = NLM_F_REQUEST | NLM_F_DUMP;
            if let End::Done =
                self.exchange(message.clone(), flags, &mut |m| answers.push(m)).map_err(fail)?
            {
                return Ok(answers);
            }
        }
        Err(fail(io::Error::other("changes all the time")))
    }

    fn exchange(&mut self, message: Message, flags: u16, each: &mut dyn FnMut(Message)) -> io::Result<End> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        let mut disturbed = false;
        let until = BootClock::now() + self.limit;
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(until.saturating_since(BootClock::now()))?;
                    continue;
                }
                received => received?,
            };
            for part in parts(&self.buffer) {
                // An answer to an earlier request that ended with an error.
                if part.sequence != self.sequence {
                    continue;
                }
                disturbed |= part.flags & INTERRUPTED != 0;
                match part.message() {
                    Some(NetlinkPayload::InnerMessage(answer)) => each(answer),
                    Some(NetlinkPayload::Error(e)) if e.code.is_some() => return Err(e.to_io()),
                    Some(NetlinkPayload::Error(_) | NetlinkPayload::Done(_)) => {
                        return Ok(if disturbed { End::Again } else { End::Done });
                    }
                    _ => {}
                }
            }
        }
    }
}

impl Requests {
    /// Waits for an answer at most as long as is `left`.
    fn wait(&self, left: Duration) -> io::Result<()> {
        if left.is_zero() {
            let what = format!("the kernel did not answer within {:?}", self.limit);
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        let ms = PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(descriptor(&self.socket), PollFlags::POLLIN)], ms) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// The descriptor of a socket.
#[expect(unsafe_code, reason = "netlink-sys gives the raw number only")]
pub(crate) fn descriptor(socket: &Socket) -> BorrowedFd<'_> {
    // SAFETY: the socket owns the descriptor and lives at least as long as the borrow.
    unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) }
}

/// One message of a buffer.
pub(super) struct Part<'a> {
    sequence: u32,
    flags: u16,
    bytes: &'a [u8],
}

impl Part<'_> {
    /// What it says; `None` if this library does not understand it (a newer kernel): then it is as if it had not come.
    pub(super) fn message(&self) -> Option<NetlinkPayload<Message>> {
        match NetlinkMessage::<Message>::deserialize(self.bytes) {
            Ok(message) => Some(message.payload),
            Err(error) => {
                tracing::debug!(%error, "a netlink message is not understood");
                None
            }
        }
    }
}

/// The messages of a buffer, as far as it is whole.
pub(super) fn parts(mut buffer: &[u8]) -> impl Iterator<Item = Part<'_>> {
    std::iter::from_fn(move || {
        let header = buffer.first_chunk::<HEADER>()?;
        let [a, b, c, d, _, _, e, f, g, h, i, j, ..] = *header;
        let length = usize::try_from(u32::from_ne_bytes([a, b, c, d])).ok()?;
        let bytes = buffer.get(..length).filter(|_| length >= HEADER)?;
        buffer = buffer.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Part { flags: u16::from_ne_bytes([e, f]), sequence: u32::from_ne_bytes([g, h, i, j]), bytes })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::LinkMessage;

    #[test]
    fn an_answer_that_has_no_end_is_waited_for_within_bounds() {
        let mut requests = Requests::new().unwrap();
        requests.limit = Duration::from_millis(50);
        let mut answers = 0;
        // Without NLM_F_ACK the kernel sends the link and nothing after it.
        let end = requests.exchange(Message::get(LinkMessage::of(1)), NLM_F_REQUEST, &mut |_| answers += 1);
        assert_eq!(end.map(drop).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(answers, 1);
        requests.limit = PATIENCE;
        let links = requests.dump("ip link show", &Message::get(LinkMessage::default())).unwrap();
        assert!(!links.is_empty(), "the socket goes on");
    }

    #[test]
    fn a_buffer_is_read_as_far_as_it_is_whole() {
        let mut one = vec![0; 20];
        one[..4].copy_from_slice(&18u32.to_ne_bytes());
        one[8..12].copy_from_slice(&7u32.to_ne_bytes());
        let both = [one.as_slice(), one.as_slice()].concat();
        assert_eq!(parts(&both).map(|p| (p.sequence, p.bytes.len())).collect::<Vec<_>>(), [(7, 18), (7, 18)]);
        for cut in 0..both.len() {
            assert!(parts(&both[..cut]).count() <= 2);
        }
        one[..4].copy_from_slice(&3u32.to_ne_bytes());
        assert_eq!(parts(&one).count(), 0, "a length below that of the header");
        one[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(parts(&one).count(), 0, "a length beyond the buffer");
    }
}
