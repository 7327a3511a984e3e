//! The fast way through a line of the plain CSV, for lines as programs write them. Owns reading cells from the left; must never accept a cell that the general way reads otherwise.

/// The cells of a line of a plain CSV, read from the left.
pub(super) struct Cells<'a> {
    pub(super) rest: &'a [u8],
    /// Whether there is another cell.
    pub(super) more: bool,
}

impl<'a> Cells<'a> {
    /// A cell as it is.
    #[inline]
    pub(super) fn text(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|b| *b == b',').unwrap_or(self.rest.len());
        let (cell, rest) = self.rest.split_at_checked(end).unwrap_or_default();
        self.behind(rest);
        cell
    }

    /// Moves on to what stands behind a separator; whether `rest` begins with one, or is the end.
    #[inline]
    fn behind(&mut self, rest: &'a [u8]) -> Option<()> {
        match rest {
            [] => (self.rest, self.more) = (rest, false),
            [b',', rest @ ..] => self.rest = rest,
            _ => return None,
        }
        Some(())
    }

    /// Up to `most` digits: their number, and how many there were.
    #[inline]
    fn digits(rest: &mut &'a [u8], most: u32) -> (u64, u32) {
        let (mut number, mut count) = (0, 0);
        while let [b @ b'0'..=b'9', behind @ ..] = *rest
            && count < most
        {
            number = number * 10 + u64::from(b - b'0');
            count += 1;
            *rest = behind;
        }
        (number, count)
    }

    /// A cell of 1 to 18 digits.
    #[inline]
    pub(super) fn number(&mut self) -> Option<u64> {
        let mut rest = self.rest;
        let (number, count) = Self::digits(&mut rest, 18);
        self.behind(rest)?;
        (count > 0).then_some(number)
    }

    /// A cell of seconds with at most nine decimals, in nanoseconds.
    #[inline]
    pub(super) fn seconds(&mut self) -> Option<u64> {
        const TENS: [u64; 10] =
            [1_000_000_000, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
        let mut rest = self.rest;
        // Ten digits of seconds: nanoseconds of more may not fit.
        let (whole, count) = Self::digits(&mut rest, 10);
        let mut nanos = whole * 1_000_000_000;
        if let [b'.', behind @ ..] = rest {
            rest = behind;
            let (fraction, count) = Self::digits(&mut rest, 9);
            nanos += fraction * TENS.get(count as usize)?;
        }
        self.behind(rest)?;
        (count > 0).then_some(nanos)
    }
}
