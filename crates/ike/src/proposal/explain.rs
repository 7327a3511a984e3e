//! Why no proposal fitted, in words: what was offered, what is acceptable, and which line to change. Owns the explanation;
//! must never influence the choice.

use core::fmt;

use dormouse_crypto::suites::{Encr, Group, Integ, Prf};
use dormouse_wire::ike::{Proposal, ProtocolId, Transform, TransformType};

use super::additional::{AdditionalKe, place_of, words};
use super::algorithms::{EsnPolicy, EspProposal, IkeProposal};
use super::select::{Offer, kind_name};
use super::{KeyExchange, NONE};

/// One kind of algorithm in which the closest pair of proposals has nothing in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// `encryption`, `integrity`...
    pub kind: &'static str,
    /// What the peer offered, by name; what we do not have is marked.
    pub offered: Vec<String>,
    /// What the configuration takes.
    pub acceptable: Vec<String>,
}

/// Why no proposal fitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// `ike.proposals` or `child.proposals`: the key of the configuration, below the connection.
    pub line: &'static str,
    /// All proposals of the peer, in text.
    pub offered: Vec<String>,
    /// All proposals of the configuration, in text.
    pub acceptable: Vec<String>,
    /// Where the closest pair of them differs.
    pub differences: Vec<Difference>,
    /// What to add to the line to accept the peer's offer, if we have all that it takes.
    pub suggestion: Option<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: &[String]| if items.is_empty() { "nothing".to_owned() } else { items.join(", ") };
        write!(f, "offered [{}], acceptable [{}]", list(&self.offered), list(&self.acceptable))?;
        for (i, d) in self.differences.iter().enumerate() {
            f.write_str(if i == 0 { "; they differ in " } else { ", and in " })?;
            write!(f, "{} (offered {}; acceptable {})", d.kind, list(&d.offered), list(&d.acceptable))?;
        }
        match &self.suggestion {
            Some(text) => write!(f, "; to accept it, add \"{text}\" to `{}` of this connection", self.line),
            None => write!(
                f,
                "; to meet, the peer must offer one of the acceptable ones (our `{}` line)",
                self.line
            ),
        }
    }
}

/// Explains why none of `offered` fits any of `acceptable`, for an IKE SA.
#[must_use]
pub fn explain_mismatch(offered: &[Proposal], acceptable: &[IkeProposal]) -> Mismatch {
    let ours = acceptable.iter().map(|p| Ours {
        encr: &p.encr,
        integ: &p.integ,
        prf: Some(&p.prf),
        groups: Groups::Ike(&p.groups),
        additional: &p.additional,
        esn: None,
    });
    explain(
        offered,
        ProtocolId::Ike,
        "ike.proposals",
        ours,
        acceptable.iter().map(ToString::to_string).collect(),
    )
}

impl Mismatch {
    /// Explains why none of `offered` fits any of `acceptable`, for a CHILD_SA.
    #[must_use]
    pub fn of_esp(
        offered: &[Proposal],
        acceptable: &[EspProposal],
        esn: EsnPolicy,
        exchange: KeyExchange,
    ) -> Self {
        let ours = acceptable.iter().map(|p| Ours {
            encr: &p.encr,
            integ: &p.integ,
            prf: None,
            groups: Groups::Esp(p, exchange),
            additional: if exchange == KeyExchange::Never { &[] } else { &p.additional },
            esn: Some(esn),
        });
        explain(
            offered,
            ProtocolId::Esp,
            "child.proposals",
            ours,
            acceptable.iter().map(ToString::to_string).collect(),
        )
    }

    /// What we offered when the peer refused it all: it never says what it would take.
    #[must_use]
    pub fn refused_by_peer(offered: &[Proposal]) -> Vec<String> {
        offered.iter().map(proposal_text).collect()
    }
}

struct Ours<'a> {
    encr: &'a [Encr],
    integ: &'a [Integ],
    prf: Option<&'a Vec<Prf>>,
    groups: Groups<'a>,
    additional: &'a [AdditionalKe],
    esn: Option<EsnPolicy>,
}

#[derive(Clone, Copy)]
enum Groups<'a> {
    Ike(&'a [Group]),
    Esp(&'a EspProposal, KeyExchange),
}

impl Groups<'_> {
    /// What is acceptable, if the offer has nothing of it.
    fn missing(self, offer: &Offer<'_>) -> Option<Vec<String>> {
        match self {
            Self::Ike(groups) => offer.group(groups, None).is_none().then(|| names(groups)),
            Self::Esp(ours, exchange) => offer.child_group(ours, None, exchange).is_none().then(|| {
                let none = ours.groups.is_empty() || ours.group_optional;
                names(&ours.groups).into_iter().chain(none.then(|| "none".to_owned())).collect()
            }),
        }
    }
}

