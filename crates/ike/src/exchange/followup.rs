//! IKE_FOLLOWUP_KE (RFC 9370, section 2.2.4): the additional key exchanges of a CREATE_CHILD_SA, from both ends. Owns the secrets until
//! all are there; what is made from them is [`super::rekey`]'s and [`super::child`]'s. It must never make an SA before the last one.

use std::collections::VecDeque;

use core::time::Duration;

use dormouse_crypto::suites::Group;
use dormouse_crypto::{DhPrivate, Secret};
use dormouse_sansio::{Class, Deadline, Instant};
use dormouse_wire::ike::{NotifyType, Payload};

use super::Request;
use super::answer_child::{Waiting, agree, key_exchange};
use super::rekey::Heir;
use crate::payloads::{View, notify};
use crate::proposal::Additional;
use crate::sa::{Answer, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;
use dormouse_keying::ChildId;

/// How long the next key exchange of the peer's is waited for: four of its repetitions.
/// "In general, 5-20 seconds of waiting time should be appropriate in most cases." (RFC 9370 section 2.2.4)
const PATIENCE: Duration = Duration::from_secs(20);
/// Series that wait for the peer's next key exchange: one for each place in a small window. The oldest goes first.
const SERIES_MAX: usize = 4;

/// Our series: what the answers have brought so far, and what is under way.
#[derive(Debug)]
pub(super) struct FollowUp {
    due: VecDeque<Group>,
    /// SK(0), SK(1)...
    secrets: Vec<Secret>,
    key: Option<DhPrivate>,
    /// What the responder wants to see again.
    link: Vec<u8>,
}

impl FollowUp {
    /// After CREATE_CHILD_SA was answered, with the secret of its own key exchange.
    pub(super) fn new(additional: &Additional, first: Secret, view: View<'_>) -> Result<Self, &'static str> {
        let due = additional.iter().collect();
        let mut series = Self { due, secrets: vec![first], key: None, link: Vec::new() };
        series.relink(view)?;
        Ok(series)
    }

    /// "The initiator MUST send back this notification intact in the request message of the next IKE_FOLLOWUP_KE exchange." (RFC 9370
    /// section 2.2.4)
    fn relink(&mut self, view: View<'_>) -> Result<(), &'static str> {
        let link = view.notify(NotifyType::AdditionalKeyExchange).ok_or("no ADDITIONAL_KEY_EXCHANGE")?;
        self.link.clone_from(&link.data);
        Ok(())
    }

    /// The next key exchange. `None` if there is no key pair to be had.
    pub(super) fn build(&mut self, shared: &mut Shared) -> Option<Request> {
        let dh = DhPrivate::generate(*self.due.front()?, &mut shared.entropy).ok()?;
        let link = notify(NotifyType::AdditionalKeyExchange, self.link.clone());
        let payloads = vec![key_exchange(&dh), link];
        self.key = Some(dh);
        Some(Request { payloads, kind: Kind::FollowUp, class: Class::Upkeep })
    }

    /// Takes an answer. All secrets, if it was the last one.
    /// "[...] MUST match the n-th negotiated additional key exchange" (RFC 9370 section 2.2.4)
    pub(super) fn take(&mut self, view: View<'_>) -> Result<Option<Vec<Secret>>, &'static str> {
        let dh = self.key.take().ok_or("nothing was asked")?;
        let (group, public) = view.ke().ok_or("no KE payload")?;
        if group != dh.group().id() {
            return Err("the KE payload is of another method than the one agreed on");
        }
        self.secrets.push(dh.agree(public).map_err(|_| "unusable public value")?);
        self.due.pop_front();
        if self.due.is_empty() {
            return Ok(Some(core::mem::take(&mut self.secrets)));
        }
        self.relink(view)?;
        Ok(None)
    }
}

/// What is made when the peer's series is complete.
#[derive(Debug)]
pub(super) enum Goal {
    Ike(Box<Heir>),
    Child(Box<Waiting>),
}

impl Goal {
    fn abandon(&self, shared: &mut Shared) {
        match self {
            Self::Ike(heir) => {
                shared.by_spi.remove(&heir.spis.r);
            }
            Self::Child(child) => shared.free_esp_spi(child.agreed.spi_in),
        }
    }
}

#[derive(Debug)]
struct Series {
    link: u64,
    due: VecDeque<Group>,
    secrets: Vec<Secret>,
    goal: Goal,
    until: Instant,
}

/// The peer's series on an IKE SA. A successor inherits none: the peer begins again.
#[derive(Debug, Default)]
pub(crate) struct FollowUps {
    series: VecDeque<Series>,
    links: u64,
}

impl FollowUps {
    pub(crate) fn timers(&self) -> impl Iterator<Item = Deadline> {
        self.series.iter().map(|s| Deadline { at: s.until, slack: PATIENCE, why: "key exchange" })
    }

    /// Forgets those whose time is over.
    /// "The responder MUST handle this situation gracefully and delete the associated state if it does not receive the next expected
    /// IKE_FOLLOWUP_KE request after some reasonable period of time." (RFC 9370 section 2.2.4)
    pub(crate) fn expire(&mut self, shared: &mut Shared, now: Instant) {
        self.drop_if(shared, |series| series.until <= now);
    }

    /// Whether the peer is in the middle of rekeying the IKE SA.
    pub(crate) fn rekeys_ike(&self) -> bool {
        self.series.iter().any(|series| matches!(series.goal, Goal::Ike(_)))
    }

    /// Whether number `config` of the connection is agreed on, and made when the peer's key exchanges are complete.
    pub(crate) fn await_child(&self, config: usize) -> bool {
        self.series.iter().any(|s| matches!(&s.goal, Goal::Child(child) if child.agreed.config == config))
    }

    pub(crate) fn clear(&mut self, shared: &mut Shared) {
        self.drop_if(shared, |_| true);
    }

    /// Our own rekeying of the IKE SA has won: the peer does not go on with its own.
    pub(super) fn drop_ike(&mut self, shared: &mut Shared) {
        self.drop_if(shared, |series| matches!(series.goal, Goal::Ike(_)));
    }

    /// The same for a CHILD SA.
    pub(super) fn drop_child(&mut self, shared: &mut Shared, old: ChildId) {
        self.drop_if(
            shared,
            |series| matches!(&series.goal, Goal::Child(child) if child.replaces == Some(old)),
        );
    }

    fn drop_if(&mut self, shared: &mut Shared, over: impl Fn(&Series) -> bool) {
        self.series.retain(|series| {
            let goes = over(series);
            if goes {
                series.goal.abandon(shared);
            }
            !goes
        });
    }

    /// A series begins; returns the notification that links the next exchange to it.
    /// "The responder MUST include this notification in a CREATE_CHILD_SA or IKE_FOLLOWUP_KE response message in case the next
    /// IKE_FOLLOWUP_KE exchange is expected" (RFC 9370 section 2.2.4)
    pub(super) fn begin(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        additional: &Additional,
        first: Secret,
        goal: Goal,
    ) -> Payload {
        if self.series.len() >= SERIES_MAX
            && let Some(oldest) = self.series.pop_front()
        {
            oldest.goal.abandon(shared);
        }
        let due = additional.iter().collect();
        self.add(Series { link: 0, due, secrets: vec![first], goal, until: now + PATIENCE })
    }

    fn add(&mut self, mut series: Series) -> Payload {
        self.links += 1;
        series.link = self.links;
        self.series.push_back(series);
        notify(NotifyType::AdditionalKeyExchange, self.links.to_be_bytes())
    }

    fn take(&mut self, view: View<'_>) -> Option<Series> {
        let link = view.notify(NotifyType::AdditionalKeyExchange)?;
        let at = self.series.iter().position(|series| link.data == series.link.to_be_bytes())?;
        self.series.remove(at)
    }
}

impl IkeSa {
    /// "If the responder receives an IKE_FOLLOWUP_KE message for which it does not have a key exchange state, it MUST send back a new
    /// error type notification called [...]" (RFC 9370 section 2.2.4): STATE_NOT_FOUND.
    pub(crate) fn answer_followup(&mut self, shared: &mut Shared, now: Instant, view: View<'_>) -> Answer {
        self.followups.expire(shared, now);
        let Some(mut series) = self.followups.take(view) else {
            return Answer::refuse(Kind::FollowUp, NotifyType::StateNotFound);
        };
        if !self.is_live() {
            series.goal.abandon(shared);
            return Answer::refuse(Kind::FollowUp, NotifyType::TemporaryFailure);
        }
        let (key, secret) = match agree(shared, series.due.pop_front(), view) {
            Ok((Some(key), Some(secret))) => (key, secret),
            Ok(_) | Err(_) => {
                series.goal.abandon(shared);
                return Answer::refuse(Kind::FollowUp, NotifyType::InvalidSyntax);
            }
        };
        series.secrets.push(secret);
        if !series.due.is_empty() {
            series.until = now + PATIENCE;
            let link = self.followups.add(series);
            return Answer::of(Kind::FollowUp, vec![key, link]);
        }
        let Series { goal, secrets, .. } = series;
        let made = match goal {
            // A successor could not go on with what has begun since CREATE_CHILD_SA: the peer tries again.
            Goal::Ike(heir) if self.busy_with_children() => {
                Goal::Ike(heir).abandon(shared);
                Err(notify(NotifyType::TemporaryFailure, []))
            }
            Goal::Ike(heir) => self.make_heir(shared, now, &heir, &secrets, view),
            Goal::Child(child) => self.make_child(shared, now, *child, &secrets),
        };
        match made {
            Ok(more) => Answer::of(Kind::FollowUp, [vec![key], more].concat()),
            Err(refusal) => Answer::of(Kind::FollowUp, vec![refusal]),
        }
    }
}
