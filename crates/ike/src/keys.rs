//! Key derivation (RFC 7296, sections 2.13, 2.14, 2.17 and 2.18; RFC 5723, section 5.1; RFC 8784, section 3; RFC 9370, section 2.2;
//! RFC 9867, section 3.1.1). Owns the formulas and the keys of an
//! IKE SA; must never touch a message or draw randomness.
//!
//! In all formulas "initiator" and "responder" are those of the exchange that carries the nonces: for a rekeying, the end
//! that started it. Every intermediate value is zeroized when dropped.

use dormouse_crypto::packet_key::keymat_len;
use dormouse_crypto::suites::Prf;
use dormouse_crypto::{Error, PrfKey, RestingKey, Secret, prf_plus};

use crate::proposal::{EspSuite, IkeSuite};
use crate::protect::Channel;

/// The nonces of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct Nonces<'a> {
    /// Ni: of the exchange's initiator.
    pub i: &'a [u8],
    /// Nr: of the exchange's responder.
    pub r: &'a [u8],
}

/// The SPIs of an IKE SA.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Spis {
    /// Chosen by the initiator; never 0.
    pub i: u64,
    /// Chosen by the responder; 0 in the first message only.
    pub r: u64,
}

/// `SKEYSEED = prf(Ni | Nr, g^ir)` of a first exchange (RFC 7296, section 2.14).
#[must_use]
pub fn skeyseed(prf: Prf, nonces: Nonces<'_>, shared: &Secret) -> Secret {
    let key = Secret::concat(&[nonces.i, nonces.r]);
    PrfKey::new(prf, key.as_bytes()).compute(&[shared.as_bytes()])
}

/// `SKEYSEED = prf(SK_d (old), g^ir (new) | Ni | Nr)` of a rekeyed IKE SA.
///
/// > The old and new IKE SA may have selected a different PRF. Because the rekeying exchange belongs to the old IKE SA, it
/// > is the old IKE SA's PRF that is used to generate SKEYSEED. (RFC 7296, section 2.18)
///
/// With additional key exchanges, `shared` holds their secrets behind that of the first one: `SKEYSEED = prf(SK_d, SK(0) | Ni | Nr |
/// SK(1) | ... SK(n))` (RFC 9370, section 2.2.4). The same formula with one secret updates the keys after IKE_INTERMEDIATE:
/// `SKEYSEED(n) = prf(SK_d(n-1), SK(n) | Ni | Nr)` (RFC 9370, section 2.2.2).
#[must_use]
pub fn skeyseed_rekeyed(old_prf: Prf, old_sk_d: &Secret, nonces: Nonces<'_>, shared: &[Secret]) -> Secret {
    PrfKey::new(old_prf, old_sk_d.as_bytes()).compute(&seed(nonces, shared))
}

/// `SK(0) | Ni | Nr | SK(1) | ... SK(n)`, in pieces.
fn seed<'a>(nonces: Nonces<'a>, shared: &'a [Secret]) -> Vec<&'a [u8]> {
    let (first, further) = shared.split_at(shared.len().min(1));
    let secrets = |list: &'a [Secret]| list.iter().map(Secret::as_bytes);
    secrets(first).chain([nonces.i, nonces.r]).chain(secrets(further)).collect()
}

/// `prf+(PPK, key)`, as long as the key: SK_d, SK_pi and SK_pr with a post-quantum pre-shared key (RFC 8784, section 3), and the
/// SKEYSEED' of RFC 9867, section 3.1.1.
///
/// # Errors
/// If the key is longer than prf+ can make, which none is.
pub fn with_ppk(prf: Prf, ppk: &Secret, key: &Secret) -> Result<Secret, Error> {
    let mut mixed = Secret::zeroed(key.len());
    prf_plus(prf, ppk.as_bytes(), &[key.as_bytes()], mixed.as_mut_bytes())?;
    Ok(mixed)
}

/// The first eight bytes of `prf(PPK, Ni | Nr | SPIi | SPIr)`: tells a peer that has the PPK that it is the same (RFC 9867, section 3.1).
#[must_use]
pub fn ppk_confirmation(prf: Prf, ppk: &Secret, nonces: Nonces<'_>, spis: Spis) -> [u8; 8] {
    let (i, r) = (spis.i.to_be_bytes(), spis.r.to_be_bytes());
    let whole = PrfKey::new(prf, ppk.as_bytes()).compute(&[nonces.i, nonces.r, &i, &r]);
    whole.as_bytes().first_chunk().copied().unwrap_or_default()
}

/// `SKEYSEED = prf(SK_d_old, "Resumption" | Ni | Nr)` of a resumed IKE SA; the PRF is that of the ticket (RFC 5723, section 5.1).
#[must_use]
pub fn skeyseed_resumed(prf: Prf, old_sk_d: &Secret, nonces: Nonces<'_>) -> Secret {
    PrfKey::new(prf, old_sk_d.as_bytes()).compute(&[b"Resumption", nonces.i, nonces.r])
}

/// `RS = prf+(SK_d, "Dormouse ticket secret 2" | SPIi | SPIr)`, as long as the prf's output: what a ticket and its owner keep of an IKE
/// SA (`docs/wire/dormancy.md`). It says nothing about SK_d.
///
/// # Errors
/// If the PRF refuses its key, which none does.
pub fn ticket_secret(prf: Prf, sk_d: &Secret, spis: Spis) -> Result<Secret, Error> {
    let mut secret = Secret::zeroed(prf.output_len());
    let (i, r) = (spis.i.to_be_bytes(), spis.r.to_be_bytes());
    prf_plus(prf, sk_d.as_bytes(), &[b"Dormouse ticket secret 2", &i, &r], secret.as_mut_bytes())?;
    Ok(secret)
}

