//! SA payloads (RFC 7296, sections 2.7 and 3.3): from configuration to what is offered, from what is offered to what is
//! chosen, and from what was chosen to a suite. Owns the negotiation of algorithms; must never derive a key.
//!
//! [`ike_offer`]/[`esp_offer`] build the initiator's payload, [`select_ike`]/[`select_esp`] answer it, [`verify_ike`]/
//! [`verify_esp`] check the answer against the offer, and [`Mismatch`] says in words why nothing fitted.

mod additional;
mod algorithms;
mod explain;
mod select;
#[cfg(test)]
mod tests;
mod text;

use dormouse_crypto::suites::{Encr, Group, Integ, Prf};
use dormouse_wire::ike::{Proposal, ProtocolId, Transform, TransformType};

pub use additional::{ADDITIONAL_MAX, Additional, AdditionalKe, has_additional};
pub use algorithms::{
    EsnPolicy, EspProposal, IkeProposal, authenticated_esp_proposals, default_esp_proposals,
    default_ike_proposals,
};
pub use explain::{Difference, Mismatch, explain_mismatch};
pub use select::{
    BadChoice, EspChoice, IkeChoice, permits, permits_esp, retry_group, select_esp, select_ike, verify_esp,
    verify_ike,
};
pub use text::ProposalError;

/// What the two ends agreed on for an IKE SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IkeSuite {
    /// Cipher.
    pub encr: Encr,
    /// Integrity algorithm; `None` exactly if the cipher is an AEAD.
    pub integ: Option<Integ>,
    /// Pseudo-random function.
    pub prf: Prf,
    /// Key-exchange group. A resumed SA keeps that of its ticket, for successors.
    pub group: Group,
    /// Additional key exchanges. A resumed SA keeps those of its ticket: its keys come from theirs.
    pub additional: Additional,
}

/// What the two ends agreed on for a CHILD_SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EspSuite {
    /// Cipher.
    pub encr: Encr,
    /// Integrity algorithm; `None` exactly if the cipher is an AEAD.
    pub integ: Option<Integ>,
    /// Group of a fresh key exchange, if there is one.
    pub group: Option<Group>,
    /// Additional key exchanges after it.
    pub additional: Additional,
    /// Extended sequence numbers.
    pub esn: bool,
}

/// Which exchange carries an ESP proposal: the first CHILD_SA has no key exchange of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyExchange {
    /// IKE_AUTH: groups are neither offered nor looked at (RFC 7296, section 1.2).
    Never,
    /// CREATE_CHILD_SA: groups as configured.
    Configured,
}

/// The transform ID "NONE" of integrity algorithms and groups.
const NONE: u16 = 0;

const fn transform(kind: TransformType, id: u16) -> Transform {
    Transform::new(kind, id)
}

fn encr_transform(encr: Encr) -> Transform {
    let transform = transform(TransformType::Encryption, encr.id());
    match encr.key_length() {
        Some(bits) => transform.with_key_length(bits),
        None => transform,
    }
}

const fn prf_transform(prf: Prf) -> Transform {
    transform(TransformType::Prf, prf.id())
}

const fn integ_transform(integ: Integ) -> Transform {
    transform(TransformType::Integrity, integ.id())
}

const fn group_transform(group: Group) -> Transform {
    transform(TransformType::KeyExchange, group.id())
}

const fn esn_transform(esn: bool) -> Transform {
    transform(TransformType::ExtendedSequenceNumbers, esn as u16)
}

/// The initiator's SA payload for an IKE SA. `spi` is that of the new SA when rekeying, `None` in the first exchange.
/// "Each structure MUST have a proposal number one (1) greater than the previous structure." (RFC 7296 section 3.3)
/// "[...] they MUST be ordered from most preferred to least preferred" (RFC 7296 section 3.3)
/// "Combined-mode ciphers [...] MUST either offer no integrity algorithm or a single integrity algorithm" (RFC 7296 section
/// 3.3): none.
#[must_use]
pub fn ike_offer(proposals: &[IkeProposal], spi: Option<u64>) -> Vec<Proposal> {
    let spi = spi.map_or_else(Vec::new, |spi| spi.to_be_bytes().to_vec());
    (1..=u8::MAX)
        .zip(proposals)
        .map(|(number, proposal)| {
            let transforms = proposal
                .encr
                .iter()
                .map(|&encr| encr_transform(encr))
                .chain(proposal.prf.iter().copied().map(prf_transform))
                .chain(proposal.integ.iter().copied().map(integ_transform))
                .chain(proposal.groups.iter().copied().map(group_transform))
                .chain(additional::transforms(&proposal.additional))
                .collect();
            Proposal { number, protocol: ProtocolId::Ike, spi: spi.clone(), transforms }
        })
        .collect()
}

/// The initiator's SA payload for a CHILD_SA whose inbound SPI is `spi`.
#[must_use]
pub fn esp_offer(
    proposals: &[EspProposal],
    spi: u32,
    esn: EsnPolicy,
    exchange: KeyExchange,
) -> Vec<Proposal> {
    (1..=u8::MAX)
        .zip(proposals)
        .map(|(number, proposal)| {
            let mut transforms: Vec<_> = proposal
                .encr
                .iter()
                .map(|&encr| encr_transform(encr))
                .chain(proposal.integ.iter().copied().map(integ_transform))
                .collect();
            if exchange == KeyExchange::Configured && !proposal.groups.is_empty() {
                transforms.extend(proposal.groups.iter().copied().map(group_transform));
                if proposal.group_optional {
                    transforms.push(transform(TransformType::KeyExchange, NONE));
                }
                transforms.extend(additional::transforms(&proposal.additional));
            }
            transforms.extend(esn_choices(esn).iter().copied().map(esn_transform));
            Proposal { number, protocol: ProtocolId::Esp, spi: spi.to_be_bytes().to_vec(), transforms }
        })
        .collect()
}

/// The group of the KE payload of a first message: the first of the first proposal that has one.
#[must_use]
pub fn first_group(proposals: &[IkeProposal]) -> Option<Group> {
    proposals.iter().find_map(|proposal| proposal.groups.first().copied())
}

/// The group of the KE payload of a CREATE_CHILD_SA request, if any is offered.
#[must_use]
pub fn first_child_group(proposals: &[EspProposal]) -> Option<Group> {
    proposals.iter().find_map(|proposal| proposal.groups.first().copied())
}

/// Acceptable values, best first.
const fn esn_choices(policy: EsnPolicy) -> &'static [bool] {
    match policy {
        EsnPolicy::Prefer => &[true, false],
        EsnPolicy::Require => &[true],
        EsnPolicy::Off => &[false],
    }
}
