//! Key material (RFC 7401 section 6.5, RFC 7402 section 7; of version 1: RFC 5201 section 6.5). Owns the order in which keys are drawn; must
//! never keep Kij but in version 1, where each piece is made of it.

use dormouse_crypto::hip::{DhGroup, DhKey, HipCipher};
use dormouse_crypto::packet_key::keymat_len;
use dormouse_crypto::suites::Prf;
use dormouse_crypto::{HashAlg, PrfKey, Secret, hash, prf_plus};
use dormouse_wire::hip::Hit;

use crate::config::EspSuite;
use crate::hit::HitSuite;
use crate::quirks::{Quirk, Quirks};

/// The secret with a peer's public value. Who strips the leading zeros of the secret may have stripped those of its value, but of MODP
/// alone, where it is one number.
pub(crate) fn agree(key: &DhKey, public: &[u8], quirks: Quirks) -> Option<Secret> {
    let len = key.group().public_len();
    let whole = [vec![0; len.saturating_sub(public.len())].as_slice(), public].concat();
    let two = matches!(key.group(), DhGroup::Ecp256 | DhGroup::Ecp384 | DhGroup::Ecp521);
    let stripped = quirks.has(Quirk::SecretStripped) && !two;
    key.agree(if stripped { &whole } else { public }).ok()
}

/// An endless string of keys, as far as 255 hashes go.
#[derive(Debug)]
pub(crate) struct Keymat {
    prf: Prf,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// HKDF (RFC 5869) with salt I | J and both tags as info, the smaller first.
    /// "salt = #I | #J" (RFC 7401 section 6.5)
    Hkdf {
        /// HKDF-Extract(salt, Kij).
        extracted: Secret,
        info: [u8; 32],
    },
    /// Version 1: each hash is made of Kij and the one before, the first of the tags, the smaller first, I and J.
    /// K1 = SHA-1(Kij | tags | I | J | 1), K2 = SHA-1(Kij | K1 | 2).
    /// "I and J values are from the puzzle and its solution that were exchanged in R1 and I2 messages when this HIP association was set up."
    /// (RFC 5201 section 6.5)
    Chain { kij: Secret, first: Vec<u8> },
}

/// The four keys that protect HIP packets, by direction.
#[derive(Debug)]
pub(crate) struct HipKeys {
    pub(crate) cipher: HipCipher,
    pub(crate) encrypt_out: Secret,
    pub(crate) encrypt_in: Secret,
    pub(crate) mac_out: PrfKey,
    pub(crate) mac_in: PrfKey,
}

impl HipKeys {
    /// The key of the MAC of an I2 or R2 that we send, and of one that we receive.
    pub(crate) fn of_exchange(&self, quirks: Quirks) -> (&PrfKey, &PrfKey) {
        if quirks.has(Quirk::ExchangeMacsSwapped) {
            (&self.mac_in, &self.mac_out)
        } else {
            (&self.mac_out, &self.mac_in)
        }
    }
}

/// Keying material of one pair of ESP SAs.
#[derive(Debug)]
pub(crate) struct EspKeys {
    pub(crate) keymat_in: Secret,
    pub(crate) keymat_out: Secret,
    /// Where the next keys are drawn.
    pub(crate) next: u16,
}

impl Keymat {
    pub(crate) fn new(
        suite: HitSuite,
        kij: &Secret,
        (i, j): (&[u8], &[u8]),
        hits: [Hit; 2],
        quirks: Quirks,
    ) -> Self {
        let salt = [i, j].concat();
        let kij = kij.as_bytes();
        let zeros = kij.iter().take_while(|byte| **byte == 0).count();
        let skip = if quirks.has(Quirk::SecretStripped) { zeros } else { 0 };
        let kij = kij.get(skip..).unwrap_or_default();
        let (low, high) = (hits[0].min(hits[1]), hits[0].max(hits[1]));
        let mut info = [0; 32];
        info[..16].copy_from_slice(&low.octets());
        info[16..].copy_from_slice(&high.octets());
        let prf = suite.prf();
        let source = match suite {
            HitSuite::Sha1 => Source::Chain { kij: Secret::from(kij), first: [&info, i, j].concat() },
            _ => Source::Hkdf { extracted: PrfKey::new(prf, &salt).compute(&[kij]), info },
        };
        Self { prf, source }
    }

