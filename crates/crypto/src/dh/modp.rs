//! The MODP groups of RFC 3526, which the back end lacks, and the short ones of RFC 5201. Owns exponentiation modulo their primes, in
//! constant time on fixed-width Montgomery arithmetic; must never branch or index on an exponent.

use crypto_bigint::modular::{ConstMontyForm, ConstMontyParams};
use crypto_bigint::{U384, U768, U1536, U2048, U3072, U4096, Uint, const_monty_params};
use dormouse_sansio::Entropy;
use zeroize::Zeroizing;

use crate::secret::Secret;

const_monty_params!(
    Prime384,
    U384,
    PRIME384,
    "2^384 - 2^320 - 1 + 2^64 * ([2^254 pi] + 5857) (RFC 5201, appendix E)"
);
const_monty_params!(
    Prime768,
    U768,
    PRIME768,
    "2^768 - 2^704 - 1 + 2^64 * ([2^638 pi] + 149686) (RFC 2409, section 6.1)"
);
const_monty_params!(
    Prime1536,
    U1536,
    PRIME1536,
    "2^1536 - 2^1472 - 1 + 2^64 * ([2^1406 pi] + 741804) (RFC 3526, section 2)"
);
const_monty_params!(
    Prime2048,
    U2048,
    PRIME2048,
    "2^2048 - 2^1984 - 1 + 2^64 * ([2^1918 pi] + 124476) (RFC 3526, section 3)"
);
const_monty_params!(
    Prime3072,
    U3072,
    PRIME3072,
    "2^3072 - 2^3008 - 1 + 2^64 * ([2^2942 pi] + 1690314) (RFC 3526, section 4)"
);
const_monty_params!(
    Prime4096,
    U4096,
    PRIME4096,
    "2^4096 - 2^4032 - 1 + 2^64 * ([2^3966 pi] + 240904) (RFC 3526, section 5)"
);

/// A group, by the bits of its prime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Modp {
    /// For measurements alone.
    M384,
    /// For measurements alone.
    M768,
    M1536,
    M2048,
    M3072,
    M4096,
}

/// A private exponent of one of the groups.
pub(crate) enum Exponent {
    M384(Box<Zeroizing<U384>>),
    M768(Box<Zeroizing<U768>>),
    M1536(Box<Zeroizing<U1536>>),
    M2048(Box<Zeroizing<U2048>>),
    M3072(Box<Zeroizing<U3072>>),
    M4096(Box<Zeroizing<U4096>>),
}

/// Runs the same expression with the prime, the limbs and the bits of the private exponent of whichever group it is.
///
/// RFC 3526, section 8, gives sizes of exponents by two estimates of the group's strength: 180 or 240 bits for 1,536-bit MODP, 220 or
/// 320 for 2,048-bit, 260 or 420 for 3,072-bit, 300 or 480 for 4,096-bit. We take the higher, rounded up to whole words: an exponent of full width would cost
/// seven times as much and add nothing.
macro_rules! with_group {
    ($on:expr, $x:ident, |$P:ident, $LIMBS:ident, $BITS:ident| $body:expr) => {
        match $on {
            Exponent::M384($x) => {
                type $P = Prime384;
                const $LIMBS: usize = 6;
                const $BITS: u32 = 256;
                $body
            }
            Exponent::M768($x) => {
                type $P = Prime768;
                const $LIMBS: usize = 12;
                const $BITS: u32 = 256;
                $body
            }
            Exponent::M1536($x) => {
                type $P = Prime1536;
                const $LIMBS: usize = 24;
                const $BITS: u32 = 256;
                $body
            }
            Exponent::M2048($x) => {
                type $P = Prime2048;
                const $LIMBS: usize = 32;
                const $BITS: u32 = 320;
                $body
            }
            Exponent::M3072($x) => {
                type $P = Prime3072;
                const $LIMBS: usize = 48;
                const $BITS: u32 = 448;
                $body
            }
            Exponent::M4096($x) => {
                type $P = Prime4096;
                const $LIMBS: usize = 64;
                const $BITS: u32 = 512;
                $body
            }
        }
    };
}

impl Exponent {
    /// A fresh one.
    pub(crate) fn generate(group: Modp, entropy: &mut dyn Entropy) -> Self {
        match group {
            Modp::M384 => Self::M384(draw(entropy, 256)),
            Modp::M768 => Self::M768(draw(entropy, 256)),
            Modp::M1536 => Self::M1536(draw(entropy, 256)),
            Modp::M2048 => Self::M2048(draw(entropy, 320)),
            Modp::M3072 => Self::M3072(draw(entropy, 448)),
            Modp::M4096 => Self::M4096(draw(entropy, 512)),
        }
    }

    /// 2^exponent mod p, big-endian at the width of the prime.
    pub(crate) fn public_value(&self) -> Vec<u8> {
        with_group!(self, x, |P, LIMBS, BITS| {
            power::<P, LIMBS>(&Uint::from_u8(2), x, BITS).as_bytes().to_vec()
        })
    }

    /// peer^exponent mod p, big-endian, "padded with zeros if necessary to make it the length of the modulus" (RFC 7296,
    /// section 2.14). `peer` must have the length of the prime; refused with a reason unless 1 < peer < p - 1.
    pub(crate) fn agree(&self, peer: &[u8]) -> Result<Secret, &'static str> {
        with_group!(self, x, |P, LIMBS, BITS| {
            let peer = check::<P, LIMBS>(&Uint::from_be_slice(peer))?;
            Ok(power::<P, LIMBS>(&peer, x, BITS))
        })
    }
}

