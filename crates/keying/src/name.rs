//! The names of SAs across all crates. Owns their types and how they are shown; must never draw one.

use core::fmt;

/// Names one SA of a key manager for as long as that manager lives. Rekeying keeps the name: the SPIs and keys
/// behind it are its manager's affair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SaId(u64);

impl SaId {
    /// The SA of this number. Only its key manager makes names.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number behind the name, for logs and status output.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ike#{}", self.0)
    }
}

/// Names one CHILD SA, a pair of ESP SAs, by the SPI of what we receive. No two that exist at one time have the same name:
/// see [`crate::SpiSource`]. Rekeying makes a new one, whose [`crate::Install::replaces`] names the old.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildId(u32);

impl ChildId {
    /// The CHILD SA that receives by this SPI.
    #[must_use]
    pub const fn new(spi: u32) -> Self {
        Self(spi)
    }

    /// The SPI of what we receive.
    #[must_use]
    pub const fn spi(self) -> u32 {
        self.0
    }
}

impl fmt::Display for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "child#{:08x}", self.0)
    }
}

impl fmt::Debug for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The SA of a key manager that a CHILD SA belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Owner {
    /// An IKE SA.
    Ike(SaId),
    /// A HIP association.
    Hip(SaId),
}

impl Owner {
    /// The IKE SA, if it is one.
    #[must_use]
    pub const fn ike(self) -> Option<SaId> {
        match self {
            Self::Ike(sa) => Some(sa),
            Self::Hip(_) => None,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ike(sa) => write!(f, "{sa}"),
            Self::Hip(sa) => write!(f, "hip#{}", sa.get()),
        }
    }
}
