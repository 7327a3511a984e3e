//! The text form of proposals, as configured and as shown: names joined by `-`, alternatives of a kind side by side, best first
//! (`aes256gcm16-aes128gcm16-prfsha256-x25519-ecp256-ke1_mlkem768`). Owns the grammar; must never decide what is acceptable.

use core::fmt;
use core::str::FromStr;

use dormouse_crypto::suites::{Encr, Group, Integ, Prf};

use super::additional::{self, AdditionalKe};
use super::algorithms::{EspProposal, IkeProposal};
use super::{EspSuite, IkeSuite};

/// What a proposal of either kind should say instead of a cipher that does not encrypt.
const IKE_ENCRYPTS: &str = "the messages of IKE are always encrypted";
const ESP_AUTHENTICATED: &str =
    "a CHILD SA that only authenticates has protection = \"authenticated\" (AES-GMAC) and no proposals";

/// Why a proposal in text cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProposalError {
    /// A word that names nothing.
    #[error("proposal \"{proposal}\": unknown algorithm \"{word}\"; {kind} takes {known}")]
    Unknown {
        /// The proposal.
        proposal: String,
        /// The word.
        word: String,
        /// `ike` or `esp`.
        kind: &'static str,
        /// All names.
        known: String,
    },
    /// A PRF in an ESP proposal.
    #[error(
        "proposal \"{proposal}\": \"{word}\" is a pseudo-random function, which esp proposals do not have"
    )]
    PrfInEsp {
        /// The proposal.
        proposal: String,
        /// The word.
        word: String,
    },
    /// A kind without any algorithm.
    #[error("proposal \"{proposal}\" names no {missing}")]
    Missing {
        /// The proposal.
        proposal: String,
        /// The kind.
        missing: &'static str,
    },
    /// AEAD beside non-AEAD ciphers, or an AEAD with an integrity algorithm.
    #[error(
        "proposal \"{proposal}\": \"{aead}\" authenticates by itself and does not go with \"{other}\"; make two proposals of it"
    )]
    Mixed {
        /// The proposal.
        proposal: String,
        /// The AEAD.
        aead: &'static str,
        /// What does not go with it.
        other: &'static str,
    },
    /// A method that is an additional key exchange only.
    #[error(
        "proposal \"{proposal}\": \"{word}\" is too large for the first exchange; write it as an additional one: \"x25519-ke1_{word}\""
    )]
    KemAlone {
        /// The proposal.
        proposal: String,
        /// The method.
        word: &'static str,
    },
    /// A cipher that does not encrypt.
    #[error("proposal \"{proposal}\": \"{word}\" does not encrypt; {instead}")]
    Readable {
        /// The proposal.
        proposal: String,
        /// The word.
        word: String,
        /// What to do.
        instead: &'static str,
    },
    /// Additional key exchanges without a first one that is sure to take place.
    #[error(
        "proposal \"{proposal}\": additional key exchanges need a group, and do not go with \"none\"; make two proposals of it"
    )]
    AdditionalAlone {
        /// The proposal.
        proposal: String,
    },
}

#[derive(Default)]
struct Words {
    encr: Vec<Encr>,
    integ: Vec<Integ>,
    prf: Vec<Prf>,
    groups: Vec<Group>,
    none: bool,
    additional: Vec<AdditionalKe>,
}

fn split(text: &str, kind: &'static str) -> Result<Words, ProposalError> {
    let mut words = Words::default();
    for word in text.split('-').map(str::trim) {
        if let Some(encr) = Encr::by_name(word) {
            words.encr.push(encr);
        } else if let Some(integ) = Integ::by_name(word) {
            words.integ.push(integ);
        } else if let Some(prf) = Prf::by_name(word) {
            words.prf.push(prf);
        } else if let Some(group) = Group::by_name(word) {
            if group.is_kem() {
                return Err(ProposalError::KemAlone { proposal: text.to_owned(), word: group.name() });
            }
            words.groups.push(group);
        } else if let Some((number, group)) = additional::parse_word(word) {
            additional::add_word(&mut words.additional, number, group);
        } else if word == "none" && kind == "esp" {
            words.none = true;
        } else if word == "null" || word.ends_with("gmac") {
            let instead = if kind == "esp" { ESP_AUTHENTICATED } else { IKE_ENCRYPTS };
            return Err(ProposalError::Readable {
                proposal: text.to_owned(),
                word: word.to_owned(),
                instead,
            });
        } else {
            return Err(ProposalError::Unknown {
                proposal: text.to_owned(),
                word: word.to_owned(),
                kind,
                known: known(kind),
            });
        }
    }
    check_ciphers(text, &words)?;
    Ok(words)
}

fn known(kind: &str) -> String {
    let mut names: Vec<&str> =
        Encr::ALL.iter().map(|a| a.name()).chain(Integ::ALL.iter().map(|a| a.name())).collect();
    if kind == "ike" {
        names.extend(Prf::ALL.iter().map(|a| a.name()));
    }
    names.extend(Group::ALL.iter().filter(|a| !a.is_kem()).map(|a| a.name()));
    let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    names.push(format!(
        "ke1_METHOD to ke7_METHOD with {} or any group",
        Group::ALL.iter().filter(|a| a.is_kem()).map(|a| a.name()).collect::<Vec<_>>().join(", ")
    ));
    if kind == "esp" {
        names.push("none".to_owned());
    }
    names.join(", ")
}

