//! A CHILD SA as IKE knows it: SPIs, selectors and timers. Owns the common half of IKE_AUTH and CREATE_CHILD_SA: offering,
//! choosing, and installing a pair of ESP SAs. Must never protect a packet: keys leave through
//! [`Install`] at once.

use core::net::IpAddr;

use dormouse_crypto::Secret;
use dormouse_sansio::{Instant, Path};
use dormouse_wire::ike::{NotifyType, Payload, Proposal, TrafficSelector, TsRange};

use crate::config::{AddressRequest, AssignedConfig, ChildMode, Connection};
use crate::error::NegotiationError;
use crate::event::Event;
use crate::keys::{self, Nonces};
use crate::payloads::{View, notify};
use crate::proposal::{self, EspSuite, KeyExchange, Mismatch};
use crate::sa::IkeSa;
use crate::selectors;
use crate::shared::Shared;
use crate::transport::{Carried, Ends};
use dormouse_keying::{ChildId, ChildSa, Install, Mode, Original, Owner, Protection};

/// What is happening to a CHILD SA besides carrying traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Busy {
    No,
    /// Our rekeying of it is under way.
    Rekeying,
    /// Our deletion of it is under way or queued.
    Deleting,
    /// The peer rekeyed it and will delete it.
    Replaced,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) id: ChildId,
    /// Its index in the connection.
    pub(crate) config: usize,
    pub(crate) spi_in: u32,
    pub(crate) spi_out: u32,
    pub(crate) ts_local: Vec<TsRange>,
    pub(crate) ts_remote: Vec<TsRange>,
    pub(crate) suite: EspSuite,
    pub(crate) mode: ChildMode,
    pub(crate) busy: Busy,
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expire_at: Option<Instant>,
}

/// What we offered for a CHILD SA, until the answer comes.
#[derive(Debug)]
pub(crate) struct ChildOffer {
    pub(crate) config: usize,
    pub(crate) spi_in: u32,
    pub(crate) proposals: Vec<Proposal>,
    pub(crate) ts_local: Vec<TsRange>,
    pub(crate) ts_remote: Vec<TsRange>,
    /// The ends of transport mode, if it is asked for.
    pub(crate) transport: Option<Ends>,
}

/// A CHILD SA agreed upon but not yet installed.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) config: usize,
    pub(crate) spi_in: u32,
    pub(crate) spi_out: u32,
    pub(crate) suite: EspSuite,
    pub(crate) mode: ChildMode,
    pub(crate) tfc_padding: bool,
    pub(crate) ts_local: Vec<TsRange>,
    pub(crate) ts_remote: Vec<TsRange>,
    pub(crate) original: Option<Original>,
}

/// What stands for [`crate::config::SelectorSpec::Dynamic`] on each side.
#[derive(Clone, Debug)]
pub(crate) struct Dynamic {
    pub(crate) local: Inner,
    pub(crate) remote: Inner,
}

/// One side of [`Dynamic`].
#[derive(Clone, Debug)]
pub(crate) enum Inner {
    /// These addresses.
    Known(Vec<IpAddr>),
    /// Whatever the gateway will assign.
    Asked(AddressRequest),
}

impl Inner {
    fn as_dynamic(&self) -> selectors::Dynamic<'_> {
        match self {
            Self::Known(addresses) => selectors::Dynamic::Known(addresses),
            Self::Asked(ask) => selectors::Dynamic::Any { v4: ask.v4, v6: ask.v6 },
        }
    }
}

