//! TCP connections of a device as its own segments show them.
//!
//! Owns for each connection the highest acknowledgement that the device sent, which bounds what may ever be acknowledged for it.
//! Must never take an acknowledgement from anywhere else.

use std::collections::BTreeMap;

use dormouse_sansio::Instant;
use dormouse_wire::ip::Flow;
use dormouse_wire::ip::tcp::{ACK, AUTHENTICATION, FIN, MD5_SIGNATURE, RST, SYN, Tcp};

use crate::limits::CONNECTIONS;

/// How many connections all devices have, and may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share<'a> {
    pub(crate) used: &'a core::cell::Cell<usize>,
    pub(crate) most: usize,
}

/// One connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// The next sequence number of the device: the end of what it sent.
    pub(crate) next: u32,
    /// The highest acknowledgement number of the device; `None` until it sent one beyond the handshake.
    pub(crate) acknowledged: Option<u32>,
    /// The window that came with it, not scaled.
    pub(crate) window: u16,
    /// The device's last timestamp, if the connection has timestamps.
    pub(crate) timestamp: Option<u32>,
    /// Segments are signed with a key that only the two ends have: there is nothing to say for the device.
    pub(crate) signed: bool,
    /// A zero window was announced to the peer: the last timestamp that it sent.
    pub(crate) held: Option<u32>,
    /// When its peer was last answered.
    pub(crate) answered: Option<Instant>,
    finished: (bool, bool),
    used: Instant,
}

impl Connection {
    /// The connection at a segment of the device.
    fn at(now: Instant, tcp: &Tcp<'_>) -> Self {
        Self {
            next: tcp.sequence.wrapping_add(tcp.sequence_len()),
            acknowledged: None,
            window: 0,
            timestamp: None,
            signed: tcp.option(MD5_SIGNATURE).is_some() || tcp.option(AUTHENTICATION).is_some(),
            held: None,
            answered: None,
            finished: (false, false),
            used: now,
        }
    }
}

/// How far `a` is after `b`; negative if it is before (RFC 9293 section 3.4).
pub(crate) const fn after(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// All connections of a device, by the flow from it.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    table: BTreeMap<Flow, Connection>,
}

impl Connections {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn get_mut(&mut self, flow: &Flow) -> Option<&mut Connection> {
        self.table.get_mut(flow)
    }

    /// By the flow from the device.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Flow, &Connection)> {
        self.table.iter()
    }

    /// Whether the peer of a connection was told that there is no room ([`Connection::held`]).
    pub(crate) fn set_held(&mut self, flow: &Flow, held: Option<u32>) {
        if let Some(connection) = self.table.get_mut(flow) {
            connection.held = held;
        }
    }

    pub(crate) fn remove(&mut self, share: Share<'_>, flow: &Flow) {
        if self.table.remove(flow).is_some() {
            share.used.set(share.used.get().saturating_sub(1));
        }
    }

    /// Connections whose peers were told that there is no room; they are not any more.
    pub(crate) fn release(&mut self) -> Vec<(Flow, Connection)> {
        let held = self.table.iter_mut().filter(|(_, c)| c.held.is_some());
        held.map(|(flow, c)| {
            let before = *c;
            c.held = None;
            (*flow, before)
        })
        .collect()
    }

    pub(crate) fn observe_inbound(&mut self, now: Instant, share: Share<'_>, flow: Flow, tcp: &Tcp<'_>) {
        if tcp.flags & RST != 0 {
            self.remove(share, &flow);
            return;
        }
        let known = self.table.get_mut(&flow).filter(|_| tcp.flags & SYN == 0);
        let Some(connection) = known else {
            let mut connection = Connection::at(now, tcp);
            connection.learn(now, tcp);
            self.insert(share, flow, connection);
            return;
        };
        connection.learn(now, tcp);
        if connection.finished == (true, true) {
            self.remove(share, &flow);
        }
    }

    /// A segment from the peer that the device receives. Used only to see that the connection may be over: then
    /// nothing more is said on it.
    pub(crate) fn observe_outbound(&mut self, share: Share<'_>, flow: Flow, tcp: &Tcp<'_>) {
        if tcp.flags & (RST | FIN) == 0 {
            return;
        }
        let Some(connection) = self.table.get_mut(&flow) else { return };
        if tcp.flags & RST != 0 {
            // "If the RST bit is set and the sequence number exactly matches the next expected sequence number" (RFC 5961
            // section 3.2): another resets nothing.
            if connection.acknowledged == Some(tcp.sequence) {
                self.remove(share, &flow);
            }
            return;
        }
        connection.finished.1 = true;
    }

    fn insert(&mut self, share: Share<'_>, flow: Flow, connection: Connection) {
        if self.table.insert(flow, connection).is_some() {
            return;
        }
        share.used.set(share.used.get() + 1);
        if self.table.len() > CONNECTIONS || share.used.get() > share.most {
            // The one that was silent for the longest time; the new one itself if there is no other.
            let silent = self.table.iter().filter(|(f, _)| **f != flow).min_by_key(|(f, c)| (c.used, **f));
            let silent = silent.map_or(flow, |(f, _)| *f);
            self.remove(share, &silent);
        }
    }
}

impl Connection {
    fn learn(&mut self, now: Instant, tcp: &Tcp<'_>) {
        self.used = now;
        let end = tcp.sequence.wrapping_add(tcp.sequence_len());
        if after(end, self.next) > 0 {
            self.next = end;
        }
        if let Some((value, _)) = tcp.timestamps()
            && self.timestamp.is_none_or(|last| after(value, last) > 0)
        {
            self.timestamp = Some(value);
        }
        if tcp.flags & FIN != 0 {
            self.finished.0 = true;
        }
        // The window of a SYN is never scaled (RFC 7323, section 2.2): it says nothing about later ones.
        if tcp.flags & (ACK | SYN) == ACK
            && self.acknowledged.is_none_or(|last| after(tcp.acknowledgement, last) >= 0)
        {
            self.acknowledged = Some(tcp.acknowledgement);
            self.window = tcp.window;
        }
    }
}
