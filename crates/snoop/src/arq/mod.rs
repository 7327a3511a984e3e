//! Repair without any header of the user's: ESP numbers its packets in clear, so device and access router mend the radio between them by
//! these numbers alone, without reading the packets.
//!
//! The device reports, authenticated, which numbers came ([`Device`]); the router repeats from its copies what did not ([`Router`]); the
//! device puts the packets back in order before it opens them, and waits for a missing one for a short time only. So the connections
//! inside see a later packet instead of a lost one, and the router learns nothing that it could not see before.
//!
//! Owns the report's format. The key says which device's reports these are; it protects nothing of the user's, and how both ends come by
//! it is not decided here. A holder of the key can make the router repeat what the device has, or forget what it lacks, within [`Limits`].
//!
//! # A report
//! All numbers are big-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `ARQ1` |
//! | 4 | SPI of the SA whose packets these are |
//! | 8 | number of the report: the router takes none that is not above all before |
//! | 4 | the lowest ESP sequence number that has not come and is still awaited |
//! | 1 | n, at most 32 |
//! | n | bit i, from the most significant of the first byte on: whether the packet with that number plus 1 plus i has come |
//! | 16 | HMAC-SHA-256 of all that, its first half |

mod device;
mod router;

use core::net::SocketAddr;
use core::time::Duration;

use dormouse_crypto::{Prf, PrfKey, Secret, ct_eq};
use dormouse_wire::esp::Header;

use crate::outer;

pub use device::Device;
pub use router::{Router, Stats};

/// The port of reports.
pub const PORT: u16 = 4_510;
const MAGIC: &[u8; 4] = b"ARQ1";
const MAC: usize = 16;
const BITMAP: usize = 32;

/// What both ends may keep, and how patient they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// SAs followed at once; the one that was silent for longest gives way.
    pub sas: usize,
    /// Packets of one SA kept at the router, or held at the device.
    pub packets: usize,
    /// Bytes that the router keeps, and that the device holds, of one SA.
    pub bytes: usize,
    /// Times that a packet is repeated.
    pub tries: u32,
    /// The router's time until it repeats without a report, while no round trip was measured.
    pub initial_rto: Duration,
    /// The shortest: longer than [`Self::report`].
    pub min_rto: Duration,
    /// The longest.
    pub max_rto: Duration,
    /// How long the device holds a packet back behind a missing one. What it costs at most, where the repair fails.
    pub hold: Duration,
    /// The device's longest delay of a report while nothing is missing, and while something is.
    pub report: Duration,
    /// See above.
    pub report_gap: Duration,
    /// Packets after which it reports at once.
    pub unreported: u32,
}

impl Default for Limits {
    /// 8 SAs of 512 packets and 1 MiB.
    fn default() -> Self {
        Self {
            sas: 8,
            packets: 512,
            bytes: 1 << 20,
            tries: 8,
            initial_rto: Duration::from_millis(100),
            min_rto: Duration::from_millis(40),
            max_rto: Duration::from_millis(500),
            hold: Duration::from_millis(120),
            report: Duration::from_millis(20),
            report_gap: Duration::from_millis(3),
            unreported: 8,
        }
    }
}

/// The two ends of one repair: the router's, and that of the device, which sends its reports from `device` to `router`.
#[must_use]
pub fn pair(key: &Secret, limits: Limits, device: SocketAddr, router: SocketAddr) -> (Router, Device) {
    let key = PrfKey::new(Prf::HmacSha256, key.as_bytes());
    (Router::new(key.clone(), limits), Device::new(key, limits, device, router))
}

/// What the device says of one SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    pub(crate) spi: u32,
    pub(crate) number: u64,
    pub(crate) next: u32,
    pub(crate) bitmap: Vec<u8>,
}

impl Report {
    pub(crate) fn seal(&self, key: &PrfKey) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(self.spi.to_be_bytes());
        out.extend(self.number.to_be_bytes());
        out.extend(self.next.to_be_bytes());
        let bitmap = self.bitmap.get(..BITMAP).unwrap_or(&self.bitmap);
        out.push(bitmap.len() as u8);
        out.extend(bitmap);
        let mac = key.compute(&[&out]);
        out.extend(mac.as_bytes().iter().take(MAC));
        out
    }

    /// `None` for what is none, or not of this key's owner.
    pub(crate) fn open(key: &PrfKey, bytes: &[u8]) -> Option<Self> {
        let (said, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC)?)?;
        let rest = said.strip_prefix(MAGIC)?;
        let (spi, rest) = rest.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (next, rest) = rest.split_first_chunk::<4>()?;
        let (&len, bitmap) = rest.split_first()?;
        let form = usize::from(len) == bitmap.len() && bitmap.len() <= BITMAP;
        let whole = key.compute(&[said]);
        let right = whole.as_bytes().get(..MAC).is_some_and(|expected| ct_eq(expected, mac));
        (form && right).then(|| Self {
            spi: u32::from_be_bytes(*spi),
            number: u64::from_be_bytes(*number),
            next: u32::from_be_bytes(*next),
            bitmap: bitmap.to_vec(),
        })
    }

    /// Whether it says that the packet of this number has come.
    pub(crate) fn has(&self, sequence: u32) -> bool {
        let ahead = sequence.wrapping_sub(self.next);
        if ahead as i32 <= 0 {
            return (ahead as i32) < 0;
        }
        let bit = ahead as usize - 1;
        self.bitmap.get(bit / 8).is_some_and(|byte| byte & (0x80 >> (bit % 8)) != 0)
    }
}

/// SPI and sequence number of a whole ESP packet, bare or in UDP.
fn numbered(packet: &[u8]) -> Option<Header> {
    outer::whole(packet).and_then(|view| outer::esp(&view)).and_then(|esp| Header::parse(esp).ok())
}
