//! CREATE_CHILD_SA for CHILD SAs (RFC 7296 sections 1.3.1, 1.3.3 and 2.8): additional ones and rekeying. Owns the request and what
//! becomes of its answer; the other end of the exchange is [`super::answer_child`]. It must never rekey the IKE SA (that is
//! [`super::rekey`]).
//!
//! When both ends rekey the same CHILD SA at once, four nonces take part. The new SA made by the exchange with the lowest
//! of them is redundant, and its creator deletes it; the creator of the surviving one deletes the old SA.

use dormouse_crypto::{DhPrivate, Secret};
use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::{Notify, NotifyType, Payload};

use super::answer_child::key_exchange;
use super::followup::FollowUp;
use super::groups::Groups;
use super::{Exchange, Reply, Request, Run};
use crate::child::offer::ChildOffer;
use crate::child::{Agreed, Aim, Busy};
use crate::error::NegotiationError;
use crate::event::Event;
use crate::keys::Nonces;
use crate::mlike;
use crate::payloads::View;
use crate::proposal::{self, KeyExchange};
use crate::sa::install::Origin;
use crate::sa::{Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;
use dormouse_keying::ChildId;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct CreateChild {
    pub(crate) aim: Aim,
    /// How often the peer had no time for it.
    refusals: u32,
    groups: Groups,
    sent: Option<Sent>,
}

/// What the answer needs.
#[derive(Debug)]
struct Sent {
    offer: ChildOffer,
    nonce: Vec<u8>,
    dh: Option<DhPrivate>,
    /// What the peer's rekeying of the same CHILD SA has made in the meantime.
    collision: Option<Collision>,
    /// CREATE_CHILD_SA is answered, and additional key exchanges go on.
    following: Option<Following>,
}

#[derive(Debug)]
struct Following {
    agreed: Agreed,
    nr: Vec<u8>,
    series: FollowUp,
}

/// What an answer has brought.
enum Progress {
    Complete(Agreed, Vec<u8>, Vec<Secret>),
    Follow(Following),
}

#[derive(Debug)]
struct Collision {
    /// The SA that the peer's exchange made; `None` while its additional key exchanges go on.
    child: Option<ChildId>,
    /// The lower nonce of that exchange.
    lowest: Vec<u8>,
}

impl CreateChild {
    fn new(aim: Aim, refusals: u32) -> Self {
        Self { aim, refusals, groups: Groups::default(), sent: None }
    }

    pub(crate) fn missing(config: usize) -> Self {
        Self::new(Aim::Missing(config), 0)
    }

    pub(crate) fn another(config: usize) -> Self {
        Self::new(Aim::Another(config), 0)
    }

    pub(crate) fn rekey(old: ChildId) -> Self {
        Self::new(Aim::InPlaceOf(old), 0)
    }

    const fn replaces(&self) -> Option<ChildId> {
        match self.aim {
            Aim::Missing(_) | Aim::Another(_) => None,
            Aim::InPlaceOf(old) => Some(old),
        }
    }

    /// Whether CREATE_CHILD_SA is answered already.
    pub(crate) fn is_following(&self) -> bool {
        self.sent.as_ref().is_some_and(|sent| sent.following.is_some())
    }

    pub(crate) fn abandon(&self, shared: &mut Shared) {
        if let Some(sent) = &self.sent {
            shared.free_esp_spi(sent.offer.spi_in);
        }
    }

    /// The peer has rekeyed `old` into `child`, or will when its key exchanges are complete. Whether that is what this exchange does too:
    /// then the nonces will decide.
    pub(super) fn meet(&mut self, old: ChildId, child: Option<ChildId>, lowest: &[u8]) -> bool {
        let Some(sent) =
            self.sent.as_mut().filter(|sent| self.aim == Aim::InPlaceOf(old) && sent.following.is_none())
        else {
            return false;
        };
        sent.collision = Some(Collision { child, lowest: lowest.to_vec() });
        true
    }

    /// "[...] the new Child SA SHOULD NOT have different Traffic Selectors and algorithms than the old one" (RFC 7296 section
    /// 2.8)
    /// "[...] the proposed Traffic Selectors SHOULD be either the same as, or a superset of, the Traffic Selectors used in the
    /// old Child SA" (RFC 7296 section 2.9.2)
    fn offer(&self, sa: &IkeSa, shared: &mut Shared) -> Option<(ChildOffer, Option<u32>)> {
        let conn = &sa.core.link.conn;
        match self.aim {
            Aim::Missing(config) if sa.children.serve(config) => None,
            Aim::Missing(config) | Aim::Another(config) => {
                let (dynamic, ends) = (sa.dynamic(), sa.ends());
                let offer = ChildOffer::new(shared, conn, config, &dynamic, ends, KeyExchange::Configured);
                Some((offer?, None))
            }
            Aim::InPlaceOf(old) => {
                let old = sa.children.get(old).filter(|c| c.busy == Busy::No)?;
                Some((ChildOffer::again(shared, conn, old)?, Some(old.spi_in)))
            }
        }
    }
}

impl Run for CreateChild {
    /// "The REKEY_SA notification MUST be included in a CREATE_CHILD_SA exchange if the purpose of the exchange is to replace
    /// an existing ESP or AH SA." (RFC 7296 section 1.3.3)
    fn build(&mut self, sa: &mut IkeSa, shared: &mut Shared, now: Instant) -> Option<Request> {
        if let Some(following) = self.sent.as_mut().and_then(|sent| sent.following.as_mut()) {
            return following.series.build(shared);
        }
        let (offer, old_spi) = self.offer(sa, shared)?;
        if offer.zones.as_ref().is_some_and(|zones| zones.required) && !sa.mlike {
            shared.free_esp_spi(offer.spi_in);
            sa.child_failed(shared, NegotiationError::Zones("the peer does not know them"));
            sa.ask_again(now, offer.config);
            return None;
        }
        let child = sa.core.link.conn.children.get(offer.config)?;
        let required = offer.zones.as_ref().is_some_and(|zones| zones.required);
        let fit = mlike::fitting(&child.proposals, required);
        let group = self.groups.choose(proposal::first_child_group(&fit));
        let dh = match group.map(|g| DhPrivate::generate(g, &mut shared.entropy)).transpose() {
            Ok(dh) => dh,
            Err(error) => {
                shared.free_esp_spi(offer.spi_in);
                sa.child_failed(shared, NegotiationError::Crypto(error.to_string()));
                return None;
            }
        };
        let nonce = shared.nonce();
        let mut between = vec![Payload::Nonce(nonce.clone())];
        between.extend(dh.as_ref().map(key_exchange));
        let mut payloads = offer.payloads(between);
        payloads.extend(offer.zones.as_ref().filter(|_| sa.mlike).map(|zones| zones.wire().payload()));
        if let Some(spi) = old_spi {
            payloads.insert(0, Payload::Notify(Notify::about_esp(NotifyType::RekeySa, spi)));
        }
        sa.children.set_rekeying(self.replaces());
        self.sent = Some(Sent { offer, nonce, dh, collision: None, following: None });
        let (kind, class) = match self.aim {
            Aim::Missing(_) | Aim::Another(_) => (Kind::CreateChild, Class::Urgent),
            Aim::InPlaceOf(_) => (Kind::RekeyChild, Class::Upkeep),
        };
        Some(Request { payloads, kind, class })
    }

    fn take(mut self, sa: &mut IkeSa, shared: &mut Shared, now: Instant, reply: &Reply<'_>) -> Fate {
        let (view, old) = (reply.view, self.replaces());
        let Some(mut sent) = self.sent.take() else { return Fate::Lives };
        if let Some(error) = view.error() {
            shared.free_esp_spi(sent.offer.spi_in);
            sa.children.end_rekeying(old);
            match (old, sent.collision.as_ref().and_then(|collision| collision.child)) {
                // The peer's own rekeying of the same SA has succeeded: nothing is left to do.
                (Some(old), Some(_)) => sa.children.mark_replaced(old),
                _ => self.refused(sa, shared, now, &sent, error, view),
            }
            return Fate::Lives;
        }
        let first = sent.following.is_none();
        let (lost, accepted) = match sent.answered(view) {
            Ok(Progress::Follow(following)) => {
                if !first || sent.may_follow(sa, shared, old, &following.nr) {
                    sent.following = Some(following);
                    self.sent = Some(sent);
                    sa.begin(shared, now, self.into());
                }
                return Fate::Lives;
            }
            Ok(Progress::Complete(agreed, nr, secrets)) => {
                let lost = first && sent.lost(&nr);
                let replaces = old.filter(|_| !lost);
                (lost, sent.accepted(sa, shared, now, replaces, lost, agreed, &nr, &secrets))
            }
            Err(error) => (false, Err(error)),
        };
        if !sa.creating_child() {
            sa.children.early_deletes.clear();
        }
        match (accepted, old) {
            (Ok(child), Some(old)) => {
                sent.settle(sa, shared, now, old, child, lost);
            }
            (Ok(_), None) => {}
            (Err(error), old) => {
                shared.free_esp_spi(sent.offer.spi_in);
                sa.children.end_rekeying(old);
                sa.child_failed(shared, error);
                sa.ask_again(now, sent.offer.config);
            }
        }
        Fate::Lives
    }

    /// The IKE SA is not rekeyed while it is under way.
    fn migrate(&self, begun: bool) -> Option<Exchange> {
        (!begun).then(|| Self::new(self.aim, self.refusals).into())
    }
}

impl CreateChild {
    fn refused(
        mut self,
        sa: &mut IkeSa,
        shared: &mut Shared,
        now: Instant,
        sent: &Sent,
        error: &Notify,
        view: View<'_>,
    ) {
        match error.kind {
            NotifyType::InvalidKePayload => {
                let Err(wanted) = self.groups.retry(error, &sent.offer.proposals) else {
                    return sa.begin(shared, now, self.into());
                };
                let offered = proposal::Mismatch::refused_by_peer(&sent.offer.proposals).join(", ");
                sa.child_failed(shared, NegotiationError::KeyExchangeGroup { wanted, offered });
                sa.ask_again(now, sent.offer.config);
            }
            NotifyType::TemporaryFailure | NotifyType::StateNotFound => {
                let refusals = self.refusals + 1;
                sa.retry(shared, now, Self::new(self.aim, refusals).into(), refusals);
            }
            NotifyType::ChildSaNotFound => {
                // "[...] SHOULD silently delete the Child SA (if it still exists) and send a request to create a new Child SA from
                // scratch" (RFC 7296 section 2.25)
                if let Some(old) = self.replaces() {
                    sa.remove_child(shared, old);
                    sa.enqueue(Self::missing(sent.offer.config), now);
                }
            }
            _ => {
                let failed = sent.offer.accept(view).err();
                let error = failed.unwrap_or_else(|| NegotiationError::Notified(error.kind.to_string()));
                sa.child_failed(shared, error);
                sa.ask_again(now, sent.offer.config);
            }
        }
    }
}

impl Sent {
    /// Whether the SA of this exchange, answered with the nonce `nr`, is redundant beside the one that the peer's exchange made.
    /// "[...] the SA created with the lowest of the four nonces used in the two exchanges SHOULD be closed by the endpoint that
    /// created it" (RFC 7296 section 2.8.1)
    fn lost(&self, nr: &[u8]) -> bool {
        let ours = self.nonce.as_slice().min(nr);
        self.collision.as_ref().is_some_and(|c| ours < c.lowest.as_slice())
    }

    /// Reads an answer: of CREATE_CHILD_SA, or of one of the exchanges after it.
    fn answered(&mut self, view: View<'_>) -> Result<Progress, NegotiationError> {
        if let Some(mut following) = self.following.take() {
            return Ok(match following.series.take(view).map_err(malformed)? {
                Some(secrets) => Progress::Complete(following.agreed, following.nr, secrets),
                None => Progress::Follow(following),
            });
        }
        let agreed = self.offer.accept(view)?;
        let nr = view.nonce().ok_or_else(|| malformed("no nonce"))?.to_vec();
        let secret = self.secret(&agreed, view)?;
        match secret {
            Some(secret) if !agreed.suite.additional.is_empty() => {
                let series = FollowUp::new(&agreed.suite.additional, secret, view).map_err(malformed)?;
                Ok(Progress::Follow(Following { agreed, nr, series }))
            }
            secret => Ok(Progress::Complete(agreed, nr, secret.into_iter().collect())),
        }
    }

    /// Whether the additional key exchanges are to take place: not when the peer's rekeying goes on instead.
    /// "[...] the initiator of this exchange just stops the rekeying process, and it MUST NOT initiate the IKE_FOLLOWUP_KE exchange" (RFC
    /// 9370 section 2.2.4)
    fn may_follow(&self, sa: &mut IkeSa, shared: &mut Shared, old: Option<ChildId>, nr: &[u8]) -> bool {
        let Some(old) = old else { return true };
        if self.lost(nr) {
            shared.free_esp_spi(self.offer.spi_in);
            match self.collision.as_ref().and_then(|collision| collision.child) {
                Some(_) => sa.children.mark_replaced(old),
                None => sa.children.end_rekeying(Some(old)),
            }
            return false;
        }
        sa.followups.drop_child(shared, old);
        true
    }

    /// Installs what the answer agrees to. A redundant SA replaces nothing: until the surviving one may send, the old one goes on,
    /// which both ends still have.
    #[expect(clippy::too_many_arguments, reason = "each is one part of what was agreed on")]
    fn accepted(
        &self,
        sa: &mut IkeSa,
        shared: &mut Shared,
        now: Instant,
        replaces: Option<ChildId>,
        receives_only: bool,
        agreed: Agreed,
        nr: &[u8],
        secrets: &[Secret],
    ) -> Result<ChildId, NegotiationError> {
        if sa.children.early_deletes.contains(&agreed.spi_out) {
            return Err(NegotiationError::Notified("a Delete of the same CHILD SA first".to_owned()));
        }
        let origin = Origin {
            receives_only,
            nonces: Nonces { i: &self.nonce, r: nr },
            secrets,
            we_began: true,
            replaces,
        };
        sa.install(shared, now, agreed, &origin)
    }

    fn secret(&self, agreed: &Agreed, view: View<'_>) -> Result<Option<Secret>, NegotiationError> {
        match (agreed.suite.group, &self.dh) {
            (None, _) => Ok(None),
            (Some(group), Some(dh)) if group == dh.group() => {
                let (ke_group, public) = view.ke().ok_or_else(|| malformed("no KE payload"))?;
                if ke_group != group.id() {
                    return Err(malformed("the KE payload is of another group than the one chosen"));
                }
                dh.agree(public).map(Some).map_err(|e| NegotiationError::Crypto(e.to_string()))
            }
            (Some(_), _) => Err(malformed("it chose a group that we sent no key for")),
        }
    }

    /// Our rekeying has succeeded: decide between its SA and the one that the peer's made, if any, and delete what is
    /// ours to delete.
    fn settle(
        &self,
        sa: &mut IkeSa,
        shared: &mut Shared,
        now: Instant,
        old: ChildId,
        child: ChildId,
        lost: bool,
    ) {
        if lost {
            tracing::debug!(sa = %sa.core.id(), %child, "redundant after simultaneous rekeying");
            sa.children.mark_replaced(old);
            return sa.delete_child(shared, now, child);
        }
        if let Some(child) = self.collision.as_ref().and_then(|collision| collision.child) {
            sa.children.mark_replaced(child); // the peer deletes it
        }
        sa.delete_child(shared, now, old);
    }
}

fn malformed(what: &'static str) -> NegotiationError {
    NegotiationError::Malformed { exchange: "CREATE_CHILD_SA", what }
}

impl IkeSa {
    /// A CHILD SA is missing that the connection wants: a client asks for it again, later each time.
    pub(super) fn ask_again(&mut self, now: Instant, config: usize) {
        if self.core.client && !self.children.serve(config) {
            let wait = self.children.set_back(config, now);
            self.tasks.add(CreateChild::missing(config), now + wait);
        }
    }

    /// "A failed attempt to create a Child SA SHOULD NOT tear down the IKE SA" (RFC 7296 section 1.3.1)
    fn child_failed(&self, shared: &mut Shared, error: NegotiationError) {
        tracing::debug!(sa = %self.core.id(), %error, "CHILD SA failed");
        shared.event(Event::ChildFailed { sa: self.core.id(), error });
    }
}