fn explain<'a>(
    offered: &[Proposal],
    protocol: ProtocolId,
    line: &'static str,
    ours: impl Iterator<Item = Ours<'a>> + Clone,
    acceptable: Vec<String>,
) -> Mismatch {
    let mut best: Option<(&Proposal, Vec<Difference>)> = None;
    for offer in offered.iter().filter_map(|p| Offer::of(p, protocol)) {
        for ours in ours.clone() {
            let differences = differences(&offer, &ours);
            if best.as_ref().is_none_or(|(_, fewest)| differences.len() < fewest.len()) {
                best = Some((offer.wire, differences));
            }
        }
    }
    let suggestion = offered.iter().find_map(|p| suggestion(p, protocol));
    let differences = best.map_or_else(Vec::new, |(_, differences)| differences);
    Mismatch {
        line,
        offered: offered.iter().map(proposal_text).collect(),
        acceptable,
        differences,
        suggestion,
    }
}

fn differences(offer: &Offer<'_>, ours: &Ours<'_>) -> Vec<Difference> {
    let offered = |kind| {
        offer.wire.transforms.iter().filter(|t| t.kind == kind).map(transform_text).collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    let mut differ = |kind, acceptable: Vec<String>| {
        found.push(Difference { kind: kind_name(kind), offered: offered(kind), acceptable });
    };
    if offer.encr(ours.encr).is_none() {
        differ(TransformType::Encryption, names(ours.encr));
    }
    let aead = ours.encr.iter().all(|encr| encr.is_aead());
    if offer.integ(aead, ours.integ).is_none() {
        differ(TransformType::Integrity, names(ours.integ));
    }
    if let Some(prf) = ours.prf.filter(|prf| offer.prf(prf).is_none()) {
        differ(TransformType::Prf, names(prf));
    }
    if let Some(acceptable) = ours.groups.missing(offer) {
        differ(TransformType::KeyExchange, acceptable);
    }
    if offer.additional(ours.additional).is_none() {
        let place = |t: &&Transform| place_of(t.kind).is_some();
        found.push(Difference {
            kind: "additional key exchange",
            offered: offer.wire.transforms.iter().filter(place).map(transform_text).collect(),
            acceptable: words(ours.additional).collect(),
        });
    }
    let mut differ = |kind, acceptable: Vec<String>| {
        found.push(Difference { kind: kind_name(kind), offered: offered(kind), acceptable });
    };
    if let Some(esn) = ours.esn.filter(|&esn| offer.esn(esn).is_none()) {
        let wanted = if esn == EsnPolicy::Require { "yes" } else { "no" };
        differ(TransformType::ExtendedSequenceNumbers, vec![wanted.to_owned()]);
    }
    found
}

fn names<T: ToString>(algorithms: &[T]) -> Vec<String> {
    algorithms.iter().map(ToString::to_string).collect()
}

/// The best that we could do with this offer if the configuration allowed everything, as a proposal in text.
fn suggestion(proposal: &Proposal, protocol: ProtocolId) -> Option<String> {
    let offer = Offer::of(proposal, protocol)?;
    let of = |kind| {
        proposal
            .transforms
            .iter()
            .filter(move |t: &&Transform| t.kind == kind && t.other_attributes.is_empty())
    };
    let encr = of(TransformType::Encryption).find_map(|t| Encr::by_id(t.id, t.key_length))?;
    let integ = offer.integ(encr.is_aead(), &Integ::ALL)?;
    let mut words = vec![encr.name().to_owned()];
    // The peer's order decides, as it would if the line were written for this peer.
    words.extend(
        integ
            .and_then(|_| of(TransformType::Integrity).find_map(|t| Integ::by_id(t.id)))
            .map(|a| a.name().to_owned()),
    );
    if protocol == ProtocolId::Ike {
        words.push(of(TransformType::Prf).find_map(|t| Prf::by_id(t.id))?.name().to_owned());
        words.push(of(TransformType::KeyExchange).find_map(classical)?.name().to_owned());
    } else {
        words.extend(of(TransformType::KeyExchange).find_map(classical).map(|a| a.name().to_owned()));
    }
    words.extend(suggested_additional(proposal)?);
    Some(words.join("-"))
}

/// The first method that we know of each additional key exchange; `None` if one is unknown to us.
fn suggested_additional(proposal: &Proposal) -> Option<Vec<String>> {
    let mut chosen: Vec<(usize, String)> = Vec::new();
    for t in &proposal.transforms {
        let Some(place) = place_of(t.kind).filter(|place| chosen.iter().all(|(p, _)| p != place)) else {
            continue;
        };
        let mut methods = proposal.of_kind(t.kind).map(|t| (t.id, Group::by_id(t.id)));
        let name = methods.find_map(|(id, group)| match group {
            Some(group) => Some(group.name()),
            None => (id == NONE).then_some("none"),
        })?;
        chosen.push((place, format!("ke{}_{name}", place + 1)));
    }
    Some(chosen.into_iter().map(|(_, word)| word).collect())
}

fn classical(t: &Transform) -> Option<Group> {
    Group::by_id(t.id).filter(|group| !group.is_kem())
}

fn proposal_text(proposal: &Proposal) -> String {
    let shown =
        proposal.transforms.iter().filter(|t| t.kind != TransformType::ExtendedSequenceNumbers || t.id != 0);
    shown.map(transform_text).collect::<Vec<_>>().join("-")
}

/// The name of a transform, known or not; what is not supported says so.
fn transform_text(t: &Transform) -> String {
    if let Some(place) = place_of(t.kind) {
        let name = match t.id {
            NONE => "none".to_owned(),
            id => Group::by_id(id).map_or_else(|| format!("{id}(unsupported)"), |g| g.name().to_owned()),
        };
        return format!("ke{}_{name}", place + 1);
    }
    let known = match t.kind {
        TransformType::Encryption => Encr::by_esp_id(t.id, t.key_length).map(|a| a.name()),
        TransformType::Prf => Prf::by_id(t.id).map(|a| a.name()),
        TransformType::Integrity => Integ::by_id(t.id).map(|a| a.name()),
        TransformType::KeyExchange => Group::by_id(t.id).map(|a| a.name()),
        TransformType::ExtendedSequenceNumbers if t.id == 1 => Some("esn"),
        TransformType::ExtendedSequenceNumbers if t.id == 0 => Some("noesn"),
        _ => None,
    };
    if let Some(name) = known.filter(|_| t.other_attributes.is_empty()) {
        return name.to_owned();
    }
    let bits = t.key_length.map_or_else(String::new, |bits| bits.to_string());
    let foreign = match (t.kind, t.id) {
        (TransformType::Integrity | TransformType::KeyExchange, NONE) => return "none".to_owned(),
        (TransformType::Encryption, 2) => "des".to_owned(),
        (TransformType::Encryption, 3) => "3des".to_owned(),
        (TransformType::Encryption, 11) => "null".to_owned(),
        (TransformType::Encryption, 12) => format!("aes{bits}"),
        (TransformType::Encryption, 13) => format!("aes{bits}ctr"),
        (TransformType::Encryption, 14) => format!("aes{bits}ccm8"),
        (TransformType::Encryption, 15) => format!("aes{bits}ccm12"),
        (TransformType::Encryption, 16) => format!("aes{bits}ccm16"),
        (TransformType::Encryption, 18) => format!("aes{bits}gcm8"),
        (TransformType::Encryption, 19) => format!("aes{bits}gcm12"),
        (TransformType::Encryption, 20) => format!("aes{bits}gcm16"),
        (TransformType::Encryption, 23) => format!("camellia{bits}"),
        (TransformType::Prf, 1) => "prfmd5".to_owned(),
        (TransformType::Prf, 4) => "prfaesxcbc".to_owned(),
        (TransformType::Prf, 8) => "prfaescmac".to_owned(),
        (TransformType::Integrity, 1) => "md5".to_owned(),
        (TransformType::Integrity, 5) => "aesxcbc".to_owned(),
        (TransformType::Integrity, 8) => "aescmac".to_owned(),
        (TransformType::KeyExchange, 1) => "modp768".to_owned(),
        (TransformType::KeyExchange, 2) => "modp1024".to_owned(),
        (TransformType::KeyExchange, 5) => "modp1536".to_owned(),
        (TransformType::KeyExchange, 16) => "modp4096".to_owned(),
        (TransformType::KeyExchange, 17) => "modp6144".to_owned(),
        (TransformType::KeyExchange, 18) => "modp8192".to_owned(),
        (TransformType::KeyExchange, 21) => "ecp521".to_owned(),
        (TransformType::KeyExchange, 32) => "x448".to_owned(),
        (kind, id) => format!("{}#{id}{bits}", kind_name(kind).replace(' ', "-")),
    };
    format!("{foreign}(unsupported)")
}
