//! Every bound of the stand-in in one place. Owns numbers and the rate limiter that enforces some of them.

use core::time::Duration;

use dormouse_sansio::Instant;

/// TCP connections remembered for one device; the longest silent is forgotten first.
pub(crate) const CONNECTIONS: usize = 256;
/// TCP connections remembered in all.
pub(crate) const CONNECTIONS_TOTAL: usize = 1 << 18;
/// Multicast DNS records remembered for one device, and bytes of their names and data.
pub(crate) const RECORDS: usize = 64;
/// See [`RECORDS`].
pub(crate) const RECORD_BYTES: usize = 8 * 1024;
/// A record is used for this long at most, also if its time to live is longer.
pub(crate) const RECORD_TTL: Duration = Duration::from_secs(24 * 3600);
/// Records in one answer: it fits a packet of the smallest MTU.
pub(crate) const ANSWER_BYTES: usize = 1_100;
/// NetBIOS names remembered for one device.
pub(crate) const NETBIOS_NAMES: usize = 16;
/// DNS questions that a device may have open.
pub(crate) const QUESTIONS: usize = 32;
/// An open DNS question is forgotten after this time: resolvers give up sooner.
pub(crate) const QUESTION_AGE: Duration = Duration::from_secs(30);
/// Between two answers on one TCP connection.
pub(crate) const TCP_PAUSE: Duration = Duration::from_millis(100);
/// The least time between two attempts to renew a DHCP lease (RFC 2131 section 4.4.5).
pub(crate) const RENEWAL_PAUSE: Duration = Duration::from_secs(60);
/// Bytes that a waiting packet costs besides its own.
pub(crate) const PACKET_OVERHEAD: usize = 256;
/// So many pings in a row that a device does not answer, and it is taken for one that answers none.
pub(crate) const PINGS_UNANSWERED: u8 = 4;
/// Addresses of one device.
pub(crate) const ADDRESSES: usize = 16;

/// So many in the long run, and so many at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// In the long run, each second.
    pub per_second: u32,
    /// At once, after a silence.
    pub burst: u32,
}

/// What a gateway allows its stand-in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Devices known at once.
    pub devices: usize,
    /// Bytes that wait for one device, some 256 for each packet included.
    pub device_bytes: usize,
    /// Packets that wait for one device.
    pub device_packets: usize,
    /// Bytes that wait for all of them.
    pub total_bytes: usize,
    /// Packets that wait for all of them.
    pub total_packets: usize,
    /// Answers on behalf of one device.
    pub answers: Rate,
    /// Answers on TCP connections that the device had, for one device: counted apart, so that a flood of pings does not end
    /// them.
    pub tcp_answers: Rate,
    /// Answers of both kinds for all devices.
    pub total_answers: Rate,
    /// Whether TCP peers get a window of zero for new data.
    pub hold_tcp: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            devices: 100_000,
            device_bytes: 256 * 1024,
            device_packets: 256,
            total_bytes: 64 * 1024 * 1024,
            total_packets: 64 * 1024,
            answers: Rate { per_second: 20, burst: 50 },
            tcp_answers: Rate { per_second: 50, burst: 100 },
            total_answers: Rate { per_second: 5_000, burst: 5_000 },
            hold_tcp: true,
        }
    }
}

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// Thousand-millionths of a token, so that no interval is too short to count.
    nano: u64,
    at: Instant,
}

const TOKEN: u64 = 1_000_000_000;

impl Bucket {
    /// A full one.
    pub(crate) fn full(now: Instant, rate: Rate) -> Self {
        Self { nano: u64::from(rate.burst) * TOKEN, at: now }
    }

    /// Takes a token if there is one.
    pub(crate) fn take(&mut self, now: Instant, rate: Rate) -> bool {
        let gained = u64::try_from((now - self.at).as_nanos()).unwrap_or(u64::MAX);
        self.at = self.at.max(now);
        let most = u64::from(rate.burst) * TOKEN;
        self.nano = self.nano.saturating_add(gained.saturating_mul(rate.per_second.into())).min(most);
        let enough = self.nano >= TOKEN;
        if enough {
            self.nano -= TOKEN;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let rate = Rate { per_second: 10, burst: 3 };
        let mut bucket = Bucket::full(Instant::ZERO, rate);
        let mut taken = |at: Duration| (0..100).filter(|_| bucket.take(Instant::ZERO + at, rate)).count();
        assert_eq!(taken(Duration::ZERO), 3);
        assert_eq!(taken(Duration::from_millis(99)), 0);
        assert_eq!(taken(Duration::from_millis(200)), 2);
        assert_eq!(taken(Duration::from_secs(3600)), 3);
        assert_eq!(taken(Duration::ZERO), 0, "a clock that goes back gives nothing");
    }
}