/// "if all of the encryption algorithms in any proposal are authenticated encryption algorithms, then the proposal MUST NOT propose any integrity
/// transforms" (RFC 5282 section 8)
fn check_ciphers(text: &str, words: &Words) -> Result<(), ProposalError> {
    let missing = |missing| ProposalError::Missing { proposal: text.to_owned(), missing };
    if words.encr.is_empty() {
        return Err(missing("cipher"));
    }
    let plain = words.encr.iter().find(|encr| !encr.is_aead()).map(|encr| encr.name());
    let other = plain.or_else(|| words.integ.first().map(|integ| integ.name()));
    match (words.encr.iter().find(|encr| encr.is_aead()), other) {
        (Some(aead), Some(other)) => {
            Err(ProposalError::Mixed { proposal: text.to_owned(), aead: aead.name(), other })
        }
        (None, _) if words.integ.is_empty() => Err(missing("integrity algorithm")),
        _ => Ok(()),
    }
}

impl FromStr for IkeProposal {
    type Err = ProposalError;

    /// A proposal without a PRF takes the PRFs that belong to its integrity algorithms, or HMAC-SHA2-256 and 384 beside an AEAD.
    fn from_str(text: &str) -> Result<Self, ProposalError> {
        let mut words = split(text, "ike")?;
        if words.groups.is_empty() {
            return Err(ProposalError::Missing { proposal: text.to_owned(), missing: "key-exchange group" });
        }
        if words.prf.is_empty() {
            words.prf = if words.integ.is_empty() {
                vec![Prf::HmacSha256, Prf::HmacSha384]
            } else {
                words.integ.iter().map(|&integ| prf_beside(integ)).collect()
            };
        }
        let Words { encr, integ, prf, groups, additional, .. } = words;
        Ok(Self { encr, integ, prf, groups, additional })
    }
}

const fn prf_beside(integ: Integ) -> Prf {
    match integ {
        Integ::HmacSha1_96 => Prf::HmacSha1,
        // The last two are named by no proposal.
        Integ::HmacSha256_128 | Integ::HmacSha256Whole | Integ::AesCmac96 => Prf::HmacSha256,
        Integ::HmacSha384_192 => Prf::HmacSha384,
        Integ::HmacSha512_256 => Prf::HmacSha512,
    }
}

impl FromStr for EspProposal {
    type Err = ProposalError;

    fn from_str(text: &str) -> Result<Self, ProposalError> {
        let words = split(text, "esp")?;
        if let Some(prf) = words.prf.first() {
            return Err(ProposalError::PrfInEsp { proposal: text.to_owned(), word: prf.name().to_owned() });
        }
        let group_optional = words.none && !words.groups.is_empty();
        if !words.additional.is_empty() && (words.groups.is_empty() || group_optional) {
            return Err(ProposalError::AdditionalAlone { proposal: text.to_owned() });
        }
        let Words { encr, integ, groups, additional, .. } = words;
        Ok(Self { encr, integ, groups, group_optional, additional })
    }
}

fn join(
    f: &mut fmt::Formatter<'_>,
    names: impl IntoIterator<Item = &'static str>,
    additional: impl IntoIterator<Item = String>,
) -> fmt::Result {
    let all = names.into_iter().map(str::to_owned).chain(additional);
    f.write_str(&all.filter(|name| !name.is_empty()).collect::<Vec<_>>().join("-"))
}

impl fmt::Display for IkeProposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ciphers = self.encr.iter().map(|a| a.name()).chain(self.integ.iter().map(|a| a.name()));
        let names =
            ciphers.chain(self.prf.iter().map(|a| a.name())).chain(self.groups.iter().map(|a| a.name()));
        join(f, names, additional::words(&self.additional))
    }
}

impl fmt::Display for EspProposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ciphers = self.encr.iter().map(|a| a.name()).chain(self.integ.iter().map(|a| a.name()));
        let none = (self.group_optional && !self.groups.is_empty()).then_some("none");
        let names = ciphers.chain(self.groups.iter().map(|a| a.name())).chain(none);
        join(f, names, additional::words(&self.additional))
    }
}

impl fmt::Display for IkeSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let integ = self.integ.map(|a| a.name());
        let names = [self.encr.name()].into_iter().chain(integ).chain([self.prf.name(), self.group.name()]);
        join(f, names, [self.additional.to_string()])
    }
}

impl fmt::Display for EspSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let integ = self.integ.map(|a| a.name());
        let names = [self.encr.name()].into_iter().chain(integ).chain(self.group.map(|a| a.name()));
        let esn = self.esn.then(|| "esn".to_owned());
        join(f, names, [self.additional.to_string()].into_iter().chain(esn))
    }
}