/// All keys of an IKE SA (RFC 7296, section 2.14).
/// "each endpoint MUST forget not only the keys used by the connection but also any information that could be used to recompute
/// those keys" (RFC 7296 section 2.12)
pub struct IkeKeys {
    /// What they were made for.
    pub suite: IkeSuite,
    /// SK_d: makes the keys of children, of successors and of resumed sessions.
    pub sk_d: Secret,
    /// SK_pi: the initiator's AUTH.
    pub sk_pi: Secret,
    /// SK_pr: the responder's AUTH.
    pub sk_pr: Secret,
    /// SK_ei and SK_ai: protects what the original initiator sends.
    pub from_initiator: Channel,
    /// SK_er and SK_ar: protects what the original responder sends.
    pub from_responder: Channel,
}

impl IkeKeys {
    /// `{SK_d | SK_ai | SK_ar | SK_ei | SK_er | SK_pi | SK_pr} = prf+(SKEYSEED, Ni | Nr | SPIi | SPIr)`, with the PRF of the new
    /// suite. For an AEAD "The size and format of each of the SK_ei and SK_er encryption keys MUST be" (RFC 5282 section 7.1) those of ESP's keying
    /// material, with its salt, and "the SK_ai and SK_ar integrity protection keys are not used; each key MUST be treated as
    /// having a size of zero (0) octets" (RFC 5282 section 7.1).
    /// "The lengths of SK_d, SK_pi, and SK_pr MUST be the preferred key length of the PRF agreed upon." (RFC 7296 section 2.14)
    ///
    /// # Errors
    /// If an algorithm refuses its key, which no negotiated suite causes.
    pub fn derive(suite: IkeSuite, skeyseed: &Secret, nonces: Nonces<'_>, spis: Spis) -> Result<Self, Error> {
        let prf_len = suite.prf.output_len();
        let integ_len = suite.integ.map_or(0, |integ| integ.key_len());
        let encr_len = suite.encr.key_len() + suite.encr.salt_len();
        let mut stream = Secret::zeroed(3 * prf_len + 2 * (integ_len + encr_len));
        let spis = [spis.i.to_be_bytes(), spis.r.to_be_bytes()].concat();
        prf_plus(suite.prf, skeyseed.as_bytes(), &[nonces.i, nonces.r, &spis], stream.as_mut_bytes())?;

        let mut rest = stream.as_bytes();
        let mut take = |len| {
            let (head, tail) = rest.split_at(len);
            rest = tail;
            head
        };
        let sk_d = Secret::from(take(prf_len));
        let (sk_ai, sk_ar) = (take(integ_len), take(integ_len));
        let (sk_ei, sk_er) = (take(encr_len), take(encr_len));
        let (sk_pi, sk_pr) = (Secret::from(take(prf_len)), Secret::from(take(prf_len)));
        let packet_key = |encr: &[u8], integ: &[u8]| {
            let keymat = Secret::concat(&[encr, integ]);
            RestingKey::new(suite.encr, suite.integ, keymat.as_bytes()).map(Channel::new)
        };
        Ok(Self {
            suite,
            sk_d,
            sk_pi,
            sk_pr,
            from_initiator: packet_key(sk_ei, sk_ai)?,
            from_responder: packet_key(sk_er, sk_ar)?,
        })
    }
}

impl core::fmt::Debug for IkeKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("IkeKeys").field("suite", &self.suite).finish_non_exhaustive()
    }
}

/// Keying material of a CHILD_SA, each half in the order that ESP takes it (encryption key, salt, integrity key); with zones, that of the
/// first zone, then that of the second, and so on.
pub struct ChildKeymat {
    /// Protects what the exchange's initiator sends.
    pub from_initiator: Secret,
    /// Protects what the exchange's responder sends.
    pub from_responder: Secret,
}

/// `KEYMAT = prf+(SK_d, Ni | Nr)`, or `prf+(SK_d, g^ir (new) | Ni | Nr)` if the exchange had a key exchange of its own (RFC 7296,
/// section 2.17). The PRF is that of the IKE SA. With additional key exchanges `KEYMAT = prf+(SK_d, SK(0) | Ni | Nr | SK(1) | ... SK(n))`
/// (RFC 9370, section 2.2.4).
///
/// > All keys for SAs carrying data from the initiator to the responder are taken before SAs going from the responder to
/// > the initiator. (RFC 7296, section 2.17)
///
/// "the encryption key (if any) MUST be taken from the first bits and the integrity key (if any) MUST be taken from the
/// remaining bits" (RFC 7296 section 2.17)
///
/// `zones` are taken in their order in the packet, as that section has it of several protocols. Each is a piece of its own of what a PRF
/// under SK_d puts out, so that one of them says nothing about another, nor about SK_d. 1: no zones.
///
/// # Errors
/// If an algorithm refuses its key, which no negotiated suite causes.
pub fn child_keymat(
    prf: Prf,
    sk_d: &Secret,
    suite: &EspSuite,
    nonces: Nonces<'_>,
    shared: &[Secret],
    zones: usize,
) -> Result<ChildKeymat, Error> {
    let half = zones * keymat_len(suite.encr, suite.integ);
    let mut stream = Secret::zeroed(2 * half);
    prf_plus(prf, sk_d.as_bytes(), &seed(nonces, shared), stream.as_mut_bytes())?;
    let (i, r) = stream.as_bytes().split_at(half);
    Ok(ChildKeymat { from_initiator: Secret::from(i), from_responder: Secret::from(r) })
}
