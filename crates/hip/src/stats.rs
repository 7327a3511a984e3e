//! What a host counts. Owns the counters.

/// Counted since the start of a host. What costs an attacker less than us must be among it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// I1 packets that came for an identity of ours.
    pub i1: u64,
    /// R1 packets sent, each at the cost of one MAC.
    pub r1: u64,
    /// R1 packets signed ahead.
    pub r1_signed: u64,
    /// I2 packets whose puzzle is not ours, too old, or not solved: dropped at the cost of one MAC and one hash.
    pub bad_solutions: u64,
    /// I2 packets that bring a solution once more.
    pub replayed_solutions: u64,
    /// I2 packets with a right solution that were dropped, because many came or the puzzle was easier than the present ones.
    pub i2_dropped: u64,
    /// I2 packets that were worth a Diffie-Hellman computation.
    pub i2_computed: u64,
    /// Of these, the ones that were refused.
    pub i2_refused: u64,
    /// Base exchanges completed, as either end.
    pub established: u64,
    /// Public-key verifications of what others sent.
    pub verified: u64,
    /// New UPDATE packets of peers that were answered, each at the cost of a signature; those of a search for a direct way apart.
    pub updates: u64,
    /// Of these, the ones that began new ESP keys.
    pub rekeyed: u64,
    /// Packets of an association whose MAC is wrong.
    pub bad_macs: u64,
    /// I1 and UPDATE packets that we, as a rendezvous server, sent on to a client.
    pub relayed: u64,
    /// HIP packets that we, as a relay, sent on to a client or from one.
    pub relayed_control: u64,
    /// Packets of ESP that we, as a data relay, passed on.
    pub relayed_data: u64,
    /// Direct ways that took the place of one through a relay.
    pub direct: u64,
    /// ESP went over from protocol 50 to UDP, where the peer had answered.
    pub esp_in_udp: u64,
    /// Packets that were dropped for any reason.
    pub dropped: u64,
}
