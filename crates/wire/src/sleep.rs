//! The announcement of a sleep and the answer to it, as every key manager sends them (`docs/wire/dormancy.md`): in notifications of IKE, in
//! parameters of HIP. Owns bytes and bounds; must never decide what a device or its peer does about them.
//!
//! Every parser ignores bytes after the fields that it knows, so that a later version can add some.

use core::time::Duration;

use crate::codec::Reader;
use crate::{Error, Result};

/// Most marks of one announcement; a session has one CHILD SA, two while one is rekeyed.
pub const MARKS_MAX: usize = 16;

/// What a device wants of its gateway while it sleeps, and what a gateway grants.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SleepFlags {
    /// Stand in for the device: answer what it would answer (bit 0).
    pub stand_in: bool,
    /// Keep packets for it (bit 1).
    pub buffering: bool,
}

impl SleepFlags {
    /// As sent. Bits without a meaning are zero.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.stand_in as u8 | (self.buffering as u8) << 1
    }

    /// As received. Bits without a meaning are ignored.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self { stand_in: bits & 1 != 0, buffering: bits & 2 != 0 }
    }

    /// What both want.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { stand_in: self.stand_in && other.stand_in, buffering: self.buffering && other.buffering }
    }
}

/// How far a device's ESP had come when it announced its sleep: a packet with a higher number was sent after waking, one
/// with this number or a lower one was only late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// SPI of what the device sends.
    pub spi: u32,
    /// The last sequence number that it used, all 64 bits; 0 before the first packet.
    pub sequence: u64,
}

/// DORMANCY_SLEEPING: the device goes to sleep.
///
/// `flags (1) | zero (3) | seconds (4)`, then a mark `SPI (4) | sequence (8)` for each CHILD SA.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sleeping {
    /// What it wants meanwhile.
    pub flags: SleepFlags,
    /// How long it may sleep at most, whole seconds; `None` (0 on the wire): it does not know.
    pub expect: Option<Duration>,
    /// At most [`MARKS_MAX`].
    pub marks: Vec<Mark>,
}

impl Sleeping {
    /// The data of the notification. A part of a second counts as a whole one.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let seconds = self.expect.map_or(0, seconds_up);
        let mut data = vec![self.flags.bits(), 0, 0, 0];
        data.extend_from_slice(&seconds.to_be_bytes());
        for mark in self.marks.iter().take(MARKS_MAX) {
            data.extend_from_slice(&mark.spi.to_be_bytes());
            data.extend_from_slice(&mark.sequence.to_be_bytes());
        }
        data
    }

    /// Reads the data of the notification.
    ///
    /// # Errors
    /// If it is cut short, or has more marks than [`MARKS_MAX`].
    pub fn parse(data: &[u8]) -> Result<Self> {
        let mut r = Reader::new("DORMANCY_SLEEPING", data);
        let flags = SleepFlags::from_bits(r.u8()?);
        r.take(3)?;
        let seconds = r.u32()?;
        let mut marks = Vec::new();
        while !r.is_empty() {
            if marks.len() == MARKS_MAX {
                return Err(Error::TooMany { what: "marks of a sleep", limit: MARKS_MAX });
            }
            marks.push(Mark { spi: r.u32()?, sequence: r.u64()? });
        }
        Ok(Self { flags, expect: (seconds != 0).then(|| Duration::from_secs(seconds.into())), marks })
    }
}

/// DORMANCY_HELD: the gateway keeps the SA.
///
/// `flags (1) | zero (3) | seconds (4)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldGrant {
    /// What it does meanwhile: never more than was wanted.
    pub flags: SleepFlags,
    /// How long it keeps the SA, whole seconds, counted from its answer.
    pub hold: Duration,
}

impl HoldGrant {
    /// The data of the notification. A part of a second is not promised.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let seconds = u32::try_from(self.hold.as_secs()).unwrap_or(u32::MAX);
        [&[self.flags.bits(), 0, 0, 0][..], &seconds.to_be_bytes()].concat()
    }

    /// Reads the data of the notification.
    ///
    /// # Errors
    /// If it is cut short.
    pub fn parse(data: &[u8]) -> Result<Self> {
        let mut r = Reader::new("DORMANCY_HELD", data);
        let flags = SleepFlags::from_bits(r.u8()?);
        r.take(3)?;
        Ok(Self { flags, hold: Duration::from_secs(r.u32()?.into()) })
    }
}

fn seconds_up(d: Duration) -> u32 {
    let up = d.as_secs() + u64::from(d.subsec_nanos() > 0);
    u32::try_from(up).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let sleeping = Sleeping {
            flags: SleepFlags { stand_in: true, buffering: true },
            expect: Some(Duration::from_millis(599_001)),
            marks: vec![Mark { spi: 0x0102_0304, sequence: 5 }],
        };
        let bytes = [3, 0, 0, 0, 0, 0, 2, 0x58, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5];
        assert_eq!(sleeping.emit(), bytes);
        let read = Sleeping::parse(&bytes).expect("its own bytes");
        assert_eq!(read, Sleeping { expect: Some(Duration::from_secs(600)), ..sleeping });
        let held = HoldGrant {
            flags: SleepFlags { stand_in: true, buffering: false },
            hold: Duration::from_secs(256),
        };
        assert_eq!(held.emit(), [1, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(HoldGrant::parse(&held.emit()), Ok(held));
    }

    #[test]
    fn data_that_is_cut_short_or_too_long_is_refused() {
        let sleeping =
            Sleeping { marks: vec![Mark { spi: 1, sequence: 2 }; 2], ..Sleeping::default() }.emit();
        for len in (0..sleeping.len()).filter(|len| ![8, 20].contains(len)) {
            assert!(Sleeping::parse(&sleeping[..len]).is_err(), "{len}");
        }
        assert!(Sleeping::parse(&[0; 8 + 12 * (MARKS_MAX + 1)]).is_err());
        assert!(HoldGrant::parse(&[0; 7]).is_err());
    }
}
