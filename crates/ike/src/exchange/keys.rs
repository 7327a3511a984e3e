//! Keys of first zones between a gateway and a router, or between two routers (`docs/wire/mlike.md`): INFORMATIONAL exchanges on an IKE SA
//! without CHILD SAs, between ends that have both sent the vendor id. Owns these exchanges at both ends; who may have what is decided by
//! [`crate::mlike`].

use core::time::Duration;

use dormouse_crypto::cert::Identity;
use dormouse_keying::{GrantId, HeaderOrder};
use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::mlike::{self as wire, Migrate, Reason, Refused, Why};
use dormouse_wire::ike::{Id, NotifyType, Payload};

use super::{Exchange, Reply, Request, Run};
use crate::action::Action;
use crate::auth;
use crate::event::Event;
use crate::mlike::{Given, Keys, id_of, name_of};
use crate::payloads::{View, notify};
use crate::sa::{Answer, Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;

/// A notification that the gateway refused for its rate is repeated after this time.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(1);

impl Run for Keys {
    fn build(&mut self, _: &mut IkeSa, shared: &mut Shared, now: Instant) -> Option<Request> {
        let (payloads, class) = match self {
            Self::Give { child, router } => {
                (shared.header.distribution.given(now, *child, router)?.payloads(), Class::Urgent)
            }
            Self::Revoke { router } | Self::Revoking { router, .. } => {
                let ids = shared.header.distribution.to_revoke(router);
                if ids.is_empty() {
                    return None;
                }
                let names: Vec<_> = ids.iter().copied().map(name_of).collect();
                *self = Self::Revoking { router: router.clone(), ids };
                (vec![notify(NotifyType::KeyRevoke, wire::emit_names(&names))], Class::Timely)
            }
            Self::Ask(asked) => (vec![notify(NotifyType::KeyRequest, asked.emit())], Class::Urgent),
            Self::Migrate { asked, .. } => {
                (vec![notify(NotifyType::KeyMigrate, asked.emit())], Class::Urgent)
            }
            Self::Gave { spi, to } => {
                let told = wire::emit_given(*spi, &auth::id_payload(to));
                (vec![notify(NotifyType::KeyRequest, told)], Class::Timely)
            }
        };
        Some(Request { payloads, kind: Kind::Keys, class })
    }

    fn take(self, sa: &mut IkeSa, shared: &mut Shared, now: Instant, reply: &Reply<'_>) -> Fate {
        let view = reply.view;
        let refused = view.notify(NotifyType::KeyRefused).and_then(|n| Refused::parse(&n.data).ok());
        if let Some(Refused { why, spi }) = refused {
            tracing::info!(sa = %sa.core.id(), peer = %sa.core.peer, %why, spi = format_args!("{spi:08x}"), "keys refused");
        }
        match self {
            Self::Give { child, router } => {
                let takes = view.has(NotifyType::KeyHeld);
                shared.header.distribution.answered(child, &router, takes, neighbours(view));
            }
            Self::Revoke { .. } => {}
            Self::Revoking { router, ids } => shared.header.distribution.revoked(&router, &ids),
            told @ (Self::Gave { .. } | Self::Ask(wire::Request { why: Why::Unusable, .. })) => {
                if view.has(NotifyType::TemporaryFailure) {
                    sa.enqueue(told, now + TOLD_AGAIN_AFTER);
                }
            }
            Self::Ask(asked) => {
                if view.has(NotifyType::KeyDistribute) {
                    let giver = sa.core.peer.clone();
                    sa.take_keys(shared, now, &giver, view, None);
                } else if refused.is_some_and(|refused| refused.why == Reason::Unknown) {
                    shared.forget_keys(&sa.core.peer, asked.spi);
                }
            }
            Self::Migrate { asked, registered } => {
                let giver = view.id_r().and_then(|id| auth::identity(id).ok());
                let taken = giver.and_then(|giver| {
                    let id = sa.take_keys(shared, now, &giver, view, Some(&asked))?;
                    Some((giver, id))
                });
                // The device is there still, or that is not known yet: the gateway, which cannot compare, would believe us. It may, of a device that is
                // registered here: that router does not tell the truth, or was deceived.
                let there = refused.is_some_and(|refused| refused.why == Reason::NotLeft) && !registered
                    || view.has(NotifyType::TemporaryFailure);
                // A packet of the other direction has asked for the same keys.
                let here = shared.header.keyring.holds(asked.gateway, asked.seen.spi());
                match taken {
                    Some((gateway, id)) => {
                        let asked = wire::Request { why: Why::Migrated, spi: id.from_device };
                        shared.actions.push_back(Action::Ask { gateway, asked });
                    }
                    None if there || here => {}
                    None => shared.actions.push_back(in_place_of(&asked)),
                }
            }
        }
        Fate::Lives
    }

    /// The successor repeats it: what was answered on the old SA changes nothing.
    fn migrate(&self, _: bool) -> Option<Exchange> {
        Some(self.clone().into())
    }
}

/// The gateway has them too.
fn in_place_of(asked: &Migrate) -> Action {
    Action::AskAt { gateway: asked.gateway, asked: wire::Request { why: Why::None, spi: asked.seen.spi() } }
}

impl Keys {
    /// The SA is over without an answer.
    pub(crate) fn abandon(&self, shared: &mut Shared) {
        if let Self::Migrate { asked, .. } = self {
            shared.actions.push_back(in_place_of(asked));
        }
    }
}

/// The neighbours that a router tells.
fn neighbours(view: View<'_>) -> Vec<Identity> {
    let told = view.notify(NotifyType::KeyNeighbours).and_then(|n| wire::parse_neighbours(&n.data).ok());
    told.unwrap_or_default().iter().filter_map(|id| auth::identity(id).ok()).collect()
}

fn refuse(why: Reason, spi: u32) -> Vec<Payload> {
    vec![notify(NotifyType::KeyRefused, Refused { why, spi }.emit())]
}

fn held(id: GrantId) -> Payload {
    notify(NotifyType::KeyHeld, wire::emit_names(&[name_of(id)]))
}

impl IkeSa {
    /// Whether keys may travel on it: both ends know them, it is for nothing else, and the operator has not taken back what its peer may. An
    /// identity that is admitted as a client is no router by that.
    pub(crate) fn carries_keys(&self, shared: &Shared) -> bool {
        self.mlike && self.core.link.conn.is_childless() && self.is_live() && !self.is_denied(shared)
    }

    /// Whether its peer is denied.
    pub(crate) fn is_denied(&self, shared: &Shared) -> bool {
        let denials = &shared.config.admission.denials;
        denials.iter().any(|denial| denial.means(&self.core.peer, self.core.session.credential.as_ref()))
    }

    /// The answer to a request that has to do with keys; `None` if it is another request.
    pub(super) fn answer_keys(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
    ) -> Option<Answer> {
        if !self.carries_keys(shared) {
            return None;
        }
        let payloads = if view.has(NotifyType::KeyDistribute) {
            self.answer_distribute(shared, now, view)
        } else if let Some(revoked) = view.notify(NotifyType::KeyRevoke) {
            for id in wire::parse_names(&revoked.data).unwrap_or_default().into_iter().map(id_of) {
                if shared.header.keyring.revoke(&self.core.peer, id) {
                    shared.event(Event::Header(HeaderOrder::Revoke(id)));
                }
            }
            Vec::new()
        } else if let Some(data) = view.notify(NotifyType::KeyRequest) {
            match wire::Request::parse(&data.data) {
                Ok(asked) => self.answer_request(shared, now, asked, &data.data),
                Err(_) => refuse(Reason::Unreadable, 0),
            }
        } else {
            let asked = view.notify(NotifyType::KeyMigrate)?;
            match Migrate::parse(&asked.data) {
                Ok(asked) => self.answer_migrate(shared, now, &asked),
                Err(_) => refuse(Reason::Unreadable, 0),
            }
        };
        Some(Answer::of(Kind::Keys, payloads))
    }

    fn answer_distribute(&mut self, shared: &mut Shared, now: Instant, view: View<'_>) -> Vec<Payload> {
        let giver = self.core.peer.clone();
        match self.try_keys(shared, now, &giver, view, None) {
            Ok(id) => {
                let neighbours = shared.config.router.iter().flat_map(|policy| &policy.neighbours);
                let ids: Vec<Id> = neighbours.map(auth::id_payload).collect();
                let mut list = vec![held(id)];
                if !ids.is_empty() {
                    list.push(notify(NotifyType::KeyNeighbours, wire::emit_neighbours(&ids)));
                }
                list
            }
            Err(Refused { why, spi }) => {
                if self.core.may_say(now) {
                    tracing::info!(sa = %self.core.id(), %giver, %why, "keys that a gateway distributes are not taken");
                }
                refuse(why, spi)
            }
        }
    }

    /// A gateway's device is behind a router, which asks for its keys, or tells what became of them.
    fn answer_request(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        asked: wire::Request,
        data: &[u8],
    ) -> Vec<Payload> {
        let router = self.core.peer.clone();
        if !shared.header.distribution.may_ask(now, &router) {
            return vec![notify(NotifyType::TemporaryFailure, [])];
        }
        let answer = match asked.why {
            Why::Given => match wire::parse_given(data).ok().and_then(|id| auth::identity(&id).ok()) {
                Some(to) => shared.header.distribution.gave(now, &router, asked.spi, &to).map(|()| None),
                None => Err(Reason::Unreadable),
            },
            _ => shared.header.distribution.asked(now, &router, asked),
        };
        match answer {
            Ok(Some(given)) => given.payloads(),
            Ok(None) => Vec::new(),
            Err(why) => {
                if self.core.may_say(now) {
                    tracing::info!(sa = %self.core.id(), %router, %why, "a router's request for keys refused");
                }
                refuse(why, asked.spi)
            }
        }
    }

    fn answer_migrate(&mut self, shared: &mut Shared, now: Instant, asked: &Migrate) -> Vec<Payload> {
        let next = self.core.peer.clone();
        if !shared.header.keyring.may_migrate(now, &next) {
            return vec![notify(NotifyType::TemporaryFailure, [])];
        }
        let (policy, opens) = (shared.config.router.clone(), shared.config.open_first_zone);
        let moved = policy.ok_or(Reason::NotPermitted);
        let moved = moved.and_then(|policy| {
            shared.header.keyring.migrate(now, &policy, &shared.header.links, opens, &next, asked)
        });
        match moved {
            Ok((given, gateway)) => {
                let id = given.grant.id();
                shared.event(Event::Header(HeaderOrder::Revoke(id)));
                let mut list = given.payloads();
                list.push(Payload::IdR(auth::id_payload(&gateway)));
                shared.actions.push_back(Action::Gave { gateway, spi: id.from_device, to: next });
                list
            }
            Err(why) => {
                if self.core.may_say(now) {
                    tracing::info!(sa = %self.core.id(), %next, %why, "a neighbour's request for keys refused");
                }
                refuse(why, asked.seen.spi())
            }
        }
    }

    /// Router: takes the keys of an answer, if they are there and may be taken. `asked`: of another router.
    fn take_keys(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        giver: &Identity,
        view: View<'_>,
        asked: Option<&Migrate>,
    ) -> Option<GrantId> {
        let taken = self.try_keys(shared, now, giver, view, asked);
        if let Err(Refused { why, .. }) = &taken {
            tracing::info!(sa = %self.core.id(), %giver, %why, "keys that were asked for are not taken");
        }
        taken.ok()
    }

    fn try_keys(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        giver: &Identity,
        view: View<'_>,
        asked: Option<&Migrate>,
    ) -> Result<GrantId, Refused> {
        let given = Given::read(view).map_err(|what| {
            if self.core.may_say(now) {
                tracing::warn!(sa = %self.core.id(), what, "keys that cannot be read");
            }
            Refused { why: Reason::Unreadable, spi: 0 }
        })?;
        let id = given.grant.id();
        let refused = |why| Refused { why, spi: id.to_device };
        let policy = shared.config.router.clone().ok_or(refused(Reason::NotPermitted))?;
        let (keyring, opens) = (&mut shared.header.keyring, shared.config.open_first_zone);
        let taken = match asked {
            Some(asked) => keyring.take_moved(now, &policy, opens, asked, giver, &given),
            None => keyring.take(now, &policy, giver, &given),
        };
        taken.map_err(refused)?;
        shared.event(Event::Header(HeaderOrder::Grant(Box::new(given.grant))));
        Ok(id)
    }
}

impl Shared {
    /// The gateway does not know an SA any more: its keys are of no use.
    fn forget_keys(&mut self, giver: &Identity, spi: u32) {
        if let Some(id) = self.header.keyring.named(giver, spi)
            && self.header.keyring.forget(id)
        {
            self.event(Event::Header(HeaderOrder::Revoke(id)));
        }
    }
}
