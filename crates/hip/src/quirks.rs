//! Departures of one peer from the RFCs. Owns their names; each is obeyed where the exchange is that it changes. Nothing of this is done
//! for a peer unless it is asked for: with most of them an exchange with a peer that keeps to the RFCs fails.

use core::fmt;
use core::str::FromStr;

/// One departure. Both ends of an association must have the same ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Quirk {
    /// The puzzle is hashed with the receiver's tag before the sender's: I | HIT-R | HIT-I | J.
    PuzzleHitsSwapped,
    /// The MACs of I2 and R2 have the key of the end that receives them; those of UPDATE and CLOSE have the sender's.
    ExchangeMacsSwapped,
    /// The signature of R2 has the type of HIP_SIGNATURE_2, 61633, and covers what HIP_SIGNATURE would.
    R2Signature2,
    /// The ICV of ESP with HMAC-SHA-256 is the whole MAC, 32 bytes, and the sequence number has 32 bits, without a high half in the ICV.
    EspIcv32,
    /// ESP without encryption has an initialization vector of 16 bytes all the same.
    NullIv16,
    /// The Diffie-Hellman secret has no leading zeros, and a public value of a MODP group may have none.
    SecretStripped,
    /// R1 offers one Diffie-Hellman group alone: 7 or 8, or in version 1 the best that we have.
    OneGroup,
    /// There is no R1_COUNTER and no ECHO_REQUEST_SIGNED but in CLOSE, and HOST_ID is not encrypted in I2. A change of the peer's address
    /// cannot be verified, and is not followed.
    Bare,
    /// What is not known breaks the MAC: packets have the parameters of the base exchange alone, UPDATE has SEQ or ACK alone, and the
    /// A bit is not set. ESP is not rekeyed, and a change of our address not told: the association ends, and the next packet begins
    /// another.
    KnownParametersOnly,
    /// The first UPDATE has the id 1.
    UpdateIdsFromOne,
    /// CLOSE_ACK is ignored: after our CLOSE it is not waited for.
    CloseAckIgnored,
    /// The sequence number of ESP has 32 bits, without a high half in the ICV.
    EspSequence32,
    /// ESP goes in UDP, to HIP's port, where HIP itself has its own protocol.
    EspInUdp,
}

impl Quirk {
    /// Every one.
    pub const ALL: [Self; 13] = [
        Self::PuzzleHitsSwapped,
        Self::ExchangeMacsSwapped,
        Self::R2Signature2,
        Self::EspIcv32,
        Self::NullIv16,
        Self::SecretStripped,
        Self::OneGroup,
        Self::Bare,
        Self::KnownParametersOnly,
        Self::UpdateIdsFromOne,
        Self::CloseAckIgnored,
        Self::EspSequence32,
        Self::EspInUdp,
    ];

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PuzzleHitsSwapped => "puzzle-hits-swapped",
            Self::ExchangeMacsSwapped => "exchange-macs-swapped",
            Self::R2Signature2 => "r2-signature-2",
            Self::EspIcv32 => "esp-icv-32",
            Self::NullIv16 => "null-iv-16",
            Self::SecretStripped => "secret-stripped",
            Self::OneGroup => "one-group",
            Self::Bare => "bare",
            Self::KnownParametersOnly => "known-parameters-only",
            Self::UpdateIdsFromOne => "update-ids-from-1",
            Self::CloseAckIgnored => "close-ack-ignored",
            Self::EspSequence32 => "esp-sequence-32",
            Self::EspInUdp => "esp-in-udp",
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Quirk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no quirk has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown quirk \"{0}\"; known are {names}", names = Quirk::ALL.map(Quirk::name).join(", "))]
pub struct UnknownQuirk(pub String);

impl FromStr for Quirk {
    type Err = UnknownQuirk;

    fn from_str(name: &str) -> Result<Self, UnknownQuirk> {
        Self::ALL.into_iter().find(|q| q.name() == name).ok_or_else(|| UnknownQuirk(name.to_owned()))
    }
}

/// Those of one peer.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Quirks(u16);

impl Quirks {
    /// None: a peer that keeps to the RFCs.
    pub const NONE: Self = Self(0);

    /// Whether this is one of them.
    #[must_use]
    pub const fn has(self, quirk: Quirk) -> bool {
        self.0 & quirk.bit() != 0
    }

    /// They, in the order of [`Quirk::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Quirk> {
        Quirk::ALL.into_iter().filter(move |q| self.has(*q))
    }

    /// Those that make another R1.
    pub(crate) const fn of_r1(self) -> Self {
        Self(self.0 & (Quirk::OneGroup.bit() | Quirk::Bare.bit() | Quirk::KnownParametersOnly.bit()))
    }
}

impl FromIterator<Quirk> for Quirks {
    fn from_iter<T: IntoIterator<Item = Quirk>>(quirks: T) -> Self {
        Self(quirks.into_iter().fold(0, |all, q| all | q.bit()))
    }
}

impl fmt::Debug for Quirks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_and_sets_hold_what_was_put_in() {
        for quirk in Quirk::ALL {
            assert_eq!(quirk.name().parse(), Ok(quirk));
            let one: Quirks = [quirk].into_iter().collect();
            assert!(one.has(quirk) && one.iter().eq([quirk]) && !Quirks::NONE.has(quirk));
        }
        assert!(Quirks::from_iter(Quirk::ALL).iter().eq(Quirk::ALL));
        let error = "swapped".parse::<Quirk>().unwrap_err().to_string();
        assert!(error.starts_with("unknown quirk \"swapped\"; known are puzzle-hits-swapped, "), "{error}");
    }
}