impl ChildOffer {
    /// What the connection wants for its child number `config`, over an IKE SA between `ends`.
    pub(crate) fn new(
        shared: &mut Shared,
        conn: &Connection,
        config: usize,
        dynamic: &Dynamic,
        ends: Ends,
        exchange: KeyExchange,
    ) -> Option<Self> {
        let child = conn.children.get(config)?;
        let (mut ts_local, mut ts_remote) = policy(conn, config, dynamic)?;
        let mut transport = (child.mode == ChildMode::Transport).then_some(ends);
        if let Some(ends) = transport {
            match ends.of_policy(&ts_local, &ts_remote) {
                Some(between) => (ts_local, ts_remote) = between,
                None => {
                    let selected = between(&ts_local, &ts_remote);
                    tracing::warn!(
                        ?ends,
                        selected,
                        "not between our addresses: tunnel mode is proposed instead"
                    );
                    transport = None;
                }
            }
        }
        let spi_in = shared.new_esp_spi();
        let proposals = proposal::esp_offer(&child.proposals, spi_in, child.esn, exchange);
        Some(Self { config, spi_in, proposals, ts_local, ts_remote, transport })
    }

    /// In place of `old`. RFC 7296 section 2.9.2: what is protected now is proposed again, and nothing that was narrowed away.
    pub(crate) fn again(shared: &mut Shared, conn: &Connection, old: &Child) -> Option<Self> {
        let child = conn.children.get(old.config)?;
        let spi_in = shared.new_esp_spi();
        Some(Self {
            config: old.config,
            spi_in,
            proposals: proposal::esp_offer(&child.proposals, spi_in, child.esn, KeyExchange::Configured),
            ts_local: old.ts_local.clone(),
            ts_remote: old.ts_remote.clone(),
            transport: old.ends(),
        })
    }

    /// For a connection without children: an offer that no peer can take.
    pub(crate) fn nothing(shared: &mut Shared) -> Self {
        let spi_in = shared.new_esp_spi();
        let (ts_local, ts_remote) = (Vec::new(), Vec::new());
        Self { config: 0, spi_in, proposals: Vec::new(), ts_local, ts_remote, transport: None }
    }

    /// SA, then later TSi and TSr and the notifications; `between` goes after SA (nonce and key exchange).
    pub(crate) fn payloads(&self, between: Vec<Payload>) -> Vec<Payload> {
        let mut payloads = vec![Payload::Sa(self.proposals.clone())];
        payloads.extend(between);
        payloads.push(Payload::TsI(selectors::to_wire(&self.ts_local)));
        payloads.push(Payload::TsR(selectors::to_wire(&self.ts_remote)));
        if self.transport.is_some() {
            payloads.push(notify(NotifyType::UseTransportMode, []));
        }
        payloads
    }

    /// Reads the answer to the offer.
    pub(crate) fn accept(&self, view: View<'_>) -> Result<Agreed, NegotiationError> {
        let malformed = |what| NegotiationError::Malformed { exchange: "CHILD SA", what };
        if let Some(error) = view.error() {
            return Err(self.refusal(error.kind));
        }
        let answered = view.sa().ok_or(malformed("no SA payload"))?;
        let (suite, spi_out) = proposal::verify_esp(answered, &self.proposals)
            .map_err(|why| NegotiationError::WrongProposal { what: "ESP", why })?;
        let answer = (view.ts_i().unwrap_or_default(), view.ts_r().unwrap_or_default());
        let transport = view.has(NotifyType::UseTransportMode);
        let carried = match (transport, self.transport) {
            (true, None) => return Err(malformed("transport mode, which was not asked for")),
            (true, Some(ends)) => {
                let seen = ends.substitute(answer);
                let (local, remote, original) = seen.ok_or(malformed("not one address on each side"))?;
                let (local, remote) = self.verify(&local, &remote)?;
                Carried { local, remote, original }
            }
            (false, _) => {
                let (local, remote) = self.verify(answer.0, answer.1)?;
                Carried { local, remote, original: None }
            }
        };
        Ok(Agreed {
            config: self.config,
            spi_in: self.spi_in,
            spi_out,
            suite,
            mode: if transport { ChildMode::Transport } else { ChildMode::Tunnel },
            tfc_padding: !view.has(NotifyType::EspTfcPaddingNotSupported),
            ts_local: carried.local,
            ts_remote: carried.remote,
            original: carried.original,
        })
    }

