//! CREATE_CHILD_SA for CHILD SAs (RFC 7296 sections 1.3.1, 1.3.3, 2.8 and 2.25.1): additional ones and rekeying, from both
//! ends, with every collision. Owns these exchanges; must never rekey the IKE SA (that is [`super::rekey`]).
//!
//! When both ends rekey the same CHILD SA at once, four nonces take part. The new SA made by the exchange with the lowest
//! of them is redundant, and its creator deletes it; the creator of the surviving one deletes the old SA.

use dormouse_crypto::DhPrivate;
use dormouse_crypto::suites::Group;
use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::{Notify, NotifyType, Payload};

use crate::child::{Busy, Child, ChildOffer, Origin, Refused, choose};
use crate::error::NegotiationError;
use crate::event::Event;
use crate::keys::Nonces;
use crate::payloads::View;
use crate::proposal::{self, KeyExchange};
use crate::sa::{Answer, Exchange, Fate, IkeSa, Stage, Task};
use crate::shared::Shared;
use crate::stats::Kind;
use dormouse_keying::ChildId;

/// A CHILD SA that we asked for.
#[derive(Debug)]
pub(crate) struct NewChild {
    offer: ChildOffer,
    nonce: Vec<u8>,
    dh: Option<DhPrivate>,
    tried: Vec<Group>,
    replaces: Option<ChildId>,
    refusals: u32,
    /// What the peer's rekeying of the same CHILD SA made in the meantime.
    collision: Option<Collision>,
}

#[derive(Debug)]
struct Collision {
    /// The SA that the peer's exchange made.
    child: ChildId,
    /// The lower nonce of that exchange.
    lowest: Vec<u8>,
}

impl NewChild {
    pub(crate) fn spi_in(&self) -> u32 {
        self.offer.spi_in
    }

    /// Whether the SA of this exchange, answered with the nonce `nr`, is redundant beside the one that the peer's exchange made.
    fn lost(&self, nr: &[u8]) -> bool {
        let ours = self.nonce.as_slice().min(nr);
        self.collision.as_ref().is_some_and(|c| ours < c.lowest.as_slice())
    }

    fn kind(&self) -> Kind {
        if self.replaces.is_some() { Kind::RekeyChild } else { Kind::CreateChild }
    }
}

impl IkeSa {
    // ---- as the initiator of the exchange ----

    /// "[...] the new Child SA SHOULD NOT have different Traffic Selectors and algorithms than the old one" (RFC 7296 section
    /// 2.8)
    /// "[...] the proposed Traffic Selectors SHOULD be either the same as, or a superset of, the Traffic Selectors used in the
    /// old Child SA" (RFC 7296 section 2.9.2)
    pub(crate) fn begin_rekey_child(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        id: ChildId,
        refusals: u32,
    ) {
        let Some(child) = self.children.get(&id).filter(|c| c.busy == Busy::No) else { return };
        let config = child.config;
        self.begin_child(shared, now, config, Some(id), None, refusals);
    }

    /// Asks for a CHILD SA, in place of `replaces` if given; `again` carries on after INVALID_KE_PAYLOAD.
    /// "The REKEY_SA notification MUST be included in a CREATE_CHILD_SA exchange if the purpose of the exchange is to replace
    /// an existing ESP or AH SA." (RFC 7296 section 1.3.3)
    pub(crate) fn begin_child(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        config: usize,
        replaces: Option<ChildId>,
        again: Option<(Group, Vec<Group>)>,
        refusals: u32,
    ) {
        let conn = self.link.conn.clone();
        let old = replaces.and_then(|id| self.children.get(&id));
        let offer = match old {
            Some(old) => ChildOffer::again(shared, &conn, old),
            None => {
                let (dynamic, ends) = (self.dynamic(), self.ends());
                ChildOffer::new(shared, &conn, config, &dynamic, ends, KeyExchange::Configured)
            }
        };
        let (Some(offer), Some(child)) = (offer, conn.children.get(config)) else { return };
        let old_spi = old.map(|c| c.spi_in);
        let (first, mut tried) = again.map_or((None, Vec::new()), |(group, tried)| (Some(group), tried));
        let group = first.or_else(|| proposal::first_child_group(&child.proposals));
        let dh = match group.map(|g| DhPrivate::generate(g, &mut shared.entropy)).transpose() {
            Ok(dh) => dh,
            Err(error) => {
                shared.free_esp_spi(offer.spi_in);
                return self.child_failed(shared, NegotiationError::Crypto(error.to_string()));
            }
        };
        tried.extend(group);
        let nonce = shared.nonce();
        let mut between = vec![Payload::Nonce(nonce.clone())];
        between.extend(dh.as_ref().map(key_exchange));
        let mut payloads = offer.payloads(between);
        if let Some(spi) = old_spi {
            payloads.insert(0, Payload::Notify(Notify::about_esp(NotifyType::RekeySa, spi)));
        }
        if let Some(old) = replaces.and_then(|id| self.children.get_mut(&id)) {
            old.busy = Busy::Rekeying;
        }
        let new = NewChild { offer, nonce, dh, tried, replaces, refusals, collision: None };
        let class = if replaces.is_some() { Class::Upkeep } else { Class::Urgent };
        self.request(shared, now, &payloads, new.kind(), class, Exchange::Child(Box::new(new)));
    }

