//! DSA key pairs of any length, for the measurements of paper 002 alone. Owns how such a pair is made; must never hand one to an
//! association, which takes DSA keys of 1,024 bits only.

use crypto_bigint::BoxedUint;
use der::asn1::UintRef;
use der::{Decode, Sequence};
use dsa::pkcs8::EncodePrivateKey;

use crate::Secret;
use crate::hip::v1::{BadKey, Blinding};
use crate::sign::modulus_bits;

/// Bits of the prime that are taken: those of the paper.
const BITS: core::ops::RangeInclusive<usize> = 512..=2_048;

const MALFORMED: BadKey = BadKey("no parameters of DSA with 512 to 2,048 bits");

/// Dss-Parms (RFC 3279, section 2.3.2).
#[derive(Sequence)]
struct Parameters<'a> {
    p: UintRef<'a>,
    q: UintRef<'a>,
    g: UintRef<'a>,
}

/// A fresh DSA key pair with these parameters (a PEM file of `DSA PARAMETERS`), PKCS #8 in DER. Makers of parameters still know those of 512 bits, but
/// no key with them.
///
/// # Errors
/// [`BadKey`] for what are no parameters of 512 to 2,048 bits.
pub fn dsa_pair(parameters: &[u8]) -> Result<Secret, BadKey> {
    let (label, parameters) = der::pem::decode_vec(parameters).map_err(|_| MALFORMED)?;
    if label != "DSA PARAMETERS" {
        return Err(MALFORMED);
    }
    let der = pair(&parameters)?.to_pkcs8_der().map_err(|_| BadKey("it cannot be written"))?;
    Ok(Secret::from(der.as_bytes()))
}

fn pair(parameters: &[u8]) -> Result<dsa::SigningKey, BadKey> {
    let Parameters { p, q, g } = Parameters::from_der(parameters).map_err(|_| MALFORMED)?;
    let odd = |n: &UintRef<'_>| n.as_bytes().last().is_some_and(|low| low & 1 == 1);
    let orders = BITS.contains(&modulus_bits(&p)) && (160..=256).contains(&modulus_bits(&q));
    if !orders || !odd(&p) || !odd(&q) {
        return Err(MALFORMED);
    }
    let number = |n: &UintRef<'_>, width: &UintRef<'_>| {
        BoxedUint::from_be_slice(n.as_bytes(), width.as_bytes().len() as u32 * 8).map_err(|_| MALFORMED)
    };
    let components =
        dsa::Components::from_components_unchecked(number(&p, &p)?, number(&q, &q)?, number(&g, &p)?);
    let components = components.map_err(|_| MALFORMED)?;
    // What is no generator of the order q would make the library panic.
    let generator = components.g().as_ref().clone();
    if dsa::VerifyingKey::from_components(components.clone(), generator).is_err() {
        return Err(MALFORMED);
    }
    let mut source = Blinding::new();
    let Ok(key) = dsa::SigningKey::try_generate_from_rng_with_components(&mut source, components);
    if source.failed { Err(BadKey("none was made")) } else { Ok(key) }
}

#[cfg(test)]
mod tests {
    use dsa::signature::hazmat::{PrehashSigner, PrehashVerifier};

    use super::*;

    /// Made with `openssl genpkey -genparam -algorithm DSA -pkeyopt dsa_paramgen_bits:512 -pkeyopt dsa_paramgen_q_bits:160
    /// -pkeyopt type:fips186_2`; they protect nothing.
    const PARAMETERS: &[u8] = b"-----BEGIN DSA PARAMETERS-----\n\
        MIGcAkEAi3iE0VxyMjrBymDx4j17ZaVmTEnt7LsnHVZUBCN2UOJP7OY65A1O5uK7\n\
        S7lmcoNScfAL7xD6psPEpRaNY0WjmQIVAKxDzqJLPtSuGbv5MhEX6oJOD3TzAkB7\n\
        2taOaLOpkhXUGa/BfHI6QnzMXz8VnA+KuvywhT6Ecelf7ndBm38PG3tNVHMz7Q75\n\
        6iMux5ujy43PW+WUVxfz\n\
        -----END DSA PARAMETERS-----\n";

    #[test]
    fn a_pair_of_512_bits_signs_and_another_has_another_key() {
        let (_, der) = der::pem::decode_vec(PARAMETERS).unwrap();
        let [a, b] = [(), ()].map(|()| pair(&der).unwrap());
        let signature: dsa::Signature = a.sign_prehash(&[7; 20]).unwrap();
        assert!(a.verifying_key().verify_prehash(&[7; 20], &signature).is_ok());
        assert!(a.verifying_key().verify_prehash(&[8; 20], &signature).is_err());
        assert!(b.verifying_key().verify_prehash(&[7; 20], &signature).is_err());
        assert!(dsa_pair(PARAMETERS).unwrap().as_bytes().starts_with(&[0x30]));
    }

    #[test]
    fn what_are_no_parameters_is_refused() {
        let (_, whole) = der::pem::decode_vec(PARAMETERS).unwrap();
        let last = whole.len() - 1;
        // p and q even, another q, another generator.
        for at in [69, 92, 80, last] {
            let mut other = whole.clone();
            other[at] ^= 0x7f;
            assert!(pair(&other).is_err(), "{at}");
        }
        for wrong in [&[][..], &whole[..last], &[0x30, 0x80], &[&whole[..], &[0]].concat()] {
            assert!(pair(wrong).is_err() && dsa_pair(wrong).is_err());
        }
    }
}
