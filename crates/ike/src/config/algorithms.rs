//! The algorithms that a connection offers and takes, as configured, and their defaults. Owns the two kinds of proposal; the text
//! form and the negotiation are `proposal`'s.

use dormouse_crypto::suites::{Encr, Group, Integ, Prf};

/// One line of `ike = [...]`: alternatives of each kind, best first; any combination of them is acceptable.
///
/// AEAD and non-AEAD ciphers never share a proposal, because the former forbid and the latter need an integrity
/// transform (RFC 5282, section 8); its text form (`aes256gcm16-prfsha256-x25519`, see `proposal`) refuses the mixture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IkeProposal {
    /// Ciphers: all AEAD, or none.
    pub encr: Vec<Encr>,
    /// Integrity algorithms: empty exactly if the ciphers are AEAD.
    pub integ: Vec<Integ>,
    /// Pseudo-random functions.
    pub prf: Vec<Prf>,
    /// Key-exchange groups. The first of the first proposal is the one that the first message carries a value for.
    pub groups: Vec<Group>,
}

/// One line of `esp = [...]`: alternatives of each kind, best first; any combination of them is acceptable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EspProposal {
    /// Ciphers: all AEAD, or none.
    pub encr: Vec<Encr>,
    /// Integrity algorithms: empty exactly if the ciphers are AEAD.
    pub integ: Vec<Integ>,
    /// Groups for a fresh key exchange when the CHILD_SA is made by CREATE_CHILD_SA (perfect forward secrecy).
    /// Empty: none is offered or used. The first CHILD_SA, made by IKE_AUTH, never has one.
    pub groups: Vec<Group>,
    /// Whether the peer may decline the key exchange although there are `groups` (written `none` behind them).
    pub group_optional: bool,
}

/// The default IKE proposals, best first.
///
/// RFC 8247 (section 2.1 to 2.4): ENCR_AES_GCM_16 and ENCR_CHACHA20_POLY1305 are SHOULD, ENCR_AES_CBC, PRF_HMAC_SHA2_256,
/// AUTH_HMAC_SHA2_256_128 and group 14 are MUST, group 19 is SHOULD; 256-bit keys are preferred where the AEAD costs
/// the same, and X25519 leads because it is the cheapest for both ends. HMAC-SHA1 (MUST-) is not offered unless configured.
#[must_use]
pub fn default_ike_proposals() -> Vec<IkeProposal> {
    let prf = vec![Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512];
    let groups = vec![Group::X25519, Group::Ecp256, Group::Ecp384, Group::Modp3072, Group::Modp2048];
    vec![
        IkeProposal {
            encr: vec![Encr::Aes256Gcm16, Encr::Aes128Gcm16, Encr::ChaCha20Poly1305],
            integ: Vec::new(),
            prf: prf.clone(),
            groups: groups.clone(),
        },
        IkeProposal {
            encr: vec![Encr::Aes256Cbc, Encr::Aes128Cbc],
            integ: vec![Integ::HmacSha256_128, Integ::HmacSha384_192, Integ::HmacSha512_256],
            prf,
            groups,
        },
    ]
}

/// The default ESP proposals, best first.
///
/// RFC 8221 (section 5 and 6): ENCR_AES_GCM_16 is MUST, ENCR_CHACHA20_POLY1305 SHOULD, ENCR_AES_CBC MUST with
/// AUTH_HMAC_SHA2_256_128 MUST. 128-bit GCM leads because it is the cheapest per byte, which is what a battery pays for.
/// Groups are those of the IKE default, so that rekeying has forward secrecy; the peer may decline it, for many gateways
/// come without.
#[must_use]
pub fn default_esp_proposals() -> Vec<EspProposal> {
    let groups = vec![Group::X25519, Group::Ecp256, Group::Ecp384, Group::Modp3072, Group::Modp2048];
    vec![
        EspProposal {
            encr: vec![Encr::Aes128Gcm16, Encr::Aes256Gcm16, Encr::ChaCha20Poly1305],
            integ: Vec::new(),
            groups: groups.clone(),
            group_optional: true,
        },
        EspProposal {
            encr: vec![Encr::Aes256Cbc, Encr::Aes128Cbc],
            integ: vec![Integ::HmacSha256_128, Integ::HmacSha384_192, Integ::HmacSha512_256],
            groups,
            group_optional: true,
        },
    ]
}
