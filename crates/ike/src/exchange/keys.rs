//! Keys of first zones between a gateway and a router, or between two routers (`docs/wire/mlike.md`): INFORMATIONAL exchanges on an IKE SA
//! without CHILD SAs, between ends that have both sent the vendor id. Owns these exchanges at both ends; who may have what is decided by
//! [`crate::mlike`].

use dormouse_crypto::cert::Identity;
use dormouse_keying::{ChildId, GrantId, HeaderOrder};
use dormouse_sansio::{Class, Instant};
use dormouse_wire::ike::mlike::{self as wire, Migrate, Reason, Refused, Why};
use dormouse_wire::ike::{Id, NotifyType, Payload};

use super::{Exchange, Reply, Request, Run};
use crate::action::Action;
use crate::auth;
use crate::event::Event;
use crate::mlike::{Given, id_of, name_of};
use crate::payloads::{View, notify};
use crate::sa::{Answer, Fate, IkeSa};
use crate::shared::Shared;
use crate::stats::Kind;

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Keys {
    /// Gateway: this router gets the keys of this CHILD SA.
    Give { child: ChildId, router: Identity },
    /// Gateway: this router forgets all that it is to forget.
    Revoke { router: Identity },
    /// The same, under way.
    Revoking { router: Identity, ids: Vec<GrantId> },
    /// Router: the gateway is asked, or told.
    Ask(wire::Request),
    /// Router: the one where the device was before is asked.
    Migrate(Migrate),
}

