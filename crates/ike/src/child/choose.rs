//! What a responder chooses from the peer's offer of a CHILD SA. Owns the match of an offer with the children of the connection;
//! must never install.

use dormouse_keying::ZoneMap;
use dormouse_wire::ike::{NotifyType, Payload, Proposal, TrafficSelector, TsRange};

use super::{Agreed, Child, Dynamic, between, policy};
use crate::config::{ChildConfig, ChildMode, Connection};
use crate::error::NegotiationError;
use crate::mlike::{self, Offered};
use crate::payloads::{View, notify};
use crate::proposal::{self, KeyExchange, Mismatch};
use crate::selectors;
use crate::shared::Shared;
use crate::transport::{Carried, Ends};

/// What a responder answers to an offer: the payloads for the answer without nonce and key exchange, and what was agreed.
pub(crate) struct Chosen {
    pub(crate) agreed: Agreed,
    pub(crate) sa: Payload,
    pub(crate) rest: Vec<Payload>,
}

/// Why an offer is refused: what to tell the peer and what to tell the log.
pub(crate) struct Refused {
    pub(crate) notify: Payload,
    pub(crate) error: Box<NegotiationError>,
}

impl Refused {
    fn new(kind: NotifyType, error: NegotiationError) -> Self {
        Self { notify: notify(kind, []), error: Box::new(error) }
    }
}

/// What a CHILD SA carries while it is rekeyed.
pub(crate) struct Scope {
    config: usize,
    zones: Option<ZoneMap>,
    ts_local: Vec<TsRange>,
    ts_remote: Vec<TsRange>,
    ends: Option<Ends>,
}

impl Child {
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            config: self.config,
            zones: self.zones.clone(),
            ts_local: self.ts_local.clone(),
            ts_remote: self.ts_remote.clone(),
            ends: self.ends(),
        }
    }

    /// The ends of its transport mode; none in tunnel mode.
    pub(super) fn ends(&self) -> Option<Ends> {
        Ends::kept(&self.ts_local, &self.ts_remote).filter(|_| self.mode == ChildMode::Transport)
    }
}

/// An offer of a CHILD SA as it came.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) view: View<'a>,
    /// The body of its ZONE_MAP, between ends that both know zones.
    pub(crate) zones: Option<&'a [u8]>,
    /// Whether the peer has this child of the connection already, or will when its key exchanges are complete.
    pub(crate) beside: Option<&'a dyn Fn(usize) -> bool>,
}

/// The offer, with what it is matched against.
struct Offer<'a> {
    view: View<'a>,
    /// The zones that it asks for; `Err`: they cannot be read, and whether they are required.
    zones: Option<Result<Offered, bool>>,
    proposals: &'a [Proposal],
    ts_i: &'a [TrafficSelector],
    ts_r: &'a [TrafficSelector],
}

/// A child of the connection whose selectors have something in common with the offer.
struct Candidate<'a> {
    config: usize,
    child: &'a ChildConfig,
    carried: Carried,
    transport: bool,
    wanted: Wanted<'a>,
    /// How well it fits: whether all that was offered is carried, and whether all that the child stands for is; then whether it has the zones
    /// that were offered, or neither has any; then whether the peer has none of this child yet. The latter two tell children apart that have
    /// the same selectors.
    fit: (u8, bool, bool),
}

/// The zones that a child is to have.
struct Wanted<'a> {
    map: Option<&'a ZoneMap>,
    required: bool,
}

