//! What was answered and what was dropped, and why. Owns the names; they are stable, for `dormouse status` and `stats`.

use std::collections::BTreeMap;

/// What kind of answer was given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// ICMP or ICMPv6 echo.
    Echo,
    /// ICMPv6 neighbour solicitation.
    Neighbour,
    /// A TCP segment with nothing new: a keep-alive probe, or data again.
    TcpKeepAlive,
    /// New TCP data, told that there is no room.
    TcpHold,
    /// A NetBIOS session keep-alive, told that there is no room.
    NetBiosSession,
    /// An SMB echo request, told that there is no room.
    SmbEcho,
    /// NetBIOS name service.
    NetBiosName,
    /// Multicast DNS.
    Mdns,
    /// DNS.
    Dns,
    /// DHCP: a lease that was renewed.
    Dhcp,
}

impl Kind {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Neighbour => "neighbour",
            Self::TcpKeepAlive => "tcp-keep-alive",
            Self::TcpHold => "tcp-hold",
            Self::NetBiosSession => "netbios-session",
            Self::SmbEcho => "smb-echo",
            Self::NetBiosName => "netbios-name",
            Self::Mdns => "mdns",
            Self::Dns => "dns",
            Self::Dhcp => "dhcp",
        }
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// It contradicts itself.
    Malformed,
    /// Nothing is kept for this device.
    NotKept,
    /// A broadcast or multicast that the device need not answer.
    Discovery,
    /// TCP outside of any window of its connection.
    OutOfWindow,
    /// The same data waits already.
    Duplicate,
    /// A newer packet of its flow says the same and more.
    Superseded,
    /// It waited longer than its class is worth keeping.
    Expired,
    /// No room, and nothing of lesser worth to drop.
    Full,
    /// Something of greater worth needed its room.
    Evicted,
    /// Asked too often.
    RateLimited,
    /// The device did not come back in the time that it gave, or for which the gateway keeps anything.
    Overslept,
    /// The address that it was for is another device's now.
    Readdressed,
}

impl Reason {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NotKept => "not-kept",
            Self::Discovery => "discovery",
            Self::OutOfWindow => "out-of-window",
            Self::Duplicate => "duplicate",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
            Self::Full => "full",
            Self::Evicted => "evicted",
            Self::RateLimited => "rate-limited",
            Self::Overslept => "overslept",
            Self::Readdressed => "readdressed",
        }
    }
}

/// Counts of one device, or of all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets towards sleeping devices. Each was answered alone, taken to wait, or dropped.
    pub handled: u64,
    /// Packets taken to wait. Each was delivered, handed over, dropped later, or waits still.
    pub buffered: u64,
    /// Packets delivered on wake.
    pub delivered: u64,
    /// Packets that waited here and went to another gateway.
    pub handed_over: u64,
    /// Packets that waited at another gateway. Each was delivered at once, taken to wait, or dropped; they are not among `handled`.
    pub taken_over: u64,
    /// Answers by kind, those to packets that also wait included.
    pub answered: BTreeMap<Kind, u64>,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<Reason, u64>,
}

impl Counters {
    pub(crate) fn answer(&mut self, kind: Kind) {
        *self.answered.entry(kind).or_default() += 1;
    }

    pub(crate) fn drop(&mut self, reason: Reason, packets: u64) {
        if packets > 0 {
            *self.dropped.entry(reason).or_default() += packets;
        }
    }

    /// Packets were dropped, by these reasons.
    pub(crate) fn lose(&mut self, by_reason: &BTreeMap<Reason, u64>) {
        for (reason, packets) in by_reason {
            self.drop(*reason, *packets);
        }
    }

    /// Adds another device's.
    pub fn add(&mut self, other: &Self) {
        self.handled += other.handled;
        self.buffered += other.buffered;
        self.delivered += other.delivered;
        self.handed_over += other.handed_over;
        self.taken_over += other.taken_over;
        for (kind, n) in &other.answered {
            *self.answered.entry(*kind).or_default() += n;
        }
        for (reason, n) in &other.dropped {
            *self.dropped.entry(*reason).or_default() += n;
        }
    }

    /// Answers in all.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.answered.values().sum()
    }

    /// Drops in all.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.dropped.values().sum()
    }
}