    /// Pieces of these lengths, one behind the other from byte `from`. `None` beyond the end.
    fn draw<const N: usize>(&self, from: usize, lengths: [usize; N]) -> Option<[Secret; N]> {
        let mut all = Secret::zeroed(from + lengths.iter().sum::<usize>());
        match &self.source {
            // HKDF-Expand is prf+ of IKEv2: T(n) = HMAC(PRK, T(n-1) | info | n).
            Source::Hkdf { extracted, info } => {
                prf_plus(self.prf, extracted.as_bytes(), &[info], all.as_mut_bytes()).ok()?;
            }
            Source::Chain { kij, first } => {
                let mut last = Secret::from(first.as_slice());
                for (n, piece) in all.as_mut_bytes().chunks_mut(self.prf.output_len()).enumerate() {
                    let n = u8::try_from(n + 1).ok()?;
                    last = hash(HashAlg::Sha1, &[kij.as_bytes(), last.as_bytes(), &[n]]).into();
                    piece.copy_from_slice(last.as_bytes().get(..piece.len())?);
                }
            }
        }
        let mut at = from;
        Some(lengths.map(|len| {
            let piece = Secret::from(all.as_bytes().get(at..at + len).unwrap_or_default());
            at += len;
            piece
        }))
    }

    /// The keys of HIP, and where those of ESP begin. "HIP-gl encryption key", "HIP-gl integrity (HMAC) key", then those of the host
    /// with the lower tag (RFC 7401 section 6.5).
    pub(crate) fn hip_keys(&self, cipher: HipCipher, ours: Hit, peer: Hit) -> Option<(HipKeys, u16)> {
        let (key, mac) = (cipher.key_len(), self.prf.output_len());
        let [greater_key, greater_mac, lower_key, lower_mac] = self.draw(0, [key, mac, key, mac])?;
        let (greater, lower) = ((greater_key, greater_mac), (lower_key, lower_mac));
        let (out, into) = if ours > peer { (greater, lower) } else { (lower, greater) };
        let mac_key = |mac: &Secret| PrfKey::new(self.prf, mac.as_bytes());
        let (mac_out, mac_in) = (mac_key(&out.1), mac_key(&into.1));
        let keys = HipKeys { cipher, encrypt_out: out.0, encrypt_in: into.0, mac_out, mac_in };
        Some((keys, u16::try_from(2 * (key + mac)).ok()?))
    }

    /// Keys of ESP from byte `from`, of the host with the greater tag first (RFC 7402 section 7).
    pub(crate) fn esp_keys(&self, from: u16, suite: EspSuite, ours: Hit, peer: Hit) -> Option<EspKeys> {
        let (encr, integ) = suite.algorithms();
        let len = keymat_len(encr, integ);
        let [greater, lower] = self.draw(from.into(), [len, len])?;
        let next = u16::try_from(usize::from(from) + 2 * len).ok()?;
        let (keymat_out, keymat_in) = if ours > peer { (greater, lower) } else { (lower, greater) };
        Some(EspKeys { keymat_in, keymat_out, next })
    }

    /// Whether another pair of ESP SAs can be drawn from byte `from`.
    pub(crate) fn suffices(&self, from: u16, suite: EspSuite) -> bool {
        let (encr, integ) = suite.algorithms();
        usize::from(from) + 2 * keymat_len(encr, integ) <= 255 * self.prf.output_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keymat() -> Keymat {
        keymat_of([0x0b; 32], Quirks::NONE)
    }

    fn keymat_of(kij: [u8; 32], quirks: Quirks) -> Keymat {
        let hit = |last: u16| Hit(core::net::Ipv6Addr::new(0x2001, 0x21, 0, 0, 0, 0, 0, last));
        let hits = [hit(2), hit(1)];
        Keymat::new(HitSuite::RsaSha256, &Secret::from(kij), (&[1; 32], &[2; 32]), hits, quirks)
    }

    #[test]
    fn a_public_value_without_its_leading_zeros_is_one_with_the_quirk_alone() {
        let group = DhGroup::for_measurement(1).unwrap();
        let ours = DhKey::generate(group, &mut dormouse_sansio::Seeded::new(0)).unwrap();
        let short = |seed| {
            DhKey::generate(group, &mut dormouse_sansio::Seeded::new(seed))
                .filter(|k| k.public_value()[0] == 0)
        };
        let theirs = (1..10_000).find_map(short).unwrap();
        let stripped = &theirs.public_value()[1..];
        let quirk = [Quirk::SecretStripped].into_iter().collect();
        let secret = |public, quirks| agree(&ours, public, quirks).map(|secret| secret.as_bytes().to_vec());
        let whole = secret(theirs.public_value(), Quirks::NONE);
        assert!(
            whole.is_some()
                && secret(stripped, quirk) == whole
                && secret(theirs.public_value(), quirk) == whole
        );
        assert_eq!(secret(stripped, Quirks::NONE), None);
        let ecp = DhKey::generate(DhGroup::Ecp256, &mut dormouse_sansio::Seeded::new(3)).unwrap();
        assert!(agree(&ecp, &ecp.public_value()[1..], quirk).is_none(), "two numbers");
    }

    /// Computed with Python's hashlib.
    #[test]
    fn the_string_of_version_1_is_a_chain_of_hashes() {
        let hit = |last: u16| Hit(core::net::Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, last));
        let kij = Secret::from([0x0b; 192]);
        let keymat = Keymat::new(HitSuite::Sha1, &kij, (&[1; 8], &[2; 8]), [hit(2), hit(1)], Quirks::NONE);
        let [start, far] = keymat.draw(0, [16, 64]).unwrap();
        assert_eq!(hex::encode(start.as_bytes()), "8eab10b95d7a07b50c458b65505d9cfe");
        assert_eq!(hex::encode(&far.as_bytes()[48..]), "143fee66aeeb682e9edec3f7d493f057");
        assert!(keymat.draw(0, [255 * 20]).is_some() && keymat.draw(1, [255 * 20]).is_none());
        assert!(keymat.suffices(255 * 20 - 72, EspSuite::Aes128CbcSha1));
        assert!(!keymat.suffices(255 * 20 - 71, EspSuite::Aes128CbcSha1));
    }

