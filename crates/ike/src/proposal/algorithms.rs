//! The algorithms that a connection offers and takes, as configured, and their defaults. Owns the two kinds of proposal; the text
//! form and the negotiation are its siblings'.

use dormouse_crypto::suites::{Encr, Group, Integ, Prf};

use super::additional::AdditionalKe;

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
    /// Additional key exchanges in IKE_INTERMEDIATE and, when the SA is rekeyed, IKE_FOLLOWUP_KE (RFC 9370).
    pub additional: Vec<AdditionalKe>,
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
    /// Additional key exchanges after CREATE_CHILD_SA (RFC 9370); only with `groups` that are not optional.
    pub additional: Vec<AdditionalKe>,
}

/// Extended sequence numbers (RFC 4303, section 2.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EsnPolicy {
    /// Offered first; the peer may decline.
    #[default]
    Prefer,
    /// Nothing else is accepted.
    Require,
    /// Never.
    Off,
}

/// The default IKE proposals, best first.
///
/// RFC 8247 (section 2.1 to 2.4): ENCR_AES_GCM_16 and ENCR_CHACHA20_POLY1305 are SHOULD, ENCR_AES_CBC, PRF_HMAC_SHA2_256,
/// AUTH_HMAC_SHA2_256_128 and group 14 are MUST, group 19 is SHOULD; 256-bit keys are preferred where the AEAD costs
/// the same, and X25519 leads because it is the cheapest for both ends. HMAC-SHA1 (MUST-) is not offered unless configured.
/// Nor is CCM, which has shorter ICVs too:
/// "A 16-octet ICV size SHOULD be used with IKEv2" (RFC 5282 section 7.2)
/// "the use of 12-octet ICVs (values 15 and 19) is NOT RECOMMENDED" (RFC 5282 section 7.2)
///
/// The first is hybrid: ML-KEM-768 beside the classical exchange, so that what is recorded today cannot be read with a quantum
/// computer later. A peer without it passes the proposal over and takes the second, which has the same group in the same request: no
/// round trip is lost.
#[must_use]
pub fn default_ike_proposals() -> Vec<IkeProposal> {
    let prf = vec![Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512];
    let groups = vec![Group::X25519, Group::Ecp256, Group::Ecp384, Group::Modp3072, Group::Modp2048];
    let hybrid = AdditionalKe { number: 1, groups: vec![Group::MlKem768], optional: false };
    let aead = IkeProposal {
        encr: vec![Encr::Aes256Gcm16, Encr::Aes128Gcm16, Encr::ChaCha20Poly1305],
        integ: Vec::new(),
        prf: prf.clone(),
        groups: groups.clone(),
        additional: Vec::new(),
    };
    vec![
        IkeProposal { additional: vec![hybrid], ..aead.clone() },
        aead,
        IkeProposal {
            encr: vec![Encr::Aes256Cbc, Encr::Aes128Cbc],
            integ: vec![Integ::HmacSha256_128, Integ::HmacSha384_192, Integ::HmacSha512_256],
            prf,
            groups,
            additional: Vec::new(),
        },
    ]
}

/// The default ESP proposals, best first.
///
/// RFC 8221 (section 5 and 6): ENCR_AES_GCM_16 is MUST, ENCR_CHACHA20_POLY1305 SHOULD, ENCR_AES_CBC MUST with
/// AUTH_HMAC_SHA2_256_128 MUST. 128-bit GCM leads because it is the cheapest per byte, which is what a battery pays for.
/// Groups are those of the IKE default, so that rekeying has forward secrecy; the peer may decline it, for many gateways
/// come without. None is hybrid: the keys come from those of the IKE SA, which is, and a second kilobyte and round trip at each
/// rekeying would be paid by the battery; `ke1_mlkem768` in a proposal adds them.
#[must_use]
pub fn default_esp_proposals() -> Vec<EspProposal> {
    let groups = vec![Group::X25519, Group::Ecp256, Group::Ecp384, Group::Modp3072, Group::Modp2048];
    vec![
        EspProposal {
            encr: vec![Encr::Aes128Gcm16, Encr::Aes256Gcm16, Encr::ChaCha20Poly1305],
            integ: Vec::new(),
            groups: groups.clone(),
            group_optional: true,
            additional: Vec::new(),
        },
        EspProposal {
            encr: vec![Encr::Aes256Cbc, Encr::Aes128Cbc],
            integ: vec![Integ::HmacSha256_128, Integ::HmacSha384_192, Integ::HmacSha512_256],
            groups,
            group_optional: true,
            additional: Vec::new(),
        },
    ]
}

/// The ESP proposals of a CHILD SA whose packets are authenticated and not encrypted. No text names this cipher: it cannot come into another
/// proposal. Groups as by default.
/// "The IKE Key Length attribute MUST be used with each use of this identifier to indicate the key length." (RFC 4543 section 5.3)
/// "It MUST NOT be used in conjunction with any other ESP encryption transform" (RFC 4543 section 3)
#[must_use]
pub fn authenticated_esp_proposals() -> Vec<EspProposal> {
    let default = default_esp_proposals().into_iter().find(|proposal| proposal.integ.is_empty());
    default.map(|default| EspProposal { encr: Encr::GMAC.to_vec(), ..default }).into_iter().collect()
}
