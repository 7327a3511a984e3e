//! Choosing: the responder's answer to an offer, and the initiator's check of that answer. Owns the rules of RFC 7296,
//! sections 2.7 and 3.3.6; must never explain (that is `explain`).

use dormouse_crypto::suites::{Encr, Group, Integ, Prf};
use dormouse_wire::ike::{Proposal, ProtocolId, Transform, TransformType};

use super::additional::{self, Additional, AdditionalKe, place_of};
use super::algorithms::{EsnPolicy, EspProposal, IkeProposal};
use super::{
    EspSuite, IkeSuite, KeyExchange, Mismatch, NONE, encr_transform, esn_choices, esn_transform,
    explain_mismatch, group_transform, integ_transform, prf_transform, transform,
};

/// What a responder chose for an IKE SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IkeChoice {
    /// The algorithms.
    pub suite: IkeSuite,
    /// The initiator's SPI in the proposal: 0 in a first exchange.
    pub spi: u64,
    reply: Proposal,
}

impl IkeChoice {
    /// The answering SA payload; `spi` is ours when rekeying, `None` in a first exchange.
    #[must_use]
    pub fn answer(&self, spi: Option<u64>) -> Vec<Proposal> {
        vec![Proposal {
            spi: spi.map_or_else(Vec::new, |spi| spi.to_be_bytes().to_vec()),
            ..self.reply.clone()
        }]
    }
}

/// What a responder chose for a CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EspChoice {
    /// The algorithms.
    pub suite: EspSuite,
    /// The initiator's inbound SPI.
    pub spi: u32,
    reply: Proposal,
}

impl EspChoice {
    /// The answering SA payload; `spi` is our inbound SPI.
    #[must_use]
    pub fn answer(&self, spi: u32) -> Vec<Proposal> {
        vec![Proposal { spi: spi.to_be_bytes().to_vec(), ..self.reply.clone() }]
    }
}

/// What is usable in a received proposal.
pub(super) struct Offer<'a> {
    pub(super) wire: &'a Proposal,
}

impl<'a> Offer<'a> {
    /// `None` for what must be passed over entirely.
    ///
    /// > If the responder receives a proposal that contains a Transform Type it does not understand, or a proposal that
    /// > is missing a mandatory Transform Type, it MUST consider this proposal unacceptable; however, other proposals in
    /// > the same SA payload are processed as usual. (RFC 7296, section 3.3.6)
    pub(super) fn of(wire: &'a Proposal, protocol: ProtocolId) -> Option<Self> {
        let known = |t: &Transform| {
            matches!(
                t.kind,
                TransformType::Encryption
                    | TransformType::Prf
                    | TransformType::Integrity
                    | TransformType::KeyExchange
                    | TransformType::ExtendedSequenceNumbers
            ) || place_of(t.kind).is_some()
        };
        (wire.protocol == protocol && wire.transforms.iter().all(known)).then_some(Self { wire })
    }

    fn any(&self, kind: TransformType) -> bool {
        self.wire.transforms.iter().any(|t| t.kind == kind)
    }

    /// Whether this very transform is offered; one with unknown attributes equals none of ours.
    fn has(&self, wanted: &Transform) -> bool {
        self.wire.transforms.contains(wanted)
    }

    fn has_none(&self, kind: TransformType) -> bool {
        self.has(&transform(kind, NONE))
    }

    pub(super) fn encr(&self, ours: &[Encr]) -> Option<Encr> {
        ours.iter().copied().find(|&encr| self.has(&encr_transform(encr)))
    }

    pub(super) fn prf(&self, ours: &[Prf]) -> Option<Prf> {
        ours.iter().copied().find(|&prf| self.has(&prf_transform(prf)))
    }

    /// Outer `None`: no agreement. An AEAD takes no integrity transform or NONE; anything else needs a real one.
    /// "an integrity algorithm MUST NOT be selected for that SA" (RFC 5282 section 8)
    pub(super) fn integ(&self, aead: bool, ours: &[Integ]) -> Option<Option<Integ>> {
        if aead {
            let free = !self.any(TransformType::Integrity) || self.has_none(TransformType::Integrity);
            return free.then_some(None);
        }
        ours.iter().copied().find(|&integ| self.has(&integ_transform(integ))).map(Some)
    }