    /// "A failed attempt to create a Child SA SHOULD NOT tear down the IKE SA" (RFC 7296 section 1.3.1)
    fn child_failed(&mut self, shared: &mut Shared, error: NegotiationError) {
        tracing::warn!(sa = %self.link.id, %error, "CHILD SA failed");
        shared.event(Event::ChildFailed { sa: self.link.id, error });
    }

    pub(crate) fn child_answered(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        new: NewChild,
        view: View<'_>,
    ) -> Fate {
        if let Some(error) = view.error() {
            shared.free_esp_spi(new.spi_in());
            self.child_refused(shared, now, new, error, view);
            return Fate::Lives;
        }
        let accepted = self.child_accepted(shared, now, &new, view);
        if !self.creating_child() {
            self.early_deletes.clear();
        }
        match accepted {
            Ok((child, lost)) => self.settle_collision(shared, now, &new, child, lost),
            Err(error) => {
                shared.free_esp_spi(new.spi_in());
                self.unmark(new.replaces);
                self.child_failed(shared, error);
            }
        }
        Fate::Lives
    }

    fn child_accepted(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        new: &NewChild,
        view: View<'_>,
    ) -> Result<(ChildId, bool), NegotiationError> {
        let malformed = |what| NegotiationError::Malformed { exchange: "CREATE_CHILD_SA", what };
        let agreed = new.offer.accept(view)?;
        if let Some(at) = self.early_deletes.iter().position(|&spi| spi == agreed.spi_out) {
            self.early_deletes.remove(at);
            return Err(NegotiationError::Notified("a Delete of the same CHILD SA first".to_owned()));
        }
        let nonce = view.nonce().ok_or(malformed("no nonce"))?;
        let secret = match (agreed.suite.group, &new.dh) {
            (None, _) => None,
            (Some(group), Some(dh)) if group == dh.group() => {
                let (ke_group, public) = view.ke().ok_or(malformed("no KE payload"))?;
                if ke_group != group.id() {
                    return Err(malformed("the KE payload is of another group than the one chosen"));
                }
                Some(dh.agree(public).map_err(|e| NegotiationError::Crypto(e.to_string()))?)
            }
            (Some(_), _) => return Err(malformed("it chose a group that we sent no key for")),
        };
        // A redundant SA replaces nothing: until the surviving one may send, the old one goes on, which both ends still have.
        let lost = new.lost(nonce);
        let origin = Origin {
            receives_only: lost,
            nonces: Nonces { i: &new.nonce, r: nonce },
            shared_secret: secret.as_ref(),
            we_began: true,
            replaces: new.replaces.filter(|_| !lost),
        };
        Ok((self.install(shared, now, agreed, &origin)?, lost))
    }

    /// Our rekeying has succeeded: decide between its SA and the one that the peer's made, if any, and delete what is
    /// ours to delete.
    /// "[...] the SA created with the lowest of the four nonces used in the two exchanges SHOULD be closed by the endpoint that
    /// created it" (RFC 7296 section 2.8.1)
    fn settle_collision(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        new: &NewChild,
        child: ChildId,
        lost: bool,
    ) {
        let Some(old) = new.replaces else { return };
        if lost {
            tracing::debug!(sa = %self.link.id, %child, "redundant after simultaneous rekeying");
            self.mark_replaced(old);
            return self.delete_child(shared, now, child);
        }
        if let Some(redundant) = new.collision.as_ref().map(|c| c.child) {
            self.mark_replaced(redundant); // the peer deletes it
        }
        self.delete_child(shared, now, old);
    }