    /// HKDF computed with Python's hmac.
    #[test]
    fn the_string_is_hkdf() {
        let [start, far] = keymat().draw(0, [16, 64]).unwrap();
        assert_eq!(hex::encode(start.as_bytes()), KNOWN.0);
        assert_eq!(hex::encode(&far.as_bytes()[48..]), KNOWN.1);
    }

    /// Computed with Python's hmac from the secret 0000 0b0b..., whole and without its zeros, as a number written in as few bytes as it needs.
    #[test]
    fn zeros_of_a_secret_count_unless_the_peer_strips_them() {
        let mut kij = [0x0b; 32];
        kij[..2].fill(0);
        let stripped = [Quirk::SecretStripped].into_iter().collect();
        for (quirks, start) in [
            (Quirks::NONE, "b0cc5fa9cf32f3c7d1bea541603d218c"),
            (stripped, "3bccb67fefd7a30e7e7ec64bc93fd8f1"),
        ] {
            let [drawn] = keymat_of(kij, quirks).draw(0, [16]).unwrap();
            assert_eq!(hex::encode(drawn.as_bytes()), start, "{quirks:?}");
        }
        let whole = |quirks| keymat_of([0x0b; 32], quirks).draw(0, [16]).unwrap();
        assert!(whole(Quirks::NONE) == whole(stripped));
    }

    #[test]
    fn what_one_end_sends_with_the_other_receives_with() {
        let (a, b) = (Hit::NULL, Hit(core::net::Ipv6Addr::LOCALHOST));
        let keymat = keymat();
        let of = |ours, peer| keymat.hip_keys(HipCipher::Aes128Cbc, ours, peer).unwrap();
        let ((x, next), (y, _)) = (of(a, b), of(b, a));
        assert_eq!((next, x.encrypt_out == y.encrypt_in, x.encrypt_in == y.encrypt_out), (96, true, true));
        assert_eq!(x.mac_out.compute(&[b"m"]), y.mac_in.compute(&[b"m"]));
        assert_ne!(x.mac_out.compute(&[b"m"]), x.mac_in.compute(&[b"m"]));
        let esp = |ours, peer| keymat.esp_keys(next, EspSuite::Aes128Gcm16, ours, peer).unwrap();
        let (x, y) = (esp(a, b), esp(b, a));
        assert_eq!((x.keymat_in.len(), x.next), (20, 136));
        assert!(x.keymat_in == y.keymat_out && x.keymat_out == y.keymat_in && x.keymat_in != x.keymat_out);
    }

    #[test]
    fn it_ends_after_255_hashes() {
        let keymat = keymat();
        let last = 255 * 32 - 40;
        assert!(
            keymat.suffices(last, EspSuite::Aes128Gcm16) && !keymat.suffices(last + 1, EspSuite::Aes128Gcm16)
        );
        assert!(keymat.esp_keys(last, EspSuite::Aes128Gcm16, Hit::NULL, Hit::NULL).is_some());
        assert!(keymat.esp_keys(last + 1, EspSuite::Aes128Gcm16, Hit::NULL, Hit::NULL).is_none());
    }

    const KNOWN: (&str, &str) = ("fc3d2ba9f7864b56de432cf888c546c9", "ad1054a20c6a9635fcddfe56e4d5b3ae");
}
