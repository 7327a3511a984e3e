//! Two small ends of TCP: one sends, the other takes, as Reno does without selective acknowledgements (RFC 5681). Owns what of a stream is where; made to
//! show what a router does to it, and for nothing else: no windows of receivers, no closing.

use dormouse_sansio::Instant;
use dormouse_wire::ip::Packet;
use dormouse_wire::ip::tcp::{ACK, PSH, Segment, Tcp};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes of data in a segment.
pub(crate) const MSS: usize = 1_200;
/// The time until the first unacknowledged segment is sent again, the shortest that RFC 6298 section 2.4 has; a time-out doubles it.
const RTO: Duration = Duration::from_secs(1);
/// Of the sender: what it sends at most without an acknowledgement, in segments.
const MOST: usize = 40;

fn segment(
    ends: [SocketAddr; 2],
    sequence: usize,
    acknowledgement: usize,
    flags: u8,
    data: &[u8],
) -> Vec<u8> {
    let [src, dst] = ends;
    let (sequence, acknowledgement) = (sequence as u32, acknowledgement as u32);
    let header = Segment { src, dst, sequence, acknowledgement, flags, window: u16::MAX, options: &[] };
    let mut packet = Vec::new();
    header.build(data, &mut packet).expect("a segment");
    packet
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Sender {
    ends: [SocketAddr; 2],
    data: Vec<u8>,
    acked: usize,
    next: usize,
    /// In segments.
    window: f64,
    threshold: f64,
    duplicates: u32,
    /// Until this is acknowledged, losses belong to the recovery that goes on.
    recovering: usize,
    rto: Duration,
    timer: Option<Instant>,
    /// Segments that it has sent again: by duplicate acknowledgements, and by its timer.
    pub(crate) again: (usize, usize),
}

impl Sender {
    pub(crate) fn new(ends: [SocketAddr; 2], data: Vec<u8>) -> Self {
        Self {
            ends,
            data,
            acked: 0,
            next: 0,
            window: 4.0,
            threshold: MOST as f64,
            duplicates: 0,
            recovering: 0,
            rto: RTO,
            timer: None,
            again: (0, 0),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.acked == self.data.len()
    }

    fn send(&self, at: usize) -> Vec<u8> {
        let end = (at + MSS).min(self.data.len());
        segment(self.ends, at, 0, ACK | PSH, &self.data[at..end])
    }

    /// What may be sent now.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.timer.is_some_and(|at| at <= now) {
            self.again.1 += 1;
            self.threshold = ((self.next - self.acked) as f64 / MSS as f64 / 2.0).max(2.0);
            (self.window, self.next, self.duplicates) = (1.0, self.acked, 0);
            (self.rto, self.recovering) = (self.rto * 2, 0);
            self.timer = None;
        }
        let in_flight = self.next - self.acked;
        if self.next >= self.data.len() || in_flight + MSS > self.window as usize * MSS {
            return None;
        }
        let packet = self.send(self.next);
        self.next = (self.next + MSS).min(self.data.len());
        self.timer.get_or_insert(now + self.rto);
        Some(packet)
    }

    /// A packet has come; what is sent because of it.
    pub(crate) fn take(&mut self, now: Instant, packet: &[u8]) -> Option<Vec<u8>> {
        let view = Packet::parse(packet).ok()?;
        let acked = Tcp::parse(&view).ok()?.acknowledgement as usize;
        if acked > self.acked {
            let recovered = acked >= self.recovering;
            self.window += match () {
                () if !recovered => 0.0,
                () if self.window < self.threshold => 1.0,
                () => 1.0 / self.window,
            };
            self.window = self.window.min(MOST as f64);
            (self.acked, self.next, self.duplicates) = (acked, self.next.max(acked), 0);
            (self.rto, self.timer) = (RTO, (!self.is_done()).then(|| now + RTO));
            // The next one is missing too, as long as a recovery goes on.
            return (!recovered && !self.is_done()).then(|| self.repeat());
        }
        self.duplicates += 1;
        if self.duplicates == 3 && self.acked >= self.recovering {
            (self.threshold, self.recovering) = ((self.window / 2.0).max(2.0), self.next);
            self.window = self.threshold;
            return Some(self.repeat());
        }
        None
    }

    fn repeat(&mut self) -> Vec<u8> {
        self.again.0 += 1;
        self.send(self.acked)
    }
}

/// The end that takes.
#[derive(Debug)]
pub(crate) struct Receiver {
    ends: [SocketAddr; 2],
    pub(crate) data: Vec<u8>,
    ahead: BTreeMap<usize, Vec<u8>>,
}

impl Receiver {
    pub(crate) fn new(ends: [SocketAddr; 2]) -> Self {
        Self { ends, data: Vec::new(), ahead: BTreeMap::new() }
    }

    /// A packet has come; the acknowledgement of it.
    pub(crate) fn take(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let view = Packet::parse(packet).ok()?;
        let tcp = Tcp::parse(&view).ok()?;
        self.ahead.insert(tcp.sequence as usize, tcp.payload.to_vec());
        while let Some(first) = self.ahead.first_entry().filter(|first| *first.key() <= self.data.len()) {
            let (at, data) = first.remove_entry();
            self.data.extend(data.get(self.data.len() - at..).unwrap_or_default());
        }
        Some(segment(self.ends, 0, self.data.len(), ACK, &[]))
    }
}