    fn mark_replaced(&mut self, id: ChildId) {
        if let Some(child) = self.children.get_mut(&id) {
            child.busy = Busy::Replaced;
            child.rekey_at = None;
        }
    }

    fn unmark(&mut self, id: Option<ChildId>) {
        if let Some(child) = id.and_then(|id| self.children.get_mut(&id)) {
            child.busy = Busy::No;
        }
    }

    fn child_refused(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        new: NewChild,
        error: &Notify,
        view: View<'_>,
    ) {
        self.unmark(new.replaces);
        if let (Some(old), Some(_)) = (new.replaces, &new.collision) {
            // The peer's own rekeying of the same SA has succeeded: nothing is left to do.
            return self.mark_replaced(old);
        }
        match error.kind {
            NotifyType::InvalidKePayload => {
                let wanted = <[u8; 2]>::try_from(error.data.as_slice()).map_or(0, u16::from_be_bytes);
                match proposal::retry_group(wanted, &new.offer.proposals, &new.tried) {
                    Some(group) => {
                        let again = Some((group, new.tried));
                        self.begin_child(shared, now, new.offer.config, new.replaces, again, new.refusals);
                    }
                    None => {
                        let offered = proposal::Mismatch::refused_by_peer(&new.offer.proposals).join(", ");
                        self.child_failed(shared, NegotiationError::KeyExchangeGroup { wanted, offered });
                    }
                }
            }
            NotifyType::TemporaryFailure => {
                let task = match new.replaces {
                    Some(id) => Task::RekeyChild(id),
                    None => Task::CreateChild(new.offer.config),
                };
                self.retry(shared, now, task, new.refusals);
            }
            NotifyType::ChildSaNotFound => {
                // "[...] SHOULD silently delete the Child SA (if it still exists) and send a request to create a new Child SA from
                // scratch" (RFC 7296 section 2.25)
                if let Some(old) = new.replaces {
                    self.remove_child(shared, old);
                    self.enqueue(Task::CreateChild(new.offer.config), now);
                }
            }
            _ => {
                let failed = new.offer.accept(view).err();
                let error = failed.unwrap_or_else(|| NegotiationError::Notified(error.kind.to_string()));
                self.child_failed(shared, error);
            }
        }
    }

    // ---- as the responder of the exchange ----

