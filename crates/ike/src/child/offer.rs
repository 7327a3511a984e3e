//! What we offer for a CHILD SA, and whether the answer fits. Owns the initiator's half of the negotiation; must never install.

use dormouse_keying::ZoneMap;
use dormouse_wire::ike::{NotifyType, Payload, PayloadType, Proposal, TrafficSelector, TsRange};

use super::{Agreed, Child, Dynamic, between, policy};
use crate::config::{ChildMode, Connection};
use crate::error::NegotiationError;
use crate::mlike::{self, Offered};
use crate::payloads::{View, notify};
use crate::proposal::{self, EspSuite, KeyExchange, Mismatch};
use crate::selectors;
use crate::shared::Shared;
use crate::transport::{Carried, Ends};

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
    /// The zones that its packets are to have.
    pub(crate) zones: Option<Offered>,
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
        let zones = child.zones.as_ref().filter(|_| transport.is_none());
        let zones = zones.map(|zones| Offered { map: zones.map.clone(), required: zones.required });
        let fit = mlike::fitting(&child.proposals, zones.as_ref().is_some_and(|zones| zones.required));
        let proposals = proposal::esp_offer(&fit, spi_in, child.esn, exchange);
        Some(Self { config, spi_in, proposals, ts_local, ts_remote, transport, zones })
    }

    /// In place of `old`. RFC 7296 section 2.9.2: what is protected now is proposed again, and nothing that was narrowed away.
    pub(crate) fn again(shared: &mut Shared, conn: &Connection, old: &Child) -> Option<Self> {
        let child = conn.children.get(old.config)?;
        let spi_in = shared.new_esp_spi();
        let fit = mlike::fitting(&child.proposals, old.zones.is_some());
        Some(Self {
            config: old.config,
            spi_in,
            proposals: proposal::esp_offer(&fit, spi_in, child.esn, KeyExchange::Configured),
            ts_local: old.ts_local.clone(),
            ts_remote: old.ts_remote.clone(),
            transport: old.ends(),
            // It changes neither to zones nor from them.
            zones: old.zones.clone().map(|map| Offered { map, required: true }),
        })
    }

    /// For a connection without children: an offer that no peer can take.
    pub(crate) fn nothing(shared: &mut Shared) -> Self {
        let spi_in = shared.new_esp_spi();
        let (ts_local, ts_remote) = (Vec::new(), Vec::new());
        Self { config: 0, spi_in, proposals: Vec::new(), ts_local, ts_remote, transport: None, zones: None }
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
        let zones = self.agreed_zones(view, &suite)?;
        Ok(Agreed {
            zones,
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

    /// The zones of the answer, which must be those that we offered, or none.
    fn agreed_zones(&self, view: View<'_>, suite: &EspSuite) -> Result<Option<ZoneMap>, NegotiationError> {
        let answered = view.private(PayloadType::ZoneMap).next().filter(|_| self.zones.is_some());
        match (&self.zones, answered) {
            (Some(offered), Some(body)) => {
                let same = mlike::Offered::read(body).is_ok_and(|answer| answer.map == offered.map);
                if !same || !mlike::can_seal(suite) {
                    return Err(NegotiationError::Zones("the peer's answer has others than were offered"));
                }
                Ok(Some(offered.map.clone()))
            }
            (Some(offered), None) if offered.required => {
                Err(NegotiationError::Zones("the peer does not know them, or does not want ours"))
            }
            _ => Ok(None),
        }
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
            NotifyType::InternalAddressFailure => NegotiationError::Addresses(
                "the gateway has none left, which its administrator alone can change (its pool.addresses)",
            ),
            NotifyType::FailedCpRequired => {
                NegotiationError::Addresses("the gateway wants us to ask for one (CFG_REQUEST)")
            }
            other => NegotiationError::Notified(other.to_string()),
        }
    }
}