    /// The selectors of the answer, which must be within what we proposed.
    fn verify(
        &self,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
    ) -> Result<(Vec<TsRange>, Vec<TsRange>), NegotiationError> {
        Ok((selectors::verify(local, &self.ts_local)?, selectors::verify(remote, &self.ts_remote)?))
    }

    fn refusal(&self, kind: NotifyType) -> NegotiationError {
        match kind {
            NotifyType::NoProposalChosen => NegotiationError::ProposalsRefused {
                what: "ESP",
                offered: Mismatch::refused_by_peer(&self.proposals).join(", "),
            },
            NotifyType::TsUnacceptable | NotifyType::SinglePairRequired => {
                NegotiationError::TrafficSelectors {
                    offered: between(&self.ts_local, &self.ts_remote),
                    acceptable: "unknown to us: the peer refused".to_owned(),
                }
            }
            NotifyType::InternalAddressFailure => NegotiationError::Addresses("the gateway has none left"),
            NotifyType::FailedCpRequired => {
                NegotiationError::Addresses("the gateway wants us to ask for one (CFG_REQUEST)")
            }
            other => NegotiationError::Notified(other.to_string()),
        }
    }
}

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

/// What a CHILD SA carries while it is rekeyed.
pub(crate) struct Scope {
    config: usize,
    ts_local: Vec<TsRange>,
    ts_remote: Vec<TsRange>,
    ends: Option<Ends>,
}

impl Child {
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            config: self.config,
            ts_local: self.ts_local.clone(),
            ts_remote: self.ts_remote.clone(),
            ends: self.ends(),
        }
    }

    /// The ends of its transport mode; none in tunnel mode.
    fn ends(&self) -> Option<Ends> {
        Ends::kept(&self.ts_local, &self.ts_remote).filter(|_| self.mode == ChildMode::Transport)
    }
}

