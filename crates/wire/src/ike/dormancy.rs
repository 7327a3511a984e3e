//! Formats of the dormancy extension (`docs/wire/dormancy.md`) that IKE alone has: the vendor id that opens it, and the data of notifications
//! besides the announcement of a sleep and its answer, which are [`crate::sleep`]'s. Owns bytes and bounds; must never decide what a device or
//! a gateway does about them.
//!
//! Every parser ignores bytes after the fields that it knows, so that a later version can add some.

use core::time::Duration;

use crate::Result;
use crate::codec::Reader;
use crate::{Error, ike::Payload};

/// The first 16 bytes of SHA-256("Dormouse dormancy extension"). One byte with the version follows.
pub const VENDOR_ID: [u8; 16] =
    [0xb5, 0x6b, 0x59, 0x8e, 0x18, 0x66, 0x74, 0x67, 0x94, 0x1a, 0x21, 0xa6, 0x1b, 0xdb, 0x46, 0x1c];
/// The version that this file describes.
pub const VERSION: u8 = 2;
/// Half hours of a day: the most that a forecast covers.
pub const SLOTS: usize = 48;

/// The vendor id payload that says "version [`VERSION`] and every one before it".
#[must_use]
pub fn vendor_id() -> Payload {
    let mut data = VENDOR_ID.to_vec();
    data.push(VERSION);
    Payload::VendorId(data)
}

/// The version that both ends speak, if the peer sent the vendor id: the lower of the two.
#[must_use]
pub fn version_of(payloads: &[Payload]) -> Option<u8> {
    payloads.iter().find_map(|payload| match payload {
        Payload::VendorId(data) => {
            let (head, rest) = data.split_first_chunk::<16>()?;
            let version = rest.first().copied().filter(|_| *head == VENDOR_ID)?;
            (version > 0).then(|| version.min(VERSION))
        }
        _ => None,
    })
}

/// DORMANCY_REFUSED: why a resumed session is deleted at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Another ticket of the session has been used, or the session has ended: this one never counts again.
    Superseded,
    /// The gateway's store does not answer: the ticket that came with the session counts, whether or not the store has done what it was asked.
    Store,
}

impl Refused {
    /// The data of the notification.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Superseded => 1,
            Self::Store => 2,
        }
    }

    /// Reads the data of the notification; `None` for a reason that is not known.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        match data.first()? {
            1 => Some(Self::Superseded),
            2 => Some(Self::Store),
            _ => None,
        }
    }
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Superseded => "another ticket of its session was used, or the session has ended",
            Self::Store => "the store of lineages does not answer",
        })
    }
}

/// What a gateway expects of one half hour.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SlotForecast {
    /// Clients that establish or resume a session at once, as a newcomer finds them and itself included, in sixteenths.
    pub clients_16: u16,
    /// How long a session takes then, in milliseconds, as the gateway sees it.
    pub latency_ms: u16,
}

/// DORMANCY_LOAD: how long a session takes to come back, now and in the half hours to come, as the gateway measures it:
/// from the first message of a handshake or resumption until the SA is established, the client's own round trips included.
///
/// `version (1) | slots (1) | seconds into the present half hour (2) | alone µs (4) | per client µs (4) | clients now (2) |
/// zero (2)`, then `clients (2) | ms (2)` for each half hour, the present one first.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LoadReport {
    /// How far the present half hour has run when the report was made, in seconds (0 to 1,799).
    pub into_slot: u16,
    /// How long a client takes that is alone, in microseconds.
    pub alone_us: u32,
    /// How much longer for each further client at once, in microseconds.
    pub per_client_us: u32,
    /// Clients at once just now, the reader not included, in sixteenths.
    pub clients_now_16: u16,
    /// The present half hour, then those that follow: at most [`SLOTS`].
    pub forecast: Vec<SlotForecast>,
}

impl LoadReport {
    const VERSION: u8 = 1;
    /// A half hour.
    const SLOT: u64 = 1_800;

    /// How long a client takes that is alone.
    #[must_use]
    pub const fn alone(&self) -> Duration {
        Duration::from_micros(self.alone_us as u64)
    }

    /// How much longer for each further client at once.
    #[must_use]
    pub const fn per_client(&self) -> Duration {
        Duration::from_micros(self.per_client_us as u64)
    }

    /// How long a client takes among `clients` at once, itself included; 0 counts as 1.
    #[must_use]
    pub fn latency_at(&self, clients: f64) -> Duration {
        let further = if clients.is_finite() { (clients - 1.0).clamp(0.0, 1e6) } else { 0.0 };
        self.alone() + Duration::from_secs_f64(f64::from(self.per_client_us) * 1e-6 * further)
    }

    /// Clients at once that a device finds which comes back `ahead` after the report was made, itself included: at least 1.
    #[must_use]
    pub fn clients_in(&self, ahead: Duration) -> f64 {
        let seconds = ahead.as_secs().saturating_add(u64::from(self.into_slot));
        let slot = usize::try_from(seconds / Self::SLOT).unwrap_or(usize::MAX);
        let now = f64::from(self.clients_now_16) / 16.0 + 1.0;
        let forecast = |slot: &SlotForecast| f64::from(slot.clients_16) / 16.0;
        let expected = match slot {
            // What is seen now says more about the next minutes than what is usual at this time of day.
            0 if ahead.as_secs() < 60 => Some(now),
            _ => self.forecast.get(slot).or(self.forecast.last()).map(forecast),
        };
        expected.unwrap_or(now).max(1.0)
    }