    /// Our best common group, but `wished` (that of the KE payload in hand) before all others: any other costs a round trip.
    pub(super) fn group(&self, ours: &[Group], wished: Option<Group>) -> Option<Group> {
        let common = |group: Group| ours.contains(&group) && self.has(&group_transform(group));
        wished.filter(|&group| common(group)).or_else(|| ours.iter().copied().find(|&group| common(group)))
    }

    /// Outer `None`: no agreement.
    pub(super) fn child_group(
        &self,
        ours: &EspProposal,
        wished: Option<Group>,
        exchange: KeyExchange,
    ) -> Option<Option<Group>> {
        if exchange == KeyExchange::Never {
            return Some(None);
        }
        if let Some(group) = self.group(&ours.groups, wished) {
            return Some(Some(group));
        }
        let we_can_do_without = ours.groups.is_empty() || ours.group_optional;
        let so_can_they = !self.any(TransformType::KeyExchange) || self.has_none(TransformType::KeyExchange);
        (we_can_do_without && so_can_they).then_some(None)
    }

    /// Without a first key exchange there are no additional ones.
    pub(super) fn child_additional(&self, ours: &EspProposal, group: Option<Group>) -> Option<Additional> {
        group.map_or(Some(Additional::NONE), |_| self.additional(&ours.additional))
    }

    /// A proposal without this mandatory transform is read as "no extended sequence numbers".
    pub(super) fn esn(&self, policy: EsnPolicy) -> Option<bool> {
        let silent = !self.any(TransformType::ExtendedSequenceNumbers);
        esn_choices(policy).iter().copied().find(|&esn| self.has(&esn_transform(esn)) || (silent && !esn))
    }

    fn ike(&self, ours: &IkeProposal, wished: Option<Group>) -> Option<IkeSuite> {
        let encr = self.encr(&ours.encr)?;
        let integ = self.integ(encr.is_aead(), &ours.integ)?;
        let prf = self.prf(&ours.prf)?;
        let group = self.group(&ours.groups, wished)?;
        let additional = self.additional(&ours.additional)?;
        Some(IkeSuite { encr, integ, prf, group, additional })
    }

    pub(super) fn additional(&self, ours: &[AdditionalKe]) -> Option<Additional> {
        additional::choose(self.wire, ours)
    }

    fn esp(
        &self,
        ours: &EspProposal,
        esn: EsnPolicy,
        wished: Option<Group>,
        exchange: KeyExchange,
    ) -> Option<EspSuite> {
        let encr = self.encr(&ours.encr)?;
        let integ = self.integ(encr.is_aead(), &ours.integ)?;
        let group = self.child_group(ours, wished, exchange)?;
        let additional = self.child_additional(ours, group)?;
        Some(EspSuite { encr, integ, group, additional, esn: self.esn(esn)? })
    }

    /// One transform for each type of the offer, NONE where NONE was chosen.
    /// "If a proposal is accepted, the SA response MUST contain the same protocol." (RFC 7296 section 2.7)
    /// "The accepted cryptographic suite MUST contain exactly one transform of each type included in the proposal." (RFC 7296
    /// section 2.7)
    fn reply(&self, chosen: Vec<Transform>, additional: &Additional) -> Proposal {
        let mut transforms = chosen;
        transforms.extend(additional::answer(self.wire, additional));
        for kind in [TransformType::Integrity, TransformType::KeyExchange] {
            if !transforms.iter().any(|t| t.kind == kind) && self.has_none(kind) {
                transforms.push(transform(kind, NONE));
            }
        }
        Proposal { number: self.wire.number, protocol: self.wire.protocol, spi: Vec::new(), transforms }
    }
}