/// Chooses from the peer's offer, trying each child of the connection in turn, or that of `replaces` when it is a rekeying.
///
/// "The responder MUST NOT narrow down the Traffic Selectors narrower than the scope currently in use." (RFC 7296 section 2.9.2)
/// What the connection would resolve to today may be narrower: Dynamic selectors follow the outer addresses, which have moved
/// since.
/// "the response MUST also include a notification of type USE_TRANSPORT_MODE" (RFC 7296 section 1.3.1)
/// `ends`: where transport mode would begin and end.
pub(crate) fn choose(
    shared: &mut Shared,
    conn: &Connection,
    replaces: Option<&Scope>,
    view: View<'_>,
    dynamic: &Dynamic,
    ends: Ends,
    exchange: KeyExchange,
) -> Result<Chosen, Refused> {
    let refuse = |kind, error| Refused { notify: notify(kind, []), error: Box::new(error) };
    let malformed =
        |what| refuse(NotifyType::InvalidSyntax, NegotiationError::Malformed { exchange: "CHILD SA", what });
    let offered = view.sa().ok_or_else(|| malformed("no SA payload"))?;
    let ts_i = view.ts_i().ok_or_else(|| malformed("no TSi payload"))?;
    let ts_r = view.ts_r().ok_or_else(|| malformed("no TSr payload"))?;
    let ke_group = view.ke().map(|(group, _)| group);
    let mut last = malformed("the connection has no child");
    let wanted = |config: &usize| replaces.is_none_or(|scope| scope.config == *config);
    for (config, child) in conn.children.iter().enumerate().filter(|(i, _)| wanted(i)) {
        let (policy_local, policy_remote) = match replaces {
            Some(scope) => (scope.ts_local.clone(), scope.ts_remote.clone()),
            None => (
                selectors::resolve(&child.ts_local, dynamic.local.as_dynamic()),
                selectors::resolve(&child.ts_remote, dynamic.remote.as_dynamic()),
            ),
        };
        let ends = replaces.map_or_else(|| (child.mode == ChildMode::Transport).then_some(ends), |s| s.ends);
        let carried = ends
            .filter(|_| view.has(NotifyType::UseTransportMode))
            .and_then(|ends| ends.narrow((ts_r, ts_i), (&policy_local, &policy_remote)));
        let transport = carried.is_some();
        let Carried { local: ts_local, remote: ts_remote, original } = carried.unwrap_or_else(|| Carried {
            local: selectors::narrow(ts_r, &policy_local),
            remote: selectors::narrow(ts_i, &policy_remote),
            original: None,
        });
        if ts_local.is_empty() || ts_remote.is_empty() {
            last = refuse(
                NotifyType::TsUnacceptable,
                NegotiationError::TrafficSelectors {
                    offered: format!("{} to {}", selectors::show_wire(ts_i), selectors::show_wire(ts_r)),
                    acceptable: between(&policy_remote, &policy_local),
                },
            );
            continue;
        }
        let selected = match proposal::select_esp(offered, &child.proposals, child.esn, exchange, ke_group) {
            Ok(selected) => selected,
            Err(mismatch) => {
                let mismatch = Box::new(mismatch);
                let error = NegotiationError::NoProposalChosen { what: "ESP", mismatch };
                last = refuse(NotifyType::NoProposalChosen, error);
                continue;
            }
        };
        if let Some(group) = selected.suite.group.filter(|g| Some(g.id()) != ke_group) {
            let error = NegotiationError::KeyExchangeGroup {
                wanted: group.id(),
                offered: Mismatch::refused_by_peer(offered).join(", "),
            };
            let refusal = notify(NotifyType::InvalidKePayload, group.id().to_be_bytes());
            return Err(Refused { notify: refusal, error: Box::new(error) });
        }
        let spi_in = shared.new_esp_spi();
        let mut rest =
            vec![Payload::TsI(selectors::to_wire(&ts_remote)), Payload::TsR(selectors::to_wire(&ts_local))];
        if transport {
            rest.push(notify(NotifyType::UseTransportMode, []));
        }
        let sa = Payload::Sa(selected.answer(spi_in));
        let agreed = Agreed {
            config,
            spi_in,
            spi_out: selected.spi,
            suite: selected.suite,
            mode: if transport { ChildMode::Transport } else { ChildMode::Tunnel },
            tfc_padding: !view.has(NotifyType::EspTfcPaddingNotSupported),
            ts_local,
            ts_remote,
            original,
        };
        return Ok(Chosen { agreed, sa, rest });
    }
    Err(last)
}

fn between(a: &[TsRange], b: &[TsRange]) -> String {
    format!("{} to {}", selectors::show(a), selectors::show(b))
}

/// The key material of an exchange, and whether we began it.
pub(crate) struct Origin<'a> {
    pub(crate) nonces: Nonces<'a>,
    pub(crate) shared_secret: Option<&'a Secret>,
    pub(crate) we_began: bool,
    pub(crate) replaces: Option<ChildId>,
    /// Nothing is to be sent by it yet: the peer has not shown that it is there, or it is redundant.
    pub(crate) receives_only: bool,
}