/// `bits` (whole bytes) from the entropy source, the highest bit set so that the exponent is never small.
fn draw<const LIMBS: usize>(entropy: &mut dyn Entropy, bits: u32) -> Box<Zeroizing<Uint<LIMBS>>> {
    let mut bytes = Zeroizing::new(vec![0; LIMBS * 8]);
    let unused = bytes.len() - bits as usize / 8;
    let drawn = &mut bytes[unused..];
    entropy.fill(drawn);
    drawn[0] |= 0x80;
    Box::new(Zeroizing::new(Uint::from_be_slice(&bytes)))
}

/// RFC 6989, section 2.1: for groups of a safe prime it is enough that 1 < y < p - 1.
fn check<M: ConstMontyParams<LIMBS>, const LIMBS: usize>(
    y: &Uint<LIMBS>,
) -> Result<Uint<LIMBS>, &'static str> {
    let last = M::PARAMS.modulus().as_ref().wrapping_sub(&Uint::ONE);
    if *y <= Uint::ONE {
        Err("it is 0 or 1")
    } else if *y >= last {
        Err("it is p - 1 or more")
    } else {
        Ok(*y)
    }
}

fn power<M: ConstMontyParams<LIMBS>, const LIMBS: usize>(
    base: &Uint<LIMBS>,
    exponent: &Uint<LIMBS>,
    bits: u32,
) -> Secret {
    let power = ConstMontyForm::<M, LIMBS>::new(base).pow_amm_bounded_exp(exponent, bits);
    let power = Zeroizing::new(power.retrieve());
    Secret::from(Zeroizing::new(power.to_be_bytes()).as_slice())
}

const PRIME384: &str =
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B13B202FFFFFFFFFFFFFFFF";

const PRIME768: &str = "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD\
     EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A63A3620FFFFFFFFFFFFFFFF";

const PRIME1536: &str = "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD\
     EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F\
     83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA237327FFFFFFFFFFFFFFFF";

const PRIME2048: &str = "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD\
     EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F\
     83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
     E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510\
     15728E5A8AACAA68FFFFFFFFFFFFFFFF";

const PRIME3072: &str = "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD\
     EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F\
     83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
     E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510\
     15728E5A8AAAC42DAD33170D04507A33A85521ABDF1CBA64ECFB850458DBEF0A8AEA71575D060C7DB3970F85A6E1E4C7\
     ABF5AE8CDB0933D71E8C94E04A25619DCEE3D2261AD2EE6BF12FFA06D98A0864D87602733EC86A64521F2B18177B200C\
     BBE117577A615D6C770988C0BAD946E208E24FA074E5AB3143DB5BFCE0FD108E4B82D120A93AD2CAFFFFFFFFFFFFFFFF";

const PRIME4096: &str = "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD\
     EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F\
     83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
     E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510\
     15728E5A8AAAC42DAD33170D04507A33A85521ABDF1CBA64ECFB850458DBEF0A8AEA71575D060C7DB3970F85A6E1E4C7\
     ABF5AE8CDB0933D71E8C94E04A25619DCEE3D2261AD2EE6BF12FFA06D98A0864D87602733EC86A64521F2B18177B200C\
     BBE117577A615D6C770988C0BAD946E208E24FA074E5AB3143DB5BFCE0FD108E4B82D120A92108011A723C12A787E6D7\
     88719A10BDBA5B2699C327186AF4E23C1A946834B6150BDA2583E9CA2AD44CE8DBBBC2DB04DE8EF92E8EFC141FBECAA6\
     287C59474E6BC05D99B2964FA090C3A2233BA186515BE7ED1F612970CEE2D7AFB81BDD762170481CD0069127D5B05AA9\
     93B4EA988D8FDDC186FFB7DC90A6C08F4DF435C934063199FFFFFFFFFFFFFFFF";

/// The prime of a group, big-endian.
#[cfg(test)]
pub(crate) fn prime(group: Modp) -> Vec<u8> {
    hex::decode(match group {
        Modp::M384 => PRIME384,
        Modp::M768 => PRIME768,
        Modp::M1536 => PRIME1536,
        Modp::M2048 => PRIME2048,
        Modp::M3072 => PRIME3072,
        Modp::M4096 => PRIME4096,
    })
    .unwrap()
}

#[cfg(test)]
impl Exponent {
    /// The exponent with these big-endian bytes: known answers only.
    pub(crate) fn known(group: Modp, exponent: &[u8]) -> Self {
        fn padded<const LIMBS: usize>(exponent: &[u8]) -> Box<Zeroizing<Uint<LIMBS>>> {
            let mut bytes = vec![0; LIMBS * 8 - exponent.len()];
            bytes.extend_from_slice(exponent);
            Box::new(Zeroizing::new(Uint::from_be_slice(&bytes)))
        }
        match group {
            Modp::M384 => Self::M384(padded(exponent)),
            Modp::M768 => Self::M768(padded(exponent)),
            Modp::M1536 => Self::M1536(padded(exponent)),
            Modp::M2048 => Self::M2048(padded(exponent)),
            Modp::M3072 => Self::M3072(padded(exponent)),
            Modp::M4096 => Self::M4096(padded(exponent)),
        }
    }
}