    /// The data of the notification.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let count = u8::try_from(self.forecast.len().min(SLOTS)).unwrap_or(0);
        let mut data = vec![Self::VERSION, count];
        data.extend_from_slice(&self.into_slot.to_be_bytes());
        data.extend_from_slice(&self.alone_us.to_be_bytes());
        data.extend_from_slice(&self.per_client_us.to_be_bytes());
        data.extend_from_slice(&self.clients_now_16.to_be_bytes());
        data.extend_from_slice(&[0, 0]);
        for slot in self.forecast.iter().take(count.into()) {
            data.extend_from_slice(&slot.clients_16.to_be_bytes());
            data.extend_from_slice(&slot.latency_ms.to_be_bytes());
        }
        data
    }

    /// Reads the data of the notification.
    ///
    /// # Errors
    /// If it is cut short, of another version, or a field is out of its range.
    pub fn parse(data: &[u8]) -> Result<Self> {
        let mut r = Reader::new("DORMANCY_LOAD", data);
        let value = |what, got: u64, expect| Error::Value { what, got, expect };
        match r.u8()? {
            Self::VERSION => {}
            got => return Err(value("version of a load report", got.into(), "1")),
        }
        let count = usize::from(r.u8()?);
        if count > SLOTS {
            return Err(Error::TooMany { what: "half hours of a forecast", limit: SLOTS });
        }
        let into_slot = r.u16()?;
        if u64::from(into_slot) >= Self::SLOT {
            return Err(value("seconds of a half hour", into_slot.into(), "0 to 1799"));
        }
        let (alone_us, per_client_us, clients_now_16) = (r.u32()?, r.u32()?, r.u16()?);
        r.take(2)?;
        let mut forecast = Vec::with_capacity(count);
        for _ in 0..count {
            forecast.push(SlotForecast { clients_16: r.u16()?, latency_ms: r.u16()? });
        }
        Ok(Self { into_slot, alone_us, per_client_us, clients_now_16, forecast })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vendor_id_is_known_by_its_first_bytes_and_the_lower_version_counts() {
        let sent = vendor_id();
        assert_eq!(version_of(std::slice::from_ref(&sent)), Some(VERSION));
        let with = |tail: &[u8]| Payload::VendorId([&VENDOR_ID[..], tail].concat());
        assert_eq!(version_of(&[with(&[9, 1, 2])]), Some(VERSION), "a later version knows ours");
        assert_eq!(version_of(&[with(&[0])]), None);
        assert_eq!(version_of(&[with(&[])]), None);
        assert_eq!(version_of(&[Payload::VendorId(vec![1; 17])]), None);
        assert_eq!(version_of(&[Payload::VendorId(vec![1; 3]), sent]), Some(VERSION));
    }

    #[test]
    fn golden_bytes() {
        let report = LoadReport {
            into_slot: 258,
            alone_us: 40_000,
            per_client_us: 7,
            clients_now_16: 24,
            forecast: vec![SlotForecast { clients_16: 48, latency_ms: 41 }],
        };
        let bytes = [1, 1, 1, 2, 0, 0, 0x9c, 0x40, 0, 0, 0, 7, 0, 24, 0, 0, 0, 48, 0, 41];
        assert_eq!(report.emit(), bytes);
        assert_eq!(LoadReport::parse(&bytes), Ok(report));
    }

    #[test]
    fn data_that_is_cut_short_or_out_of_range_is_refused() {
        let mut report =
            LoadReport { forecast: vec![SlotForecast::default(); SLOTS], ..LoadReport::default() }.emit();
        for len in 0..report.len() {
            assert!(LoadReport::parse(&report[..len]).is_err(), "{len}");
        }
        report.extend_from_slice(&[1, 2, 3]);
        assert!(LoadReport::parse(&report).is_ok(), "a later version says more");
        for (at, byte) in [(0, 2), (1, 49), (2, 8)] {
            let mut bad = report.clone();
            bad[at] = byte;
            assert!(LoadReport::parse(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_forecast_is_read_at_the_half_hour_of_the_return() {
        let slot = |clients: u16| SlotForecast { clients_16: clients * 16, latency_ms: 0 };
        let report = LoadReport {
            into_slot: 1_700,
            alone_us: 50_000,
            per_client_us: 1_000,
            clients_now_16: 16 * 9,
            forecast: vec![slot(3), slot(21), slot(0)],
        };
        let at = |seconds| report.latency_at(report.clients_in(Duration::from_secs(seconds))).as_millis();
        assert_eq!([at(0), at(70), at(100), at(1_899), at(1_900), at(1_000_000)], [59, 52, 70, 70, 50, 50]);
        assert_eq!(LoadReport::default().clients_in(Duration::from_secs(90_000)).to_bits(), 1f64.to_bits());
        assert_eq!(report.latency_at(f64::NAN), report.alone());
    }
}