    /// "A TEMPORARY_FAILURE notification SHOULD be sent when a peer receives a request that cannot be completed due to a
    /// temporary condition" (RFC 7296 section 2.25)
    pub(crate) fn answer_create_child(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
    ) -> Answer {
        let for_ike = view
            .sa()
            .and_then(|p| p.first())
            .is_some_and(|p| p.protocol == dormouse_wire::ike::ProtocolId::Ike);
        if for_ike {
            return self.answer_rekey_ike(shared, now, view);
        }
        let rekeys = view.notify(NotifyType::RekeySa);
        let kind = if rekeys.is_some() { Kind::RekeyChild } else { Kind::CreateChild };
        // "If a peer receives a request to create or rekey a Child SA when it is currently rekeying the IKE SA, it SHOULD reply
        // with TEMPORARY_FAILURE." (RFC 7296 section 2.25.2)
        let rekeying_ike = self.out.flights().any(|f| matches!(f.exchange, Exchange::RekeyIke(_)));
        if self.stage != Stage::Live || rekeying_ike {
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
                tracing::info!(sa = %self.link.id, %error, "CHILD SA refused");
                Answer::of(kind, vec![notify])
            }
        }
    }

    /// The CHILD SA that the peer wants to rekey, by its own inbound SPI, or the refusal (RFC 7296 section 2.25.1).
    fn rekeyable(&self, notify: &Notify) -> Result<ChildId, Payload> {
        let spi = notify.spi_u32().unwrap_or(0);
        match self.children.values().find(|c| c.spi_out == spi) {
            // It may be the one whose answer to us is still on its way.
            None if self.creating_child() => {
                Err(Payload::Notify(Notify::new(NotifyType::TemporaryFailure, [])))
            }
            // "If a peer receives a request to rekey a Child SA that does not exist, it SHOULD reply with CHILD_SA_NOT_FOUND."
            // (RFC 7296 section 2.25.1)
            None => Err(Payload::Notify(Notify::about_esp(NotifyType::ChildSaNotFound, spi))),
            // "If a peer receives a request to rekey a Child SA that it is currently trying to close, it SHOULD reply with
            // TEMPORARY_FAILURE." (RFC 7296 section 2.25.1)
            Some(c) if matches!(c.busy, Busy::Deleting | Busy::Replaced) => {
                Err(Payload::Notify(Notify::new(NotifyType::TemporaryFailure, [])))
            }
            Some(c) => Ok(c.id),
        }
    }

    /// Whether an answer may come that makes a CHILD SA which the peer has already.
    pub(crate) fn creating_child(&self) -> bool {
        self.out.flights().any(|f| matches!(f.exchange, Exchange::Child(_)))
    }

    fn create_child(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        old: Option<ChildId>,
        view: View<'_>,
    ) -> Result<Vec<Payload>, Refused> {
        let syntax = |what| Refused {
            notify: crate::payloads::notify(NotifyType::InvalidSyntax, []),
            error: Box::new(NegotiationError::Malformed { exchange: "CREATE_CHILD_SA", what }),
        };
        let ni = view.nonce().ok_or_else(|| syntax("no nonce"))?;
        if old.is_none() && self.children.len() >= MAX_CHILDREN {
            return Err(Refused {
                notify: crate::payloads::notify(NotifyType::NoAdditionalSas, []),
                error: Box::new(NegotiationError::Notified("too many CHILD SAs".to_owned())),
            });
        }
        let (dynamic, ends) = (self.dynamic(), self.ends());
        let conn = self.link.conn.clone();
        let scope = old.and_then(|id| self.children.get(&id)).map(Child::scope);
        let chosen = choose(shared, &conn, scope.as_ref(), view, &dynamic, ends, KeyExchange::Configured)?;
        let spi_in = chosen.agreed.spi_in;
        let (key, secret) = match agree(shared, chosen.agreed.suite.group, view) {
            Ok(agreed) => agreed,
            Err(what) => {
                shared.free_esp_spi(spi_in);
                return Err(syntax(what));
            }
        };
        let nr = shared.nonce();
        let origin = Origin {
            receives_only: false,
            nonces: Nonces { i: ni, r: &nr },
            shared_secret: secret.as_ref(),
            we_began: false,
            replaces: old,
        };
        let child = self.install(shared, now, chosen.agreed, &origin).map_err(|error| Refused {
            notify: crate::payloads::notify(NotifyType::NoAdditionalSas, []),
            error: Box::new(error),
        })?;
        if let Some(old) = old {
            self.note_peer_rekey(old, child, ni.min(nr.as_slice()));
        }
        let mut payloads = vec![chosen.sa, Payload::Nonce(nr)];
        payloads.extend(key);
        payloads.extend(chosen.rest);
        Ok(payloads)
    }

    /// The peer has rekeyed `old` into `child`. If we are rekeying it too, the nonces will decide.
    fn note_peer_rekey(&mut self, old: ChildId, child: ChildId, lowest: &[u8]) {
        let ours = self.out.flights_mut().find_map(|f| match &mut f.exchange {
            Exchange::Child(new) if new.replaces == Some(old) => Some(new),
            _ => None,
        });
        match ours {
            Some(new) => new.collision = Some(Collision { child, lowest: lowest.to_vec() }),
            None => {
                self.mark_replaced(old);
                self.queue.retain(|p| p.task != Task::RekeyChild(old));
            }
        }
    }
}

/// Most CHILD SAs of one IKE SA.
const MAX_CHILDREN: usize = 64;

fn key_exchange(dh: &DhPrivate) -> Payload {
    Payload::Ke { group: dh.group().id(), data: dh.public_value().to_vec() }
}

/// The responder's half of a key exchange, if the chosen suite has one.
pub(crate) fn agree(
    shared: &mut Shared,
    group: Option<Group>,
    view: View<'_>,
) -> Result<(Option<Payload>, Option<dormouse_crypto::Secret>), &'static str> {
    let Some(group) = group else { return Ok((None, None)) };
    let (ke_group, public) = view.ke().ok_or("no KE payload")?;
    if ke_group != group.id() {
        return Err("the KE payload is of another group than the one chosen");
    }
    let dh = DhPrivate::generate(group, &mut shared.entropy).map_err(|_| "no private key")?;
    let secret = dh.agree(public).map_err(|_| "unusable public value")?;
    Ok((Some(key_exchange(&dh)), Some(secret)))
}
