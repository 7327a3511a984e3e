//! CREATE_CHILD_SA that rekeys the IKE SA (RFC 7296 sections 1.3.2, 2.8.2, 2.18 and 2.25.2), from both ends, with every
//! collision. Owns the making of a successor; who takes over the name and the CHILD SAs is settled by
//! [`Action::Inherit`]. It must never rekey a CHILD SA.

use dormouse_crypto::{DhPrivate, Secret};
use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::{NotifyType, Payload, Proposal};

use super::answer_child::{agree, key_exchange};
use super::delete::DeleteIke;
use super::followup::{FollowUp, Goal};
use super::groups::Groups;
use super::{Exchange, Reply, Request, Run};
use crate::action::Action;
use crate::keys::{self, IkeKeys, Nonces, Spis};
use crate::link::{Channel, Link};
use crate::payloads::{View, notify};
use crate::proposal::{self, IkeSuite};
use crate::sa::mobility::Mobility;
use crate::sa::rekeying::Rivalry;
use crate::sa::{Answer, Birth, Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::{Kind, Stats};
use dormouse_keying::SaId;

/// Rekeys the IKE SA.
#[derive(Debug)]
pub(crate) struct RekeyIke {
    /// How often the peer had no time for it.
    refusals: u32,
    groups: Groups,
    sent: Option<Sent>,
}

/// What the answer needs.
#[derive(Debug)]
struct Sent {
    id: SaId,
    spi: u64,
    nonce: Vec<u8>,
    dh: DhPrivate,
    offered: Vec<Proposal>,
    /// CREATE_CHILD_SA is answered, and additional key exchanges go on.
    following: Option<Following>,
}

#[derive(Debug)]
struct Following {
    agreed: Agreed,
    series: FollowUp,
}

/// What CREATE_CHILD_SA agreed on.
#[derive(Debug)]
struct Agreed {
    suite: IkeSuite,
    spis: Spis,
    nr: Vec<u8>,
}

/// What an answer has brought.
enum Progress {
    Complete(Agreed, Vec<Secret>),
    Follow(Following),
}

/// What the peer's rekeying makes as soon as its key exchanges are complete.
#[derive(Debug)]
pub(super) struct Heir {
    id: SaId,
    suite: IkeSuite,
    pub(super) spis: Spis,
    ni: Vec<u8>,
    nr: Vec<u8>,
}

impl Heir {
    /// The lower nonce of its exchange.
    fn lowest(&self) -> &[u8] {
        self.ni.as_slice().min(&self.nr)
    }
}

impl RekeyIke {
    pub(crate) fn new() -> Self {
        Self { refusals: 0, groups: Groups::default(), sent: None }
    }

    /// Whether CREATE_CHILD_SA is answered already.
    pub(crate) fn is_following(&self) -> bool {
        self.sent.as_ref().is_some_and(|sent| sent.following.is_some())
    }

    pub(crate) fn abandon(&self, shared: &mut Shared) {
        if let Some(sent) = &self.sent {
            shared.by_spi.remove(&sent.spi);
        }
    }
}

impl Run for RekeyIke {
    /// "The KEi payload MUST be included." (RFC 7296 section 1.3.2)
    /// "[...] implementations MUST perform a new Diffie-Hellman exchange when rekeying the IKE SA" (RFC 7296 section 2.18)
    fn build(&mut self, sa: &mut IkeSa, shared: &mut Shared, _: Instant) -> Option<Request> {
        if let Some(following) = self.sent.as_mut().and_then(|sent| sent.following.as_mut()) {
            return following.series.build(shared);
        }
        let group = self.groups.choose(Some(sa.core.channel.suite.group))?;
        let dh = DhPrivate::generate(group, &mut shared.entropy).ok()?;
        let id = shared.new_sa();
        let spi = shared.new_spi(id);
        let nonce = shared.nonce();
        let offered = proposal::ike_offer(&sa.core.link.conn.ike_proposals, Some(spi));
        let payloads = vec![Payload::Sa(offered.clone()), Payload::Nonce(nonce.clone()), key_exchange(&dh)];
        self.sent = Some(Sent { id, spi, nonce, dh, offered, following: None });
        Some(Request { payloads, kind: Kind::RekeyIke, class: Class::Upkeep })
    }

    fn take(mut self, sa: &mut IkeSa, shared: &mut Shared, now: Instant, reply: &Reply<'_>) -> Fate {
        let Some(mut sent) = self.sent.take() else { return Fate::Lives };
        let view = reply.view;
        let Some(error) = view.error() else {
            let first = sent.following.is_none();
            let made = match sent.answered(view) {
                Ok(Progress::Follow(following)) => {
                    if !first || sent.may_follow(sa, shared, now, &following.agreed.nr) {
                        sent.following = Some(following);
                        self.sent = Some(sent);
                        sa.begin(shared, now, self.into());
                    }
                    return Fate::Lives;
                }
                Ok(Progress::Complete(agreed, secrets)) => {
                    let Agreed { suite, spis, nr } = agreed;
                    let nonces = Nonces { i: &sent.nonce, r: &nr };
                    sa.successor(shared, now, sent.id, suite, spis, nonces, &secrets, true)
                        .map(|successor| (successor, nr))
                }
                Err(what) => Err(what),
            };
            match made {
                Ok((successor, nr)) => sent.settle(sa, shared, now, successor, &nr),
                Err(what) => {
                    tracing::warn!(sa = %sa.core.id(), what, "unusable answer to the rekeying of the IKE SA");
                    shared.by_spi.remove(&sent.spi);
                    sa.rival_wins(shared, now);
                }
            }
            return Fate::Lives;
        };
        shared.by_spi.remove(&sent.spi);
        if sa.rival_wins(shared, now) {
            return Fate::Lives;
        }
        match error.kind {
            // "If the initiator continues to receive STATE_NOT_FOUND notifications after several retries, it MUST treat this situation as
            // a fatal error and delete the IKE SA by sending a DELETE payload." (RFC 9370 section 2.2.4)
            NotifyType::TemporaryFailure | NotifyType::StateNotFound => {
                let refusals = self.refusals + 1;
                sa.retry(shared, now, Self { refusals, ..Self::new() }.into(), refusals);
            }
            NotifyType::InvalidKePayload => {
                if self.groups.retry(error, &sent.offered).is_ok() {
                    sa.begin(shared, now, self.into());
                }
            }
            other => {
                tracing::warn!(sa = %sa.core.id(), error = %other, "the peer refuses to rekey the IKE SA");
            }
        }
        Fate::Lives
    }

    /// The successor is new.
    fn migrate(&self, _: bool) -> Option<Exchange> {
        None
    }
}

impl Sent {
    /// Reads an answer: of CREATE_CHILD_SA, or of one of the exchanges after it.
    fn answered(&mut self, view: View<'_>) -> Result<Progress, &'static str> {
        if let Some(mut following) = self.following.take() {
            return Ok(match following.series.take(view)? {
                Some(secrets) => Progress::Complete(following.agreed, secrets),
                None => Progress::Follow(following),
            });
        }
        let chosen = view.sa().ok_or("no SA payload")?;
        let (suite, spi_r) = proposal::verify_ike(chosen, &self.offered).map_err(|_| "unusable choice")?;
        let nr = view.nonce().ok_or("no nonce")?;
        let (group, public) = view.ke().ok_or("no KE payload")?;
        if suite.group != self.dh.group() || group != suite.group.id() {
            return Err("it chose a group that we sent no key for");
        }
        let secret = self.dh.agree(public).map_err(|_| "unusable public value")?;
        let agreed = Agreed { suite, spis: Spis { i: self.spi, r: spi_r }, nr: nr.to_vec() };
        if suite.additional.is_empty() {
            return Ok(Progress::Complete(agreed, vec![secret]));
        }
        let series = FollowUp::new(&suite.additional, secret, view)?;
        Ok(Progress::Follow(Following { agreed, series }))
    }

    /// Whether the additional key exchanges are to take place: not when the peer's rekeying goes on instead.
    /// "[...] the initiator of this exchange just stops the rekeying process, and it MUST NOT initiate the IKE_FOLLOWUP_KE exchange" (RFC
    /// 9370 section 2.2.4)
    fn may_follow(&self, sa: &mut IkeSa, shared: &mut Shared, now: Instant, nr: &[u8]) -> bool {
        let Rivalry { lost, heir } = sa.rekeying.decide(self.nonce.as_slice().min(nr));
        if sa.is_live() && !lost {
            shared.actions.extend(heir.map(Action::Abandon));
            sa.followups.drop_ike(shared);
            return true;
        }
        shared.by_spi.remove(&self.spi);
        if let Some(heir) = heir {
            shared.actions.push_back(Action::Inherit { from: sa.core.id(), to: heir });
            sa.supersede(now);
        }
        false
    }

    /// Our rekeying has succeeded: decide between its successor and the one that the peer's made, if any.
    ///
    /// RFC 7296 section 2.8.2: the SA made with the lowest of the four nonces is deleted by its creator, and the other
    /// inherits the CHILD SAs.
    fn settle(&self, sa: &mut IkeSa, shared: &mut Shared, now: Instant, successor: IkeSa, nr: &[u8]) {
        let ours = successor.core.id();
        sa.bear(shared, successor);
        if !sa.is_live() {
            // Another successor has inherited already, or the SA is being closed.
            return shared.actions.push_back(Action::Delete(ours));
        }
        let from = sa.core.id();
        let Rivalry { lost, heir } = sa.rekeying.decide(self.nonce.as_slice().min(nr));
        if lost {
            shared.actions.push_back(Action::Delete(ours));
            if let Some(heir) = heir {
                shared.actions.push_back(Action::Inherit { from, to: heir });
                sa.supersede(now);
            }
            return;
        }
        shared.actions.extend(heir.map(Action::Abandon));
        sa.followups.drop_ike(shared);
        shared.actions.push_back(Action::Inherit { from, to: ours });
        sa.supersede(now);
        // "the Delete payload to delete itself MUST be the last request sent over the old IKE SA" (RFC 7296 section 2.8)
        sa.begin(shared, now, DeleteIke(None).into());
    }
}

impl IkeSa {
    /// The new IKE SA, which knows the session but has taken over nothing yet.
    #[expect(clippy::too_many_arguments, reason = "each is one input of section 2.18")]
    fn successor(
        &self,
        shared: &mut Shared,
        now: Instant,
        id: SaId,
        suite: IkeSuite,
        spis: Spis,
        nonces: Nonces<'_>,
        secrets: &[Secret],
        we_began: bool,
    ) -> Result<IkeSa, &'static str> {
        let seed =
            keys::skeyseed_rekeyed(self.core.channel.suite.prf, &self.core.channel.sk_d, nonces, secrets);
        let keys = IkeKeys::derive(suite, &seed, nonces, spis).map_err(|_| "no keys")?;
        let link = Link {
            id,
            conn: self.core.link.conn.clone(),
            initiator: we_began,
            spis,
            path: self.core.link.path,
            fragmentation: self.core.link.fragmentation,
            redirects: self.core.link.redirects,
            stats: Stats::default(),
        };
        let (mobike, nat) = (self.mobility.mobike(), self.mobility.nat());
        let mobility = Mobility::new(&link.conn, mobike, nat, None, Vec::new());
        // "The new IKE SA MUST reset its message counters to 0." (RFC 7296 section 2.18)
        let birth = Birth {
            link,
            channel: Channel::new(keys, we_began),
            session: self.core.session.clone(),
            peer: self.core.peer.clone(),
            client: self.core.client,
            assigned: self.core.assigned.clone(),
            mobility,
            dormancy: self.dormancy.version(),
            mlike: self.mlike,
            owners: self.owners,
            descent: self.core.descent.as_ref().map(|descent| descent.next(&mut shared.entropy)),
            next_ids: (0, 0),
        };
        let mut sa = IkeSa::new(shared, now, birth);
        sa.wait_as_heir();
        Ok(sa)
    }

    /// The endpoint adopts it before anything else happens to it.
    fn bear(&mut self, shared: &mut Shared, successor: IkeSa) {
        self.rekeying.bear(successor);
        shared.actions.push_back(Action::Adopt(self.core.id()));
    }

    /// Our rekeying came to nothing. If the peer's succeeded meanwhile, its successor takes over.
    pub(crate) fn rival_wins(&mut self, shared: &mut Shared, now: Instant) -> bool {
        let Some(heir) = self.rekeying.take_heir() else { return false };
        shared.actions.push_back(Action::Inherit { from: self.core.id(), to: heir });
        self.supersede(now);
        true
    }

    /// "[...] it SHOULD return TEMPORARY_FAILURE because it is an IKE SA that it is currently trying to close" (RFC 7296
    /// section 2.8.2)
    pub(crate) fn answer_rekey_ike(&mut self, shared: &mut Shared, now: Instant, view: View<'_>) -> Answer {
        // "[...] it is currently creating, rekeying, or closing a Child SA of that IKE SA, it SHOULD reply with
        // TEMPORARY_FAILURE" (RFC 7296 section 2.25.2)
        // "In this case, a TEMPORARY_FAILURE notification MUST be sent in response to such a request." (RFC 9370 section 2.2.4): our own is
        // past CREATE_CHILD_SA.
        let following = |e: &Exchange| matches!(e, Exchange::RekeyIke(ours) if ours.is_following());
        let ahead = self.core.requests.flights().any(|flight| following(&flight.exchange));
        if !self.is_live() || self.busy_with_children() || ahead || self.rekeying.has_rival() {
            return Answer::refuse(Kind::RekeyIke, NotifyType::TemporaryFailure);
        }
        match self.rekey_as_responder(shared, now, view) {
            Ok(payloads) => Answer::of(Kind::RekeyIke, payloads),
            Err(refusal) => Answer::of(Kind::RekeyIke, vec![refusal]),
        }
    }

    /// Whether an exchange of ours is under way that a successor could not go on with.
    pub(super) fn busy_with_children(&self) -> bool {
        self.core.requests.flights().any(|flight| flight.exchange.is_about_children())
    }

    fn rekey_as_responder(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
    ) -> Result<Vec<Payload>, Payload> {
        let syntax = |_| notify(NotifyType::InvalidSyntax, []);
        let conn = self.core.link.conn.clone();
        let offered = view.sa().ok_or_else(|| syntax("no SA payload"))?;
        let ni = view.nonce().ok_or_else(|| syntax("no nonce"))?;
        let ke_group = view.ke().map(|(group, _)| group);
        let choice = proposal::select_ike(offered, &conn.ike_proposals, ke_group).map_err(|mismatch| {
            tracing::info!(sa = %self.core.id(), %mismatch, "rekeying of the IKE SA refused");
            notify(NotifyType::NoProposalChosen, [])
        })?;
        let group = choice.suite.group;
        if ke_group != Some(group.id()) {
            return Err(notify(NotifyType::InvalidKePayload, group.id().to_be_bytes()));
        }
        if choice.spi == 0 {
            return Err(syntax("no SPI"));
        }
        let (key, secret) = agree(shared, Some(group), view).map_err(syntax)?;
        let secret = secret.ok_or_else(|| syntax("no KE payload"))?;
        let id = shared.new_sa();
        let spi = shared.new_spi(id);
        let nr = shared.nonce();
        let suite = choice.suite;
        let heir = Heir { id, suite, spis: Spis { i: choice.spi, r: spi }, ni: ni.to_vec(), nr: nr.clone() };
        let mut payloads = vec![Payload::Sa(choice.answer(Some(spi))), Payload::Nonce(nr)];
        payloads.extend(key);
        self.followups.drop_ike(shared);
        if suite.additional.is_empty() {
            payloads.extend(self.make_heir(shared, now, &heir, &[secret], view)?);
            return Ok(payloads);
        }
        if self.rekeying_ike() {
            self.rekeying.meet(None, heir.lowest());
        }
        let goal = Goal::Ike(Box::new(heir));
        payloads.push(self.followups.begin(shared, now, &suite.additional, secret, goal));
        Ok(payloads)
    }

    /// All of the peer's key exchanges are complete: its rekeying has made the successor.
    pub(super) fn make_heir(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        heir: &Heir,
        secrets: &[Secret],
        view: View<'_>,
    ) -> Result<Vec<Payload>, Payload> {
        let nonces = Nonces { i: &heir.ni, r: &heir.nr };
        let made = self.successor(shared, now, heir.id, heir.suite, heir.spis, nonces, secrets, false);
        let mut successor = made.map_err(|_| {
            shared.by_spi.remove(&heir.spis.r);
            notify(NotifyType::InvalidSyntax, [])
        })?;
        // The client may ask here too (RFC 5723 section 4.1).
        let ticket = successor.answer_ticket_request(shared, now, view);
        self.bear(shared, successor);
        if self.rekeying_ike() {
            self.rekeying.meet(Some(heir.id), heir.lowest());
        } else {
            shared.actions.push_back(Action::Inherit { from: self.core.id(), to: heir.id });
            self.supersede(now);
        }
        Ok(ticket.into_iter().flatten().collect())
    }
}
