//! Repair without any header of the user's: ESP numbers its packets in clear, so device and access router mend the radio between them by
//! these numbers alone, without reading the packets.
//!
//! The device reports, authenticated, which numbers came ([`Device`]); the router repeats from its copies what did not ([`Router`]); the
//! device puts the packets back in order before it opens them, and waits for a missing one for a short time only. So the connections
//! inside see a later packet instead of a lost one, and the router learns nothing that it could not see before.
//!
//! Owns the formats of reports and answers. The key says which device's reports these are; it protects nothing of the user's. A holder of the key can
//! make the router repeat what the device has, or forget what it lacks, within [`Limits`].
//!
//! [`Agent`] and [`Reporter`] are what ships: for SAs in zones, whose first key gateway, device and router have ([`reports_key`]). The router keeps
//! what opens under it, the device puts in order what its SA has opened: nothing that is forged counts at either. [`Router`] and [`Device`] are
//! the ends of one emulated radio, and believe what they see.
//!
//! # A report
//! All numbers are big-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `ARQ1` |
//! | 4 | SPI of the SA whose packets these are |
//! | 8 | number of the report, counted from 1 |
//! | 4 | the lowest ESP sequence number that has not come and is still awaited |
//! | 1 | n, at most 32 |
//! | n | bit i, from the most significant of the first byte on: whether the packet with that number plus 1 plus i has come |
//! | 16 | HMAC-SHA-256 of all that, its first half |
//!
//! [`Router`] takes none whose number is not above all before; what [`Agent`] takes stands in `docs/wire/esp-arq.md`.
//! An answer is `ARQ2`, the number of the report (8), and the same of these (16). How both travel, and what they mean, is in `docs/wire/esp-arq.md`.

mod agent;
mod device;
mod reporter;
mod router;

use core::net::SocketAddr;
use core::time::Duration;

use dormouse_crypto::{Prf, PrfKey, Secret, ct_eq};
use dormouse_wire::esp::Header;

use crate::outer;

pub use agent::Agent;
pub use device::Device;
pub use reporter::Reporter;
pub use router::{Router, Stats};

/// The port of reports.
pub const PORT: u16 = 4_510;
const MAGIC: &[u8; 4] = b"ARQ1";
const ANSWER: &[u8; 4] = b"ARQ2";
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

/// The key of reports about what a device receives on an SA, from the keying material of its first zone.
#[must_use]
pub fn reports_key(keymat: &Secret) -> PrfKey {
    let key = PrfKey::new(Prf::HmacSha256, keymat.as_bytes()).compute(&[b"Dormouse esp-arq reports"]);
    PrfKey::new(Prf::HmacSha256, key.as_bytes())
}

/// A message beside the packets of an SA is an ESP packet whose number none has: the SPI, and zero.
fn beside(spi: u32, message: &[u8]) -> Vec<u8> {
    [&spi.to_be_bytes()[..], &[0; 4], message].concat()
}

/// The SPI and the message, if it is one.
pub(crate) fn message(esp: &[u8]) -> Option<(u32, &[u8])> {
    let (spi, rest) = esp.split_first_chunk()?;
    Some((u32::from_be_bytes(*spi), rest.strip_prefix(&[0; 4])?))
}

/// What the router says to a report: that it repairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// Of the report.
    pub(crate) number: u64,
}

impl Answer {
    pub(crate) fn seal(self, key: &PrfKey) -> Vec<u8> {
        let mut out = ANSWER.to_vec();
        out.extend(self.number.to_be_bytes());
        let mac = key.compute(&[&out]);
        out.extend(mac.as_bytes().iter().take(MAC));
        out
    }

    /// `None` for what is none, or not of this key's owner.
    pub(crate) fn open(key: &PrfKey, bytes: &[u8]) -> Option<Self> {
        let (said, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC)?)?;
        let number = said.strip_prefix(ANSWER)?.try_into().ok()?;
        let whole = key.compute(&[said]);
        let right = whole.as_bytes().get(..MAC).is_some_and(|expected| ct_eq(expected, mac));
        right.then(|| Self { number: u64::from_be_bytes(number) })
    }
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

    /// The highest number, its lower half, that it says has come.
    pub(crate) fn highest(&self) -> u32 {
        let last = self.bitmap.iter().rposition(|byte| *byte != 0);
        let bits = last
            .map_or(0, |at| at as u32 * 8 + 8 - self.bitmap.get(at).map_or(0, |byte| byte.trailing_zeros()));
        // Bit 0 is of the number behind the one that is awaited; without any, all before that one has come.
        if bits == 0 { self.next.wrapping_sub(1) } else { self.next.wrapping_add(bits) }
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
    let view = outer::tunnelled(outer::whole(packet)?)?;
    outer::esp(&view).and_then(|esp| Header::parse(esp).ok())
}