impl Offer<'_> {
    /// What a child that stands for `local` and `remote` would carry.
    /// "the response MUST also include a notification of type USE_TRANSPORT_MODE" (RFC 7296 section 1.3.1)
    fn carried(&self, local: &[TsRange], remote: &[TsRange], ends: Option<Ends>) -> (Carried, bool) {
        let ends = ends.filter(|_| self.view.has(NotifyType::UseTransportMode));
        match ends.and_then(|ends| ends.narrow((self.ts_r, self.ts_i), (local, remote))) {
            Some(carried) => (carried, true),
            None => {
                let (local, remote) =
                    (selectors::narrow(self.ts_r, local), selectors::narrow(self.ts_i, remote));
                (Carried { local, remote, original: None }, false)
            }
        }
    }

    /// Whether the peer would rather have no SA than one without zones.
    fn requires_zones(&self) -> bool {
        match &self.zones {
            Some(Ok(offered)) => offered.required,
            Some(Err(required)) => *required,
            None => false,
        }
    }

    /// Whether these are the zones that it asks for: `None`, without.
    fn asks_for(&self, map: Option<&ZoneMap>) -> bool {
        match &self.zones {
            Some(Ok(offered)) => Some(&offered.map) == map,
            Some(Err(_)) => false,
            None => map.is_none(),
        }
    }

    /// The zones that both ends want for this child: `None`, without.
    fn zones(&self, wanted: &Wanted<'_>) -> Result<Option<ZoneMap>, NegotiationError> {
        let required = self.requires_zones();
        let offered = self.zones.as_ref().and_then(|zones| zones.as_ref().ok()).map(|offered| &offered.map);
        match wanted {
            Wanted { map: Some(map), .. } if offered == Some(*map) => Ok(offered.cloned()),
            Wanted { required: true, .. } => {
                Err(NegotiationError::Zones("the peer does not know them, or wants others"))
            }
            _ if required => Err(NegotiationError::Zones("the peer requires some that we do not want")),
            _ => Ok(None),
        }
    }

    fn fit(&self, carried: &Carried, local: &[TsRange], remote: &[TsRange]) -> u8 {
        let all_offered = selectors::to_wire(&carried.local) == self.ts_r
            && selectors::to_wire(&carried.remote) == self.ts_i;
        let all_of_child = carried.local == local && carried.remote == remote;
        u8::from(all_offered) + u8::from(all_of_child)
    }
}

/// Chooses from the peer's offer: the child of the connection that fits its selectors best, of those that fit as well one with the zones that it asks
/// for and that the peer does not have yet, and of those the first; or that of `replaces` when it is a rekeying.
///
/// "The responder MUST NOT narrow down the Traffic Selectors narrower than the scope currently in use." (RFC 7296 section 2.9.2)
/// What the connection would resolve to today may be narrower: Dynamic selectors follow the outer addresses, which have moved
/// since.
/// `ends`: where transport mode would begin and end.
pub(crate) fn choose(
    shared: &mut Shared,
    conn: &Connection,
    replaces: Option<&Scope>,
    asked: Asked<'_>,
    dynamic: &Dynamic,
    ends: Ends,
    exchange: KeyExchange,
) -> Result<Chosen, Refused> {
    let Asked { view, zones, .. } = asked;
    let malformed = |what| {
        let error = NegotiationError::Malformed { exchange: "CHILD SA", what };
        Refused::new(NotifyType::InvalidSyntax, error)
    };
    let proposals = view.sa().ok_or_else(|| malformed("no SA payload"))?;
    let ts_i = view.ts_i().ok_or_else(|| malformed("no TSi payload"))?;
    let ts_r = view.ts_r().ok_or_else(|| malformed("no TSr payload"))?;
    let offer = Offer { view, zones: zones.map(Offered::read), proposals, ts_i, ts_r };
    let mut candidates = Vec::new();
    let mut refused = malformed("the connection has no child");
    // What is not encrypted stands beside something that is: it is not made with the session.
    let may_be = |child: &ChildConfig| exchange == KeyExchange::Configured || !child.is_readable();
    for (config, child) in conn.children.iter().enumerate().filter(|(_, child)| may_be(child)) {
        let (local, remote, ends) = match replaces {
            Some(scope) if scope.config != config => continue,
            Some(scope) => (scope.ts_local.clone(), scope.ts_remote.clone(), scope.ends),
            None => {
                let Some((local, remote)) = policy(conn, config, dynamic) else { continue };
                (local, remote, (child.mode == ChildMode::Transport).then_some(ends))
            }
        };
        let (carried, transport) = offer.carried(&local, &remote, ends);
        if carried.local.is_empty() || carried.remote.is_empty() {
            let offered = format!("{} to {}", selectors::show_wire(ts_i), selectors::show_wire(ts_r));
            let acceptable = between(&remote, &local);
            let error = NegotiationError::TrafficSelectors { offered, acceptable };
            refused = Refused::new(NotifyType::TsUnacceptable, error);
            continue;
        }
        let wanted = match (replaces, &child.zones) {
            // A rekeying changes neither to zones nor from them.
            (Some(scope), _) => Wanted { map: scope.zones.as_ref(), required: scope.zones.is_some() },
            (None, Some(policy)) => Wanted { map: Some(&policy.map), required: policy.required },
            (None, None) => Wanted { map: None, required: false },
        };
        let beside = asked.beside.is_some_and(|beside| beside(config));
        let fit = (offer.fit(&carried, &local, &remote), offer.asks_for(wanted.map), !beside);
        candidates.push(Candidate { config, child, carried, transport, wanted, fit });
    }
    candidates.sort_by_key(|candidate| core::cmp::Reverse(candidate.fit));
    let ke_group = view.ke().map(|(group, _)| group);
    for candidate in candidates {
        let required = candidate.wanted.required || offer.requires_zones();
        let wanted = mlike::fitting(&candidate.child.proposals, required);
        match proposal::select_esp(proposals, &wanted, candidate.child.esn, exchange, ke_group) {
            Ok(selected) => match zones_for(&offer, &candidate, &selected.suite) {
                Ok(zones) => return agree(shared, &offer, candidate, &selected, ke_group, zones),
                Err(error) => refused = Refused::new(NotifyType::NoProposalChosen, error),
            },
            Err(mismatch) => {
                let error = NegotiationError::NoProposalChosen { what: "ESP", mismatch: Box::new(mismatch) };
                refused = Refused::new(NotifyType::NoProposalChosen, error);
            }
        }
    }
    Err(refused)
}

