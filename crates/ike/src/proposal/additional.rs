//! Additional key exchanges (RFC 9370): what a proposal offers beside its first one, and what was agreed on. Owns transform types 6
//! to 12 with their choice, check and text; must never run a key exchange.

use core::fmt;

use dormouse_crypto::suites::Group;
use dormouse_wire::ike::{Proposal, Transform, TransformType};

use super::{NONE, transform};

/// How many additional key exchanges a proposal may have.
pub const ADDITIONAL_MAX: usize = 7;
/// Transform type of the first one.
const FIRST: u8 = 6;

/// What one additional key exchange may be: one line's `ke1_mlkem768-ke1_mlkem1024`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdditionalKe {
    /// Its number, 1 to 7: they take place in this order.
    pub number: u8,
    /// Methods, best first.
    pub groups: Vec<Group>,
    /// Whether it may be left out (written `ke1_none`).
    pub optional: bool,
}

/// The additional key exchanges that were agreed on, each at its place.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Additional([Option<Group>; ADDITIONAL_MAX]);

impl Additional {
    /// None.
    pub const NONE: Self = Self([None; ADDITIONAL_MAX]);

    /// Their methods, in the order in which they take place.
    /// "Additional key exchanges negotiated via newly defined transforms MUST take place in a series of IKE_INTERMEDIATE exchanges
    /// following the IKE_SA_INIT exchange, performed in an order of the values of their Transform Types." (RFC 9370 section 2.2.1)
    pub fn iter(&self) -> impl Iterator<Item = Group> + '_ {
        self.0.iter().copied().flatten()
    }

    /// How many take place.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether none takes place.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All places, for a codec.
    #[must_use]
    pub const fn places(&self) -> &[Option<Group>; ADDITIONAL_MAX] {
        &self.0
    }

    /// From all places.
    #[must_use]
    pub const fn from_places(places: [Option<Group>; ADDITIONAL_MAX]) -> Self {
        Self(places)
    }

    /// "[...] the responder's choice MUST NOT contain duplicated algorithms (those with an identical Transform ID and attributes),
    /// except for the Transform ID of NONE" (RFC 9370 section 2.2.1)
    fn with(mut self, place: usize, group: Option<Group>) -> Option<Self> {
        let again = group.is_some_and(|group| self.iter().any(|g| g == group));
        *self.0.get_mut(place).filter(|_| !again)? = group;
        Some(self)
    }

    /// Whether `ours` accepts it.
    pub(super) fn permitted(&self, ours: &[AdditionalKe]) -> bool {
        self.0.iter().enumerate().all(|(place, group)| match (group, at(ours, place)) {
            (Some(group), Some(ke)) => ke.groups.contains(group),
            (Some(_), None) => false,
            (None, ke) => ke.is_none_or(|ke| ke.optional),
        })
    }
}

/// As in the text of a proposal: `ke1_mlkem768`.
impl fmt::Display for Additional {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agreed = self.0.iter().enumerate().filter_map(|(place, group)| Some((place, (*group)?)));
        for (i, (place, group)) in agreed.enumerate() {
            write!(f, "{}ke{}_{group}", if i > 0 { "-" } else { "" }, place + 1)?;
        }
        Ok(())
    }
}

fn at(ours: &[AdditionalKe], place: usize) -> Option<&AdditionalKe> {
    ours.iter().find(|ke| usize::from(ke.number) == place + 1)
}

fn kind(place: usize) -> TransformType {
    TransformType::from(FIRST + u8::try_from(place).unwrap_or(0))
}

/// The place of an additional key exchange, if `kind` is one's type.
pub(super) fn place_of(kind: TransformType) -> Option<usize> {
    kind.code().checked_sub(FIRST).map(usize::from).filter(|&place| place < ADDITIONAL_MAX)
}

/// Whether an offer has any. Where INTERMEDIATE_EXCHANGE_SUPPORTED was not negotiated such a proposal is passed over: "the peers MUST
/// treat any ADDKE Transform Types in the IKE_SA_INIT exchange messages as unknown transform types and skip the proposals they appear
/// in" (RFC 9370 section 2.2.1)
#[must_use]
pub fn has_additional(proposal: &Proposal) -> bool {
    proposal.transforms.iter().any(|t| place_of(t.kind).is_some())
}

/// What is offered: NONE behind the methods of one that may be left out.
pub(super) fn transforms(ours: &[AdditionalKe]) -> impl Iterator<Item = Transform> + '_ {
    ours.iter().flat_map(|ke| {
        let ids = ke.groups.iter().map(|g| g.id()).chain(ke.optional.then_some(NONE));
        ids.map(|id| transform(kind(usize::from(ke.number).saturating_sub(1)), id))
    })
}

