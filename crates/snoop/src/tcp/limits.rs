//! The agent's bounds and times. Owns the figures; decides nothing.

use core::time::Duration;

/// What an agent may keep, and how patient it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections followed at once. A further one takes the place of the one that was silent for longest.
    pub flows: usize,
    /// Packets kept of one connection. Further ones pass without a copy.
    pub packets: usize,
    /// Bytes of packets kept in all. Connections that were silent for longest give way.
    pub bytes: usize,
    /// Duplicate acknowledgements that say that a packet was lost. One is enough where neither radio nor wire reorders: the radio's
    /// frames come in order, and disorder of the wire shows in what passes here.
    pub threshold: u32,
    /// Times that a packet is repeated on its own account; then the ends must see the loss.
    pub tries: u32,
    /// Local retransmission time while no round trip was measured.
    pub initial_rto: Duration,
    /// The shortest, which must be longer than a device delays an acknowledgement (Linux: 40 ms, and more).
    pub min_rto: Duration,
    /// The longest, doubling included.
    pub max_rto: Duration,
    /// A connection with packets that were not acknowledged and without any packet either way for so long: all are repeated.
    pub persist: Duration,
    /// A connection without any packet either way for so long is forgotten.
    pub garbage: Duration,
    /// How long acknowledgements that show the sender a gap (selective ones) may be kept from it while the gap is being mended.
    /// Shorter than the 200 ms by which a sender's own timer exceeds its round trip.
    pub patience: Duration,
}

impl Default for Limits {
    /// 1,024 connections, 512 packets each, 16 MiB; the times of paper 003 (Table 4).
    fn default() -> Self {
        Self {
            flows: 1_024,
            packets: 512,
            bytes: 16 << 20,
            threshold: 1,
            tries: 8,
            initial_rto: Duration::from_millis(100),
            min_rto: Duration::from_millis(100),
            max_rto: Duration::from_secs(1),
            persist: Duration::from_secs(1),
            garbage: Duration::from_secs(10),
            patience: Duration::from_millis(150),
        }
    }
}