impl Run for Keys {
    fn build(&mut self, _: &mut IkeSa, shared: &mut Shared, now: Instant) -> Option<Request> {
        let (payloads, class) = match self {
            Self::Give { child, router } => {
                (shared.distribution.given(now, *child, router)?.payloads(), Class::Urgent)
            }
            Self::Revoke { router } | Self::Revoking { router, .. } => {
                let ids = shared.distribution.to_revoke(router);
                if ids.is_empty() {
                    return None;
                }
                let names: Vec<_> = ids.iter().copied().map(name_of).collect();
                *self = Self::Revoking { router: router.clone(), ids };
                (vec![notify(NotifyType::KeyRevoke, wire::emit_names(&names))], Class::Timely)
            }
            Self::Ask(asked) => (vec![notify(NotifyType::KeyRequest, asked.emit())], Class::Urgent),
            Self::Migrate(asked) => (vec![notify(NotifyType::KeyMigrate, asked.emit())], Class::Urgent),
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
                shared.distribution.answered(child, &router, takes, neighbours(view));
            }
            Self::Revoke { .. } => {}
            Self::Revoking { router, ids } => shared.distribution.revoked(&router, &ids),
            Self::Ask(asked) => {
                if view.has(NotifyType::KeyDistribute) {
                    let giver = sa.core.peer.clone();
                    sa.take_keys(shared, now, &giver, view);
                } else if refused.is_some_and(|refused| refused.why == Reason::Unknown) {
                    shared.forget_keys(&sa.core.peer, asked.spi);
                }
            }
            Self::Migrate(asked) => {
                let giver = view.id_r().and_then(|id| auth::identity(id).ok());
                let taken = giver.and_then(|giver| {
                    let id = sa.take_keys(shared, now, &giver, view)?;
                    Some((giver, id))
                });
                shared.actions.push_back(match taken {
                    Some((gateway, id)) => {
                        let asked = wire::Request { why: Why::Migrated, spi: id.from_device };
                        Action::Ask { gateway, asked }
                    }
                    // The gateway has them too.
                    None => Action::AskAt {
                        gateway: asked.gateway,
                        asked: wire::Request { why: Why::None, spi: asked.spi },
                    },
                });
            }
        }
        Fate::Lives
    }

    /// The successor repeats it: what was answered on the old SA changes nothing.
    fn migrate(&self, _: bool) -> Option<Exchange> {
        Some(self.clone().into())
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
    /// Whether keys may travel on it: both ends know them, and it is for nothing else. An identity that is admitted as a client is no
    /// router by that.
    pub(crate) fn carries_keys(&self) -> bool {
        self.mlike && self.core.link.conn.is_childless() && self.is_live()
    }

    /// The answer to a request that has to do with keys; `None` if it is another request.
    pub(super) fn answer_keys(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        view: View<'_>,
    ) -> Option<Answer> {
        if !self.carries_keys() {
            return None;
        }
        let payloads = if view.has(NotifyType::KeyDistribute) {
            self.answer_distribute(shared, now, view)
        } else if let Some(revoked) = view.notify(NotifyType::KeyRevoke) {
            for id in wire::parse_names(&revoked.data).unwrap_or_default().into_iter().map(id_of) {
                if shared.keyring.revoke(&self.core.peer, id) {
                    shared.event(Event::Header(HeaderOrder::Revoke(id)));
                }
            }
            Vec::new()
        } else if let Some(asked) = view.notify(NotifyType::KeyRequest) {
            match wire::Request::parse(&asked.data) {
                Ok(asked) => self.answer_request(shared, now, asked),
                Err(_) => refuse(Reason::Unreadable, 0),
            }
        } else {
            let asked = view.notify(NotifyType::KeyMigrate)?;
            match Migrate::parse(&asked.data) {
                Ok(asked) => self.answer_migrate(shared, now, asked),
                Err(_) => refuse(Reason::Unreadable, 0),
            }
        };
        Some(Answer::of(Kind::Keys, payloads))
    }

    fn answer_distribute(&mut self, shared: &mut Shared, now: Instant, view: View<'_>) -> Vec<Payload> {
        let giver = self.core.peer.clone();
        match self.try_keys(shared, now, &giver, view) {
            Ok(id) => {
                let neighbours = shared.config.router.iter().flat_map(|policy| &policy.neighbours);
                let ids: Vec<Id> = neighbours.map(auth::id_payload).collect();
                let mut list = vec![held(id)];
                if !ids.is_empty() {
                    list.push(notify(NotifyType::KeyNeighbours, wire::emit_neighbours(&ids)));
                }
                list
            }
            Err(Refused { why, spi }) => refuse(why, spi),
        }
    }

    /// A gateway's device is behind a router, which asks for its keys.
    fn answer_request(&mut self, shared: &mut Shared, now: Instant, asked: wire::Request) -> Vec<Payload> {
        let router = self.core.peer.clone();
        if !shared.distribution.may_ask(now, &router) {
            return vec![notify(NotifyType::TemporaryFailure, [])];
        }
        match shared.distribution.asked(now, &router, asked) {
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

    fn answer_migrate(&mut self, shared: &mut Shared, now: Instant, asked: Migrate) -> Vec<Payload> {
        let next = self.core.peer.clone();
        let policy = shared.config.router.clone();
        let moved = policy.ok_or(Reason::NotPermitted);
        match moved.and_then(|policy| shared.keyring.migrate(now, &policy, &next, asked)) {
            Ok((given, gateway)) => {
                shared.event(Event::Header(HeaderOrder::Revoke(given.grant.id())));
                let mut list = given.payloads();
                list.push(Payload::IdR(auth::id_payload(&gateway)));
                list
            }
            Err(why) => refuse(why, asked.spi),
        }
    }

    /// Router: takes the keys of an answer, if they are there and may be taken.
    fn take_keys(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        giver: &Identity,
        view: View<'_>,
    ) -> Option<GrantId> {
        let taken = self.try_keys(shared, now, giver, view);
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
        shared.keyring.take(now, &policy, giver, &given).map_err(refused)?;
        shared.event(Event::Header(HeaderOrder::Grant(Box::new(given.grant))));
        Ok(id)
    }
}

impl Shared {
    /// The gateway does not know an SA any more: its keys are of no use.
    fn forget_keys(&mut self, giver: &Identity, spi: u32) {
        if let Some(id) = self.keyring.named(giver, spi)
            && self.keyring.forget(id)
        {
            self.event(Event::Header(HeaderOrder::Revoke(id)));
        }
    }
}