impl IkeSa {
    /// Derives the keys, tells the driver, and starts the timers.
    /// "The responder to a CREATE_CHILD_SA MUST be prepared to accept messages on an SA before sending its response" (RFC 7296
    /// section 2.8)
    pub(crate) fn install(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        agreed: Agreed,
        origin: &Origin<'_>,
    ) -> Result<ChildId, NegotiationError> {
        let id = ChildId::new(agreed.spi_in);
        let (prf, sk_d) = (self.channel.suite.prf, &self.channel.sk_d);
        let keymat = keys::child_keymat(prf, sk_d, &agreed.suite, origin.nonces, origin.shared_secret);
        let keymat = match keymat {
            Ok(keymat) => keymat,
            Err(error) => {
                shared.free_esp_spi(agreed.spi_in);
                return Err(NegotiationError::Crypto(error.to_string()));
            }
        };
        let (keymat_out, keymat_in) = if origin.we_began {
            (keymat.from_initiator, keymat.from_responder)
        } else {
            (keymat.from_responder, keymat.from_initiator)
        };
        let replaces = origin.replaces.filter(|old| self.children.contains_key(old));
        let config = self.link.conn.children.get(agreed.config);
        let lifetime = config.map(|c| c.lifetime);
        let soft = lifetime.map(|l| l.soft(&mut shared.entropy));
        shared.event(Event::Child(ChildSa::Install(Box::new(Install {
            owner: Owner::Ike(self.link.id),
            child: id,
            spi_out: agreed.spi_out,
            keymat_in,
            keymat_out,
            encr: agreed.suite.encr,
            integ: agreed.suite.integ,
            esn: agreed.suite.esn,
            mode: match agreed.mode {
                ChildMode::Tunnel => Mode::Tunnel,
                ChildMode::Transport => Mode::Transport,
            },
            protection: Protection::Whole,
            tfc_padding: agreed.tfc_padding,
            ts_local: agreed.ts_local.clone(),
            ts_remote: agreed.ts_remote.clone(),
            original: agreed.original,
            path: self.esp_path(),
            replaces,
            send_now: (origin.we_began || replaces.is_none()) && !origin.receives_only,
            replay_window: config.map_or(0, |c| c.replay_window),
            soft_packets: soft.and_then(|s| s.packets).unwrap_or(u64::MAX),
            soft_bytes: soft.and_then(|s| s.bytes).unwrap_or(u64::MAX),
        }))));
        let soft = soft.and_then(|s| s.time).map(|t| now + t);
        let expire_at = lifetime.and_then(|l| l.hard()).map(|t| now + t);
        // Whoever began goes first; the other steps in later, but long before the hard limit.
        let rekey_at = match (lifetime, soft, expire_at) {
            (Some(lifetime), Some(soft), Some(hard)) if !origin.we_began => {
                Some(soft + lifetime.slack(hard - soft))
            }
            (_, soft, _) => soft,
        };
        let child = Child {
            id,
            config: agreed.config,
            spi_in: agreed.spi_in,
            spi_out: agreed.spi_out,
            ts_local: agreed.ts_local,
            ts_remote: agreed.ts_remote,
            suite: agreed.suite,
            mode: agreed.mode,
            busy: Busy::No,
            rekey_at,
            expire_at,
        };
        self.children.insert(id, child);
        Ok(id)
    }

    /// What Dynamic selectors stand for on this SA.
    pub(crate) fn dynamic(&self) -> Dynamic {
        dynamic(&self.assigned, self.client, &self.link.path)
    }

    /// Where transport mode begins and ends on this SA.
    pub(crate) fn ends(&self) -> Ends {
        Ends::of(&self.link.path, self.nat)
    }
}

/// What the connection's child number `config` selects on our side and on the peer's.
pub(crate) fn policy(
    conn: &Connection,
    config: usize,
    dynamic: &Dynamic,
) -> Option<(Vec<TsRange>, Vec<TsRange>)> {
    let child = conn.children.get(config)?;
    Some((
        selectors::resolve(&child.ts_local, dynamic.local.as_dynamic()),
        selectors::resolve(&child.ts_remote, dynamic.remote.as_dynamic()),
    ))
}

/// The assigned addresses stand for the client, or the outer address where nothing was assigned.
pub(crate) fn dynamic(assigned: &AssignedConfig, client: bool, path: &Path) -> Dynamic {
    let inner = assigned.addresses();
    let (local, remote) = (Inner::Known(vec![path.local.ip()]), Inner::Known(vec![path.remote.ip()]));
    match (inner.is_empty(), client) {
        (true, _) => Dynamic { local, remote },
        (false, true) => Dynamic { local: Inner::Known(inner), remote },
        (false, false) => Dynamic { local, remote: Inner::Known(inner) },
    }
}
