//! TCP towards a sleeping device. Owns the one thing that may be said: what the device itself said last.
//!
//! A segment is judged by where it lies after the device's highest acknowledgement. Up to there the device has everything: the
//! answer is its acknowledgement once more. Beyond, nothing has arrived, and the answer says so.

use core::net::SocketAddr;
use dormouse_wire::ip::Flow;
use dormouse_wire::ip::tcp::{ACK, RST, SYN, Segment, Tcp, timestamps_option};
use dormouse_wire::netbios::{self, KeepAlive};

use super::{Asked, Step, newest};
use crate::buffer::{Alike, Keep};
use crate::class::Class;
use crate::counters::{Kind, Reason};
use crate::knowledge::Knowledge;
use crate::knowledge::tcp::{Connection, after};
use crate::limits::TCP_PAUSE;

/// The largest window that TCP can have (RFC 7323 section 2.3).
const LARGEST_WINDOW: i32 = 1 << 30;

pub(super) fn decide(asked: &Asked<'_>, knowledge: &mut Knowledge, out: &mut Vec<u8>) -> Step {
    let packet = &asked.packet;
    let Ok(tcp) = Tcp::parse(packet) else {
        return Step::Drop(Reason::Malformed);
    };
    let towards = packet.flow();
    let ours = towards.reversed();
    if tcp.flags & SYN != 0 {
        return newest(Class::Opening, packet);
    }
    let Some(connection) = knowledge.tcp.get_mut(&ours).filter(|_| asked.own) else {
        return unknown(asked, towards, &tcp);
    };
    let Some(acknowledged) = connection.acknowledged else { return unknown(asked, towards, &tcp) };
    let start = after(tcp.sequence, acknowledged);
    if tcp.flags & RST != 0 {
        if start == 0 {
            knowledge.tcp.remove(asked.share, &ours);
        }
        let far = !(0..LARGEST_WINDOW).contains(&start);
        return if far { Step::Drop(Reason::OutOfWindow) } else { newest(Class::Control, packet) };
    }
    let length = tcp.sequence_len();
    let new = i64::from(start) + i64::from(length) > 0;
    if start >= LARGEST_WINDOW || start <= -LARGEST_WINDOW {
        return Step::Drop(Reason::OutOfWindow);
    }
    if start >= 0 && length == 0 {
        return newest(Class::Acknowledgement, packet);
    }
    if !new {
        // A keep-alive probe (RFC 9293 section 3.8.4: one byte before what is expected, with or without data), or data again.
        return match connection.speak(asked, ours, &tcp, false, out) {
            Said::Yes => Step::AnswerTcp(Kind::TcpKeepAlive),
            Said::Again => Step::Drop(Reason::RateLimited),
            Said::Nothing => newest(Class::Acknowledgement, packet),
        };
    }
    let class = if tcp.payload.is_empty() { Class::Control } else { Class::Stream };
    let keep = Keep { class, age: None, alike: Alike::Data { flow: towards, from: tcp.sequence, length } };
    if asked.hold_tcp && connection.speak(asked, ours, &tcp, true, out) == Said::Yes {
        Step::KeepAndAnswer(keep, held_kind(&tcp))
    } else {
        Step::Keep(keep)
    }
}

/// TCP of a connection that was never seen: kept with the datagrams, and nothing is said.
fn unknown(asked: &Asked<'_>, towards: Flow, tcp: &Tcp<'_>) -> Step {
    match tcp.sequence_len() {
        0 => newest(Class::Acknowledgement, &asked.packet),
        length => Step::Keep(Keep {
            class: Class::Datagram,
            age: Some(Class::Stream.max_age()),
            alike: Alike::Data { flow: towards, from: tcp.sequence, length },
        }),
    }
}

/// Under which name the answer to new data counts.
fn held_kind(tcp: &Tcp<'_>) -> Kind {
    let port = |p: u16| matches!(p, netbios::SESSION_PORT | netbios::SMB_PORT);
    let keep_alive =
        if port(tcp.src_port) || port(tcp.dst_port) { netbios::keep_alive(tcp.payload) } else { None };
    match keep_alive {
        Some(KeepAlive::Session) => Kind::NetBiosSession,
        Some(KeepAlive::SmbEcho) => Kind::SmbEcho,
        None => Kind::TcpHold,
    }
}

/// Whether something was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Yes,
    /// The same was said a moment ago.
    Again,
    /// There is nothing that could be said.
    Nothing,
}

impl Connection {
    /// Repeats the device's last acknowledgement to the sender of `tcp`; `hold`: there is no room from now on.
    fn speak(&mut self, asked: &Asked<'_>, ours: Flow, tcp: &Tcp<'_>, hold: bool, out: &mut Vec<u8>) -> Said {
        let peer_time = match (self.timestamp, tcp.timestamps()) {
            // "Once TSopt has been successfully negotiated [...] the TSopt MUST be sent in every non-<RST> segment" (RFC 7323
            // section 3.2): a segment without it is not the peer's, or not worth an answer that would be dropped.
            (Some(_), None) => return Said::Nothing,
            (_, time) => time.map_or(0, |(value, _)| value),
        };
        if self.signed || tcp.flags & ACK == 0 {
            return Said::Nothing;
        }
        if self.answered.is_some_and(|last| asked.now - last < TCP_PAUSE) {
            return Said::Again;
        }
        if hold {
            self.held = Some(peer_time);
        }
        let window = if self.held.is_some() { 0 } else { self.window };
        if !self.acknowledge(ours, window, peer_time, out) {
            return Said::Nothing;
        }
        self.answered = Some(asked.now);
        Said::Yes
    }

    /// Appends a segment that acknowledges what the device acknowledged last, and carries nothing.
    pub(crate) fn acknowledge(&self, ours: Flow, window: u16, peer_time: u32, out: &mut Vec<u8>) -> bool {
        let (Some(acknowledgement), Some(src), Some(dst)) = (self.acknowledged, ours.src_port, ours.dst_port)
        else {
            return false;
        };
        let timestamps = self.timestamp.map(|own| timestamps_option(own, peer_time));
        let segment = Segment {
            src: SocketAddr::new(ours.src, src),
            dst: SocketAddr::new(ours.dst, dst),
            sequence: self.next,
            acknowledgement,
            flags: ACK,
            window,
            options: timestamps.as_ref().map_or(&[], |t| t.as_slice()),
        };
        segment.build(&[], out).is_ok()
    }
}
