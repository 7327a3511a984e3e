//! What a responder asks of an initiator by a PUZZLE notification, and the data of the Puzzle Solution payload (RFC 8019 section 8).
//! Owns the two formats; must never compute a PRF.

use super::{Notify, NotifyType};
use crate::codec::Reader;

/// Keys in a solution (RFC 8019 section 7.1.3).
pub const PUZZLE_KEYS: usize = 4;

/// The data of a PUZZLE notification.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Puzzle {
    /// Transform ID of the PRF.
    pub prf: u16,
    /// Zero bits at the end of each of the PRF's results; 0: as many as the initiator can afford.
    pub difficulty: u8,
}

impl Puzzle {
    /// What the notification asks for; `None` if it is malformed, or another one.
    /// "Protocol ID (1 octet) -- MUST be 0." (RFC 8019 section 8.1)
    /// "SPI Size (1 octet) -- MUST be 0, meaning no SPI is present." (RFC 8019 section 8.1)
    #[must_use]
    pub fn of(notify: &Notify) -> Option<Self> {
        if notify.kind != NotifyType::Puzzle || notify.protocol.code() != 0 || !notify.spi.is_empty() {
            return None;
        }
        let mut r = Reader::new("puzzle", &notify.data);
        let puzzle = Self { prf: r.u16().ok()?, difficulty: r.u8().ok()? };
        r.all().ok()?;
        Some(puzzle)
    }

    /// The notification.
    /// "Notify Message Type (2 octets) -- MUST be 16434, the value assigned for the PUZZLE notification." (RFC 8019 section 8.1)
    #[must_use]
    pub fn notify(self) -> Notify {
        let [high, low] = self.prf.to_be_bytes();
        Notify::new(NotifyType::Puzzle, [high, low, self.difficulty])
    }
}

/// The keys of a solution, if it has four different ones of one size.
/// "All of the keys MUST have the same size; therefore, the size of this field is always a multiple of 4 bytes." (RFC 8019 section
/// 8.2)
/// "This field MUST NOT be empty." (RFC 8019 section 8.2)
#[must_use]
pub fn puzzle_keys(solution: &[u8]) -> Option<[&[u8]; PUZZLE_KEYS]> {
    let size = solution.len() / PUZZLE_KEYS;
    if size == 0 || !solution.len().is_multiple_of(PUZZLE_KEYS) {
        return None;
    }
    let mut keys = solution.chunks_exact(size);
    let keys: [&[u8]; PUZZLE_KEYS] = core::array::from_fn(|_| keys.next().unwrap_or_default());
    let different = keys.iter().enumerate().all(|(n, key)| !keys.iter().take(n).any(|before| before == key));
    different.then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ike::ProtocolId;

    #[test]
    fn a_notification_has_three_bytes_and_no_spi() {
        let puzzle = Puzzle { prf: 5, difficulty: 18 };
        let notify = puzzle.notify();
        assert_eq!((notify.kind.code(), notify.data.as_slice()), (16434, &[0, 5, 18][..]));
        assert_eq!(Puzzle::of(&notify), Some(puzzle));
        for data in [&[][..], &[0, 5], &[0, 5, 18, 0]] {
            assert_eq!(Puzzle::of(&Notify::new(NotifyType::Puzzle, data)), None, "{data:?}");
        }
        assert_eq!(Puzzle::of(&Notify { spi: vec![1], ..notify.clone() }), None);
        assert_eq!(Puzzle::of(&Notify { protocol: ProtocolId::Ike, ..notify }), None);
    }

    #[test]
    fn a_solution_is_four_different_keys_of_one_size() {
        assert_eq!(puzzle_keys(b"aabbccdd"), Some([&b"aa"[..], b"bb", b"cc", b"dd"]));
        for bad in [&b""[..], b"abc", b"abcde", b"abca", b"aabbccbb"] {
            assert_eq!(puzzle_keys(bad), None, "{bad:?}");
        }
    }
}