/// Chooses for an IKE SA: our order decides, except that the group of the KE payload in hand (`ke_group`) wins if acceptable at
/// all. If `suite.group` differs from `ke_group`, the caller answers INVALID_KE_PAYLOAD with it (RFC 7296, section 1.3).
/// "The responder MUST accept a single proposal or reject them all and return an error." (RFC 7296 section 2.7)
///
/// # Errors
/// [`Mismatch`] if nothing fits: answer NO_PROPOSAL_CHOSEN.
pub fn select_ike(
    offered: &[Proposal],
    acceptable: &[IkeProposal],
    ke_group: Option<u16>,
) -> Result<IkeChoice, Mismatch> {
    let wished = ke_group.and_then(Group::by_id);
    for ours in acceptable {
        for offer in offered.iter().filter_map(|p| Offer::of(p, ProtocolId::Ike)) {
            let spi = match spi_of(offer.wire) {
                Some(spi) => spi,
                None if offer.wire.spi.is_empty() => 0,
                None => continue,
            };
            let Some(suite) = offer.ike(ours, wished) else { continue };
            let chosen = [encr_transform(suite.encr), prf_transform(suite.prf)]
                .into_iter()
                .chain(suite.integ.map(integ_transform))
                .chain([group_transform(suite.group)])
                .collect();
            return Ok(IkeChoice { suite, spi, reply: offer.reply(chosen, &suite.additional) });
        }
    }
    Err(explain_mismatch(offered, acceptable))
}

/// Whether the configuration accepts this suite: for a suite that was agreed on before the connection was known, or that a ticket
/// carries.
#[must_use]
pub fn permits(acceptable: &[IkeProposal], suite: &IkeSuite) -> bool {
    acceptable.iter().any(|ours| {
        ours.encr.contains(&suite.encr)
            && suite.integ.is_none_or(|integ| ours.integ.contains(&integ))
            && ours.prf.contains(&suite.prf)
            && ours.groups.contains(&suite.group)
            && suite.additional.permitted(&ours.additional)
    })
}

/// Whether the configuration accepts this ESP suite: for one that a ticket carries. A key exchange of its own is not looked at.
#[must_use]
pub fn permits_esp(acceptable: &[EspProposal], esn: EsnPolicy, suite: &EspSuite) -> bool {
    let numbers = match esn {
        EsnPolicy::Prefer => true,
        EsnPolicy::Require => suite.esn,
        EsnPolicy::Off => !suite.esn,
    };
    numbers
        && acceptable.iter().any(|ours| {
            ours.encr.contains(&suite.encr) && suite.integ.is_none_or(|integ| ours.integ.contains(&integ))
        })
}

fn spi_of(proposal: &Proposal) -> Option<u64> {
    <[u8; 8]>::try_from(proposal.spi.as_slice()).ok().map(u64::from_be_bytes).filter(|&spi| spi != 0)
}

fn esp_spi_of(proposal: &Proposal) -> Option<u32> {
    // RFC 4303, section 2.1: 1 to 255 are reserved, 0 is for local use.
    <[u8; 4]>::try_from(proposal.spi.as_slice()).ok().map(u32::from_be_bytes).filter(|&spi| spi > 255)
}

/// Chooses for a CHILD_SA, as [`select_ike`]. `suite.group` differing from `ke_group` asks for INVALID_KE_PAYLOAD; `None` means
/// that a KE payload, if there is one, is ignored.
///
/// # Errors
/// [`Mismatch`] if nothing fits: answer NO_PROPOSAL_CHOSEN.
pub fn select_esp(
    offered: &[Proposal],
    acceptable: &[EspProposal],
    esn: EsnPolicy,
    exchange: KeyExchange,
    ke_group: Option<u16>,
) -> Result<EspChoice, Mismatch> {
    let wished = ke_group.and_then(Group::by_id);
    for ours in acceptable {
        for offer in offered.iter().filter_map(|p| Offer::of(p, ProtocolId::Esp)) {
            let Some(spi) = esp_spi_of(offer.wire) else { continue };
            let Some(suite) = offer.esp(ours, esn, wished, exchange) else { continue };
            let chosen = [encr_transform(suite.encr)]
                .into_iter()
                .chain(suite.integ.map(integ_transform))
                .chain(suite.group.map(group_transform))
                .chain(offer.any(TransformType::ExtendedSequenceNumbers).then(|| esn_transform(suite.esn)))
                .collect();
            return Ok(EspChoice { suite, spi, reply: offer.reply(chosen, &suite.additional) });
        }
    }
    Err(Mismatch::of_esp(offered, acceptable, esn, exchange))
}

