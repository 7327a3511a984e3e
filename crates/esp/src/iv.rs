//! Initialization vectors. Owns the choice of each; must never repeat one under a key, nor let one for CBC be guessed.
//!
//! Combined-mode ciphers and CTR need IVs that are unique and may be predictable: the 64-bit sequence number, which never
//! repeats within an SA (RFC 4106 section 3.1, RFC 7634 section 2, RFC 3686 section 3.1 all allow a counter).
//! "The same IV and key combination MUST NOT be used more than once." (RFC 4309 section 2)
//! "The IV MUST be chosen by the encryptor in a manner that ensures that the same IV value is used only once for a given key." (RFC 4309
//! section 3.1)
//!
//! CBC needs IVs that an attacker cannot predict before the plaintext is chosen (RFC 3602 section 3). They come from a generator of
//! the SA's own: AES-256 in counter mode under a key that was drawn from the entropy handed in, a few KiB at a time. The
//! first bytes of each refill become the key of the next and are wiped ("fast key erasure"), so each key makes one
//! keystream, no nonce has to be remembered, and who reads this state learns nothing of the IVs before it.

use core::fmt;

use dormouse_crypto::packet_key::keymat_len;
use dormouse_crypto::{Encr, Error, PacketKey};
use dormouse_sansio::Entropy;
use zeroize::Zeroizing;

const GENERATOR: Encr = Encr::Aes256Gcm16;
const KEY: usize = keymat_len(GENERATOR, None);
const POOL: usize = 4_096;
const IV: usize = 16;

/// Where an SA's IVs come from.
pub(crate) enum IvSource {
    /// The sequence number, 8 bytes behind zeros; nothing for a cipher without an IV.
    Sequence,
    /// Unpredictable bytes, at most 16.
    Random(Box<Generator>),
}

/// The generator of CBC's IVs. The state holds the next key, then the IVs not yet used.
pub(crate) struct Generator {
    state: Zeroizing<[u8; POOL]>,
    used: usize,
}

impl IvSource {
    /// The source that `key` needs; draws from `entropy` only for CBC.
    pub(crate) fn new(key: &PacketKey, entropy: &mut dyn Entropy) -> Self {
        if key.unpredictable_iv() {
            let mut state = Zeroizing::new([0; POOL]);
            entropy.fill(&mut state[..KEY]);
            Self::Random(Box::new(Generator { state, used: POOL }))
        } else {
            Self::Sequence
        }
    }

    /// Writes the IV of the packet with sequence number `seq`. `iv` has the cipher's IV length.
    pub(crate) fn write(&mut self, seq: u64, iv: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::Sequence => {
                iv.fill(0);
                if let Some(low) = iv.last_chunk_mut() {
                    *low = seq.to_be_bytes();
                }
                Ok(())
            }
            Self::Random(generator) => generator.next(iv),
        }
    }
}

impl Generator {
    fn next(&mut self, iv: &mut [u8]) -> Result<(), Error> {
        if self.used + IV > POOL {
            self.refill()?;
        }
        let fresh = &mut self.state[self.used..self.used + IV];
        // 3DES and DES, which are measured only, take half of it.
        iv.copy_from_slice(&fresh[..iv.len()]);
        fresh.fill(0);
        self.used += IV;
        Ok(())
    }

    fn refill(&mut self) -> Result<(), Error> {
        let key = PacketKey::new(GENERATOR, None, &self.state[..KEY])?;
        self.state.fill(0);
        key.seal(&[], &[0; 8], &mut self.state[..], &[], &mut [0; 16])?;
        // Keeps the IVs at the end of the state and a few keystream bytes after the key unused.
        self.used = POOL - (POOL - KEY) / IV * IV;
        Ok(())
    }
}

impl fmt::Debug for IvSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sequence => "Sequence",
            Self::Random(_) => "Random",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_crypto::Integ;
    use dormouse_sansio::Seeded;
    use std::collections::BTreeSet;

    fn source(encr: Encr, integ: Option<Integ>, seed: u64) -> IvSource {
        let key = PacketKey::new(encr, integ, &vec![7; keymat_len(encr, integ)]).unwrap();
        IvSource::new(&key, &mut Seeded::new(seed))
    }

    #[test]
    fn cbc_ivs_do_not_repeat_across_refills_and_differ_between_sas() {
        let mut seen = BTreeSet::new();
        for seed in 0..2 {
            let mut source = source(Encr::Aes128Cbc, Some(Integ::HmacSha256_128), seed);
            for seq in 1..=2_000 {
                let mut iv = [0; 16];
                source.write(seq, &mut iv).unwrap();
                assert!(seen.insert(iv), "seed {seed}, packet {seq}");
            }
        }
    }

    #[test]
    fn counter_ivs_are_the_sequence_number() {
        let mut source = source(Encr::Aes128Gcm16, None, 1);
        let mut iv = [0; 8];
        source.write(0x0102_0304_0506_0708, &mut iv).unwrap();
        assert_eq!(iv, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
