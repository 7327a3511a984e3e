//! Answers to CREATE_CHILD_SA for CHILD SAs (RFC 7296 sections 1.3.1, 1.3.3 and 2.25.1): additional ones and rekeying, with every
//! collision. Owns the refusals; the other end of the exchange is [`super::child`].

use dormouse_crypto::suites::Group;
use dormouse_crypto::{DhPrivate, Secret};
use dormouse_sansio::Instant;
use dormouse_wire::ike::{Notify, NotifyType, Payload, PayloadType, ProtocolId};

use super::Exchange;
use super::child::CreateChild;
use super::followup::Goal;
use crate::child::choose::{Asked, Refused, choose};
use crate::child::{Agreed, Aim, Busy, Child};
use crate::error::NegotiationError;
use crate::keys::Nonces;
use crate::payloads::{View, notify};
use crate::proposal::KeyExchange;
use crate::sa::install::Origin;
use crate::sa::{Answer, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;
use dormouse_keying::ChildId;

impl IkeSa {
    /// "A TEMPORARY_FAILURE notification SHOULD be sent when a peer receives a request that cannot be completed due to a
    /// temporary condition" (RFC 7296 section 2.25)
    pub(crate) fn answer_create_child(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
    ) -> Answer {
        // "[...] the Responder SHOULD reply with TEMPORARY_FAILURE notifications indicating the peer must slow down their requests" (RFC
        // 8019 section 5)
        if let Some(caller) = self.caller()
            && !shared.callers.may_create(&caller, now)
        {
            return Answer::refuse(Kind::CreateChild, NotifyType::TemporaryFailure);
        }
        let for_ike = view.sa().and_then(|p| p.first()).is_some_and(|p| p.protocol == ProtocolId::Ike);
        if for_ike {
            return self.answer_rekey_ike(shared, now, view);
        }
        let rekeys = view.notify(NotifyType::RekeySa);
        let kind = if rekeys.is_some() { Kind::RekeyChild } else { Kind::CreateChild };
        // "If a peer receives a request to create or rekey a Child SA when it is currently rekeying the IKE SA, it SHOULD reply
        // with TEMPORARY_FAILURE." (RFC 7296 section 2.25.2)
        if !self.is_live() || self.rekeying_ike() {
            return Answer::refuse(kind, NotifyType::TemporaryFailure);
        }
        let old = match rekeys {
            None => None,
            Some(notify) => match self.rekeyable(notify) {
                Ok(id) => Some(id),
                Err(refusal) => return Answer::of(kind, vec![refusal]),
            },
        };
        match self.create_child(shared, now, old, view) {
            Ok(payloads) => Answer::of(kind, payloads),
            Err(Refused { notify, error }) => {
                tracing::info!(sa = %self.core.id(), %error, "CHILD SA refused");
                Answer::of(kind, vec![notify])
            }
        }
    }

    /// The CHILD SA that the peer wants to rekey, by its own inbound SPI, or the refusal (RFC 7296 section 2.25.1).
    fn rekeyable(&self, rekeys: &Notify) -> Result<ChildId, Payload> {
        let spi = rekeys.spi_u32().unwrap_or(0);
        match self.children.by_spi_out(spi) {
            // It may be the one whose answer to us is still on its way.
            None if self.creating_child() => Err(notify(NotifyType::TemporaryFailure, [])),
            // "If a peer receives a request to rekey a Child SA that does not exist, it SHOULD reply with CHILD_SA_NOT_FOUND."
            // (RFC 7296 section 2.25.1)
            None => Err(Payload::Notify(Notify::about_esp(NotifyType::ChildSaNotFound, spi))),
            // "If a peer receives a request to rekey a Child SA that it is currently trying to close, it SHOULD reply with
            // TEMPORARY_FAILURE." (RFC 7296 section 2.25.1)
            Some(c) if matches!(c.busy, Busy::Deleting | Busy::Replaced) => {
                Err(notify(NotifyType::TemporaryFailure, []))
            }
            // "In this case, a TEMPORARY_FAILURE notification MUST be sent in response to such a request." (RFC 9370 section 2.2.4): our own
            // rekeying of it is past CREATE_CHILD_SA.
            Some(c) if self.follows_up(c.id) => Err(notify(NotifyType::TemporaryFailure, [])),
            Some(c) => Ok(c.id),
        }
    }

    /// Whether additional key exchanges of our rekeying of `old` are under way.
    fn follows_up(&self, old: ChildId) -> bool {
        self.core.requests.flights().any(|flight| {
            matches!(&flight.exchange, Exchange::CreateChild(new) if new.is_following() && new.aim == Aim::InPlaceOf(old))
        })
    }

    /// Whether our own rekeying of the IKE SA is under way.
    pub(crate) fn rekeying_ike(&self) -> bool {
        self.core.requests.flights().any(|flight| matches!(flight.exchange, Exchange::RekeyIke(_)))
    }

    /// Whether an answer may come that makes a CHILD SA which the peer has already.
    pub(crate) fn creating_child(&self) -> bool {
        self.core.requests.flights().any(|flight| matches!(flight.exchange, Exchange::CreateChild(_)))
    }

    fn create_child(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        old: Option<ChildId>,
        view: View<'_>,
    ) -> Result<Vec<Payload>, Refused> {
        let syntax = |what| Refused {
            notify: notify(NotifyType::InvalidSyntax, []),
            error: Box::new(NegotiationError::Malformed { exchange: "CREATE_CHILD_SA", what }),
        };
        if self.core.link.conn.is_childless() {
            // RFC 7296 section 1.3: nothing is wrong with the request, but this IKE SA is for keys alone.
            return Err(Refused {
                notify: notify(NotifyType::NoAdditionalSas, []),
                error: Box::new(NegotiationError::Notified("keys travel here, and nothing else".to_owned())),
            });
        }
        let ni = view.nonce().ok_or_else(|| syntax("no nonce"))?;
        if old.is_none() && self.children.len() >= self.core.link.conn.answering.policy.child_sas {
            return Err(Refused {
                notify: notify(NotifyType::NoAdditionalSas, []),
                error: Box::new(NegotiationError::Notified("too many CHILD SAs".to_owned())),
            });
        }
        let conn = self.core.link.conn.clone();
        // Its outer address would stand for it, which may be that of others behind the same NAT.
        if !self.core.client
            && !conn.answering.policy.pool.is_empty()
            && self.core.assigned.addresses().is_empty()
        {
            let error = NegotiationError::Addresses("the peer did not ask for one (CFG_REQUEST)");
            return Err(Refused { notify: notify(NotifyType::FailedCpRequired, []), error: Box::new(error) });
        }
        let (dynamic, ends) = (self.dynamic(), self.ends());
        let scope = old.and_then(|id| self.children.get(id)).map(Child::scope);
        let zones = view.private(PayloadType::ZoneMap).next().filter(|_| self.mlike);
        let beside = |config| self.children.serve(config) || self.followups.await_child(config);
        let asked = Asked { view, zones, beside: Some(&beside) };
        let chosen = choose(shared, &conn, scope.as_ref(), asked, &dynamic, ends, KeyExchange::Configured)?;
        let spi_in = chosen.agreed.spi_in;
        if let Err(error) = self.check_hosts(shared, &chosen.agreed) {
            shared.free_esp_spi(spi_in);
            let notify = notify(NotifyType::TsUnacceptable, []);
            return Err(Refused { notify, error: Box::new(error) });
        }
        let (key, secret) = match agree(shared, chosen.agreed.suite.group, view) {
            Ok(agreed) => agreed,
            Err(what) => {
                shared.free_esp_spi(spi_in);
                return Err(syntax(what));
            }
        };
        let nr = shared.nonce();
        let additional = chosen.agreed.suite.additional;
        let waiting = Waiting { agreed: chosen.agreed, ni: ni.to_vec(), nr: nr.clone(), replaces: old };
        let mut payloads = vec![chosen.sa, Payload::Nonce(nr)];
        payloads.extend(key);
        payloads.extend(chosen.rest);
        match secret {
            Some(secret) if !additional.is_empty() => {
                if let Some(old) = old {
                    self.followups.drop_child(shared, old);
                    self.meets_ours(old, None, waiting.lowest());
                }
                let goal = Goal::Child(Box::new(waiting));
                payloads.push(self.followups.begin(shared, now, &additional, secret, goal));
            }
            secret => self.install_waiting(shared, now, waiting, secret.as_slice())?,
        }
        Ok(payloads)
    }

    fn install_waiting(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        waiting: Waiting,
        secrets: &[Secret],
    ) -> Result<(), Refused> {
        let lowest = waiting.lowest().to_vec();
        let Waiting { agreed, ni, nr, replaces } = waiting;
        let origin = Origin {
            receives_only: false,
            nonces: Nonces { i: &ni, r: &nr },
            secrets,
            we_began: false,
            replaces,
        };
        let child = self.install(shared, now, agreed, &origin).map_err(|error| Refused {
            notify: notify(NotifyType::NoAdditionalSas, []),
            error: Box::new(error),
        })?;
        if let Some(old) = replaces {
            self.note_peer_rekey(old, child, &lowest);
        }
        Ok(())
    }

    /// All of the peer's key exchanges are complete. Much may have happened since CREATE_CHILD_SA.
    pub(super) fn make_child(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        waiting: Waiting,
        secrets: &[Secret],
    ) -> Result<Vec<Payload>, Payload> {
        let old = waiting.replaces.map(|id| self.children.get(id).map(|c| c.busy));
        let gone = matches!(old, Some(None | Some(Busy::Deleting | Busy::Replaced)));
        let full = old.is_none() && self.children.len() >= self.core.link.conn.answering.policy.child_sas;
        if gone || full || self.rekeying_ike() {
            shared.free_esp_spi(waiting.agreed.spi_in);
            return Err(notify(NotifyType::TemporaryFailure, []));
        }
        if let Err(error) = self.check_hosts(shared, &waiting.agreed) {
            tracing::info!(sa = %self.core.id(), %error, "CHILD SA refused");
            shared.free_esp_spi(waiting.agreed.spi_in);
            return Err(notify(NotifyType::TsUnacceptable, []));
        }
        match self.install_waiting(shared, now, waiting, secrets) {
            Ok(()) => Ok(Vec::new()),
            Err(Refused { notify, error }) => {
                tracing::info!(sa = %self.core.id(), %error, "CHILD SA refused");
                Err(notify)
            }
        }
    }

    /// Whether a rekeying of `old` that is under way here meets the peer's, which has made `child` or will.
    fn meets_ours(&mut self, old: ChildId, child: Option<ChildId>, lowest: &[u8]) -> bool {
        let mut flights = self.core.requests.flights_mut();
        flights.any(|flight| match &mut flight.exchange {
            Exchange::CreateChild(new) => new.meet(old, child, lowest),
            _ => false,
        })
    }

    /// The peer has rekeyed `old` into `child`. If we are rekeying it too, the nonces will decide.
    fn note_peer_rekey(&mut self, old: ChildId, child: ChildId, lowest: &[u8]) {
        if !self.meets_ours(old, Some(child), lowest) {
            self.children.mark_replaced(old);
            self.tasks.drop_like(&CreateChild::rekey(old).into());
        }
    }
}

/// A CHILD SA of the peer's that is agreed on.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) agreed: Agreed,
    ni: Vec<u8>,
    nr: Vec<u8>,
    pub(super) replaces: Option<ChildId>,
}

impl Waiting {
    /// The lower nonce of its exchange.
    fn lowest(&self) -> &[u8] {
        self.ni.as_slice().min(&self.nr)
    }
}

pub(super) fn key_exchange(dh: &DhPrivate) -> Payload {
    Payload::Ke { group: dh.group().id(), data: dh.public_value().to_vec() }
}

/// The responder's half of a key exchange, if the chosen suite has one.
pub(crate) fn agree(
    shared: &mut Shared,
    group: Option<Group>,
    view: View<'_>,
) -> Result<(Option<Payload>, Option<Secret>), &'static str> {
    let Some(group) = group else { return Ok((None, None)) };
    let (ke_group, public) = view.ke().ok_or("no KE payload")?;
    if ke_group != group.id() {
        return Err("the KE payload is of another group than the one chosen");
    }
    let (ours, secret) =
        DhPrivate::respond(group, public, &mut shared.entropy).map_err(|_| "unusable public value")?;
    Ok((Some(Payload::Ke { group: group.id(), data: ours }), Some(secret)))
}