/// Why a responder's choice is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadChoice {
    /// Not exactly one proposal.
    #[error("the answer has {0} proposals instead of one")]
    Count(usize),
    /// A number that was not offered, or for another protocol.
    #[error("the answer chooses proposal {number}, which was not offered")]
    Number {
        /// The number.
        number: u8,
    },
    /// Several or no transforms of a type that needs one.
    #[error("the answer has {got} {kind} transforms instead of one")]
    Transforms {
        /// The type.
        kind: &'static str,
        /// How many.
        got: usize,
    },
    /// A transform that was not offered under that number.
    #[error("the answer chooses {kind} {id}, which was not offered")]
    NotOffered {
        /// The type.
        kind: &'static str,
        /// The transform ID.
        id: u16,
    },
    /// An SPI of a wrong length or a reserved value.
    #[error("the answer has an unusable SPI of {0} bytes")]
    Spi(usize),
}

/// > The initiator of an exchange MUST check that the accepted offer is consistent with one of its proposals, and if not
/// > MUST terminate the exchange. (RFC 7296, section 2.7)
fn consistent<'a, 'b>(
    chosen: &'a [Proposal],
    offered: &'b [Proposal],
) -> Result<(&'a Proposal, &'b Proposal), BadChoice> {
    let [answer] = chosen else { return Err(BadChoice::Count(chosen.len())) };
    let ours = offered
        .iter()
        .find(|p| p.number == answer.number && p.protocol == answer.protocol)
        .ok_or(BadChoice::Number { number: answer.number })?;
    for t in &answer.transforms {
        let implicit_none = t.id == NONE && !ours.transforms.iter().any(|o| o.kind == t.kind);
        if !ours.transforms.contains(t) && !implicit_none {
            return Err(BadChoice::NotOffered { kind: kind_name(t.kind), id: t.id });
        }
    }
    Ok((answer, ours))
}

fn agreed_additional(answer: &Proposal, ours: &Proposal) -> Result<Additional, BadChoice> {
    additional::verify(answer, ours)
        .map_err(|kind| BadChoice::Transforms { kind: kind_name(kind), got: answer.of_kind(kind).count() })
}

pub(super) const fn kind_name(kind: TransformType) -> &'static str {
    match kind {
        TransformType::Encryption => "encryption",
        TransformType::Prf => "pseudo-random function",
        TransformType::Integrity => "integrity",
        TransformType::KeyExchange => "key-exchange group",
        TransformType::ExtendedSequenceNumbers => "extended sequence numbers",
        kind if kind.code() >= 6 && kind.code() <= 12 => "additional key exchange",
        _ => "unknown",
    }
}

/// The only transform of its kind; `None` if there is none or NONE.
fn only(answer: &Proposal, kind: TransformType) -> Result<Option<&Transform>, BadChoice> {
    let mut of_kind = answer.transforms.iter().filter(|t| t.kind == kind);
    match (of_kind.next(), of_kind.count()) {
        (first, 0) => Ok(first.filter(|t| t.id != NONE || kind == TransformType::ExtendedSequenceNumbers)),
        (_, more) => Err(BadChoice::Transforms { kind: kind_name(kind), got: more + 1 }),
    }
}

fn need<T>(kind: TransformType, value: Option<T>) -> Result<T, BadChoice> {
    value.ok_or(BadChoice::Transforms { kind: kind_name(kind), got: 0 })
}

