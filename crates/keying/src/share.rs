//! Which packets a CHILD SA carries of those that several cover. Owns the words; must never choose, which is the data plane's.

use core::fmt;
use core::num::NonZeroU32;

/// A set of marks that applications put on their packets: code points of differentiated services (DSCP, RFC 2474), 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks(u64);

impl Marks {
    /// The highest mark.
    pub const HIGHEST: u8 = 63;

    /// Of these; `None` if one is above [`Self::HIGHEST`].
    #[must_use]
    pub fn new(marks: &[u8]) -> Option<Self> {
        let one = |set: u64, mark: &u8| (*mark <= Self::HIGHEST).then(|| set | 1 << mark);
        marks.iter().try_fold(0, one).map(Self)
    }

    /// Whether this one is among them.
    #[must_use]
    pub const fn has(self, mark: u8) -> bool {
        mark <= Self::HIGHEST && self.0 >> mark & 1 == 1
    }
}

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for mark in (0..=Self::HIGHEST).filter(|mark| self.has(*mark)) {
            write!(f, "{between}{mark}")?;
            between = ", ";
        }
        Ok(())
    }
}

/// When the signal of a radio counts as weak. Two bounds, because a signal varies by a few dB from one packet to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weak {
    /// It becomes weak below so many dBm.
    pub below: i8,
    /// It is weak no more from so many dBm on; no less than `below`.
    pub until: i8,
}

/// What a CHILD SA sends where others of the same owner have the same selectors. Each end chooses for what it sends; it takes what comes by any
/// of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Share {
    /// What no other takes.
    #[default]
    Rest,
    /// One packet in so many.
    Every(NonZeroU32),
    /// Packets with one of these marks.
    Marked(Marks),
    /// All packets, while the signal of this end's radio is weak.
    Signal(Weak),
    /// All packets, while the one that came last came by it.
    AsPeer,
}

impl Share {
    /// Whether it is [`Self::Rest`].
    #[must_use]
    pub const fn is_rest(&self) -> bool {
        matches!(self, Self::Rest)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rest => f.write_str("the rest"),
            Self::Every(n) => write!(f, "1 packet in {n}"),
            Self::Marked(marks) => write!(f, "packets marked {marks}"),
            Self::Signal(Weak { below, until }) => {
                write!(f, "all below {below} dBm, until the signal is {until} dBm")
            }
            Self::AsPeer => f.write_str("all while the peer does"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_those_that_were_named() {
        let marks = Marks::new(&[46, 0, 63, 46]).unwrap();
        assert_eq!((0..=255).filter(|mark| marks.has(*mark)).collect::<Vec<_>>(), [0, 46, 63]);
        assert_eq!(Marks::new(&[1, 64]), None);
        assert_eq!(Share::Marked(marks).to_string(), "packets marked 0, 46, 63");
        assert_eq!(Share::Every(NonZeroU32::MIN).to_string(), "1 packet in 1");
        let weak = Weak { below: -75, until: -69 };
        assert_eq!(Share::Signal(weak).to_string(), "all below -75 dBm, until the signal is -69 dBm");
    }
}