/// Our best choice from `offered`, no method twice. `None`: there is no agreement.
/// "[...] if the initiator includes any ADDKE Transform Type in the proposal, the responder MUST select one of the algorithms proposed
/// using this type" (RFC 9370 section 2.2.1)
/// "The responder MUST treat all of the omitted ADDKE transforms as if they were proposed with Transform ID NONE." (RFC 9370 section
/// 2.2.1)
pub(super) fn choose(offered: &Proposal, ours: &[AdditionalKe]) -> Option<Additional> {
    fn from(
        offered: &Proposal,
        ours: &[AdditionalKe],
        place: usize,
        so_far: Additional,
    ) -> Option<Additional> {
        if place == ADDITIONAL_MAX {
            return Some(so_far);
        }
        let of_kind = |id: u16| offered.transforms.contains(&transform(kind(place), id));
        let ke = at(ours, place);
        let theirs_optional = of_kind(NONE) || offered.of_kind(kind(place)).next().is_none();
        let methods = ke.into_iter().flat_map(|ke| &ke.groups).copied().filter(|g| of_kind(g.id())).map(Some);
        let none = (theirs_optional && ke.is_none_or(|ke| ke.optional)).then_some(None);
        methods.chain(none).find_map(|group| from(offered, ours, place + 1, so_far.with(place, group)?))
    }
    from(offered, ours, 0, Additional::NONE)
}

/// The transforms that answer `offered`: one of each type in it, NONE where NONE was chosen.
pub(super) fn answer(offered: &Proposal, chosen: &Additional) -> Vec<Transform> {
    let places = chosen.0.iter().enumerate();
    let asked = places.filter(|(place, _)| offered.of_kind(kind(*place)).next().is_some());
    asked.map(|(place, group)| transform(kind(place), group.map_or(NONE, Group::id))).collect()
}

/// What an answer to our offer agrees to; that each transform was offered is checked already. `Err`: the transform type that has not
/// exactly one, or whose method stands twice.
/// "If the responder's message contains one or more duplicated choices, the initiator should log the error and MUST treat the exchange
/// as failed." (RFC 9370 section 2.2.1)
pub(super) fn verify(answer: &Proposal, offered: &Proposal) -> Result<Additional, TransformType> {
    let mut agreed = Additional::NONE;
    for place in 0..ADDITIONAL_MAX {
        let kind = kind(place);
        let mut chosen = answer.of_kind(kind);
        let group = match (chosen.next(), chosen.next()) {
            (None, _) => {
                let mut ours = offered.of_kind(kind).peekable();
                let must = ours.peek().is_some() && ours.all(|t| t.id != NONE);
                if must {
                    return Err(kind);
                }
                None
            }
            (Some(t), None) if t.id == NONE => None,
            (Some(t), None) => Some(Group::by_id(t.id).ok_or(kind)?),
            (Some(_), Some(_)) => return Err(kind),
        };
        agreed = agreed.with(place, group).ok_or(kind)?;
    }
    Ok(agreed)
}

/// A word of a proposal's text, as strongSwan writes it: `ke1_mlkem768`, `ke2_none`. The inner `None` is `none`.
pub(super) fn parse_word(word: &str) -> Option<(u8, Option<Group>)> {
    let (number, method) = word.strip_prefix("ke")?.split_once('_')?;
    let number = number.parse().ok().filter(|n| (1..=ADDITIONAL_MAX).contains(&usize::from(*n)))?;
    match method {
        "none" => Some((number, None)),
        name => Some((number, Some(Group::by_name(name)?))),
    }
}

/// Adds a word to the list, which stays in order of the numbers.
pub(super) fn add_word(list: &mut Vec<AdditionalKe>, number: u8, group: Option<Group>) {
    let at = list.partition_point(|ke| ke.number < number);
    if list.get(at).is_none_or(|ke| ke.number != number) {
        list.insert(at, AdditionalKe { number, groups: Vec::new(), optional: false });
    }
    if let Some(ke) = list.get_mut(at) {
        ke.optional |= group.is_none();
        ke.groups.extend(group);
    }
}

/// The words of the list.
pub(super) fn words(list: &[AdditionalKe]) -> impl Iterator<Item = String> + '_ {
    list.iter().flat_map(|ke| {
        let names = ke.groups.iter().map(|g| g.name()).chain(ke.optional.then_some("none"));
        names.map(|name| format!("ke{}_{name}", ke.number))
    })
}