/// `by_id`: the cipher of a transform.
fn cipher(
    answer: &Proposal,
    by_id: impl FnOnce(u16, Option<u16>) -> Option<Encr>,
) -> Result<(Encr, Option<Integ>), BadChoice> {
    let encr = only(answer, TransformType::Encryption)?.and_then(|t| by_id(t.id, t.key_length));
    let encr = need(TransformType::Encryption, encr)?;
    let integ = only(answer, TransformType::Integrity)?.and_then(|t| Integ::by_id(t.id));
    match integ {
        Some(_) if encr.is_aead() => {
            Err(BadChoice::Transforms { kind: kind_name(TransformType::Integrity), got: 1 })
        }
        None if !encr.is_aead() => need(TransformType::Integrity, None),
        integ => Ok((encr, integ)),
    }
}

/// Checks the responder's choice for an IKE SA against what we offered. Returns the suite and the responder's SPI (0 in a first
/// exchange).
///
/// # Errors
/// [`BadChoice`]: end the exchange.
pub fn verify_ike(chosen: &[Proposal], offered: &[Proposal]) -> Result<(IkeSuite, u64), BadChoice> {
    let (answer, ours) = consistent(chosen, offered)?;
    let rekeying = offered.iter().any(|p| !p.spi.is_empty());
    let spi = match spi_of(answer) {
        Some(spi) => spi,
        None if !rekeying && answer.spi.is_empty() => 0,
        None => return Err(BadChoice::Spi(answer.spi.len())),
    };
    let (encr, integ) = cipher(answer, Encr::by_id)?;
    let prf = need(TransformType::Prf, only(answer, TransformType::Prf)?.and_then(|t| Prf::by_id(t.id)))?;
    let group = only(answer, TransformType::KeyExchange)?.and_then(|t| Group::by_id(t.id));
    let group = need(TransformType::KeyExchange, group)?;
    let additional = agreed_additional(answer, ours)?;
    Ok((IkeSuite { encr, integ, prf, group, additional }, spi))
}

/// Checks the responder's choice for a CHILD_SA against what we offered. Returns the suite and the responder's inbound SPI.
///
/// # Errors
/// [`BadChoice`]: end the exchange.
pub fn verify_esp(chosen: &[Proposal], offered: &[Proposal]) -> Result<(EspSuite, u32), BadChoice> {
    let (answer, ours) = consistent(chosen, offered)?;
    let spi = esp_spi_of(answer).ok_or(BadChoice::Spi(answer.spi.len()))?;
    let (encr, integ) = cipher(answer, Encr::by_esp_id)?;
    let group = only(answer, TransformType::KeyExchange)?.and_then(|t| Group::by_id(t.id));
    let group_was_due = offered.iter().filter(|p| p.number == answer.number).any(|p| {
        let mut groups = p.transforms.iter().filter(|t| t.kind == TransformType::KeyExchange).peekable();
        groups.peek().is_some() && groups.all(|t| t.id != NONE)
    });
    if group.is_none() && group_was_due {
        return need(TransformType::KeyExchange, None);
    }
    let esn = only(answer, TransformType::ExtendedSequenceNumbers)?;
    let esn_was_due = offered
        .iter()
        .filter(|p| p.number == answer.number)
        .all(|p| !p.transforms.contains(&esn_transform(false)));
    if esn.is_none() && esn_was_due {
        return need(TransformType::ExtendedSequenceNumbers, None);
    }
    let additional = match group {
        Some(_) => agreed_additional(answer, ours)?,
        None => Additional::NONE,
    };
    Ok((EspSuite { encr, integ, group, additional, esn: esn.is_some_and(|t| t.id == 1) }, spi))
}

/// The group to try after INVALID_KE_PAYLOAD asked for `wanted`: it must be one that we offered and have not tried yet, or the
/// two ends would go round in circles.
#[must_use]
pub fn retry_group(wanted: u16, offered: &[Proposal], tried: &[Group]) -> Option<Group> {
    let group = Group::by_id(wanted)?;
    let ours = offered.iter().any(|p| p.transforms.contains(&group_transform(group)));
    (ours && !tried.contains(&group)).then_some(group)
}