/// The zones of a candidate with these algorithms, in tunnel mode alone.
fn zones_for(
    offer: &Offer<'_>,
    candidate: &Candidate<'_>,
    suite: &proposal::EspSuite,
) -> Result<Option<ZoneMap>, NegotiationError> {
    let zones = offer.zones(&candidate.wanted)?;
    let possible = mlike::can_seal(suite) && !candidate.transport;
    if zones.is_some() && !possible {
        return match candidate.wanted.required || offer.requires_zones() {
            true => Err(NegotiationError::Zones(
                "they need tunnel mode and AES-GCM with a whole ICV, or ChaCha20-Poly1305",
            )),
            false => Ok(None),
        };
    }
    Ok(zones)
}

/// The answer, with these algorithms.
fn agree(
    shared: &mut Shared,
    offer: &Offer<'_>,
    candidate: Candidate<'_>,
    selected: &proposal::EspChoice,
    ke_group: Option<u16>,
    zones: Option<ZoneMap>,
) -> Result<Chosen, Refused> {
    if let Some(group) = selected.suite.group.filter(|g| Some(g.id()) != ke_group) {
        let offered = Mismatch::refused_by_peer(offer.proposals).join(", ");
        let error = NegotiationError::KeyExchangeGroup { wanted: group.id(), offered };
        let refusal = notify(NotifyType::InvalidKePayload, group.id().to_be_bytes());
        return Err(Refused { notify: refusal, error: Box::new(error) });
    }
    let Candidate { config, carried, transport, .. } = candidate;
    let Carried { local: ts_local, remote: ts_remote, original } = carried;
    let spi_in = shared.new_esp_spi();
    let mut rest =
        vec![Payload::TsI(selectors::to_wire(&ts_remote)), Payload::TsR(selectors::to_wire(&ts_local))];
    if transport {
        rest.push(notify(NotifyType::UseTransportMode, []));
    }
    rest.extend(zones.as_ref().map(|map| Offered { map: map.clone(), required: false }.wire().payload()));
    let agreed = Agreed {
        zones,
        config,
        spi_in,
        spi_out: selected.spi,
        suite: selected.suite,
        mode: if transport { ChildMode::Transport } else { ChildMode::Tunnel },
        tfc_padding: !offer.view.has(NotifyType::EspTfcPaddingNotSupported),
        ts_local,
        ts_remote,
        original,
    };
    Ok(Chosen { agreed, sa: Payload::Sa(selected.answer(spi_in)), rest })
}
