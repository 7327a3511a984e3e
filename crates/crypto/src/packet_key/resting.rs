//! A packet key that is seldom used. Owns keying material; the key schedules, which take some twenty times its room, are made for each use.

use super::{Lengths, PacketKey};
use crate::error::Error;
use crate::secret::Secret;
use crate::suites::{Encr, Integ};

/// The keys of one direction of an SA while nothing is protected. [`Self::wake`] makes a [`PacketKey`] of it, within a microsecond.
pub struct RestingKey {
    encr: Encr,
    integ: Option<Integ>,
    lengths: Lengths,
    keymat: Secret,
}

impl RestingKey {
    /// As [`PacketKey::new`], which is tried.
    ///
    /// # Errors
    /// As [`PacketKey::new`].
    pub fn new(encr: Encr, integ: Option<Integ>, keymat: &[u8]) -> Result<Self, Error> {
        let PacketKey { lengths, .. } = PacketKey::new(encr, integ, keymat)?;
        Ok(Self { encr, integ, lengths, keymat: keymat.into() })
    }

    /// The key.
    ///
    /// # Errors
    /// [`Error::Backend`] if there is no memory for it.
    pub fn wake(&self) -> Result<PacketKey, Error> {
        PacketKey::new(self.encr, self.integ, self.keymat.as_bytes())
    }

    /// The keying material itself, for who hands an SA to another machine.
    #[must_use]
    pub const fn keymat(&self) -> &Secret {
        &self.keymat
    }

    /// As [`PacketKey::iv_len`].
    #[must_use]
    pub const fn iv_len(&self) -> usize {
        self.lengths.iv as usize
    }

    /// As [`PacketKey::icv_len`].
    #[must_use]
    pub const fn icv_len(&self) -> usize {
        self.lengths.icv as usize
    }

    /// As [`PacketKey::block_len`].
    #[must_use]
    pub const fn block_len(&self) -> usize {
        self.lengths.block as usize
    }
}

impl core::fmt::Debug for RestingKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "RestingKey({}{})",
            self.encr,
            self.integ.map_or_else(String::new, |integ| format!("-{integ}"))
        )
    }
}
